use super::*;
use crate::config::{Reaction, Reactions, Size};

#[test]
fn by_default_nothing_is_ever_done() {
    let mut world = reporting();
    let agent = world.claude();
    server(&mut world, agent);
    world.kill(agent);
    world.wait(5 * MINUTE);
    world.host_is(memory(16_384, 100));
    world.wait(MINUTE);
    assert!(world.blows.is_empty() && receipts(&world).is_empty());
}

#[test]
fn orphans_end_after_their_grace_and_not_before() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.kill(agent);

    world.wait(29 * SECOND);
    assert!(world.blows.is_empty(), "{:?}", world.blows);
    world.wait(3 * SECOND);
    assert!(all_dead(&world, &chain));
    assert_eq!(receipt(&world).by, crate::api::DecidedBy::Policy);
}

#[test]
fn an_idle_daemon_acts_as_soon_as_the_grace_is_over() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.kill(agent);
    let died = world.now;
    while !all_dead(&world, &chain) {
        world.now = world.now.plus(world.engine.next_tick(world.now));
        world.tell(Input::Tick);
        assert!(world.now.since(died) < 31 * SECOND, "{:?}", world.engine.next_tick(world.now));
    }
    let after = world.now.since(died);
    assert!((30 * SECOND..30 * SECOND + SECOND / 10).contains(&after), "{after:?}");
}

#[test]
fn adopting_within_the_grace_calls_it_off() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.kill(agent);
    world.wait(20 * SECOND);
    chain.iter().for_each(|process| world.tell(Input::Adopt(*process)));
    world.wait(MINUTE);
    assert!(world.blows.is_empty());
}

#[test]
fn evidence_that_shows_at_the_last_look_calls_it_off() {
    let mut world = acting(|config| config.actions.about = Reactions::default());
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.kill(agent);
    world.wait(MINUTE);
    // What it does from now on only a look shows.
    world.shows(chain[2], |seen| seen.listens = vec!["tcp 127.0.0.1:3000".into()]);
    reap(&mut world, &[]).unwrap();
    assert!(world.blows.is_empty(), "{:?}", world.blows);
    let receipt = receipt(&world);
    assert_eq!(receipt.state, ActionState::CalledOff, "{receipt:#?}");
    assert!(receipt.result.contains("called off"), "{receipt:#?}");
}

#[test]
fn a_target_that_cannot_be_looked_at_is_left_alone() {
    let mut world = reporting();
    let chain = left_behind(&mut world);
    world.slow_proc = true;
    reap(&mut world, &[]).unwrap();
    world.wait(10 * SECOND);
    assert!(world.blows.is_empty() && !all_dead(&world, &chain));
    assert_eq!(receipt(&world).state, ActionState::CalledOff);
}

#[test]
fn no_more_are_ended_in_a_minute_than_the_bound_and_that_is_said_once() {
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
fn a_profile_has_the_last_word_on_its_own_sessions() {
    let mut world = acting(|config| {
        let claude = config.profiles.iter_mut().find(|profile| profile.name == "claude-code").unwrap();
        claude.actions = Reactions([(FindingKind::Orphan, Reaction::Report)].into());
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
fn what_survives_a_kill_is_not_killed_again_and_again() {
    let mut world = World::with(Config::default());
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.kill(agent);
    world.wait(3 * MINUTE);
    for process in chain {
        let blows: Vec<Blow> =
            world.blows.iter().filter(|(_, _, struck)| *struck == process).map(|(_, blow, _)| *blow).collect();
        assert_eq!(blows, [Blow::Term, Blow::Kill]);
    }
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
}

#[test]
fn what_is_frozen_is_let_go_when_it_is_adopted() {
    let mut world = acting(|config| config.actions.about = Reactions([(FindingKind::Orphan, Reaction::Freeze)].into()));
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.kill(agent);
    world.wait(40 * SECOND);
    assert_eq!(receipt(&world).state, ActionState::Holding);
    assert!(!all_dead(&world, &chain));

    world.tell(Input::Adopt(chain[2]));
    world.wait(2 * SECOND);
    let receipt = receipts(&world).into_iter().next().unwrap();
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    assert_eq!(sent(&receipt, chain[2]), [("STOP", "sent"), ("CONT", "sent")]);
}

#[test]
fn who_is_to_end_is_let_go_first_and_who_somebody_else_stopped_is_left_stopped() {
    let mut world = acting(|config| config.actions.about = Reactions([(FindingKind::Orphan, Reaction::Freeze)].into()));
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.shows(chain[2], |seen| seen.stopped = true);
    world.kill(agent);
    world.wait(40 * SECOND);
    let frozen: Vec<ProcessId> = world.blows.iter().map(|(_, _, process)| *process).collect();
    assert_eq!(frozen, [chain[1], chain[0]]);

    reap(&mut world, &[]).unwrap();
    assert!(all_dead(&world, &chain), "{:#?}", receipts(&world));
    let order: Vec<Blow> =
        world.blows.iter().filter(|(_, _, process)| *process == chain[0]).map(|(_, blow, _)| *blow).collect();
    assert_eq!(order, [Blow::Freeze, Blow::Thaw, Blow::Term]);
}

#[test]
fn what_is_frozen_can_be_let_go_by_hand() {
    let mut world = acting(|config| config.actions.about = Reactions([(FindingKind::Orphan, Reaction::Freeze)].into()));
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.kill(agent);
    world.wait(40 * SECOND);
    let pid = Subject::Pid(chain[0].pid.0);
    assert_eq!(world.engine.held(Uid(4_242), &[pid]), Err(AskError::NotYours));
    ask(&mut world, USER, What::Thaw(vec![pid])).unwrap();
    assert_eq!(receipts(&world)[0].state, ActionState::Done);
    assert_eq!(world.engine.held(USER, &[pid]), Err(AskError::NothingHeld));

    world.wait(MINUTE);
    assert_eq!(receipt(&world).state, ActionState::Done, "policy does not take hold again");
}

#[test]
fn who_runs_below_one_that_turns_out_to_be_in_doubt_is_left_alone() {
    let mut world = acting(|config| {
        config.actions.about = Reactions([(FindingKind::Overlimit, Reaction::Terminate)].into());
        for profile in &mut config.profiles {
            profile.max_process_memory = Some(Size::Bytes(Bytes::from_mib(200)));
        }
    });
    let agent = world.claude();
    let server = world.spawn(agent, &["/usr/bin/node", "dev-server.js"]);
    let worker = world.spawn(server, &["/usr/bin/node", "worker.js"]);
    // Nobody has looked at it: its agent lives.
    world.shows(server, |seen| seen.listens = vec!["tcp 127.0.0.1:3000".into()]);
    world.memory(worker, Bytes::from_mib(900));
    world.wait(2 * MINUTE);

    assert!(world.blows.is_empty(), "{:#?}", receipts(&world));
    let receipts = receipts(&world);
    let spared = &receipts.first().unwrap().spared;
    assert!(spared.iter().any(|spared| spared.pid == worker.pid.0 && spared.because.contains("doubt")), "{spared:?}");
}

#[test]
fn what_policy_has_begun_is_called_off_when_policy_is_turned_off() {
    let mut config = Config { actions: Actions { enforce: true, ..Actions::default() }, ..Config::default() };
    let mut world = World::mortal(config.clone());
    let chain = left_behind(&mut world);
    world.stubborn.extend(chain);
    world.wait(32 * SECOND);
    assert_eq!(world.told_to_end().len(), 3);
    config.actions.enforce = false;
    let now = world.now;
    world.engine.reconfigure(now, std::sync::Arc::new(config), &mut Vec::new());
    world.wait(MINUTE);
    assert_eq!(world.blows.len(), 3, "nothing but the first: {:#?}", world.blows);
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
}
