use rstest::rstest;

use super::world::{MINUTE, SECOND, World};
use crate::effect::Effect;
use crate::input::Input;
use watchdog_api::{FindingKind, Severity};
use watchdog_types::{Bytes, Inspection, Limits, ProcessId};

/// An agent that was started with this oom_score_adj.
fn agent_with(score: i32) -> (World, ProcessId) {
    let mut world = World::new();
    world.ordinary = Inspection { oom_score_adj: Some(score), ..world.ordinary.clone() };
    let agent = world.claude();
    world.wait(SECOND);
    (world, agent)
}

#[rstest]
#[case::unit(-700, 1)]
#[case::bound(-500, 1)]
#[case::slightly(-100, 0)]
#[case::ordinary(0, 0)]
#[case::sacrificed(300, 0)]
fn low_oom_score_is_reported(#[case] score: i32, #[case] findings: usize) {
    let (world, _) = agent_with(score);
    assert_eq!(world.open(FindingKind::Protected).len(), findings);
}

#[test]
fn protected_session_is_one_finding() {
    let (mut world, agent) = agent_with(-700);
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/server.js"]);
    world.memory(helper, Bytes::from_mib(200));
    world.rest(3 * MINUTE);
    let findings = world.open(FindingKind::Protected);
    assert_eq!((findings.len(), findings[0].pid, findings[0].severity), (1, agent.pid.0, Severity::Warning));
    assert_eq!(findings[0].proposed_action, "report");
    assert_eq!(
        (&findings[0].evidence["oom_score_adj"], &findings[0].evidence["process_count"]),
        (&(-700).into(), &2.into())
    );
    assert_eq!(findings[0].evidence["memory_bytes"], 200_u64 << 20);
    assert_eq!(
        findings[0].summary,
        "claude has oom_score_adj -700: when memory runs out, other processes die in its place"
    );

    world.kill(helper);
    world.kill(agent);
    world.wait(SECOND);
    assert_eq!(world.all(FindingKind::Protected)[0].closed_because.as_deref(), Some("gone"));
}

#[test]
fn raised_oom_score_closes_the_finding() {
    let (mut world, agent) = agent_with(-1000);
    world.shows(agent, |seen| seen.oom_score_adj = Some(0));
    let seen = world.facts[&agent].clone();
    world.feed(Input::Inspected(agent, Some(seen)));
    assert_eq!(world.all(FindingKind::Protected)[0].closed_because.as_deref(), Some("no longer protected"));
}

/// The limits of a process, as read.
fn limits(cgroup: &str, score: i32) -> Limits {
    Limits { own_cgroup: Some(cgroup.into()), oom_score_adj: Some(score), ..Limits::default() }
}

#[test]
fn subject_dies_others_stay() {
    let (mut world, first) = agent_with(-700);
    let second = world.claude();
    world.wait(SECOND);
    let open = world.open(FindingKind::Protected);
    assert_eq!((open.len(), open[0].pid, &open[0].evidence["agents"]), (1, first.pid.0, &2.into()));
    let id = open[0].id;

    world.kill(first);
    world.wait(2 * SECOND);
    let open = world.open(FindingKind::Protected);
    assert_eq!((open.len(), open[0].id, open[0].pid), (1, id, second.pid.0));
    world.kill(second);
    world.wait(2 * SECOND);
    assert!(world.open(FindingKind::Protected).is_empty());
}

#[test]
fn unprotected_helper_counts_with_its_agent() {
    let (mut world, agent) = agent_with(-700);
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/server.js"]);
    world.feed(Input::Limits(helper, limits("/", 0)));
    world.wait(2 * SECOND);
    let open = world.open(FindingKind::Protected);
    assert_eq!((&open[0].evidence["agents"], &open[0].evidence["helpers"]), (&1.into(), &0.into()));
}

#[test]
fn agent_moves_to_another_unit() {
    let (mut world, one) = agent_with(-700);
    let other = world.claude();
    let read = |world: &mut World, agent, unit: &str| {
        world.feed(Input::Limits(agent, limits(&format!("/system.slice/{unit}"), -700)));
        world.wait(70 * SECOND);
    };
    read(&mut world, one, "a.service");
    read(&mut world, other, "a.service");
    assert_eq!(world.open(FindingKind::Protected).len(), 1);
    // The finding of the first unit keeps the name of the process that left it.
    read(&mut world, one, "b.service");
    let units = |world: &World| {
        let mut units: Vec<String> =
            world.open(FindingKind::Protected).iter().map(|finding| finding.evidence["unit"].to_string()).collect();
        units.sort();
        units
    };
    assert_eq!(units(&world), ["\"a.service\""]);
    world.kill(other);
    world.wait(70 * SECOND);
    assert_eq!(units(&world), ["\"b.service\""]);
}

#[test]
fn helper_of_dead_agent_stays_reported() {
    let (mut world, agent) = agent_with(-700);
    let helper = world.spawn(agent, &["/opt/server"]);
    world.feed(Input::Limits(helper, limits("/", -700)));
    world.wait(2 * SECOND);
    world.kill(agent);
    world.wait(2 * SECOND);
    let open = world.open(FindingKind::Protected);
    assert_eq!((open.len(), open[0].pid, &open[0].evidence["helpers"]), (1, helper.pid.0, &1.into()));
}

#[test]
fn scores_of_small_helpers_are_read_in_turn() {
    let (mut world, agent) = agent_with(0);
    let helpers: Vec<ProcessId> = (0..100).map(|_| world.spawn(agent, &["/opt/server"])).collect();
    world.wait(10 * SECOND);
    world.effects.clear();
    world.rest(5 * MINUTE);
    let read = |world: &World, helper: ProcessId| {
        world.effects.iter().filter(|effect| **effect == Effect::ReadProcessLimits(helper)).count()
    };
    for helper in &helpers {
        assert!((1..=2).contains(&read(&world, *helper)), "{helper:?} was read {} times", read(&world, *helper));
    }
    world.feed(Input::Limits(helpers[99], limits("/", -800)));
    let open = world.open(FindingKind::Protected);
    assert_eq!((open.len(), open[0].pid), (1, helpers[99].pid.0));
}
