//! Memory that grew until the host was gone, and memory that only looked so. L numbers are those of the reports.

use std::time::Duration;

use super::*;
use crate::api::{Finding, Severity};
use crate::engine::id::Bytes;
use crate::engine::input::{CgroupLimit, ExitStatus, Input, Limits, Memory};
use crate::engine::tests::leak::run;
use crate::engine::tests::world::{MINUTE, SECOND, number};

const GIB: u64 = 1024;

fn on_host_with(available_mib: u64) -> World {
    let mut world = World::new();
    world.host(Bytes::from_mib(available_mib), Bytes(0));
    world
}

/// MiB per second.
fn rate(finding: &Finding) -> f64 {
    number(finding, "growth_bytes_per_second") / 1_048_576.0
}

/// A straight line between points of seconds and MiB.
fn through(points: &'static [(f64, f64)]) -> impl Fn(f64) -> f64 {
    move |at| {
        let after = points.iter().position(|(x, _)| *x > at).unwrap_or(points.len() - 1);
        let ((x0, y0), (x1, y1)) = (points[after - 1], points[after]);
        (y0 + (y1 - y0) * (at - x0) / (x1 - x0)).min(points[points.len() - 1].1)
    }
}

/// L01: 2 to 4 GB a minute on 128 GB: a warning half an hour before the end, and again five minutes before it.
#[test]
fn a_leak_becomes_urgent_as_its_end_comes_near() {
    let mut world = on_host_with(120 * GIB);
    let agent = claude(&mut world);
    let mut severities = Vec::new();
    for second in 0..2_200_u64 {
        let mib = 400 + second * 50;
        world.host(Bytes::from_mib(120 * GIB - mib), Bytes(0));
        world.memory(agent, Bytes::from_mib(mib));
        world.pass(SECOND);
        for finding in world.open(FindingKind::Leak) {
            if severities.last() != Some(&finding.severity) {
                severities.push(finding.severity);
            }
        }
    }
    assert_eq!(severities, [Severity::Info, Severity::Warning, Severity::Critical]);
    assert_eq!(world.all(FindingKind::Leak).len(), 1);
}

/// L02: 450 MB a minute with no input and no tools, far beyond the heap limit that it was given.
#[test]
fn growth_outside_the_heap_is_not_bounded_by_its_limit() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    world.tell(Input::Limits(agent, Limits { cgroup: None, v8_heap: Some(Bytes::from_mib(4_096)) }));
    run(&mut world, agent, MINUTE * 2, |s| 300.0 + s * 7.2).expect("a leak within two minutes");
    for second in 60..900 {
        world.memory(agent, Bytes::from_mib(300 + second * 72 / 10));
        world.pass(SECOND);
    }
    let leak = &world.open(FindingKind::Leak)[0];
    assert_eq!(leak.evidence["limit"], "host");
    assert!((24.0..30.0).contains(&(rate(leak) * 3_600.0 / 1_024.0)), "{leak:#?}");
}

/// L03: 0.8 GB after half a minute, which is no 92 GB an hour: it started up.
#[test]
fn memory_divided_by_a_short_age_is_no_slope() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    let memory = |s: f64| 800.0 * (s / 25.0).min(1.0);
    assert_eq!(run(&mut world, agent, MINUTE * 20, memory), None);
}

/// L03: 6.2 GB an hour over five minutes is one.
#[test]
fn six_gigabytes_an_hour_are_a_leak_within_five_minutes() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    let leak = run(&mut world, agent, MINUTE * 5, |s| 400.0 + s * 1.76).expect("a leak");
    assert!((rate(&leak) - 1.76).abs() < 0.2);
}

/// L04: in a scope of 6 GB, from 300 MB to its end in ten minutes: the scope's limit counts, not the host.
#[test]
fn the_end_is_that_of_the_scope() {
    let mut world = on_host_with(14 * GIB);
    let agent = claude(&mut world);
    let cgroup = CgroupLimit {
        path: "/user.slice/run-u1.scope".into(),
        max: Bytes::from_mib(6 * GIB),
        current: Bytes::from_mib(5 * GIB),
        cache: Bytes(0),
    };
    world.tell(Input::Limits(agent, Limits { cgroup: Some(cgroup), v8_heap: None }));
    let leak = run(&mut world, agent, MINUTE * 3, |s| 300.0 + s * 9.5).expect("a leak");
    assert_eq!(leak.evidence["limit"], "cgroup");
    assert_eq!(leak.evidence["limit_cgroup"], "/user.slice/run-u1.scope");
    let left = number(&leak, "seconds_to_limit");
    assert!((430.0..600.0).contains(&left), "{left}");
}

/// L06: 1.4 GB a minute.
#[test]
fn opencode_that_takes_gigabytes_a_minute_is_found_within_two() {
    let mut world = on_host_with(60 * GIB);
    let agent = world.agent("/usr/bin/opencode");
    assert!(run(&mut world, agent, MINUTE * 4, |s| 500.0 + s * 24.0).is_some());
}

/// L07: an extension host on 3.8 GB, slower and quicker: found by minute 6.
#[test]
fn a_leak_that_is_not_straight_is_found_by_minute_six() {
    let mut world = on_host_with(3_400);
    let agent = claude(&mut world);
    let points = &[(0.0, 100.0), (180.0, 603.0), (300.0, 785.0), (540.0, 1_323.0), (780.0, 3_400.0)];
    let leak = run(&mut world, agent, MINUTE * 6, through(points)).expect("a leak");
    assert!(number(&leak, "seconds_to_limit") < 1_800.0, "{leak:#?}");
}

/// L08: the launcher is flat, the program behind it grows.
#[test]
fn the_one_that_grows_is_named_not_the_one_that_started_it() {
    let mut world = on_host_with(28 * GIB);
    let launcher = world.agent_with("/usr/bin/node", &["node", "/usr/lib/node_modules/.bin/codex"]);
    let native = world.spawn(launcher, &["/usr/lib/codex/vendor/x86_64-unknown-linux-musl/bin/codex"]);
    world.memory(launcher, Bytes::from_mib(45));
    let leak = run(&mut world, native, MINUTE * 2, |s| 100.0 + s * 12.0).expect("a leak");
    assert_eq!(leak.pid, native.pid.0);
}

/// L12: the server leaks, not the agent.
#[test]
fn a_server_that_leaks_is_named_with_its_program_and_session() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    let server = world.spawn(agent, &["/home/u/.local/bin/codebase-memory-mcp"]);
    let leak = run(&mut world, server, MINUTE * 90, |s| 10.0 + s * 0.2).expect("a leak");
    assert_eq!(leak.evidence["program"], "codebase-memory-mcp");
    assert_eq!(leak.session, Some(world.session(agent).id));
    assert!(number(&leak, "grown_bytes") < 300.0 * 1_048_576.0);
}

/// L13: many language servers, each like the others, are no leak of their session.
#[test]
fn a_language_server_for_each_worktree_is_no_leak() {
    let mut world = on_host_with(60 * GIB);
    let agent = claude(&mut world);
    for _ in 0..60 {
        let server = world.spawn(agent, &["/home/u/.cargo/bin/rust-analyzer"]);
        for second in 0..20 {
            world.memory(server, Bytes::from_mib(30 + second * 35));
            world.pass(SECOND);
        }
        world.pass(MINUTE * 4);
    }
    assert!(world.all(FindingKind::Leak).is_empty());
}

/// L14: a search that takes 55 MB a second, on a host that others need, too.
#[test]
fn a_search_that_runs_away_is_the_tools_leak() {
    let mut world = on_host_with(20 * GIB);
    let agent = claude(&mut world);
    let bash = shell(&mut world, agent, "grep -P x y");
    let search = world.fork(bash);
    world.exec(search, CLAUDE, &["ugrep", "-P", "x"]);
    let leak = run(&mut world, search, Duration::from_secs(171), |s| 20.0 + s * 55.0).expect("a leak");
    assert_eq!(leak.pid, search.pid.0);
    assert!(number(&leak, "seconds_to_limit") < 600.0);
}

/// T14: what the runtime keeps after load, with collections every now and then.
#[test]
fn memory_that_does_not_come_down_is_no_leak() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    let memory = |s: f64| 120.0 + 300.0 * (s / 35.0).min(1.0) + (s % 45.0) * 2.0;
    assert_eq!(run(&mut world, agent, MINUTE * 60, memory), None);
}

/// T16: two minutes of loading, then less.
#[test]
fn a_language_server_that_reads_its_project_is_no_leak() {
    let mut world = on_host_with(40 * GIB);
    let agent = claude(&mut world);
    let server = world.spawn(agent, &["/home/u/.cargo/bin/rust-analyzer"]);
    let memory = |s: f64| if s < 130.0 { 50.0 + s * 33.0 } else { 2_000.0 };
    assert_eq!(run(&mut world, server, MINUTE * 60, memory), None);
}

/// T17: forty processes hold 5.85 GB, and keep it.
#[test]
fn what_is_kept_after_the_work_is_no_leak() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    let workers: Vec<ProcessId> = (0..40).map(|_| world.spawn(agent, &["/usr/bin/node", "/w.js"])).collect();
    for second in 0..30 {
        workers.iter().for_each(|worker| world.memory(*worker, Bytes::from_mib(20 + second * 45 / 10)));
        world.pass(SECOND);
    }
    world.pass(MINUTE * 60);
    assert!(world.all(FindingKind::Leak).is_empty());
}

/// T18: tool calls of a second or two that take up to 4 GB.
#[test]
fn tool_calls_are_no_leak_of_their_session() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    world.memory(agent, Bytes::from_mib(185));
    for call in 0..144_u64 {
        let tool = shell(&mut world, agent, "pytest");
        for quarter in 0..6 {
            world.memory(tool, Bytes::from_mib(20 + quarter * (100 + call * 4)));
            world.wait(Duration::from_millis(250));
        }
        world.end(tool, ExitStatus::Code(0));
        world.pass(Duration::from_secs(20));
    }
    assert!(world.all(FindingKind::Leak).is_empty());
}

/// T19, T20: pages of files, read or mapped, are no memory of the process.
#[test]
fn pages_of_files_are_no_leak() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    let server = world.spawn(agent, &["/usr/bin/llama-server"]);
    for second in 0..300 {
        let memory = Memory { anon: Bytes::from_mib(50), file: Bytes::from_mib(second * 45), ..Memory::default() };
        world.sample(server, memory);
        world.pass(SECOND);
    }
    assert!(world.all(FindingKind::Leak).is_empty());
}

/// L10: what is swapped out is held all the same.
#[test]
fn memory_that_goes_to_swap_still_grows() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    let mut found = false;
    for second in 0..60_u64 {
        let memory = Memory { anon: Bytes::from_mib(100), swap: Bytes::from_mib(second * 2), ..Memory::default() };
        world.sample(agent, memory);
        world.pass(SECOND);
        found |= !world.open(FindingKind::Leak).is_empty();
    }
    assert!(found);
}

/// C06: one that was left behind may leak, too: both are said.
#[test]
fn an_orphan_may_leak() {
    let mut world = on_host_with(28 * GIB);
    let agent = claude(&mut world);
    let helper = world.spawn(agent, &["/usr/bin/node", "/server.js"]);
    world.kill(agent);
    let leak = run(&mut world, helper, MINUTE * 2, |s| 60.0 + s * 3.0).expect("a leak");
    assert_eq!(leak.pid, helper.pid.0);
    assert_eq!(world.open(FindingKind::Orphan).len(), 1);
}

/// C26: pool workers that grow to half a gigabyte each and are replaced by more: only the session shows it.
#[test]
fn a_slow_burn_over_many_workers_is_a_leak_of_the_session() {
    let mut world = on_host_with(20 * GIB);
    let agent = claude(&mut world);
    for number in 0..40 {
        let script = format!("/pool/worker-{number}.js");
        let worker = world.spawn(agent, &["/usr/bin/node", &script]);
        world.memory(worker, Bytes::from_mib(45));
        world.pass(MINUTE * 6);
    }
    let leaks = world.open(FindingKind::Leak);
    assert_eq!(leaks.len(), 1, "{leaks:#?}");
    assert_eq!(leaks[0].evidence["scope"], "session");
    assert!(number(&leaks[0], "seconds_to_limit") > 86_400.0);
}
