//! Who stands near to a target and is none.

use super::*;
use crate::config::{Reaction, Reactions, Size};
use crate::engine::id::Pid;
use crate::engine::input::{Exec, KernelEvent};
use crate::engine::tests::world::image;

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
    let (mut world, chain) = reaped();
    let [npm, sh, node] = chain;
    // One executes a program of root's, and another forks one, while they have the time to end.
    let becomes_roots = |world: &mut World, process: ProcessId, parent: ProcessId| {
        let lineage = world.tracked[&process];
        let image = image("/usr/bin/sudo", &["sudo", "true"]);
        let exec = Exec { at: world.now, process, lineage, uid: ROOT, ppid: parent.pid, comm: "sudo".into(), image };
        world.tell(Input::Kernel(KernelEvent::Exec(exec)));
    };
    becomes_roots(&mut world, node, sh);
    let forked = world.fork(npm);
    becomes_roots(&mut world, forked, npm);
    world.wait(30 * SECOND);
    assert!(all_dead(&world, &[npm, sh]));
    assert!(!all_dead(&world, &[node]) && !all_dead(&world, &[forked]), "{:#?}", receipts(&world));
    assert_ne!(forked.pid, Pid(0));
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
    let wrong = |what: &&crate::engine::effect::Happening| match what {
        crate::engine::effect::Happening::ActionsHeldBack { detail } => detail.contains("nothing in the sessions"),
        _ => false,
    };
    assert_eq!(world.journal.iter().filter(wrong).count(), 0);
}
