use rstest::rstest;

use super::*;
use crate::Engine;
use crate::actions::{ActionLogRecord, OperationOutcome, Permissions};
use crate::effect::{ActionCommand, Effect};
use crate::gate::{GateRecord, RestoredGate};
use crate::process::Verdict;
use watchdog_types::{Absence, BootTime, Exit, ExitStatus, MissedExit};

/// What the hand that acts has written down by now, before it carried out the last of it.
fn written(world: &World) -> Vec<ActionLogRecord> {
    let mut records = Vec::new();
    for effect in &world.effects {
        match effect {
            Effect::Act(ActionCommand::Begin(action)) => records.push(ActionLogRecord::Begun(action.clone())),
            Effect::Act(ActionCommand::Execute(batch)) => records.extend(batch.targets.iter().flat_map(|process| {
                let (action, operation, process, at) = (batch.action, batch.operation, *process, world.now);
                [
                    ActionLogRecord::Sending { action, operation, process, at },
                    ActionLogRecord::Sent { action, operation, process, outcome: OperationOutcome::Sent },
                ]
            })),
            Effect::Act(ActionCommand::Finish(action)) => records.push(ActionLogRecord::Finished(*action)),
            _ => {}
        }
    }
    records
}

/// The daemon is killed, and another one knows what was written.
fn restart(world: &mut World, records: Vec<ActionLogRecord>, enforce: bool) {
    restart_seeing(world, records, enforce, true);
}

/// The same; `tracked`: the kernel still knows the session of each process.
fn restart_seeing(world: &mut World, records: Vec<ActionLogRecord>, enforce: bool, tracked: bool) {
    let known = world.engine.gate_records();
    restart_knowing(world, known, records, enforce, tracked);
}

/// The same; what the daemon knew itself.
fn restart_knowing(
    world: &mut World,
    known: Vec<GateRecord>,
    records: Vec<ActionLogRecord>,
    enforce: bool,
    tracked: bool,
) {
    restart_after(world, known, Absence::default(), records, enforce, tracked);
}

/// The same; what the kernel kept meanwhile.
fn restart_after(
    world: &mut World,
    known: Vec<GateRecord>,
    absence: Absence,
    records: Vec<ActionLogRecord>,
    enforce: bool,
    tracked: bool,
) {
    let actions = ActionsConfig { enforce, ..ActionsConfig::default() };
    world.engine = Engine::new(std::sync::Arc::new(Config { actions, ..Config::default() }));
    world.operations.clear();
    world.effects.clear();
    world.feed(Input::Restore(Box::new(RestoredGate { records: known, ..RestoredGate::default() })));
    world.feed(Input::Absence(Box::new(absence)));
    world.feed(Input::ResumeActions(records));
    scan_twice(world, tracked);
}

fn scan_twice(world: &mut World, tracked: bool) {
    for _ in 0..2 {
        world.now = BootTime(world.now.0 + 1_000_000);
        let scan = world.scan(tracked);
        world.feed(scan);
    }
}

#[test]
fn killed_daemon_resumes_without_resending() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    world.wait(3 * SECOND);
    restart(&mut world, records, false);
    assert!(world.operations.is_empty(), "they already received SIGTERM: {:?}", world.operations);
    world.wait(5 * SECOND);
    assert!(world.operations.is_empty(), "their grace continues");
    world.wait(4 * SECOND);
    let kills: Vec<Operation> = world.operations.iter().map(|(_, operation, _)| *operation).collect();
    assert_eq!(kills, [Operation::Kill; 3]);
    assert!(all_dead(&world, &chain));
    let receipt = receipt(&world);
    assert_eq!((receipt.id, receipt.state), (1, ActionState::Done));
    assert_eq!(sent(&receipt, chain[0]), [("TERM", "sent"), ("KILL", "sent")]);
}

#[test]
fn action_resumes_without_kernel_lineage() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    restart_seeing(&mut world, records, false, false);
    world.wait(30 * SECOND);
    let kills: Vec<Operation> = world.operations.iter().map(|(_, operation, _)| *operation).collect();
    assert_eq!(kills, [Operation::Kill; 3], "{:#?}", receipts(&world));
    assert!(all_dead(&world, &chain));
    assert_eq!(receipt(&world).state, ActionState::Done);
}

/// The death of the agent is in the ring still, or was kept by the kernel: at the first scan it counts as alive.
#[test]
fn action_resumes_although_death_is_unread() {
    let mut world = reporting();
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.stubborn.extend(chain);
    let lineage = world.tracked[&agent];
    world.kill(agent);
    let exit = Exit { at: world.now, process: agent, status: Some(ExitStatus::Signal(9)), peak: None };
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();
    let begun: Vec<ActionLogRecord> = written(&world).into_iter().take(1).collect();
    let known = world.engine.gate_records();
    let missed = MissedExit { exit, lineage, uid: USER, comm: "claude".to_owned() };
    restart_after(&mut world, known, Absence { exits: vec![missed], ..Absence::default() }, begun, false, true);
    world.wait(30 * SECOND);
    assert!(all_dead(&world, &chain), "{:#?}", receipts(&world));
    assert_eq!(receipt(&world).state, ActionState::Done);
}

#[test]
fn target_without_session_is_exempt() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    restart_knowing(&mut world, Vec::new(), records, false, false);
    world.wait(30 * SECOND);
    assert!(world.operations.is_empty() && !all_dead(&world, &chain));
    let receipt = receipt(&world);
    assert_eq!(receipt.spared.len(), 3, "{receipt:#?}");
    assert!(receipt.targets.iter().all(|target| target.died_at.is_none()), "{receipt:#?}");
}

#[test]
fn action_resumes_from_every_record() {
    let (world, _) = reaped();
    let whole = written(&world);
    for cut in 1..=whole.len() {
        let (mut world, chain) = reaped();
        let mut sent: Vec<ProcessId> = Vec::new();
        for record in &whole[..cut] {
            if let ActionLogRecord::Sending { process, .. } = record {
                sent.push(*process);
            }
        }
        restart(&mut world, whole[..cut].to_vec(), false);
        world.wait(30 * SECOND);
        assert!(all_dead(&world, &chain), "cut at {cut}: {:#?}", receipts(&world));
        for process in chain {
            let terms = world
                .operations
                .iter()
                .filter(|(_, operation, struck)| *operation == Operation::Term && *struck == process)
                .count();
            assert_eq!(terms, usize::from(!sent.contains(&process)), "cut at {cut}: {process}");
        }
        assert_eq!(receipts(&world).len(), 1, "cut at {cut}");
    }
}

#[test]
fn newly_kept_target_is_exempt() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    let begun: Vec<ActionLogRecord> = records.into_iter().take(1).collect();
    world.shows(chain[2], |seen| seen.listens = vec!["tcp 127.0.0.1:3000".into()]);
    restart(&mut world, begun, false);
    world.wait(30 * SECOND);
    assert!(world.operations.is_empty());
    assert_eq!(receipt(&world).state, ActionState::CalledOff);
}

#[rstest]
#[case::the_kernel_knows(true)]
#[case::the_kernel_forgot_with_the_daemon(false)]
fn restart_keeps_adoption_and_orphans(#[case] tracked: bool) {
    let mut world = reporting();
    let agent = world.claude();
    let (adopted, left) = (server(&mut world, agent), server(&mut world, agent));
    adopted.iter().for_each(|process| world.feed(Input::Adopt(*process)));
    world.kill(agent);
    world.wait(SECOND);
    restart_seeing(&mut world, Vec::new(), true, tracked);
    world.wait(MINUTE);
    assert!(all_dead(&world, &left), "{:#?}", receipts(&world));
    assert!(adopted.iter().all(|process| !all_dead(&world, &[*process])));
    assert_eq!(world.all(FindingKind::Orphan)[0].evidence["profile"], "claude-code");
}

#[test]
fn lost_permission_ends_resumed_action() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    world.engine = Engine::new(std::sync::Arc::new(Config::default()));
    world.operations.clear();
    world.feed(Input::Permissions(Permissions {
        missing: Some("CAP_KILL is missing".into()),
        ..Permissions::default()
    }));
    world.feed(Input::ResumeActions(records));
    scan_twice(&mut world, true);
    world.wait(30 * SECOND);
    assert!(world.operations.is_empty() && !all_dead(&world, &chain));
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
}

#[test]
fn restart_continues_action_ids() {
    let (mut world, _) = reaped();
    let records = written(&world);
    world.wait(30 * SECOND);
    let mut over = written(&world);
    assert!(over.len() > records.len());
    over.push(ActionLogRecord::Count(watchdog_types::ActionId(41)));
    let agent = world.claude();
    restart(&mut world, over, false);
    let chain = server(&mut world, agent);
    world.kill(agent);
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();
    assert!(all_dead(&world, &chain));
    assert_eq!(receipt(&world).id, 42);
}

#[test]
fn adoption_outlives_adopted_process() {
    let (mut world, agent, [npm, sh, node]) = reporting_with_server();
    world.feed(Input::Adopt(npm));
    world.kill(npm);
    world.kill(agent);
    world.wait(SECOND);
    restart(&mut world, Vec::new(), true);
    world.wait(2 * MINUTE);
    assert!(world.operations.is_empty(), "{:#?}", receipts(&world));
    assert!(!all_dead(&world, &[sh]) && !all_dead(&world, &[node]));
}

#[test]
fn resumed_action_ignores_reused_finding_id() {
    let (mut twin, _) = reaped();
    restart(&mut twin, Vec::new(), false);
    twin.wait(SECOND);
    let number = watchdog_types::FindingId(twin.all(FindingKind::Orphan)[0].id);

    let (mut world, chain) = reaped();
    let mut records = written(&world);
    for record in &mut records {
        if let ActionLogRecord::Begun(action) = record {
            action.finding = Some((number, FindingKind::Stale));
        }
    }
    restart(&mut world, records, false);
    world.wait(12 * SECOND);
    assert!(all_dead(&world, &chain));
    assert_eq!(receipt(&world).finding, Some(number.0), "it still says what it was about");
    let taken: Vec<Option<String>> =
        world.all(FindingKind::Orphan).into_iter().map(|finding| finding.action_taken.clone()).collect();
    assert_eq!(taken, [None]);
}

#[rstest]
#[case::nohup("/usr/bin/nohup", "started through nohup")]
#[case::setsid("/usr/bin/setsid", "started through setsid")]
fn restart_keeps_nohup_exemption(#[case] launcher: &str, #[case] because: &str) {
    for starter_lives in [true, false] {
        let mut world = reporting();
        let agent = world.claude();
        let starter = world.spawn(agent, &[launcher, "/bin/sh", "-c", "node bot.js & node worker.js &"]);
        world.exec(starter, "/bin/sh", &["/bin/sh", "-c", "node bot.js & node worker.js &"]);
        let bot = world.spawn(starter, &["/usr/bin/node", "bot.js"]);
        if !starter_lives {
            world.kill(starter);
        }
        let records = world.engine.gate_records();
        restart_knowing(&mut world, records, Vec::new(), true, true);
        world.kill(agent);
        world.wait(2 * MINUTE);
        assert!(world.operations.is_empty(), "{:#?}", receipts(&world));
        let shown = if starter_lives { starter } else { bot };
        let verdict = &world.engine.table.get(shown).unwrap().verdict;
        assert!(matches!(verdict, Verdict::Kept(said) | Verdict::Unknown(said) if said == because), "{verdict:?}");
    }
}

#[test]
fn kept_ancestor_protects_past_dead_parent() {
    let mut world = reporting();
    let agent = world.claude();
    let screen = world.spawn(agent, &["/usr/bin/SCREEN", "-dmS", "x"]);
    let zsh = world.spawn(screen, &["/usr/bin/zsh"]);
    let (subshell, other) = (world.fork(zsh), world.fork(zsh));
    let job = world.spawn(subshell, &["/usr/bin/make"]);
    let (inner, orphan) = (world.fork(other), world.spawn(agent, &["/usr/bin/gcc"]));
    let daemon = world.spawn(inner, &["/usr/bin/rsync"]);
    for dead in [subshell, inner, other, zsh, agent] {
        world.kill(dead);
    }
    restart_seeing(&mut world, Vec::new(), true, false);
    world.wait(2 * MINUTE);
    assert!(all_dead(&world, &[orphan]), "{:#?}", receipts(&world));
    assert!([screen, job, daemon].iter().all(|kept| !all_dead(&world, &[*kept])), "{:#?}", receipts(&world));
}

#[test]
fn unsignalled_target_is_not_killed() {
    let (mut world, [npm, sh, node]) = reaped();
    let mut records = written(&world);
    // npm was spared, then the daemon killed the shell, and was killed itself.
    records.retain(|record| {
        !matches!(record,
            ActionLogRecord::Sending { process, .. } | ActionLogRecord::Sent { process, .. } if *process == npm)
    });
    let action = receipt(&world).id;
    let (action, operation, at) = (watchdog_types::ActionId(action), Operation::Kill, world.now);
    records.push(ActionLogRecord::Sending { action, operation, process: sh, at });
    world.kill(sh);
    restart(&mut world, records, false);
    world.wait(MINUTE);
    assert!(all_dead(&world, &[node]), "its time was over");
    assert!(!all_dead(&world, &[npm]), "{:#?}", receipts(&world));
    assert!(world.operations.iter().all(|(_, _, process)| *process != npm));
}

#[test]
fn restart_releases_orphaned_frozen_target() {
    let mut world = acting(|config| {
        config.actions.responses =
            watchdog_config::Responses([(FindingKind::Overlimit, watchdog_config::Response::Freeze)].into());
        for profile in &mut config.profiles {
            profile.max_process_memory = Some(watchdog_config::Size::Bytes(Bytes::from_mib(200)));
        }
    });
    let agent = world.claude();
    let hog = tool(&mut world, agent, 900);
    world.wait(40 * SECOND);
    assert_eq!(sent(&receipt(&world), hog), [("STOP", "sent")]);
    let (records, known) = (written(&world), world.engine.gate_records());
    world.vanish(agent);
    restart_knowing(&mut world, known, records, true, false);
    world.wait(SECOND);
    assert_eq!(sent(&receipt(&world), hog), [("STOP", "sent"), ("CONT", "sent")]);
    assert_eq!(receipt(&world).state, ActionState::Done);
}

#[test]
fn disabled_policy_cancels_resumed_action() {
    let mut world = acting(|_| {});
    let chain = left_behind(&mut world);
    world.stubborn.extend(chain);
    world.wait(32 * SECOND);
    assert_eq!(world.terminated().len(), 3);
    let records = written(&world);
    restart(&mut world, records, false);
    world.wait(MINUTE);
    assert!(world.operations.is_empty(), "{:#?}", world.operations);
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
}
