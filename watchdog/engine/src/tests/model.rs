//! Random forks, execs, exits, losses and scans against the simplest model there is: the set of the living.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::world::World;
use crate::input::Input;
use watchdog_config::{Config, Ungated};
use watchdog_types::ProcessId;

#[derive(Clone, Debug)]
enum Act {
    Agent,
    Fork(usize),
    Exec(usize, bool),
    Exit(usize),
    /// A fork or an exit that the ring had no room for.
    LostFork(usize),
    LostExit(usize),
    Scan,
    Wait(u64),
    Adopt(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let which = 0_usize..64;
    prop_oneof![
        1 => Just(Act::Agent),
        6 => which.clone().prop_map(Act::Fork),
        4 => (which.clone(), any::<bool>()).prop_map(|(which, agent)| Act::Exec(which, agent)),
        5 => which.clone().prop_map(Act::Exit),
        2 => which.clone().prop_map(Act::LostFork),
        2 => which.clone().prop_map(Act::LostExit),
        1 => Just(Act::Scan),
        2 => (0_u64..5_000).prop_map(Act::Wait),
        1 => which.prop_map(Act::Adopt),
    ]
}

/// What must hold after whatever happened.
fn holds(acts: Vec<Act>) -> Result<(), TestCaseError> {
    let mut config = Config::default();
    config.gate.ungated = Some(Ungated::Warn);
    let mut world = World::with(config);
    world.claude();
    for act in acts {
        let tracked: Vec<ProcessId> = world.living().filter(|id| world.tracked.contains_key(id)).collect();
        let pick = |which: usize| tracked.get(which % tracked.len().max(1)).copied();
        match act {
            Act::Agent => {
                world.claude();
            }
            Act::Fork(which) => {
                pick(which).map(|which| world.fork(which));
            }
            Act::Exec(which, agent) => {
                if let Some(which) = pick(which) {
                    let path = if agent { "/usr/local/bin/codex" } else { "/usr/bin/sleep" };
                    world.exec(which, path, &[path]);
                }
            }
            Act::Exit(which) => {
                if let Some(which) = pick(which) {
                    world.kill(which)
                }
            }
            Act::LostFork(which) => {
                pick(which).map(|which| world.unseen(which, "/usr/bin/sleep"));
            }
            Act::LostExit(which) => {
                if let Some(which) = pick(which) {
                    world.vanish(which)
                }
            }
            Act::Scan => {
                let scan = world.scan(true);
                world.feed(scan)
            }
            Act::Wait(millis) => world.wait(Duration::from_millis(millis)),
            Act::Adopt(which) => {
                if let Some(which) = pick(which) {
                    world.feed(Input::Adopt(which))
                }
            }
        }
    }
    world.wait(Duration::from_millis(250));
    world.feed(Input::Lost(1));
    world.feed(world.scan(true));
    world.wait(Duration::from_secs(1));

    let tree = world.tree();
    let table: BTreeSet<u32> = tree.sessions.iter().flat_map(|s| &s.processes).map(|p| p.pid).collect();
    let model: BTreeSet<u32> = world.living().filter(|id| world.tracked.contains_key(id)).map(|id| id.pid.0).collect();
    prop_assert_eq!(&table, &model);

    // Nothing that a finding names is dead, and every orphan is in exactly one group.
    let mut orphans = BTreeSet::new();
    for finding in world.open(watchdog_api::FindingKind::Orphan) {
        prop_assert!(table.contains(&finding.pid));
        for pid in super::shown_world::listed(&finding) {
            prop_assert!(table.contains(&pid));
            prop_assert!(orphans.insert(pid), "{} is in two groups", pid);
        }
    }
    for row in tree.sessions.iter().flat_map(|s| &s.processes) {
        let orphaned = row.state == watchdog_api::ProcessState::Orphaned;
        prop_assert_eq!(orphaned, orphans.contains(&row.pid), "{:?}", row);
    }

    // When all are dead, nothing is remembered of them but their sessions and closed findings.
    for process in world.living().collect::<Vec<_>>() {
        world.kill(process);
    }
    world.wait(Duration::from_secs(10));
    prop_assert_eq!(world.engine.table.iter().count(), 0);
    let open: Vec<_> = world.engine.findings.open().collect();
    prop_assert!(open.is_empty(), "{open:#?}");
    let left = format!("{:?}", world.engine.detectors);
    for nothing in [
        "fanout: Fanout { sessions: {}, counted: {}, ",
        "overlimit: Overlimit { passed: {}, open: {}, ",
        "orphans: Orphans { groups: {}, stale: false }, detached: Detached { losses: {}, groups: {}, ",
        "abandoned: Abandoned { agents: {} }",
    ] {
        prop_assert!(left.contains(nothing), "{}", left);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn reconciled_table_equals_living_processes(acts in prop::collection::vec(act(), 1..120)) {
        holds(acts)?;
    }
}

#[test]
fn dead_root_leaves_with_others_child() {
    use Act::{Agent, Exec, Exit, Fork, LostFork};
    let acts =
        [LostFork(0), Exec(20, true), LostFork(0), Fork(16), LostFork(0), Agent, Agent, Exec(52, true), Exit(49)];
    holds(acts.to_vec()).unwrap();
}

/// A scan that moves the agent of a session to another one leaves no ungated finding behind.
#[test]
fn moved_agent_closes_ungated_finding() {
    use Act::{Adopt, Agent, Exec, Exit, Fork, LostExit, LostFork};
    let first = [Agent, Agent, LostExit(0), Agent, Agent, Fork(62), LostExit(40), Agent, Exit(4), Exec(21, true)];
    let second = [LostFork(3), Exit(0), Agent, Exit(0), Fork(46), Exit(10), Agent, LostExit(14), Agent, Exit(4)];
    let third = [Exec(33, true), LostFork(0), Exit(45), LostFork(0), Exit(25), LostFork(0), Exit(12), Agent];
    holds([&first[..], &second[..], &third[..], &[Exec(46, true), Adopt(16)]].concat()).unwrap();
}
