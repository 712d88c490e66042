use super::*;
use watchdog_config::{ActionsConfig, Response, Responses, Size};

#[test]
fn default_policy_only_reports() {
    let mut world = reporting();
    orphaned(&mut world);
    world.wait(5 * MINUTE);
    world.host_is(memory(16_384, 100));
    world.wait(MINUTE);
    assert!(world.operations.is_empty() && receipts(&world).is_empty());
}

#[test]
fn orphans_end_after_grace() {
    let mut world = acting(|_| {});
    let chain = orphaned(&mut world);

    world.wait(29 * SECOND);
    assert!(world.operations.is_empty(), "{:?}", world.operations);
    world.wait(3 * SECOND);
    assert!(all_dead(&world, &chain));
    assert_eq!(receipt(&world).by, watchdog_api::DecidedBy::Policy);
}

#[test]
fn idle_daemon_acts_at_grace_end() {
    let mut world = acting(|_| {});
    let chain = orphaned(&mut world);
    let died = world.now;
    while !all_dead(&world, &chain) {
        world.now = world.now.plus(world.engine.next_tick(world.now));
        world.feed(Input::Tick);
        assert!(world.now.since(died) < 31 * SECOND, "{:?}", world.engine.next_tick(world.now));
    }
    let after = world.now.since(died);
    assert!((30 * SECOND..30 * SECOND + SECOND / 10).contains(&after), "{after:?}");
}

#[test]
fn adoption_during_grace_cancels() {
    let mut world = acting(|_| {});
    let chain = orphaned(&mut world);
    world.wait(20 * SECOND);
    chain.iter().for_each(|process| world.feed(Input::Adopt(*process)));
    world.wait(MINUTE);
    assert!(world.operations.is_empty());
}

#[test]
fn late_evidence_cancels_action() {
    let mut world = acting(|config| config.actions.responses = Responses::default());
    let chain = orphaned(&mut world);
    world.wait(MINUTE);
    // What it does from now on only a look shows.
    world.shows(chain[2], |seen| seen.listens = vec!["tcp 127.0.0.1:3000".into()]);
    reap(&mut world, &[]).unwrap();
    assert!(world.operations.is_empty(), "{:?}", world.operations);
    let receipt = receipt(&world);
    assert_eq!(receipt.state, ActionState::CalledOff, "{receipt:#?}");
    assert!(receipt.result.contains("cancelled"), "{receipt:#?}");
}

#[test]
fn uninspectable_target_is_exempt() {
    let mut world = reporting();
    let chain = left_behind(&mut world);
    world.slow_proc = true;
    reap(&mut world, &[]).unwrap();
    world.wait(10 * SECOND);
    assert!(world.operations.is_empty() && !all_dead(&world, &chain));
    assert_eq!(receipt(&world).state, ActionState::CalledOff);
}

#[test]
fn rate_limit_is_reported_once() {
    let mut world = acting(|config| config.actions.max_kills_per_minute = 5);
    let agent = world.claude();
    let all: Vec<ProcessId> = (0..4).flat_map(|_| server(&mut world, agent)).collect();
    world.kill(agent);
    world.wait(40 * SECOND);

    let dead = |world: &World| all.iter().filter(|process| all_dead(world, &[**process])).count();
    assert_eq!(dead(&world), 5);
    assert_eq!(held_back(&world).len(), 1);
    world.wait(MINUTE);
    assert_eq!(dead(&world), 10);
    world.wait(MINUTE);
    assert_eq!(dead(&world), 12);
}

#[test]
fn profile_reaction_takes_precedence() {
    let mut world = acting(|config| {
        let claude = config.profiles.iter_mut().find(|profile| profile.name == "claude-code").unwrap();
        claude.actions = Responses([(FindingKind::Orphan, Response::Report)].into());
    });
    let (claude, codex) = (world.claude(), world.agent("/usr/local/bin/codex"));
    let (spared, ended) = (server(&mut world, claude), server(&mut world, codex));
    world.kill(claude);
    world.kill(codex);
    world.wait(MINUTE);
    assert!(all_dead(&world, &ended));
    assert!(spared.iter().all(|process| !all_dead(&world, &[*process])));
}

#[test]
fn survivor_is_not_killed_repeatedly() {
    let mut world = World::with(Config::default());
    let chain = orphaned(&mut world);
    world.wait(3 * MINUTE);
    for process in chain {
        let operations: Vec<Operation> = world
            .operations
            .iter()
            .filter(|(_, _, struck)| *struck == process)
            .map(|(_, operation, _)| *operation)
            .collect();
        assert_eq!(operations, [Operation::Term, Operation::Kill]);
    }
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
}

#[test]
fn adoption_releases_frozen_process() {
    let mut world =
        acting(|config| config.actions.responses = Responses([(FindingKind::Orphan, Response::Freeze)].into()));
    let chain = orphaned(&mut world);
    world.wait(40 * SECOND);
    assert_eq!(receipt(&world).state, ActionState::Holding);
    assert!(!all_dead(&world, &chain));

    world.feed(Input::Adopt(chain[2]));
    world.wait(2 * SECOND);
    let receipt = receipts(&world).into_iter().next().unwrap();
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    assert_eq!(sent(&receipt, chain[2]), [("STOP", "sent"), ("CONT", "sent")]);
}

#[test]
fn termination_releases_own_freezes_only() {
    let mut world =
        acting(|config| config.actions.responses = Responses([(FindingKind::Orphan, Response::Freeze)].into()));
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.shows(chain[2], |seen| seen.stopped = true);
    world.kill(agent);
    world.wait(40 * SECOND);
    let frozen: Vec<ProcessId> = world.operations.iter().map(|(_, _, process)| *process).collect();
    assert_eq!(frozen, [chain[1], chain[0]]);

    reap(&mut world, &[]).unwrap();
    assert!(all_dead(&world, &chain), "{:#?}", receipts(&world));
    let order: Vec<Operation> = world
        .operations
        .iter()
        .filter(|(_, _, process)| *process == chain[0])
        .map(|(_, operation, _)| *operation)
        .collect();
    assert_eq!(order, [Operation::Freeze, Operation::Thaw, Operation::Term]);
}

#[test]
fn user_releases_frozen_process() {
    let mut world =
        acting(|config| config.actions.responses = Responses([(FindingKind::Orphan, Response::Freeze)].into()));
    let chain = orphaned(&mut world);
    world.wait(40 * SECOND);
    let pid = Subject::Pid(chain[0].pid.0);
    assert_eq!(world.engine.held(Uid(4_242), &[pid]), Err(ActionRequestError::NotYours));
    ask(&mut world, USER, RequestedAction::Thaw(vec![pid])).unwrap();
    assert_eq!(receipts(&world)[0].state, ActionState::Done);
    assert_eq!(world.engine.held(USER, &[pid]), Err(ActionRequestError::NothingHeld));

    world.wait(MINUTE);
    assert_eq!(receipt(&world).state, ActionState::Done, "policy does not take hold again");
}

#[test]
fn uncertain_ancestor_exempts_descendants() {
    let mut world = acting(|config| {
        config.actions.responses = Responses([(FindingKind::Overlimit, Response::Terminate)].into());
        for profile in &mut config.profiles {
            profile.max_process_memory = Some(Size::Bytes(Bytes::from_mib(200)));
        }
    });
    let agent = world.claude();
    let server = world.spawn(agent, &["/usr/bin/node", "dev-server.js"]);
    let worker = world.spawn(server, &["/usr/bin/node", "worker.js"]);
    // It was not inspected: its agent lives.
    world.shows(server, |seen| seen.listens = vec!["tcp 127.0.0.1:3000".into()]);
    world.memory(worker, Bytes::from_mib(900));
    world.wait(2 * MINUTE);

    assert!(world.operations.is_empty(), "{:#?}", receipts(&world));
    let receipts = receipts(&world);
    let spared = &receipts.first().unwrap().spared;
    assert!(
        spared.iter().any(|spared| spared.pid == worker.pid.0 && spared.because.contains("uncertain")),
        "{spared:?}"
    );
}

#[test]
fn disabling_policy_cancels_its_actions() {
    let mut config =
        Config { actions: ActionsConfig { enforce: true, ..ActionsConfig::default() }, ..Config::default() };
    let mut world = World::mortal(config.clone());
    let chain = left_behind(&mut world);
    world.stubborn.extend(chain);
    world.wait(32 * SECOND);
    assert_eq!(world.terminated().len(), 3);
    config.actions.enforce = false;
    let now = world.now;
    world.engine.reconfigure(now, std::sync::Arc::new(config), &mut Vec::new());
    world.wait(MINUTE);
    assert_eq!(world.operations.len(), 3, "nothing but the first: {:#?}", world.operations);
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
}
