use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::shown_world::{ShownFinding, number};
use super::world::{MINUTE, SECOND, World};
use crate::input::Input;
use watchdog_api::{FindingKind, Severity};
use watchdog_config::{Config, Globs, Size};
use watchdog_fixtures::traces::traces;
use watchdog_types::{Bytes, CgroupLimit, ExitStatus, Limits, ProcessId};

const HOUR: Duration = Duration::from_secs(3_600);
const GIB: u64 = 1024;

pub(super) fn world() -> World {
    world_with(Config::default())
}

fn world_with(config: Config) -> World {
    let mut world = World::with(config);
    world.host(Bytes::from_mib(16 * GIB), Bytes(0));
    world
}

pub(super) fn helper(world: &mut World) -> ProcessId {
    let agent = world.claude();
    world.spawn(agent, &["/usr/bin/node", "/home/u/server.js"])
}

/// Memory in MiB by seconds, sampled every second as long as it lasts. Stops at the first leak.
pub(super) fn run(
    world: &mut World,
    process: ProcessId,
    span: Duration,
    memory: impl Fn(f64) -> f64,
) -> Option<ShownFinding> {
    let began = world.now;
    while world.now.since(began) < span {
        let seconds = world.now.since(began).as_secs_f64();
        world.memory(process, Bytes((memory(seconds) * 1_048_576.0) as u64));
        if let Some(finding) = world.open(FindingKind::Leak).into_iter().next() {
            return Some(finding);
        }
        world.pass(SECOND);
    }
    None
}

#[test]
fn mib_per_second_found_within_minute() {
    let mut world = world();
    let helper = helper(&mut world);
    let leak = run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");

    assert_eq!(leak.pid, helper.pid.0);
    assert!((number(&leak, "growth_bytes_per_second") / 1_048_576.0 - 1.0).abs() < 0.1, "{leak:#?}");
    assert!((number(&leak, "seconds_to_limit") - 16_384.0).abs() < 1_000.0, "{leak:#?}");
    assert_eq!(leak.evidence["limit"], "host");
    assert!((0.5..1.0).contains(&number(&leak, "confidence")));
    assert!(number(&leak, "grown_bytes") >= 35.0 * 1_048_576.0);
    assert_eq!(leak.severity, Severity::Info, "four hours are left");
    assert_eq!(leak.proposed_action, "report");
}

#[test]
fn sawtooth_is_no_leak() {
    let mut world = world();
    let helper = helper(&mut world);
    assert_eq!(run(&mut world, helper, HOUR, |s| 80.0 + (s % 20.0) * 12.0), None);
}

#[test]
fn unsampled_process_has_not_changed() {
    let mut world = world();
    let helper = helper(&mut world);
    // Six loads, minutes apart, and no word in between: as if it had grown all the time.
    for load in 0..6 {
        world.memory(helper, Bytes::from_mib(100 + load * 30));
        world.pass(MINUTE * 5);
    }
    world.memory(helper, Bytes::from_mib(250));
    assert!(world.open(FindingKind::Leak).is_empty());
}

#[test]
fn growth_continues_across_suspend() {
    let mut world = world();
    let helper = helper(&mut world);
    assert_eq!(run(&mut world, helper, SECOND * 30, |s| 50.0 + s), None);
    world.now = world.now.plus(HOUR * 9);
    let leak = run(&mut world, helper, MINUTE, |s| 80.0 + s).expect("a leak");
    assert!((number(&leak, "growth_bytes_per_second") / 1_048_576.0 - 1.0).abs() < 0.1, "{leak:#?}");
}

#[test]
fn plateau_is_shown_then_closes_leak() {
    let mut world = world();
    let helper = helper(&mut world);
    run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");
    world.pass(MINUTE);
    let open = world.open(FindingKind::Leak);
    assert!(number(&open[0], "plateau_seconds") >= 50.0, "{open:#?}");
    assert_eq!(open[0].evidence["seconds_to_limit"], json!(null));
    world.pass(MINUTE * 4);
    assert_eq!(world.all(FindingKind::Leak)[0].closed_because.as_deref(), Some("plateau"));
}

#[test]
fn swaying_plateau_is_shown() {
    let mut world = world();
    let helper = helper(&mut world);
    let leak = run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");
    let top = number(&leak, "memory_bytes") / 1_048_576.0;
    for second in 0..60 {
        world.pass(SECOND);
        world.memory(helper, Bytes::from_mib(top as u64 - second % 2));
    }
    let open = world.open(FindingKind::Leak);
    assert!(number(&open[0], "plateau_seconds") >= 50.0, "{open:#?}");
    assert_eq!(open[0].evidence["seconds_to_limit"], json!(null));
}

#[test]
fn released_memory_closes_leak() {
    let mut world = world();
    let helper = helper(&mut world);
    run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");
    world.memory(helper, Bytes::from_mib(55));
    assert_eq!(world.all(FindingKind::Leak)[0].closed_because.as_deref(), Some("given back"));
}

#[test]
fn exit_or_exec_closes_leak() {
    for exec in [false, true] {
        let mut world = world();
        let helper = helper(&mut world);
        run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");
        if exec {
            world.exec(helper, "/usr/bin/sleep", &["sleep", "9"]);
        } else {
            world.kill(helper);
        }
        let because = if exec { "runs another program" } else { "gone" };
        assert_eq!(world.all(FindingKind::Leak)[0].closed_because.as_deref(), Some(because));
    }
}

#[test]
fn remaining_time_sets_severity() {
    for (available, severity) in [(3_000, Severity::Info), (1_500, Severity::Warning), (240, Severity::Critical)] {
        let mut world = world();
        let helper = helper(&mut world);
        world.host(Bytes::from_mib(available), Bytes(0));
        let leak = run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");
        assert_eq!(leak.severity, severity, "{leak:#?}");
    }
}

#[test]
fn nearest_ceiling_counts() {
    let cgroup = CgroupLimit {
        path: "/a.scope".into(),
        max: Bytes::from_mib(600),
        current: Bytes::from_mib(590),
        ..CgroupLimit::default()
    };
    let heap = Some(Bytes::from_mib(300));
    for (limits, configured, name, left_mib) in [
        (
            Limits { cgroup: Some(cgroup.clone()), v8_heap: Some(Bytes::from_mib(900)), ..Limits::default() },
            None,
            "cgroup",
            500.0,
        ),
        (Limits { cgroup: Some(cgroup.clone()), v8_heap: heap, ..Limits::default() }, None, "v8-heap", 226.0),
        (
            Limits { cgroup: Some(cgroup), v8_heap: heap, ..Limits::default() },
            Some(Size::Bytes(Bytes::from_mib(200))),
            "configured",
            100.0,
        ),
    ] {
        let mut config = Config::default();
        config.leaks.limit = configured;
        let mut world = world_with(config);
        let helper = helper(&mut world);
        world.feed(Input::Limits(helper, limits));
        let leak = run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");
        assert_eq!(leak.evidence["limit"], name);
        let left = number(&leak, "limit_left_bytes") / 1_048_576.0;
        assert!((left - left_mib).abs() < 8.0, "{left} MiB left below {name}");
    }
}

#[test]
fn profile_limit_is_a_ceiling() {
    let mut config = Config::default();
    config.leaks.limit = Some(Size::Bytes(Bytes::from_mib(400)));
    for profile in &mut config.profiles {
        profile.max_process_memory = Some(Size::Bytes(Bytes::from_mib(200)));
    }
    let mut world = world_with(config);
    let helper = helper(&mut world);
    let leak = run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");
    assert_eq!((&leak.evidence["limit"], &leak.evidence["limit_bytes"]), (&"configured".into(), &(200 << 20).into()));
}

#[test]
fn growth_outside_heap_ignores_heap_limit() {
    let mut world = world();
    let helper = helper(&mut world);
    world.feed(Input::Limits(helper, Limits { cgroup: None, v8_heap: Some(Bytes::from_mib(64)), ..Limits::default() }));
    let leak = run(&mut world, helper, MINUTE * 2, |s| 150.0 + s).expect("a leak");
    assert_eq!(leak.evidence["limit"], "host");
}

#[test]
fn runaway_needs_scarce_memory() {
    for (available, expected) in [(12 * GIB, true), (60 * GIB, false)] {
        let mut world = world();
        let agent = world.claude();
        let tool = world.spawn(agent, &["/usr/bin/rg", "x"]);
        let began = world.now;
        let mut found = None;
        while world.now.since(began) < SECOND * 25 && found.is_none() {
            let mib = 20 + world.now.since(began).as_millis() as u64 * 230 / 1_000;
            world.host(Bytes::from_mib(available.saturating_sub(mib)), Bytes(0));
            world.memory(tool, Bytes::from_mib(mib));
            found = world.open(FindingKind::Leak).into_iter().next();
            world.wait(Duration::from_millis(250));
        }
        assert_eq!(found.is_some(), expected, "{available} MiB available: {found:#?}");
        if let Some(leak) = found {
            assert_eq!(leak.severity, Severity::Critical);
            assert_eq!(leak.pid, tool.pid.0);
        }
    }
}

#[test]
fn tool_burst_is_no_leak() {
    let mut world = world();
    let agent = world.claude();
    let tool = world.spawn(agent, &["/usr/bin/cc1plus"]);
    for millis in (0..4_000_u64).step_by(250) {
        let mib = 20 + millis.min(2_000) * 3;
        world.host(Bytes::from_mib(12 * GIB - mib), Bytes(0));
        world.memory(tool, Bytes::from_mib(mib));
        assert!(world.open(FindingKind::Leak).is_empty(), "after {millis} ms");
        world.wait(Duration::from_millis(250));
    }
}

#[test]
fn third_equal_tool_burst_no_leak() {
    let mut world = world();
    let agent = world.claude();
    let mut build = || {
        let tool = world.spawn(agent, &["/usr/bin/tsc"]);
        for second in 0..80 {
            world.memory(tool, Bytes::from_mib(50 + second * 3));
            world.pass(SECOND);
        }
        let found = !world.open(FindingKind::Leak).is_empty();
        world.end(tool, ExitStatus::Code(0));
        found
    };
    assert!(build(), "the first time its size is unknown");
    build();
    assert!(!build());
}

/// Every so often another helper of 20 MiB; the one before may end.
fn helpers_come(world: &mut World, every: Duration, count: usize, stay: bool) {
    let agent = world.claude();
    let mut before: Option<ProcessId> = None;
    for _ in 0..count {
        let helper = world.spawn(agent, &["/usr/bin/node", "/home/u/gateway.js"]);
        world.memory(helper, Bytes::from_mib(20));
        if let Some(before) = before.replace(helper).filter(|_| !stay) {
            world.end(before, ExitStatus::Code(0));
        }
        world.pass(every);
    }
}

#[test]
fn accumulating_flat_helpers_leak_by_role() {
    let mut world = world();
    helpers_come(&mut world, MINUTE * 4, 30, true);
    let leaks = world.open(FindingKind::Leak);
    assert_eq!(leaks.len(), 1, "{leaks:#?}");
    assert_eq!(leaks[0].evidence["scope"], "role");
    assert_eq!(leaks[0].evidence["program"], "gateway.js");
    assert!(leaks[0].summary.starts_with("gateway.js (started "), "{}", leaks[0].summary);
}

#[test]
fn replaced_helpers_form_sawtooth() {
    let mut world = world();
    helpers_come(&mut world, MINUTE * 4, 30, false);
    assert!(world.all(FindingKind::Leak).is_empty());
}

#[test]
fn program_allowed_to_grow_not_reported() {
    let mut config = Config::default();
    config.leaks.ignore = Globs::new(vec!["*/server.js".into()]).unwrap();
    let mut world = world_with(config);
    let helper = helper(&mut world);
    assert_eq!(run(&mut world, helper, MINUTE * 3, |s| 50.0 + s), None);
}

/// A program whose collector runs every twenty seconds, as it was captured: `fixtures/rss-traces`.
#[test]
fn sparse_samples_find_heap_leak() {
    let traces = traces(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/rss-traces")).unwrap();
    let found = traces.iter().find(|trace| trace.name == "leak-heap-under-collections").unwrap();
    let trace: Vec<(f64, f64)> =
        found.samples.iter().map(|(ms, kib)| (*ms as f64 / 1e3, *kib as f64 / 1024.0)).collect();
    let mut world = world();
    let helper = helper(&mut world);
    let at = |seconds: f64| trace.iter().rev().find(|(at, _)| *at <= seconds).map_or(trace[0].1, |(_, mib)| *mib);
    let leak = run(&mut world, helper, SECOND * 115, at).expect("a leak");
    assert!((number(&leak, "growth_bytes_per_second") * 60.0 / 50e6 - 1.0).abs() < 0.2, "{leak:#?}");
}
