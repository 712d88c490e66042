//! Processes near a target that are not targets.

use super::*;
use watchdog_config::{Response, Responses, Size};
use watchdog_types::Stdin;

const SUDO: &[&str] = &["/usr/bin/sudo", "apt-get", "-y", "upgrade"];
const BASH: &[&str] = &["/bin/bash", "-c", "claude -p x; make"];

#[test]
fn nested_agent_survives_tool() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let bash = world.spawn(agent, BASH);
    let inner = world.spawn(bash, &["/home/u/.local/bin/claude", "-p", "x"]);
    let servers = server(&mut world, inner);
    servers.iter().for_each(|process| world.memory(*process, Bytes::from_mib(600)));
    world.wait(SECOND);
    for _ in 0..5 {
        world.host_is(memory(16_384, 300));
        world.wait(5 * SECOND);
    }
    assert!(world.operations.is_empty(), "{:#?}", receipts(&world));
}

#[test]
fn emergency_spares_adopted_subtree() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    world.feed(Input::Adopt(agent));
    let hog = tool(&mut world, agent, 9_000);
    world.host_is(memory(16_384, 300));
    world.wait(5 * SECOND);
    assert!(!all_dead(&world, &[hog]), "{:#?}", receipts(&world));

    let agent = world.claude();
    let wrapper = world.spawn(agent, BASH);
    world.feed(Input::Adopt(wrapper));
    let below = tool(&mut world, wrapper, 9_000);
    world.kill(wrapper);
    world.host_is(memory(16_384, 300));
    world.wait(5 * SECOND);
    assert!(!all_dead(&world, &[below]), "{:#?}", receipts(&world));
}

#[test]
fn overlimit_spares_nested_agents() {
    let mut world = acting(|config| {
        config.actions.responses = Responses([(FindingKind::Overlimit, Response::Terminate)].into());
        for profile in &mut config.profiles {
            profile.max_process_memory = Some(Size::Bytes(Bytes::from_mib(2_000)));
        }
    });
    let agent = world.claude();
    let own = tool(&mut world, agent, 100);
    let bash = world.spawn(agent, BASH);
    let inner = world.spawn(bash, &["/home/u/.local/bin/claude", "-p", "x"]);
    let theirs = tool(&mut world, inner, 100);
    world.memory(agent, Bytes::from_mib(3_000));
    world.wait(MINUTE);
    assert!(all_dead(&world, &[own]), "{:#?}", receipts(&world));
    assert!(!all_dead(&world, &[theirs]) && !all_dead(&world, &[inner]));
}

#[test]
fn process_of_new_user_is_exempt() {
    let (mut world, agent, chain) = reporting_with_server();
    let [npm, sh, node] = chain;
    world.stubborn.extend(chain);
    let session = SessionId(world.session(agent).id);
    ask(&mut world, USER, RequestedAction::End(session)).unwrap();
    // One executes a program of root's, and another forks one, while they have the time to end.
    world.belongs_to(node, ROOT);
    world.exec(node, SUDO[0], SUDO);
    let forked = world.fork(npm);
    world.belongs_to(forked, ROOT);
    world.exec(forked, SUDO[0], SUDO);
    world.wait(30 * SECOND);
    assert!(all_dead(&world, &[npm, sh, agent]));
    assert!(!all_dead(&world, &[node]) && !all_dead(&world, &[forked]), "{:#?}", receipts(&world));
    ask(&mut world, ROOT, RequestedAction::End(session)).unwrap();
    world.wait(30 * SECOND);
    assert!(all_dead(&world, &[node, forked]), "{:#?}", receipts(&world));
}

/// `bash -c "sudo apt-get upgrade"`, as far as sudo's child; 900 MiB.
fn upgrade(world: &mut World, agent: ProcessId) -> [ProcessId; 3] {
    let bash = world.spawn(agent, &["/bin/bash", "-c", "sudo apt-get -y upgrade"]);
    let sudo = world.spawn(bash, SUDO);
    // sudo(8) becomes root without executing anything.
    let apt = world.fork(sudo);
    world.belongs_to(apt, ROOT);
    world.exec(apt, "/usr/bin/apt-get", &["apt-get", "-y", "upgrade"]);
    world.memory(apt, Bytes::from_mib(900));
    [bash, sudo, apt]
}

#[test]
fn policy_spares_privileged_helpers() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let (upgrade, server) = (upgrade(&mut world, agent), server(&mut world, agent));
    world.kill(agent);
    world.wait(MINUTE);
    assert!(all_dead(&world, &server), "{:#?}", receipts(&world));
    assert_eq!(ask(&mut world, USER, RequestedAction::Reap(Vec::new())), Ok(()));
    world.wait(MINUTE);
    assert!(upgrade.iter().all(|process| !all_dead(&world, &[*process])), "{:#?}", receipts(&world));
    let unknown = &world.open(FindingKind::Orphan)[0].evidence["processes"];
    let apt = unknown.as_array().unwrap().iter().find(|process| process["pid"] == upgrade[2].pid.0).unwrap();
    assert_eq!(apt["because"], "runs as uid 0, and its session as uid 1000");
}

#[test]
fn emergency_spares_privileged_helpers() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let upgrade = upgrade(&mut world, agent);
    let hook = world.fork(upgrade[2]);
    world.memory(hook, Bytes::from_mib(2_000));
    world.host_is(memory(16_384, 500));
    world.wait(MINUTE);
    assert!(world.operations.is_empty(), "{:#?}", receipts(&world));
}

#[test]
fn root_session_covers_all_users() {
    let mut world = acting(|_| {});
    world.user = ROOT;
    let agent = world.claude();
    let server = server(&mut world, agent);
    let dropped = world.fork(server[2]);
    world.belongs_to(dropped, Uid(33));
    world.exec(dropped, "/usr/bin/node", &["node", "worker.js"]);
    world.kill(agent);
    world.wait(2 * MINUTE);
    assert!(all_dead(&world, &[server[0], server[1], server[2], dropped]), "{:#?}", receipts(&world));
}

#[test]
fn rate_limit_covers_forked_targets() {
    let mut world = acting(|config| config.actions.max_kills_per_minute = 1);
    let agent = world.claude();
    let (first, _second) = (tool(&mut world, agent, 3_000), world.claude());
    world.stubborn.insert(first);
    world.host_is(memory(16_384, 1_310));
    world.fork(first);
    world.wait(15 * SECOND);
    tool(&mut world, agent, 3_000);
    world.wait(5 * SECOND);
    world.host_is(memory(16_384, 1_310));
    world.wait(5 * SECOND);
    let ended: std::collections::BTreeSet<ProcessId> =
        world.operations.iter().map(|(_, _, process)| *process).collect();
    assert_eq!(ended.len(), 1, "{:?}", world.operations);
    let wrong = held_back(&world).into_iter().filter(|detail| detail.contains("nothing in the sessions"));
    assert_eq!(wrong.count(), 0);
}

#[test]
fn uncertain_agent_protects_helpers() {
    let mut world = acting(|_| {});
    let outer = world.claude();
    let own = server(&mut world, outer);
    let bash = world.spawn(outer, &["/bin/bash", "-c", "setsid claude -p x &"]);
    let inner = world.fork(bash);
    world.exec(inner, "/usr/bin/setsid", &["setsid", "claude", "-p", "x"]);
    world.exec(inner, "/home/u/.local/bin/claude", &["claude", "-p", "x"]);
    world.shows(inner, |seen| seen.tty = false);
    let theirs = server(&mut world, inner);
    world.kill(bash);
    world.kill(outer);
    world.wait(2 * MINUTE);
    assert!(all_dead(&world, &own), "{:#?}", receipts(&world));
    reap(&mut world, &[]).unwrap();
    world.host_is(memory(16_384, 500));
    world.wait(MINUTE);
    let left = theirs.iter().chain([&inner]);
    assert!(left.clone().all(|process| !all_dead(&world, &[*process])), "{:#?}", receipts(&world));
}

/// A server whose grace begins now.
fn assert_ends_after_a_grace(world: &mut World, server: &[ProcessId; 3]) {
    world.wait(25 * SECOND);
    assert!(!all_dead(world, &server[2..]), "{:#?}", receipts(world));
    world.wait(20 * SECOND);
    assert!(all_dead(world, server), "{:#?}", receipts(world));
}

#[test]
fn cleared_process_gets_new_grace() {
    let mut world = acting(|_| {});
    let (first, second) = (world.claude(), world.claude());
    let (gone, shared) = (server(&mut world, first), server(&mut world, first));
    world.shows(shared[2], |seen| seen.stdin = Stdin::Peer(vec![second]));
    world.kill(first);
    world.wait(2 * MINUTE);
    assert!(all_dead(&world, &gone) && !all_dead(&world, &[shared[0]]), "{:#?}", receipts(&world));
    world.kill(second);
    assert_ends_after_a_grace(&mut world, &shared);
}

#[test]
fn orphaned_agents_orphans_get_own_grace() {
    let mut world = acting(|_| {});
    let outer = world.claude();
    let bash = world.spawn(outer, &["/bin/bash"]);
    let inner = world.spawn(bash, &["/home/u/.local/bin/claude"]);
    let theirs = server(&mut world, inner);
    // It has a terminal in use.
    world.kill(outer);
    world.wait(2 * MINUTE);
    assert!(!all_dead(&world, &[theirs[2]]), "{:#?}", receipts(&world));
    world.kill(inner);
    assert_ends_after_a_grace(&mut world, &theirs);
}

#[test]
fn attended_agent_behind_wrapper_is_exempt() {
    for stdin in [Stdin::Terminal, Stdin::Closed] {
        let mut world = acting(|_| {});
        let wrapper = world.agent("/home/u/.volta/bin/claude");
        let agent = world.spawn(wrapper, &["/home/u/.volta/tools/image/claude", "claude"]);
        world.exec(agent, "/home/u/.local/bin/claude", &["claude"]);
        let watched = stdin == Stdin::Terminal;
        world.shows(agent, |seen| seen.stdin = stdin);
        let server = server(&mut world, agent);
        world.kill(wrapper);
        world.wait(2 * MINUTE);
        let all = [agent, server[0], server[1], server[2]];
        assert_eq!(all.iter().all(|process| !all_dead(&world, &[*process])), watched, "{:#?}", receipts(&world));
    }
}
