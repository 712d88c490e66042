//! What happened The daemon was not running is known to the next engine.

use std::sync::Arc;
use std::time::Duration;

use super::world::{MINUTE, SECOND, USER, World};
use crate::Engine;
use crate::effect::{BpfCommand, Effect, JournalEvent, PersistCommand};
use crate::gate::{GateRecord, RestoredGate};
use crate::input::Input;
use crate::process::TrackedProcess;
use watchdog_api::{FindingKind, ProcessState, SessionState};
use watchdog_config::Config;
use watchdog_types::{Absence, BootTime, Bytes, Exit, ExitStatus, Fork, KernelEvent, Lineage, MissedExit, ProcessId};

/// What the first daemon wrote down.
fn stop(world: &mut World) -> Vec<GateRecord> {
    let records = world.effects.iter().filter_map(|effect| match effect {
        Effect::Persist(PersistCommand::Gate(record)) => Some(record.clone()),
        _ => None,
    });
    let records = records.collect();
    world.engine = Engine::new(Arc::new(Config::default()));
    world.effects.clear();
    world.journal.clear();
    records
}

/// Starts another daemon, up to its second scan. The kernel's map was kept when `tracked` says so.
fn start(world: &mut World, records: Vec<GateRecord>, absence: Absence, ring: Vec<KernelEvent>, tracked: bool) {
    world.now = BootTime(world.now.0 + 1_000_000);
    world.feed(Input::Restore(Box::new(RestoredGate { records, ..RestoredGate::default() })));
    world.feed(Input::Absence(Box::new(absence)));
    world.feed(world.scan(tracked));
    ring.into_iter().for_each(|event| world.feed(Input::Kernel(event)));
    world.now = BootTime(world.now.0 + 1_000_000);
    world.feed(world.scan(tracked));
}

/// A process dies unseen; the kernel keeps its exit.
fn dies_unseen(world: &mut World, process: ProcessId, status: ExitStatus) -> MissedExit {
    let lineage = world.tracked[&process];
    world.vanish(process);
    let exit = Exit { at: world.now, process, status: Some(status), peak: Some(Bytes::from_mib(9)) };
    MissedExit { exit, lineage, uid: USER, comm: "claude".to_owned() }
}

fn exits(world: &World) -> Vec<Option<ExitStatus>> {
    let exit = |happening: &JournalEvent| match happening {
        JournalEvent::Exit { status, .. } => Some(*status),
        _ => None,
    };
    world.journal.iter().filter_map(exit).collect()
}

#[test]
fn missed_agent_exit_makes_orphans() {
    let (mut world, agent) = World::with_claude();
    let helpers = [0, 1, 2].map(|_| world.spawn(agent, &["/usr/bin/helper"]));
    let records = stop(&mut world);
    let died_at = world.now;
    let missed = dies_unseen(&mut world, agent, ExitStatus::Signal(11));
    world.now = BootTime(world.now.0 + 60_000_000_000);
    start(&mut world, records, Absence { exits: vec![missed], ..Absence::default() }, Vec::new(), true);

    assert_eq!(exits(&world), [Some(ExitStatus::Signal(11))]);
    world.pass(SECOND);
    assert_eq!(world.open(FindingKind::Orphan).len(), 1, "the grace is over");
    assert!(helpers.iter().all(|helper| world.row(*helper).state == ProcessState::Orphaned));
    world.pass(2 * SECOND);
    let died = world.effects.iter().find_map(|effect| match effect {
        Effect::Died(death) if death.facts.pid == agent.pid.0 => Some(death),
        _ => None,
    });
    let died = died.expect("the death is reported");
    assert_eq!((died.at, died.facts.signal, died.facts.memory.peak_bytes), (died_at, Some(11), 9 << 20));
    assert!(
        died.facts.while_no_daemon_ran && died.facts.summary.contains("The daemon was not running"),
        "{}",
        died.facts.summary
    );
}

#[test]
fn missed_end_of_session_reported_once() {
    let (mut world, agent) = World::with_claude();
    let records = stop(&mut world);
    let missed = dies_unseen(&mut world, agent, ExitStatus::Code(3));
    let ring = vec![KernelEvent::Exit(missed.exit.clone())];
    start(&mut world, records, Absence { exits: vec![missed], ..Absence::default() }, ring, true);

    assert_eq!(exits(&world), [Some(ExitStatus::Code(3))]);
    assert_eq!(world.journal.iter().filter(|what| matches!(what, JournalEvent::SessionEnded)).count(), 1);
    let states: Vec<SessionState> = world.tree().sessions.iter().map(|session| session.state).collect();
    assert_eq!(states, [SessionState::Ended]);
    assert!(world.effects.contains(&Effect::Persist(PersistCommand::Gate(GateRecord::SessionOver(agent)))));
}

#[test]
fn forks_through_dead_parents_are_members() {
    let (mut world, agent) = World::with_claude();
    let records = stop(&mut world);
    let parent = world.unseen(agent, "/bin/sh");
    let child = world.unseen(parent, "/usr/bin/helper");
    let short = world.unseen(agent, "/bin/true");
    let missed = [parent, short].map(|process| dies_unseen(&mut world, process, ExitStatus::Code(0)));
    start(&mut world, records, Absence { exits: missed.to_vec(), ..Absence::default() }, Vec::new(), true);

    assert_eq!(world.row(child).parent_pid, parent.pid.0);
    assert_eq!(world.row(child).depth, 2);
    assert_eq!(exits(&world), [Some(ExitStatus::Code(0))], "of the parent only");
}

#[test]
fn descendants_wait_for_agents_exec() {
    let mut world = World::new();
    let records = stop(&mut world);
    let agent = world.claude();
    let child = world.spawn(agent, &["/usr/bin/helper"]);
    let events: Vec<KernelEvent> = world
        .inputs
        .iter()
        .rev()
        .filter_map(|(_, input)| match input {
            Input::Kernel(event @ (KernelEvent::Exec(_) | KernelEvent::Fork(Fork { .. }))) => Some(event.clone()),
            _ => None,
        })
        .take(3)
        .collect();
    let missed = dies_unseen(&mut world, agent, ExitStatus::Code(1));
    let mut ring: Vec<KernelEvent> = events.into_iter().rev().collect();
    ring.push(KernelEvent::Exit(missed.exit.clone()));
    world.engine = Engine::new(Arc::new(Config::default()));
    world.effects.clear();
    world.journal.clear();
    start(&mut world, records, Absence { exits: vec![missed], ..Absence::default() }, ring, true);

    assert!(!world.effects.contains(&Effect::Bpf(BpfCommand::Untrack(child))), "the ring explains it");
    assert_eq!(world.row(child).parent_pid, agent.pid.0);
    world.pass(MINUTE);
    assert_eq!(world.open(FindingKind::Orphan).len(), 1);
}

#[test]
fn written_places_replace_a_lost_map() {
    let (mut world, agent) = World::with_claude();
    let helper = world.spawn(agent, &["/usr/bin/helper"]);
    let places: Vec<(ProcessId, Lineage)> = world.engine.lineages();
    let records = stop(&mut world);
    world.vanish(agent);
    world.tracked.clear();
    start(&mut world, records, Absence { places, ..Absence::default() }, Vec::new(), false);

    assert_eq!(world.row(helper).parent_pid, agent.pid.0);
    world.pass(MINUTE + Duration::from_secs(1));
    assert_eq!(world.open(FindingKind::Orphan).len(), 1);
}

#[test]
fn repeated_exec_revives_no_dead() {
    let (mut world, agent) = World::with_claude();
    let helper = world.spawn(agent, &["/usr/bin/helper"]);
    let repeated = world.inputs.iter().rev().find_map(|(_, input)| match input {
        Input::Kernel(event @ KernelEvent::Exec(exec)) if exec.process == helper => Some(event.clone()),
        _ => None,
    });
    let repeated = repeated.expect("the helper's exec");
    world.end(helper, ExitStatus::Code(0));
    let before = exits(&world).len();

    world.feed(Input::Kernel(repeated));
    assert_eq!(exits(&world).len(), before);
    let (_, status) = world.engine.table.get(helper).and_then(TrackedProcess::died).expect("it stays dead");
    assert_eq!(status, Some(ExitStatus::Code(0)));
}
