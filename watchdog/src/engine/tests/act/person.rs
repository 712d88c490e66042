use super::*;

#[test]
fn reaping_ends_every_orphan_leaves_first_and_says_what_that_freed() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, sh, node] = server(&mut world, agent);
    world.kill(agent);
    world.wait(SECOND);

    reap(&mut world, &[]).unwrap();

    assert_eq!(world.told_to_end(), [node, sh, npm], "leaves first");
    assert!(all_dead(&world, &[npm, sh, node]));
    let receipt = receipt(&world);
    assert_eq!(receipt.state, ActionState::Done, "{receipt:#?}");
    assert_eq!(receipt.asked_by_uid, Some(USER.0));
    assert_eq!(receipt.finding_kind, Some(FindingKind::Orphan));
    assert_eq!((receipt.memory_bytes, receipt.freed_bytes), (120 << 20, 120 << 20));
    assert_eq!(sent(&receipt, node), [("TERM", "sent")]);
    assert!(receipt.targets.iter().all(|target| target.died_at.is_some()), "{receipt:#?}");
    assert_eq!(receipt.evidence["agent_pid"], agent.pid.0);
    let finding = &world.all(FindingKind::Orphan)[0];
    let taken = finding.action_taken.as_deref().unwrap();
    assert!(taken.starts_with("terminate (action 1): 3 processes ended"), "{taken}");
}

#[test]
fn whoever_ignores_the_first_signal_gets_the_second_after_the_grace() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, sh, node] = server(&mut world, agent);
    world.stubborn.insert(node);
    world.kill(agent);
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();

    world.wait(9 * SECOND);
    assert!(!all_dead(&world, &[node]) && all_dead(&world, &[sh, npm]));
    assert_eq!(receipt(&world).state, ActionState::Running);
    world.wait(2 * SECOND);

    assert!(all_dead(&world, &[node]));
    let receipt = receipt(&world);
    assert_eq!(sent(&receipt, node), [("TERM", "sent"), ("KILL", "sent")]);
    assert_eq!(sent(&receipt, npm), [("TERM", "sent")], "nothing is sent to the dead");
    assert_eq!(receipt.state, ActionState::Done);
}

#[test]
fn who_is_adopted_while_it_has_time_to_end_is_not_killed() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, sh, node] = server(&mut world, agent);
    for process in [npm, sh, node] {
        world.stubborn.insert(process);
    }
    world.kill(agent);
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();
    world.tell(Input::Adopt(node));
    world.wait(20 * SECOND);

    let killed: Vec<ProcessId> =
        world.blows.iter().filter(|(_, blow, _)| *blow == Blow::Kill).map(|(_, _, process)| *process).collect();
    assert_eq!(killed, [], "npm and the shell stand around what is meant to stay");
    let receipt = receipt(&world);
    assert!(
        receipt.spared.iter().any(|spared| spared.pid == node.pid.0 && spared.because.contains("adopted")),
        "{receipt:#?}"
    );
}

#[test]
fn a_dry_run_names_the_same_and_does_nothing() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, sh, node] = server(&mut world, agent);
    let kept = world.spawn(agent, &["/usr/bin/tmux", "new-session", "-d"]);
    let kept = world.fork(kept);
    world.shows(kept, |seen| seen.comm = "tmux: server".into());
    world.kill(agent);
    world.wait(SECOND);

    let ask = Ask { uid: USER, what: What::Reap(Vec::new()), expect: None };
    let plans = world.engine.plan(&ask).unwrap();
    let targets: Vec<ProcessId> = plans[0].chosen.targets.iter().map(|target| target.process).collect();
    assert!([node, sh, npm].iter().all(|process| targets.contains(process)), "{plans:#?}");
    let spared = &plans[0].chosen.spared;
    assert!(
        spared.iter().any(|(process, because)| *process == kept && because.to_string().contains("meant to stay")),
        "{spared:?}"
    );
    let shown = world.engine.shown_plan(world.now, &plans[0], USER, &naming());
    assert_eq!((shown.id, shown.state), (0, ActionState::Planned));
    assert!(world.blows.is_empty() && receipts(&world).is_empty());
}

#[test]
fn what_is_named_has_to_be_an_orphan() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, ..] = server(&mut world, agent);
    let session = world.session(agent).id;
    let refused = |world: &mut World, subject| reap(world, &[subject]).unwrap_err().to_string();

    assert!(refused(&mut world, Subject::Pid(npm.pid.0)).contains("its agent lives"));
    assert!(refused(&mut world, Subject::Pid(agent.pid.0)).contains("its agent lives"));
    assert!(refused(&mut world, Subject::Pid(4_000_000)).contains("belongs to no session"));
    assert!(refused(&mut world, Subject::Session(session)).contains("nothing of session"));
    assert!(refused(&mut world, Subject::Session(99)).contains("no living process"));
    assert!(world.blows.is_empty());
}

#[test]
fn one_named_orphan_goes_with_all_below_it_and_nothing_else() {
    let mut world = reporting();
    let agent = world.claude();
    let chain = server(&mut world, agent);
    let other = server(&mut world, agent);
    world.kill(agent);
    world.wait(SECOND);

    reap(&mut world, &[Subject::Pid(chain[1].pid.0)]).unwrap();

    assert!(all_dead(&world, &chain[1..]));
    assert!(other.iter().chain(&chain[..1]).all(|process| !all_dead(&world, &[*process])));
}

#[test]
fn another_users_processes_are_not_ones_own_to_end() {
    let mut world = reporting();
    let agent = world.claude();
    let chain = server(&mut world, agent);
    let session = SessionId(world.session(agent).id);
    world.kill(agent);
    world.wait(SECOND);
    let stranger = Uid(4_242);

    assert_eq!(ask(&mut world, stranger, What::Reap(vec![Subject::Pid(chain[0].pid.0)])), Err(AskError::NotYours));
    assert_eq!(ask(&mut world, stranger, What::Reap(vec![Subject::Session(session.0)])), Err(AskError::NotYours));
    assert_eq!(ask(&mut world, stranger, What::End(session)), Err(AskError::NotYours));
    assert_eq!(ask(&mut world, stranger, What::Reap(Vec::new())), Ok(()), "of one's own there is nothing");
    assert!(world.blows.is_empty());
    ask(&mut world, ROOT, What::Reap(Vec::new())).unwrap();
    assert!(all_dead(&world, &chain));
}

#[test]
fn a_session_ends_whole_its_agent_last_but_for_what_is_meant_to_stay() {
    let mut world = reporting();
    let agent = world.claude();
    let chain = server(&mut world, agent);
    let nohup = world.fork(agent);
    world.exec(nohup, "/usr/bin/nohup", &["nohup", "node", "bot.js"]);
    world.exec(nohup, "/usr/bin/node", &["node", "bot.js"]);
    let session = SessionId(world.session(agent).id);

    ask(&mut world, USER, What::End(session)).unwrap();

    assert_eq!(world.told_to_end(), [chain[2], chain[1], chain[0], agent]);
    assert!(!all_dead(&world, &[nohup]));
    assert!(receipt(&world).spared.iter().any(|spared| spared.pid == nohup.pid.0));
}

#[test]
fn what_a_target_forks_on_its_way_out_goes_with_it() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, sh, node] = server(&mut world, agent);
    world.stubborn.insert(npm);
    world.kill(agent);
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();
    let again = world.spawn(npm, &["/usr/bin/node", "/home/u/.npm/_npx/1/node_modules/.bin/mcp-server-memory"]);
    world.wait(30 * SECOND);

    assert!(all_dead(&world, &[npm, sh, node, again]), "{:#?}", receipts(&world));
    assert_eq!(receipt(&world).targets.len(), 4);
}

#[test]
fn a_zombie_is_named_with_the_parent_that_does_not_wait_and_never_signalled() {
    let mut world = reporting();
    let agent = world.claude();
    let zombie = world.spawn(agent, &["/usr/bin/python3", "server.py"]);
    world.shows(zombie, |_| {});
    world.kill(zombie);
    world.tell(Input::Zombies(vec![zombie]));

    let refused = reap(&mut world, &[Subject::Pid(zombie.pid.0)]).unwrap_err().to_string();
    assert!(refused.contains("dead already") && refused.contains("does not wait"), "{refused}");
    assert!(world.blows.is_empty());
}

#[test]
fn without_the_right_to_signal_nothing_is_begun() {
    let mut world = acting(|_| {});
    let missing = Some("CAP_KILL is missing".to_owned());
    world.tell(Input::Rights(crate::engine::act::Rights { missing, ..Default::default() }));
    let agent = world.claude();
    server(&mut world, agent);
    world.kill(agent);
    world.wait(2 * MINUTE);

    assert!(matches!(reap(&mut world, &[]), Err(AskError::NoRights(_))));
    assert!(world.blows.is_empty() && receipts(&world).is_empty());
}

#[test]
fn who_turns_out_to_be_meant_to_stay_while_it_has_time_to_end_is_not_killed() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, sh, node] = server(&mut world, agent);
    world.stubborn.insert(node);
    world.kill(agent);
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();
    assert_eq!(world.told_to_end(), [node, sh, npm]);
    world.shows(node, |seen| {
        seen.sid = node.pid.0;
        seen.listens = vec!["tcp 127.0.0.1:3000".into()];
    });
    world.wait(20 * SECOND);

    assert!(!all_dead(&world, &[node]));
    let receipt = receipt(&world);
    assert_eq!(sent(&receipt, node), [("TERM", "sent")]);
    assert!(receipt.spared.iter().any(|spared| spared.pid == node.pid.0), "{receipt:#?}");
}

#[test]
fn the_death_of_the_last_who_is_looked_at_keeps_nobody_waiting() {
    let mut world = reporting();
    let [npm, sh, node] = left_behind(&mut world);
    world.slow_proc = true;
    reap(&mut world, &[]).unwrap();
    for process in [npm, sh] {
        let seen = world.ordinary.clone();
        world.tell(Input::Inspected(process, Some(seen)));
    }
    assert!(world.blows.is_empty());
    world.kill(node);
    assert_eq!(world.told_to_end(), [sh, npm]);
}
