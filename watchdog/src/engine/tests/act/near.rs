//! Who stands near to a target and is none.

use super::*;
use crate::config::{Reaction, Reactions, Size};
use crate::engine::input::Stdin;

const SUDO: &[&str] = &["/usr/bin/sudo", "apt-get", "-y", "upgrade"];
const BASH: &[&str] = &["/bin/bash", "-c", "claude -p x; make"];

#[test]
fn what_another_agent_runs_is_no_part_of_the_tool_that_started_it() {
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
    assert!(world.blows.is_empty(), "{:#?}", receipts(&world));
}

#[test]
fn what_was_forked_below_an_adopted_process_is_kept_in_an_emergency_too() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    world.tell(Input::Adopt(agent));
    let hog = tool(&mut world, agent, 9_000);
    world.host_is(memory(16_384, 300));
    world.wait(5 * SECOND);
    assert!(!all_dead(&world, &[hog]), "{:#?}", receipts(&world));

    let agent = world.claude();
    let wrapper = world.spawn(agent, BASH);
    world.tell(Input::Adopt(wrapper));
    let below = tool(&mut world, wrapper, 9_000);
    world.kill(wrapper);
    world.host_is(memory(16_384, 300));
    world.wait(5 * SECOND);
    assert!(!all_dead(&world, &[below]), "{:#?}", receipts(&world));
}

#[test]
fn the_agent_that_is_over_its_limit_loses_its_tools_and_an_agent_below_them_nothing() {
    let mut world = acting(|config| {
        config.actions.about = Reactions([(FindingKind::Overlimit, Reaction::Terminate)].into());
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
fn what_became_another_users_is_not_ones_own_to_end() {
    let mut world = reporting();
    let agent = world.claude();
    let chain = server(&mut world, agent);
    let [npm, sh, node] = chain;
    world.stubborn.extend(chain);
    let session = SessionId(world.session(agent).id);
    ask(&mut world, USER, What::End(session)).unwrap();
    // One executes a program of root's, and another forks one, while they have the time to end.
    world.belongs_to(node, ROOT);
    world.exec(node, SUDO[0], SUDO);
    let forked = world.fork(npm);
    world.belongs_to(forked, ROOT);
    world.exec(forked, SUDO[0], SUDO);
    world.wait(30 * SECOND);
    assert!(all_dead(&world, &[npm, sh, agent]));
    assert!(!all_dead(&world, &[node]) && !all_dead(&world, &[forked]), "{:#?}", receipts(&world));
    ask(&mut world, ROOT, What::End(session)).unwrap();
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
fn what_runs_with_more_rights_than_its_session_is_neither_policys_to_end_nor_what_waits_for_it() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let (upgrade, server) = (upgrade(&mut world, agent), server(&mut world, agent));
    world.kill(agent);
    world.wait(MINUTE);
    assert!(all_dead(&world, &server), "{:#?}", receipts(&world));
    assert_eq!(ask(&mut world, USER, What::Reap(Vec::new())), Ok(()));
    world.wait(MINUTE);
    assert!(upgrade.iter().all(|process| !all_dead(&world, &[*process])), "{:#?}", receipts(&world));
    let unknown = &world.open(FindingKind::Orphan)[0].evidence["processes"];
    let apt = unknown.as_array().unwrap().iter().find(|process| process["pid"] == upgrade[2].pid.0).unwrap();
    assert_eq!(apt["because"], "runs as uid 0, and its session as uid 1000");
}

#[test]
fn nor_an_emergencys_though_it_be_the_largest_and_only_forked() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let upgrade = upgrade(&mut world, agent);
    let hook = world.fork(upgrade[2]);
    world.memory(hook, Bytes::from_mib(2_000));
    world.host_is(memory(16_384, 500));
    world.wait(MINUTE);
    assert!(world.blows.is_empty(), "{:#?}", receipts(&world));
}

#[test]
fn roots_agents_leave_nothing_that_root_could_not_end() {
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
fn the_bound_holds_for_what_targets_fork_too_and_holding_back_is_not_having_nothing() {
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
    let ended: std::collections::BTreeSet<ProcessId> = world.blows.iter().map(|(_, _, process)| *process).collect();
    assert_eq!(ended.len(), 1, "{:?}", world.blows);
    let wrong = held_back(&world).into_iter().filter(|detail| detail.contains("nothing in the sessions"));
    assert_eq!(wrong.count(), 0);
}

#[test]
fn the_helpers_of_an_agent_in_doubt_are_left_to_it() {
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
fn who_loses_what_spoke_for_it_has_a_grace_from_then_on() {
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
fn what_an_agent_leaves_that_was_left_behind_itself_has_its_own_grace() {
    let mut world = acting(|_| {});
    let outer = world.claude();
    let bash = world.spawn(outer, &["/bin/bash"]);
    let inner = world.spawn(bash, &["/home/u/.local/bin/claude"]);
    let theirs = server(&mut world, inner);
    // Somebody sits in front of it.
    world.kill(outer);
    world.wait(2 * MINUTE);
    assert!(!all_dead(&world, &[theirs[2]]), "{:#?}", receipts(&world));
    world.kill(inner);
    assert_ends_after_a_grace(&mut world, &theirs);
}

#[test]
fn an_agent_behind_a_wrapper_that_died_is_left_to_who_sits_in_front_of_it() {
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
