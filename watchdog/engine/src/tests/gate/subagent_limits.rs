//! Subagents inside an agent's process, reported by its hooks.

use super::*;
use crate::gate::{SubagentDecision, SubagentHook};
use crate::tests::shown_world::listed;
use watchdog_api::{FindingKind, SubagentEvent};

const THREE: &str = "[[profile]]\nname = \"claude-code\"\nmax_subagents = 3\n";

/// A hook of the agent reports this event. Returns the decision.
fn report_hook(world: &mut World, agent: ProcessId, event: SubagentEvent, call: Option<&str>) -> SubagentDecision {
    let caller = world.spawn(agent, &["/usr/bin/watchdogctl", "hook", "claude-code"]);
    world.feed(Input::Subagent(SubagentHook { caller, event, call: call.map(str::to_owned) }));
    world.kill(caller);
    let decision = |effect: &Effect| match effect {
        Effect::Reply(ClientReply::Subagent(decision)) => Some(decision.clone()),
        _ => None,
    };
    world.effects.iter().rev().find_map(decision).unwrap()
}

fn starts(world: &mut World, agent: ProcessId, call: &str) -> SubagentDecision {
    report_hook(world, agent, SubagentEvent::Start, Some(call))
}

#[test]
fn subagent_limit_holds() {
    let mut world = host(THREE, 16 * GIB, 3 * GIB + 1_639);
    let agent = world.claude();
    for (count, call) in (1..).zip(["a", "b", "c"]) {
        let decision = starts(&mut world, agent, call);
        assert_eq!((decision.blocker, decision.running, decision.max_subagents), (None, count, Some(3)));
    }
    let denied = starts(&mut world, agent, "d");
    let blocker = denied.blocker.unwrap();
    assert_eq!(
        (blocker.reason, blocker.detail.as_str()),
        (RefusalReason::Quota, "3 of 3 subagents running, 3.0 GiB free")
    );
    assert_eq!(denied.running, 3);
    report_hook(&mut world, agent, SubagentEvent::Stop, Some("b"));
    assert_eq!(starts(&mut world, agent, "e").blocker, None);
}

#[test]
fn past_durations_set_retry() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    starts(&mut world, agent, "a");
    world.pass(Duration::from_secs(60));
    report_hook(&mut world, agent, SubagentEvent::Stop, Some("a"));
    for call in ["b", "c", "d"] {
        starts(&mut world, agent, call);
    }
    world.pass(Duration::from_secs(20));
    let wait = starts(&mut world, agent, "e").blocker.unwrap().retry_after.unwrap().as_secs();
    assert!((38..=41).contains(&wait), "{wait}");
}

#[test]
fn duplicate_stop_frees_one_slot() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    for call in ["a", "b", "c", "denied"] {
        starts(&mut world, agent, call);
    }
    report_hook(&mut world, agent, SubagentEvent::Stop, Some("denied"));
    assert_eq!(report_hook(&mut world, agent, SubagentEvent::Stop, Some("a")).running, 2);
    assert_eq!(report_hook(&mut world, agent, SubagentEvent::Stop, Some("a")).running, 2);
}

#[test]
fn stop_without_id_ends_oldest() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    starts(&mut world, agent, "a");
    assert_eq!(report_hook(&mut world, agent, SubagentEvent::Stop, None).running, 0);
    assert_eq!(report_hook(&mut world, agent, SubagentEvent::Stop, None).running, 0);
}

#[test]
fn session_end_stops_all_subagents() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    starts(&mut world, agent, "a");
    assert_eq!(report_hook(&mut world, agent, SubagentEvent::SessionEnd, None).running, 0);
    starts(&mut world, agent, "b");
    // The next process with its pid is another one.
    world.kill(agent);
    let next = world.claude();
    assert_eq!(starts(&mut world, next, "c").running, 1);
}

#[test]
fn turn_end_stops_foreground_subagents() {
    let mut world = roomy(THREE);
    let agent = world.claude();
    // One was allowed and then denied by a person, which no hook reports; one continues in the background.
    starts(&mut world, agent, "denied");
    starts(&mut world, agent, "b");
    report_hook(&mut world, agent, SubagentEvent::Stop, Some("b"));
    report_hook(&mut world, agent, SubagentEvent::Background, Some("agent-b"));
    assert_eq!(report_hook(&mut world, agent, SubagentEvent::TurnEnd, None).running, 1);
    assert_eq!(report_hook(&mut world, agent, SubagentEvent::Stop, Some("agent-b")).running, 0);
}

#[test]
fn runaway_hook_is_bounded() {
    let mut world = roomy("");
    let agent = world.claude();
    for number in 0..300 {
        starts(&mut world, agent, &format!("{number}{}", "x".repeat(1_000)));
    }
    assert_eq!(starts(&mut world, agent, "last").running, 256);
}

#[test]
fn breaker_blocks_subagents() {
    let mut world = host("", 100 * GIB, 10 * GIB);
    let agent = world.claude();
    assert_eq!(starts(&mut world, agent, "a").blocker.unwrap().reason, RefusalReason::Breaker);
}

#[test]
fn caller_outside_sessions_is_allowed() {
    let mut world = roomy(THREE);
    let stranger = world.launcher();
    world.feed(Input::Subagent(SubagentHook { caller: stranger, event: SubagentEvent::Start, call: None }));
    let decision = SubagentDecision { blocker: None, session: None, running: 0, max_subagents: None };
    assert_eq!(world.effects.last(), Some(&Effect::Reply(ClientReply::Subagent(decision))));
}

#[test]
fn finished_subagents_helper_is_stale() {
    let mut world = roomy("");
    let agent = world.claude();
    let before = world.spawn(agent, &["/usr/bin/node", "/x/mcp-server-notes.js"]);
    starts(&mut world, agent, "a");
    let left = world.spawn(agent, &["/usr/bin/node", "/x/mcp-server-browser.js"]);
    let busy = world.spawn(agent, &["/usr/bin/node", "/x/mcp-server-busy.js"]);
    world.does(busy, Duration::from_secs(20), 10_000, 1 << 30);
    world.pass(Duration::from_secs(30));
    assert!(world.open(FindingKind::Stale).is_empty(), "the subagent runs");
    report_hook(&mut world, agent, SubagentEvent::Stop, Some("a"));
    world.pass(Duration::from_secs(30));
    let findings = world.open(FindingKind::Stale);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((findings[0].pid, findings[0].proposed_action.as_str()), (left.pid.0, "report"));
    assert!(findings[0].summary.ends_with("left by a finished subagent"), "{}", findings[0].summary);
    assert_eq!(world.row(before).state, api::ProcessState::Running);
    world.kill(left);
    world.pass(Duration::from_secs(2));
    assert!(world.open(FindingKind::Stale).is_empty());
}

#[test]
fn finished_subagents_helpers_are_one_finding() {
    let mut world = roomy("");
    let agent = world.claude();
    let leave = |world: &mut World, call: &str| {
        starts(world, agent, call);
        let left = ["browser", "notes", "search"]
            .map(|name| world.spawn(agent, &["/usr/bin/node", &format!("/x/mcp-server-{name}.js"), call]));
        report_hook(world, agent, SubagentEvent::Stop, Some(call));
        world.pass(Duration::from_secs(40));
        left.map(|process| process.pid.0)
    };
    let first = leave(&mut world, "a");
    let findings = world.open(FindingKind::Stale);
    assert_eq!((findings.len(), listed(&findings[0])), (1, first.to_vec()));
    assert_eq!(findings[0].evidence["name"], "mcp-server-browser, mcp-server-notes, mcp-server-search");

    let second = leave(&mut world, "b");
    let both = world.open(FindingKind::Stale);
    assert_eq!(both.iter().map(listed).collect::<Vec<_>>(), [first.to_vec(), second.to_vec()]);
    assert_eq!(both[0].id, findings[0].id);
    for pid in first {
        let process = world.living().find(|process| process.pid.0 == pid).unwrap();
        assert_eq!(world.row(process).state, api::ProcessState::Stale);
        world.kill(process);
    }
    world.pass(Duration::from_secs(5));
    assert_eq!(world.open(FindingKind::Stale).len(), 1);
    assert_eq!(world.all(FindingKind::Stale)[0].closed_because.as_deref(), Some("gone"));
}

#[test]
fn concurrent_subagents_own_no_helper() {
    let mut world = roomy("");
    let agent = world.claude();
    starts(&mut world, agent, "a");
    world.spawn(agent, &["/usr/bin/node", "/x/mcp-server-browser.js"]);
    starts(&mut world, agent, "b");
    report_hook(&mut world, agent, SubagentEvent::Stop, Some("a"));
    world.pass(Duration::from_secs(60));
    assert!(world.open(FindingKind::Stale).is_empty());
}
