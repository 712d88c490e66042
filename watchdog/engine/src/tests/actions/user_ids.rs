//! Whose processes a person and policy reach, when processes change their user.

use super::*;
use crate::actions::OperationOutcome;
use watchdog_types::UserIds;

fn ids(uid: Uid) -> UserIds {
    UserIds { real: uid, effective: uid, saved: uid }
}

/// A user's agent with one helper.
fn agent_and_helper(world: &mut World) -> (ProcessId, ProcessId, SessionId) {
    let agent = world.claude();
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    let session = SessionId(world.session(agent).id);
    (agent, helper, session)
}

#[test]
fn process_that_became_root_survives_end() {
    let mut world = reporting();
    let (agent, helper, session) = agent_and_helper(&mut world);
    world.shows(helper, |seen| seen.user_ids = Some(ids(ROOT)));

    ask(&mut world, USER, RequestedAction::End(session)).unwrap();
    world.wait(SECOND);

    assert_eq!(world.terminated(), [agent]);
    let receipt = receipt(&world);
    let spared = receipt.spared.iter().find(|spared| spared.pid == helper.pid.0).unwrap();
    assert_eq!(spared.because, format!("not permitted: process {} runs as root", helper.pid));
    assert!(spared.not_permitted);
}

#[test]
fn root_ends_what_became_root() {
    let mut world = reporting();
    let (agent, helper, session) = agent_and_helper(&mut world);
    world.shows(helper, |seen| seen.user_ids = Some(ids(ROOT)));

    ask(&mut world, ROOT, RequestedAction::End(session)).unwrap();

    assert_eq!(world.terminated(), [helper, agent]);
}

#[test]
fn process_that_became_the_users_ends() {
    let mut world = reporting();
    let agent = world.claude();
    let helper = world.fork(agent);
    world.belongs_to(helper, Uid(4_000));
    world.exec(helper, "/usr/bin/node", &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    let session = SessionId(world.session(agent).id);
    let asked = ActionRequest { uid: USER, what: RequestedAction::End(session), expect: None };
    assert_eq!(world.engine.last_seen_as_other_users(&asked), [helper]);

    world.shows(helper, |seen| seen.user_ids = Some(ids(USER)));
    world.feed(Input::UserIds(vec![(helper, ids(USER))]));
    ask(&mut world, USER, RequestedAction::End(session)).unwrap();

    assert_eq!(world.terminated(), [helper, agent]);
}

#[test]
fn sessions_of_others_are_not_read() {
    let mut world = reporting();
    let (agent, helper, session) = agent_and_helper(&mut world);
    let read = |what| world.engine.last_seen_as_other_users(&ActionRequest { uid: Uid(4_000), what, expect: None });

    assert!(read(RequestedAction::End(session)).is_empty());
    assert!(read(RequestedAction::EndKept(Subject::Session(session.0))).is_empty());
    assert!(read(RequestedAction::Reap(vec![Subject::Pid(helper.pid.0), Subject::Session(session.0)])).is_empty());
    assert_eq!(read(RequestedAction::EndKept(Subject::Pid(agent.pid.0))), [agent], "nothing below it");
}

#[test]
fn kernel_refusal_is_reported() {
    let mut world = reporting();
    let (agent, _, session) = agent_and_helper(&mut world);
    world.refusal = Some(OperationOutcome::NotPermitted(format!("not permitted: process {} runs as root", agent.pid)));

    ask(&mut world, USER, RequestedAction::End(session)).unwrap();
    world.wait(SECOND);

    let receipt = receipt(&world);
    assert_eq!(receipt.state, ActionState::CalledOff, "{receipt:#?}");
    assert!(receipt.targets.is_empty() && receipt.spared.iter().all(|spared| spared.not_permitted), "{receipt:#?}");
}

#[test]
fn policy_spares_setuid_helper() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let [npm, sh, node] = super::server(&mut world, agent);
    world.shows(npm, |seen| seen.user_ids = Some(UserIds { effective: ROOT, saved: ROOT, ..ids(USER) }));
    world.kill(agent);
    world.wait(2 * MINUTE);

    let signalled = world.terminated();
    assert!(!signalled.contains(&npm) && signalled.contains(&node) && signalled.contains(&sh), "{signalled:?}");
}

#[test]
fn receipts_of_large_request_remain() {
    let mut world = reporting();
    let agents: Vec<ProcessId> = (0..150)
        .map(|_| {
            let agent = world.claude();
            world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
            agent
        })
        .collect();
    agents.into_iter().for_each(|agent| world.kill(agent));
    world.wait(SECOND);

    reap(&mut world, &[]).unwrap();
    world.wait(5 * SECOND);

    let done = receipts(&world).iter().filter(|receipt| receipt.state == ActionState::Done).count();
    assert_eq!(done, 150);
    world.wait(2 * MINUTE);
    let again = world.claude();
    let helper = world.spawn(again, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.kill(again);
    world.wait(SECOND);
    reap(&mut world, &[]).unwrap();
    world.wait(5 * SECOND);
    assert!(all_dead(&world, &[helper]));
    assert_eq!(receipts(&world).len(), 100, "old receipts are forgotten");
}

#[test]
fn kept_process_ends_only_with_kept() {
    let mut world = reporting();
    let (agent, helper, session) = agent_and_helper(&mut world);
    let worker = world.spawn(helper, &["/usr/bin/node", "/x/worker.js"]);
    world.feed(Input::Adopt(helper));
    world.kill(agent);
    world.wait(SECOND);
    ask(&mut world, USER, RequestedAction::End(session)).unwrap();
    assert!(world.terminated().is_empty());

    let other = ask(&mut world, Uid(4_000), RequestedAction::EndKept(Subject::Pid(helper.pid.0)));
    assert_eq!(other, Err(ActionRequestError::NotYours));
    ask(&mut world, USER, RequestedAction::EndKept(Subject::Pid(helper.pid.0))).unwrap();

    assert_eq!(world.terminated(), [worker, helper]);
}

#[test]
fn session_ends_whole_with_kept() {
    let mut world = reporting();
    let (agent, helper, session) = agent_and_helper(&mut world);
    world.feed(Input::Adopt(helper));

    ask(&mut world, ROOT, RequestedAction::EndKept(Subject::Session(session.0))).unwrap();

    assert_eq!(world.terminated(), [helper, agent]);
}
