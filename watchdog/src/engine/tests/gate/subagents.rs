//! Subagents inside an agent's process, of which its hooks tell.

use super::*;
use crate::api::{FindingKind, SubagentEvent};
use crate::engine::gate::{Subagent, SubagentDecision};

const THREE: &str = "[[profile]]\nname = \"claude-code\"\nmax_subagents = 3\n";

/// A hook of the agent tells.
fn tells(world: &mut World, agent: ProcessId, event: SubagentEvent, call: Option<&str>) -> SubagentDecision {
    let caller = world.spawn(agent, &["/usr/bin/watchdogctl", "hook", "claude-code"]);
    world.tell(Input::Subagent(Subagent { caller, event, call: call.map(str::to_owned) }));
    world.kill(caller);
    let decision = |effect: &Effect| match effect {
        Effect::Subagent(decision) => Some(decision.clone()),
        _ => None,
    };
    world.effects.iter().rev().find_map(decision).unwrap()
}

fn starts(world: &mut World, agent: ProcessId, call: &str) -> SubagentDecision {
    tells(world, agent, SubagentEvent::Start, Some(call))
}

#[test]
fn as_many_as_may_run_at_once() {
    let mut world = host(THREE, 16 * GIB, 3 * GIB + 1_639);
    let agent = world.claude();
    for (count, call) in (1..).zip(["a", "b", "c"]) {
        let decision = starts(&mut world, agent, call);
        assert_eq!((decision.obstacle, decision.running, decision.max_subagents), (None, count, Some(3)));
    }
    let denied = starts(&mut world, agent, "d");
    let obstacle = denied.obstacle.unwrap();
    assert_eq!(
        (obstacle.reason, obstacle.detail.as_str()),
        (RefusalReason::Quota, "3 of 3 subagents running, 3.0 GiB free")
    );
    assert_eq!(denied.running, 3);
    tells(&mut world, agent, SubagentEvent::Stop, Some("b"));
    assert_eq!(starts(&mut world, agent, "e").obstacle, None);
}

#[test]
fn the_next_try_is_told_by_how_long_the_last_ones_took() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    starts(&mut world, agent, "a");
    world.pass(Duration::from_secs(60));
    tells(&mut world, agent, SubagentEvent::Stop, Some("a"));
    for call in ["b", "c", "d"] {
        starts(&mut world, agent, call);
    }
    world.pass(Duration::from_secs(20));
    let wait = starts(&mut world, agent, "e").obstacle.unwrap().retry_after.unwrap().as_secs();
    assert!((38..=41).contains(&wait), "{wait}");
}

#[test]
fn an_end_that_is_told_twice_or_of_one_that_was_denied_frees_one_place_only() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    for call in ["a", "b", "c", "denied"] {
        starts(&mut world, agent, call);
    }
    tells(&mut world, agent, SubagentEvent::Stop, Some("denied"));
    assert_eq!(tells(&mut world, agent, SubagentEvent::Stop, Some("a")).running, 2);
    assert_eq!(tells(&mut world, agent, SubagentEvent::Stop, Some("a")).running, 2);
}

#[test]
fn an_end_without_a_number_is_the_oldests() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    starts(&mut world, agent, "a");
    assert_eq!(tells(&mut world, agent, SubagentEvent::Stop, None).running, 0);
    assert_eq!(tells(&mut world, agent, SubagentEvent::Stop, None).running, 0);
}

#[test]
fn the_end_of_the_session_is_the_end_of_all() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    starts(&mut world, agent, "a");
    assert_eq!(tells(&mut world, agent, SubagentEvent::SessionEnd, None).running, 0);
    starts(&mut world, agent, "b");
    // Whoever has its pid next is another.
    world.kill(agent);
    let next = world.claude();
    assert_eq!(starts(&mut world, next, "c").running, 1);
}

#[test]
fn the_end_of_a_turn_is_the_end_of_those_that_it_waited_for() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    // One was allowed and then denied by a person, of which no hook tells; one goes on in the background.
    starts(&mut world, agent, "denied");
    starts(&mut world, agent, "b");
    tells(&mut world, agent, SubagentEvent::Stop, Some("b"));
    tells(&mut world, agent, SubagentEvent::Background, Some("agent-b"));
    assert_eq!(tells(&mut world, agent, SubagentEvent::TurnEnd, None).running, 1);
    assert_eq!(tells(&mut world, agent, SubagentEvent::Stop, Some("agent-b")).running, 0);
}

#[test]
fn a_hook_that_goes_wild_is_forgotten_in_part() {
    let mut world = roomy("");
    let agent = world.claude();
    for number in 0..300 {
        starts(&mut world, agent, &format!("{number}{}", "x".repeat(1_000)));
    }
    assert_eq!(starts(&mut world, agent, "last").running, 256);
}

#[test]
fn the_breaker_holds_for_subagents_too() {
    let mut world = host("", 100 * GIB, 10 * GIB);
    let agent = world.claude();
    assert_eq!(starts(&mut world, agent, "a").obstacle.unwrap().reason, RefusalReason::Breaker);
}

#[test]
fn of_a_caller_in_no_session_nothing_is_counted_and_nothing_denied() {
    let mut world = roomy(THREE);
    let stranger = world.launcher();
    world.tell(Input::Subagent(Subagent { caller: stranger, event: SubagentEvent::Start, call: None }));
    let decision = SubagentDecision { obstacle: None, session: None, running: 0, max_subagents: None };
    assert_eq!(world.effects.last(), Some(&Effect::Subagent(decision)));
}

#[test]
fn what_a_finished_subagent_leaves_idle_is_stale_at_once() {
    let mut world = roomy("");
    let agent = world.claude();
    let before = world.spawn(agent, &["/usr/bin/node", "/x/mcp-server-notes.js"]);
    starts(&mut world, agent, "a");
    let left = world.spawn(agent, &["/usr/bin/node", "/x/mcp-server-browser.js"]);
    let busy = world.spawn(agent, &["/usr/bin/node", "/x/mcp-server-busy.js"]);
    world.does(busy, Duration::from_secs(20), 10_000, 1 << 30);
    world.pass(Duration::from_secs(30));
    assert!(world.open(FindingKind::Stale).is_empty(), "the subagent runs");
    tells(&mut world, agent, SubagentEvent::Stop, Some("a"));
    world.pass(Duration::from_secs(30));
    let findings = world.open(FindingKind::Stale);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((findings[0].pid, findings[0].proposed_action.as_str()), (left.pid.0, "report"));
    assert!(findings[0].summary.ends_with("left by a subagent that has finished"), "{}", findings[0].summary);
    assert_eq!(world.row(before).state, api::ProcessState::Running);
    world.kill(left);
    world.pass(Duration::from_secs(2));
    assert!(world.open(FindingKind::Stale).is_empty());
}

#[test]
fn of_two_subagents_at_once_nobody_knows_whose_a_helper_is() {
    let mut world = roomy("");
    let agent = world.claude();
    starts(&mut world, agent, "a");
    world.spawn(agent, &["/usr/bin/node", "/x/mcp-server-browser.js"]);
    starts(&mut world, agent, "b");
    tells(&mut world, agent, SubagentEvent::Stop, Some("a"));
    world.pass(Duration::from_secs(60));
    assert!(world.open(FindingKind::Stale).is_empty());
}
