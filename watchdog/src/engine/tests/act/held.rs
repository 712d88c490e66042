use super::*;
use crate::config::{Reaction, Reactions, Size};
use crate::engine::act::Answer;
use crate::engine::effect::Effect;
use crate::engine::gate::Confinement;

/// A host on which policy does this about tools that take more than 200 MiB.
fn limiting(reaction: Reaction) -> World {
    acting(|config| {
        config.actions.about = Reactions([(FindingKind::Overlimit, reaction)].into());
        for profile in &mut config.profiles {
            profile.max_process_memory = Some(Size::Bytes(Bytes::from_mib(200)));
        }
    })
}

/// An agent with a tool of 900 MiB, in a cgroup of their own.
fn hog(world: &mut World) -> (ProcessId, ProcessId) {
    let agent = world.claude();
    let session = SessionId(world.session(agent).id);
    world.tell(Input::Confined(session, Confinement { cgroup: Some("/agent".into()), problem: None }));
    let hog = tool(world, agent, 900);
    world.wait(40 * SECOND);
    (agent, hog)
}

/// What was done to cgroups, in order.
fn waves(world: &World) -> Vec<Blow> {
    let blow = |effect: &Effect| match effect {
        Effect::Strike(wave) if wave.cgroup.is_some() => Some(wave.blow),
        _ => None,
    };
    world.effects.iter().filter_map(blow).collect()
}

#[test]
fn a_session_is_throttled_no_longer_when_what_it_was_about_is_dead() {
    let mut world = limiting(Reaction::Throttle);
    let (_, hog) = hog(&mut world);
    assert_eq!(waves(&world), [Blow::Throttle]);
    world.kill(hog);
    world.wait(SECOND);
    assert_eq!(waves(&world), [Blow::Throttle, Blow::Loosen]);
    assert_eq!(receipt(&world).state, ActionState::Done);
}

#[test]
fn a_cgroup_is_not_left_frozen_by_the_death_of_those_in_it() {
    let mut world = limiting(Reaction::Freeze);
    let (_, hog) = hog(&mut world);
    world.kill(hog);
    world.wait(SECOND);
    assert_eq!(waves(&world), [Blow::Freeze, Blow::Thaw]);
}

#[test]
fn what_a_person_let_go_of_policy_does_not_take_again() {
    for (reaction, done) in
        [(Reaction::Freeze, [Blow::Freeze, Blow::Thaw]), (Reaction::Throttle, [Blow::Throttle, Blow::Loosen])]
    {
        let mut world = limiting(reaction);
        let (agent, _) = hog(&mut world);
        let session = Subject::Session(world.session(agent).id);
        ask(&mut world, USER, What::Thaw(vec![session])).unwrap();
        world.wait(5 * MINUTE);
        assert_eq!(waves(&world), done);
        assert_eq!(receipts(&world).len(), 1);
    }
}

#[test]
fn who_somebody_else_has_stopped_is_not_tried_again_and_again() {
    let mut world = limiting(Reaction::Freeze);
    let agent = world.claude();
    let hog = tool(&mut world, agent, 900);
    world.shows(hog, |seen| seen.stopped = true);
    world.wait(10 * MINUTE);
    assert!(world.blows.is_empty());
    assert!(receipts(&world).len() <= 1, "{}", receipts(&world).len());
}

#[test]
fn what_is_refused_is_tried_again_after_a_while_and_not_at_every_tick() {
    let mut world = limiting(Reaction::Throttle);
    world.refusal = Some(Answer::Refused("the cgroup has no memory.high".to_owned()));
    hog(&mut world);
    world.wait(2 * MINUTE);
    assert_eq!(receipts(&world).len(), 1);
    world.refusal = None;
    world.wait(10 * MINUTE);
    let states: Vec<ActionState> = receipts(&world).iter().map(|receipt| receipt.state).collect();
    assert_eq!(states, [ActionState::Incomplete, ActionState::Holding]);
}

#[test]
fn who_could_not_be_struck_is_struck_when_that_is_possible_again() {
    let mut world = acting(|_| {});
    let agent = world.claude();
    let chain = server(&mut world, agent);
    world.refusal = Some(Answer::Refused("it could not be written down: no space".to_owned()));
    world.kill(agent);
    world.wait(MINUTE);
    assert_eq!(receipt(&world).state, ActionState::Incomplete);
    world.refusal = None;
    world.wait(15 * MINUTE);
    assert!(all_dead(&world, &chain));
}

#[test]
fn a_receipt_of_what_is_let_go_waits_for_that() {
    let mut world = limiting(Reaction::Freeze);
    world.slow_hand = Some(Vec::new());
    let (agent, hog) = hog(&mut world);
    let session = Subject::Session(world.session(agent).id);
    ask(&mut world, USER, What::Thaw(vec![session])).unwrap();
    let answers = world.slow_hand.take().unwrap();
    assert_eq!(answers.len(), 2);
    for (answer, state) in answers.into_iter().zip([ActionState::Running, ActionState::Done]) {
        world.tell(answer);
        assert_eq!(receipt(&world).state, state);
    }
    assert_eq!(sent(&receipt(&world), hog), [("STOP", "sent"), ("CONT", "sent")]);
}

#[test]
fn nothing_is_said_to_be_held_before_that_is_known() {
    let mut world = limiting(Reaction::Throttle);
    world.slow_hand = Some(Vec::new());
    let (_, hog) = hog(&mut world);
    assert_eq!((receipt(&world).state, sent(&receipt(&world), hog)), (ActionState::Running, vec![]));
    for answer in world.slow_hand.take().unwrap() {
        world.tell(answer);
    }
    assert_eq!(receipt(&world).state, ActionState::Holding);
    assert_eq!(sent(&receipt(&world), hog), [("memory.high", "sent")]);
}

#[test]
fn who_could_not_be_let_go_is_when_that_is_possible_again() {
    for by_person in [true, false] {
        let mut world = limiting(Reaction::Freeze);
        let (agent, hog) = hog(&mut world);
        world.refusal = Some(Answer::Refused("too many open files".to_owned()));
        if by_person {
            let session = Subject::Session(world.session(agent).id);
            ask(&mut world, USER, What::Thaw(vec![session])).unwrap();
        } else {
            world.memory(hog, Bytes::from_mib(20));
            world.wait(MINUTE);
        }
        let held = receipt(&world);
        assert_eq!((held.state, held.result.as_str()), (ActionState::Holding, "not let go: too many open files"));
        world.refusal = None;
        world.wait(2 * MINUTE);
        assert_eq!(receipt(&world).state, ActionState::Done);
        assert_eq!(sent(&receipt(&world), hog).last(), Some(&("CONT", "sent")));
    }
}
