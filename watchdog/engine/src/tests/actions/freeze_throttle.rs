use super::*;
use crate::actions::OperationOutcome;
use crate::effect::{ActionCommand, Effect};
use watchdog_config::{Response, Responses, Size};
use watchdog_types::Confinement;

/// A host on which policy does this about tools that take more than 200 MiB.
fn limiting(response: Response) -> World {
    acting(|config| {
        config.actions.responses = Responses([(FindingKind::Overlimit, response)].into());
        for profile in &mut config.profiles {
            profile.max_process_memory = Some(Size::Bytes(Bytes::from_mib(200)));
        }
    })
}

/// An agent with a tool of 900 MiB, in a cgroup of their own.
fn hog(world: &mut World) -> (ProcessId, ProcessId) {
    let agent = world.claude();
    let session = SessionId(world.session(agent).id);
    world.feed(Input::Confined(session, Confinement { cgroup: Some("/agent".into()), problem: None }));
    let hog = tool(world, agent, 900);
    world.wait(40 * SECOND);
    (agent, hog)
}

/// What was done to cgroups, in order.
fn waves(world: &World) -> Vec<Operation> {
    let operation = |effect: &Effect| match effect {
        Effect::Act(ActionCommand::Execute(batch)) if batch.cgroup.is_some() => Some(batch.operation),
        _ => None,
    };
    world.effects.iter().filter_map(operation).collect()
}

#[test]
fn dead_subject_ends_throttle() {
    let mut world = limiting(Response::Throttle);
    let (_, hog) = hog(&mut world);
    assert_eq!(waves(&world), [Operation::Throttle]);
    world.kill(hog);
    world.wait(SECOND);
    assert_eq!(waves(&world), [Operation::Throttle, Operation::Unthrottle]);
    assert_eq!(receipt(&world).state, ActionState::Done);
}

#[test]
fn dead_targets_thaw_their_cgroup() {
    let mut world = limiting(Response::Freeze);
    let (_, hog) = hog(&mut world);
    world.kill(hog);
    world.wait(SECOND);
    assert_eq!(waves(&world), [Operation::Freeze, Operation::Thaw]);
}

#[test]
fn policy_respects_user_release() {
    for (response, done) in [
        (Response::Freeze, [Operation::Freeze, Operation::Thaw]),
        (Response::Throttle, [Operation::Throttle, Operation::Unthrottle]),
    ] {
        let mut world = limiting(response);
        let (agent, _) = hog(&mut world);
        let session = Subject::Session(world.session(agent).id);
        ask(&mut world, USER, RequestedAction::Thaw(vec![session])).unwrap();
        world.wait(5 * MINUTE);
        assert_eq!(waves(&world), done);
        assert_eq!(receipts(&world).len(), 1);
    }
}

#[test]
fn stopped_process_is_not_retried() {
    let mut world = limiting(Response::Freeze);
    let agent = world.claude();
    let hog = tool(&mut world, agent, 900);
    world.shows(hog, |seen| seen.stopped = true);
    world.wait(10 * MINUTE);
    assert!(world.operations.is_empty());
    assert!(receipts(&world).len() <= 1, "{}", receipts(&world).len());
}

#[test]
fn refused_action_backs_off() {
    let mut world = limiting(Response::Throttle);
    world.refusal = Some(OperationOutcome::Refused("the cgroup has no memory.high".to_owned()));
    hog(&mut world);
    world.wait(2 * MINUTE);
    assert_eq!(receipts(&world).len(), 1);
    world.refusal = None;
    world.wait(10 * MINUTE);
    let states: Vec<ActionState> = receipts(&world).iter().map(|receipt| receipt.state).collect();
    assert_eq!(states, [ActionState::Incomplete, ActionState::Holding]);
}

#[test]
fn failed_signal_is_retried_later() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.refusal = Some(OperationOutcome::Refused("it could not be written down: no space".to_owned()));
    world.kill(agent);
    world.wait(MINUTE);
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
    world.refusal = None;
    world.wait(15 * MINUTE);
    assert!(all_dead(&world, &chain));
}

#[test]
fn release_receipt_awaits_result() {
    let mut world = limiting(Response::Freeze);
    world.slow_signaller = Some(Vec::new());
    let (agent, hog) = hog(&mut world);
    let session = Subject::Session(world.session(agent).id);
    ask(&mut world, USER, RequestedAction::Thaw(vec![session])).unwrap();
    let outcomes = world.slow_signaller.take().unwrap();
    assert_eq!(outcomes.len(), 2);
    for (answer, state) in outcomes.into_iter().zip([ActionState::Running, ActionState::Done]) {
        world.feed(answer);
        assert_eq!(receipt(&world).state, state);
    }
    assert_eq!(sent(&receipt(&world), hog), [("STOP", "sent"), ("CONT", "sent")]);
}

#[test]
fn hold_is_reported_after_result() {
    let mut world = limiting(Response::Throttle);
    world.slow_signaller = Some(Vec::new());
    let (_, hog) = hog(&mut world);
    assert_eq!((receipt(&world).state, sent(&receipt(&world), hog)), (ActionState::Running, vec![]));
    for answer in world.slow_signaller.take().unwrap() {
        world.feed(answer);
    }
    assert_eq!(receipt(&world).state, ActionState::Holding);
    assert_eq!(sent(&receipt(&world), hog), [("memory.high", "sent")]);
}

#[test]
fn failed_release_is_retried() {
    for by_user in [true, false] {
        let mut world = limiting(Response::Freeze);
        let (agent, hog) = hog(&mut world);
        world.refusal = Some(OperationOutcome::Refused("too many open files".to_owned()));
        if by_user {
            let session = Subject::Session(world.session(agent).id);
            ask(&mut world, USER, RequestedAction::Thaw(vec![session])).unwrap();
        } else {
            world.memory(hog, Bytes::from_mib(20));
            world.wait(MINUTE);
        }
        let held = receipt(&world);
        assert_eq!((held.state, held.result.as_str()), (ActionState::Holding, "not released: too many open files"));
        world.refusal = None;
        world.wait(2 * MINUTE);
        assert_eq!(receipt(&world).state, ActionState::Done);
        assert_eq!(sent(&receipt(&world), hog).last(), Some(&("CONT", "sent")));
    }
}
