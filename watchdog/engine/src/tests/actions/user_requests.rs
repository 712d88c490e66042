use super::*;

#[test]
fn reap_terminates_orphans_leaves_first() {
    let (mut world, agent, [npm, sh, node]) = reporting_with_server();
    world.kill(agent);
    world.wait(SECOND);

    reap(&mut world, &[]).unwrap();

    assert_eq!(world.terminated(), [node, sh, npm], "leaves first");
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
    assert!(taken.starts_with("terminate (action 1): 3 processes terminated"), "{taken}");
}

#[test]
fn ignored_sigterm_leads_to_sigkill() {
    let (mut world, agent, [npm, sh, node]) = reporting_with_server();
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
fn adoption_during_grace_prevents_sigkill() {
    let (mut world, agent, [npm, sh, node]) = reporting_with_server();
    for process in [npm, sh, node] {
        world.stubborn.insert(process);
    }
    world.kill(agent);
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();
    world.feed(Input::Adopt(node));
    world.wait(20 * SECOND);

    let killed: Vec<ProcessId> = world
        .operations
        .iter()
        .filter(|(_, operation, _)| *operation == Operation::Kill)
        .map(|(_, _, process)| *process)
        .collect();
    assert_eq!(killed, [], "npm and the shell are ancestors of a kept process");
    let receipt = receipt(&world);
    assert!(
        receipt.spared.iter().any(|spared| spared.pid == node.pid.0 && spared.because.contains("adopted")),
        "{receipt:#?}"
    );
}

#[test]
fn dry_run_only_plans() {
    let (mut world, agent, [npm, sh, node]) = reporting_with_server();
    let kept = world.spawn(agent, &["/usr/bin/tmux", "new-session", "-d"]);
    let kept = world.fork(kept);
    world.shows(kept, |seen| seen.comm = "tmux: server".into());
    world.kill(agent);
    world.wait(SECOND);

    let ask = ActionRequest { uid: USER, what: RequestedAction::Reap(Vec::new()), expect: None };
    let plans = world.engine.plan(&ask).unwrap();
    let targets: Vec<ProcessId> = plans[0].selection.targets.iter().map(|target| target.process).collect();
    assert!([node, sh, npm].iter().all(|process| targets.contains(process)), "{plans:#?}");
    let spared = &plans[0].selection.spared;
    assert!(
        spared.iter().any(|(process, because)| *process == kept && because.to_string().contains("kept: ")),
        "{spared:?}"
    );
    let shown = world.engine.to_api_plan(world.now, &plans[0], USER, &naming());
    assert_eq!((shown.id, shown.state), (0, ActionState::Planned));
    assert!(world.operations.is_empty() && receipts(&world).is_empty());
}

#[test]
fn reap_refuses_non_orphans() {
    let mut world = reporting();
    let agent = world.claude();
    let [npm, ..] = server(&mut world, agent);
    let session = world.session(agent).id;
    let refused = |world: &mut World, subject| reap(world, &[subject]).unwrap_err().to_string();

    assert!(refused(&mut world, Subject::Pid(npm.pid.0)).contains("its agent is running"));
    assert!(refused(&mut world, Subject::Pid(agent.pid.0)).contains("its agent is running"));
    assert!(refused(&mut world, Subject::Pid(4_000_000)).contains("is not in any session"));
    assert!(refused(&mut world, Subject::Session(session)).contains("has no orphans"));
    assert!(refused(&mut world, Subject::Session(99)).contains("no running process"));
    assert!(world.operations.is_empty());
}

#[test]
fn named_orphan_ends_with_descendants() {
    let (mut world, agent, chain) = reporting_with_server();
    let other = server(&mut world, agent);
    world.kill(agent);
    world.wait(SECOND);

    reap(&mut world, &[Subject::Pid(chain[1].pid.0)]).unwrap();

    assert!(all_dead(&world, &chain[1..]));
    assert!(other.iter().chain(&chain[..1]).all(|process| !all_dead(&world, &[*process])));
}

#[test]
fn other_users_processes_are_refused() {
    let (mut world, agent, chain) = reporting_with_server();
    let session = SessionId(world.session(agent).id);
    world.kill(agent);
    world.wait(SECOND);
    let stranger = Uid(4_242);

    assert_eq!(
        ask(&mut world, stranger, RequestedAction::Reap(vec![Subject::Pid(chain[0].pid.0)])),
        Err(ActionRequestError::NotYours)
    );
    assert_eq!(
        ask(&mut world, stranger, RequestedAction::Reap(vec![Subject::Session(session.0)])),
        Err(ActionRequestError::NotYours)
    );
    assert_eq!(ask(&mut world, stranger, RequestedAction::End(session)), Err(ActionRequestError::NotYours));
    assert_eq!(ask(&mut world, stranger, RequestedAction::Reap(Vec::new())), Ok(()), "of one's own there is nothing");
    assert!(world.operations.is_empty());
    ask(&mut world, ROOT, RequestedAction::Reap(Vec::new())).unwrap();
    assert!(all_dead(&world, &chain));
}

#[test]
fn end_spares_kept_processes() {
    let (mut world, agent, chain) = reporting_with_server();
    let nohup = world.fork(agent);
    world.exec(nohup, "/usr/bin/nohup", &["nohup", "node", "bot.js"]);
    world.exec(nohup, "/usr/bin/node", &["node", "bot.js"]);
    let session = SessionId(world.session(agent).id);

    ask(&mut world, USER, RequestedAction::End(session)).unwrap();

    assert_eq!(world.terminated(), [chain[2], chain[1], chain[0], agent]);
    assert!(!all_dead(&world, &[nohup]));
    assert!(receipt(&world).spared.iter().any(|spared| spared.pid == nohup.pid.0));
}

#[test]
fn late_forks_become_targets() {
    let (mut world, agent, [npm, sh, node]) = reporting_with_server();
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
fn zombie_is_refused_with_its_parent() {
    let mut world = reporting();
    let agent = world.claude();
    let zombie = world.spawn(agent, &["/usr/bin/python3", "server.py"]);
    world.shows(zombie, |_| {});
    world.kill(zombie);
    world.feed(Input::Zombies(vec![zombie]));

    let refused = reap(&mut world, &[Subject::Pid(zombie.pid.0)]).unwrap_err().to_string();
    assert!(refused.contains("zombie: claude") && refused.contains("has not reaped it"), "{refused}");
    assert!(world.operations.is_empty());
}

#[test]
fn missing_permission_refuses_request() {
    let mut world = acting(|_| {});
    let missing = Some("CAP_KILL is missing".to_owned());
    world.feed(Input::Permissions(crate::actions::Permissions { missing, ..Default::default() }));
    orphaned(&mut world);
    world.wait(2 * MINUTE);

    assert!(matches!(reap(&mut world, &[]), Err(ActionRequestError::NoRights(_))));
    assert!(world.operations.is_empty() && receipts(&world).is_empty());
}

#[test]
fn evidence_during_grace_prevents_sigkill() {
    let (mut world, agent, [npm, sh, node]) = reporting_with_server();
    world.stubborn.insert(node);
    world.kill(agent);
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();
    assert_eq!(world.terminated(), [node, sh, npm]);
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
fn exit_completes_verification() {
    let mut world = reporting();
    let [npm, sh, node] = left_behind(&mut world);
    world.slow_proc = true;
    reap(&mut world, &[]).unwrap();
    for process in [npm, sh] {
        let seen = world.ordinary.clone();
        world.feed(Input::Inspected(process, Some(seen)));
    }
    assert!(world.operations.is_empty());
    world.kill(node);
    assert_eq!(world.terminated(), [sh, npm]);
}

#[test]
fn end_names_the_session_of_a_pid() {
    let (world, _, [npm, ..]) = reporting_with_server();
    let id = SessionId(npm.pid.0.into());
    let refusal = |uid| {
        let request = ActionRequest { uid, what: RequestedAction::End(id), expect: None };
        world.engine.plan(&request).unwrap_err()
    };
    let expected = ActionRequestError::ProcessNotSession(npm.pid, SessionId(1));
    assert_eq!((refusal(USER), refusal(ROOT)), (expected.clone(), expected.clone()));
    assert_eq!(refusal(Uid(7)), ActionRequestError::NoSession(id), "of another user");
    let pid = npm.pid;
    assert_eq!(
        expected.to_string(),
        format!(
            "there is no session {pid}, but process {pid} is in session 1: `watchdogctl end 1` ends that session, \
             `watchdogctl end --kept pid:{pid}` only the process with its descendants"
        )
    );
}
