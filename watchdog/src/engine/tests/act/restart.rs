use rstest::rstest;

use super::*;
use crate::engine::Engine;
use crate::engine::act::{ActionRecord, Answer, Rights};
use crate::engine::effect::Effect;
use crate::engine::gate::{GateRecord, Restored};
use crate::engine::process::Verdict;

/// What the hand that acts has written down by now, before it carried out the last of it.
fn written(world: &World) -> Vec<ActionRecord> {
    let mut records = Vec::new();
    for effect in &world.effects {
        match effect {
            Effect::BeginAction(action) => records.push(ActionRecord::Begun(action.clone())),
            Effect::Strike(wave) => records.extend(wave.targets.iter().flat_map(|process| {
                let (action, blow, process, at) = (wave.action, wave.blow, *process, world.now);
                [
                    ActionRecord::Striking { action, blow, process, at },
                    ActionRecord::Struck { action, blow, process, answer: Answer::Sent },
                ]
            })),
            Effect::EndAction(action) => records.push(ActionRecord::Over(*action)),
            _ => {}
        }
    }
    records
}

/// The daemon is killed, and another one knows what was written.
fn restart(world: &mut World, records: Vec<ActionRecord>, enforce: bool) {
    restart_seeing(world, records, enforce, true);
}

/// The same; whether the kernel still knows of whose session everybody is.
fn restart_seeing(world: &mut World, records: Vec<ActionRecord>, enforce: bool, tracked: bool) {
    let known = world.engine.gate_records();
    restart_knowing(world, known, records, enforce, tracked);
}

/// The same; what the daemon knew itself.
fn restart_knowing(
    world: &mut World,
    known: Vec<GateRecord>,
    records: Vec<ActionRecord>,
    enforce: bool,
    tracked: bool,
) {
    let actions = Actions { enforce, ..Actions::default() };
    world.engine = Engine::new(std::sync::Arc::new(Config { actions, ..Config::default() }));
    world.blows.clear();
    world.effects.clear();
    world.tell(Input::Restore(Box::new(Restored { records: known, ..Restored::default() })));
    world.tell(Input::Resume(records));
    let scan = world.scan(tracked);
    world.tell(scan);
}

#[test]
fn a_daemon_that_was_killed_in_the_middle_goes_on_and_sends_nothing_twice() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    world.wait(3 * SECOND);
    restart(&mut world, records, false);
    assert!(world.blows.is_empty(), "they were told to end: {:?}", world.blows);
    world.wait(5 * SECOND);
    assert!(world.blows.is_empty(), "their grace goes on");
    world.wait(4 * SECOND);
    let kills: Vec<Blow> = world.blows.iter().map(|(_, blow, _)| *blow).collect();
    assert_eq!(kills, [Blow::Kill; 3]);
    assert!(all_dead(&world, &chain));
    let receipt = receipt(&world);
    assert_eq!((receipt.id, receipt.state), (1, ActionState::Done));
    assert_eq!(sent(&receipt, chain[0]), [("TERM", "sent"), ("KILL", "sent")]);
}

#[test]
fn it_goes_on_when_the_kernel_forgot_whose_they_are_with_the_daemon() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    restart_seeing(&mut world, records, false, false);
    world.wait(30 * SECOND);
    let kills: Vec<Blow> = world.blows.iter().map(|(_, blow, _)| *blow).collect();
    assert_eq!(kills, [Blow::Kill; 3], "{:#?}", receipts(&world));
    assert!(all_dead(&world, &chain));
    assert_eq!(receipt(&world).state, ActionState::Done);
}

#[test]
fn who_lives_and_is_nobodys_any_more_is_left_alone_and_never_told_to_be_gone() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    restart_knowing(&mut world, Vec::new(), records, false, false);
    world.wait(30 * SECOND);
    assert!(world.blows.is_empty() && !all_dead(&world, &chain));
    let receipt = receipt(&world);
    assert_eq!(receipt.spared.len(), 3, "{receipt:#?}");
    assert!(receipt.targets.iter().all(|target| target.died_at.is_none()), "{receipt:#?}");
}

#[test]
fn every_place_in_the_record_is_one_to_go_on_from() {
    let (world, _) = reaped();
    let whole = written(&world);
    for cut in 1..=whole.len() {
        let (mut world, chain) = reaped();
        let mut sent: Vec<ProcessId> = Vec::new();
        for record in &whole[..cut] {
            if let ActionRecord::Striking { process, .. } = record {
                sent.push(*process);
            }
        }
        restart(&mut world, whole[..cut].to_vec(), false);
        world.wait(30 * SECOND);
        assert!(all_dead(&world, &chain), "cut at {cut}: {:#?}", receipts(&world));
        for process in chain {
            let terms =
                world.blows.iter().filter(|(_, blow, struck)| *blow == Blow::Term && *struck == process).count();
            assert_eq!(terms, usize::from(!sent.contains(&process)), "cut at {cut}: {process}");
        }
        assert_eq!(receipts(&world).len(), 1, "cut at {cut}");
    }
}

#[test]
fn who_was_adopted_meanwhile_or_shows_a_reason_to_stay_is_left_alone() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    let begun: Vec<ActionRecord> = records.into_iter().take(1).collect();
    world.shows(chain[2], |seen| seen.listens = vec!["tcp 127.0.0.1:3000".into()]);
    restart(&mut world, begun, false);
    world.wait(30 * SECOND);
    assert!(world.blows.is_empty());
    assert_eq!(receipt(&world).state, ActionState::CalledOff);
}

#[rstest]
#[case::the_kernel_knows(true)]
#[case::the_kernel_forgot_with_the_daemon(false)]
fn who_was_adopted_before_a_restart_still_is_and_who_was_left_behind_still_was(#[case] tracked: bool) {
    let mut world = reporting();
    let agent = world.claude();
    let (adopted, left) = (server(&mut world, agent), server(&mut world, agent));
    adopted.iter().for_each(|process| world.tell(Input::Adopt(*process)));
    world.kill(agent);
    world.wait(SECOND);
    restart_seeing(&mut world, Vec::new(), true, tracked);
    world.wait(MINUTE);
    assert!(all_dead(&world, &left), "{:#?}", receipts(&world));
    assert!(adopted.iter().all(|process| !all_dead(&world, &[*process])));
    assert_eq!(world.all(FindingKind::Orphan)[0].evidence["profile"], "claude-code");
}

#[test]
fn a_daemon_that_may_not_signal_any_more_says_that_it_does_not_go_on() {
    let (mut world, chain) = reaped();
    let records = written(&world);
    world.engine = Engine::new(std::sync::Arc::new(Config::default()));
    world.blows.clear();
    world.tell(Input::Rights(Rights { missing: Some("CAP_KILL is missing".into()), ..Rights::default() }));
    world.tell(Input::Resume(records));
    let scan = world.scan(true);
    world.tell(scan);
    world.wait(30 * SECOND);
    assert!(world.blows.is_empty() && !all_dead(&world, &chain));
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
}

#[test]
fn numbers_go_on_where_they_were() {
    let (mut world, _) = reaped();
    let records = written(&world);
    world.wait(30 * SECOND);
    let mut over = written(&world);
    assert!(over.len() > records.len());
    over.push(ActionRecord::Count(crate::engine::id::ActionId(41)));
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
fn what_was_forked_below_one_who_was_adopted_is_still_kept_when_that_one_is_dead() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, sh, node] = server(&mut world, agent);
    world.tell(Input::Adopt(npm));
    world.kill(npm);
    world.kill(agent);
    world.wait(SECOND);
    restart(&mut world, Vec::new(), true);
    world.wait(2 * MINUTE);
    assert!(world.blows.is_empty(), "{:#?}", receipts(&world));
    assert!(!all_dead(&world, &[sh]) && !all_dead(&world, &[node]));
}

#[test]
fn a_finding_of_an_earlier_run_is_not_taken_for_the_one_that_has_its_number_now() {
    let (mut twin, _) = reaped();
    restart(&mut twin, Vec::new(), false);
    twin.wait(SECOND);
    let number = crate::engine::id::FindingId(twin.all(FindingKind::Orphan)[0].id);

    let (mut world, chain) = reaped();
    let mut records = written(&world);
    for record in &mut records {
        if let ActionRecord::Begun(action) = record {
            action.finding = Some((number, FindingKind::Stale));
        }
    }
    restart(&mut world, records, false);
    world.wait(12 * SECOND);
    assert!(all_dead(&world, &chain));
    assert_eq!(receipt(&world).finding, Some(number.0), "it still says what it was about");
    let taken: Vec<Option<String>> =
        world.all(FindingKind::Orphan).into_iter().map(|finding| finding.action_taken).collect();
    assert_eq!(taken, [None]);
}

#[rstest]
#[case::nohup("/usr/bin/nohup", "started through nohup")]
#[case::setsid("/usr/bin/setsid", "started through setsid")]
fn who_was_started_to_stay_is_left_alone_after_a_restart_too(#[case] launcher: &str, #[case] because: &str) {
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
        assert!(world.blows.is_empty(), "{:#?}", receipts(&world));
        let shown = if starter_lives { starter } else { bot };
        let verdict = &world.engine.table.get(shown).unwrap().verdict;
        assert!(matches!(verdict, Verdict::Kept(said) | Verdict::Unknown(said) if said == because), "{verdict:?}");
    }
}

#[test]
fn what_stands_below_one_who_is_meant_to_stay_still_does_whoever_died_in_between() {
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
fn who_was_not_told_to_end_is_not_killed_by_the_next_daemon() {
    let (mut world, [npm, sh, node]) = reaped();
    let mut records = written(&world);
    // npm was spared, then the daemon killed the shell, and was killed itself.
    records.retain(|record| {
        !matches!(record,
            ActionRecord::Striking { process, .. } | ActionRecord::Struck { process, .. } if *process == npm)
    });
    let action = receipt(&world).id;
    let (action, blow, at) = (crate::engine::id::ActionId(action), Blow::Kill, world.now);
    records.push(ActionRecord::Striking { action, blow, process: sh, at });
    world.kill(sh);
    restart(&mut world, records, false);
    world.wait(MINUTE);
    assert!(all_dead(&world, &[node]), "its time was over");
    assert!(!all_dead(&world, &[npm]), "{:#?}", receipts(&world));
    assert!(world.blows.iter().all(|(_, _, process)| *process != npm));
}

#[test]
fn who_is_frozen_is_let_go_by_the_next_daemon_when_its_agent_died_in_between() {
    let mut world = acting(|config| {
        config.actions.about =
            crate::config::Reactions([(FindingKind::Overlimit, crate::config::Reaction::Freeze)].into());
        for profile in &mut config.profiles {
            profile.max_process_memory = Some(crate::config::Size::Bytes(Bytes::from_mib(200)));
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
fn what_policy_had_begun_does_not_go_on_when_policy_is_off() {
    let mut world = acting(|_| {});
    let chain = left_behind(&mut world);
    world.stubborn.extend(chain);
    world.wait(32 * SECOND);
    assert_eq!(world.told_to_end().len(), 3);
    let records = written(&world);
    restart(&mut world, records, false);
    world.wait(MINUTE);
    assert!(world.blows.is_empty(), "{:#?}", world.blows);
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
}
