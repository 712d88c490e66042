//! Random forks, execs, exits, losses and scans against the simplest model there is: the set of the living.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::world::World;
use crate::engine::id::ProcessId;
use crate::engine::input::Input;

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
    let who = 0_usize..64;
    prop_oneof![
        1 => Just(Act::Agent),
        6 => who.clone().prop_map(Act::Fork),
        4 => (who.clone(), any::<bool>()).prop_map(|(who, agent)| Act::Exec(who, agent)),
        5 => who.clone().prop_map(Act::Exit),
        2 => who.clone().prop_map(Act::LostFork),
        2 => who.clone().prop_map(Act::LostExit),
        1 => Just(Act::Scan),
        2 => (0_u64..5_000).prop_map(Act::Wait),
        1 => who.prop_map(Act::Adopt),
    ]
}

/// What must hold after whatever happened.
fn holds(acts: Vec<Act>) -> Result<(), TestCaseError> {
    let mut world = World::new();
    world.claude();
    for act in acts {
        let tracked: Vec<ProcessId> = world.living().filter(|id| world.tracked.contains_key(id)).collect();
        let pick = |who: usize| tracked.get(who % tracked.len().max(1)).copied();
        match act {
            Act::Agent => {
                world.claude();
            }
            Act::Fork(who) => {
                pick(who).map(|who| world.fork(who));
            }
            Act::Exec(who, agent) => {
                if let Some(who) = pick(who) {
                    let path = if agent { "/usr/local/bin/codex" } else { "/usr/bin/sleep" };
                    world.exec(who, path, &[path]);
                }
            }
            Act::Exit(who) => {
                if let Some(who) = pick(who) {
                    world.kill(who)
                }
            }
            Act::LostFork(who) => {
                pick(who).map(|who| world.unseen(who, "/usr/bin/sleep"));
            }
            Act::LostExit(who) => {
                if let Some(who) = pick(who) {
                    world.vanish(who)
                }
            }
            Act::Scan => {
                let scan = world.scan(true);
                world.tell(scan)
            }
            Act::Wait(millis) => world.wait(Duration::from_millis(millis)),
            Act::Adopt(who) => {
                if let Some(who) = pick(who) {
                    world.tell(Input::Adopt(who))
                }
            }
        }
    }
    world.wait(Duration::from_millis(250));
    world.tell(Input::Lost(1));
    world.tell(world.scan(true));
    world.wait(Duration::from_secs(1));

    let tree = world.tree();
    let table: BTreeSet<u32> = tree.sessions.iter().flat_map(|s| &s.processes).map(|p| p.pid).collect();
    let model: BTreeSet<u32> = world.living().filter(|id| world.tracked.contains_key(id)).map(|id| id.pid.0).collect();
    prop_assert_eq!(&table, &model);

    // Nothing that a finding names is dead, and every orphan is in exactly one group.
    let mut orphans = BTreeSet::new();
    for finding in world.open(crate::api::FindingKind::Orphan) {
        prop_assert!(table.contains(&finding.pid));
        for pid in super::world::listed(&finding) {
            prop_assert!(table.contains(&pid));
            prop_assert!(orphans.insert(pid), "{} is in two groups", pid);
        }
    }
    for row in tree.sessions.iter().flat_map(|s| &s.processes) {
        let orphaned = row.state == crate::api::ProcessState::Orphaned;
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
    let left = format!("{:?} {:?}", world.engine.fanout, world.engine.overlimit);
    prop_assert!(left.starts_with("Fanout { sessions: {}, counted: {}, "), "{}", left);
    prop_assert!(left.ends_with("Overlimit { passed: {}, open: {} }"), "{}", left);
    let waits = format!("{:?} {:?} {:?}", world.engine.orphans, world.engine.detached, world.engine.abandoned);
    let nothing = "Orphans { groups: {}, stale: false } Detached { losses: {} } Abandoned { agents: {} }";
    prop_assert_eq!(waits, nothing);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn after_a_reconcile_the_table_is_what_lives(acts in prop::collection::vec(act(), 1..120)) {
        holds(acts)?;
    }
}

#[test]
fn a_dead_root_leaves_with_a_child_that_turns_out_to_be_anothers() {
    use Act::{Agent, Exec, Exit, Fork, LostFork};
    let acts =
        [LostFork(0), Exec(20, true), LostFork(0), Fork(16), LostFork(0), Agent, Agent, Exec(52, true), Exit(49)];
    holds(acts.to_vec()).unwrap();
}
