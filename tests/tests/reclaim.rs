//! Idle sessions are paged out to real swap, and come back when they are used.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use rustix::process::Signal;
use serde_json::Value;
use watchdog_host::testing::TestSwap;
use watchdog_tests::{Daemon, ProcessKey, Stage, anonymous_bytes, is_alive, limit, poll, seconds};

const MIB: u64 = 1 << 20;
const FOREIGNER: u32 = 65_433;
/// What samples show of a session's 80 MiB. Before Linux 6.2, each thread may withhold 64 pages from the kernel's counters.
const SAMPLED: u64 = 78 * MIB;

/// An agent, and its server that holds 64 MiB and then does this.
fn session(stage: &mut Stage, then: &str) -> [ProcessKey; 2] {
    let script = format!("spawn helper [ anon 64 report server {then} hold ] anon 16 report agent hold");
    let agent = stage.agent(&script);
    stage.reported("agent");
    [agent, stage.reported("server")]
}

fn anonymous(process: ProcessKey) -> u64 {
    anonymous_bytes(process.pid).expect("it is alive")
}

/// The value of a counter.
fn metric(daemon: &Daemon, name: &str) -> f64 {
    let text = daemon.metrics();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the metric");
    line.trim().parse().expect("a number")
}

fn number(document: &Value, name: &str) -> u64 {
    document[name].as_u64().unwrap_or_else(|| panic!("{name} in {document}"))
}

#[test]
fn requested_session_goes_out_and_returns() {
    let Some(_swap) = TestSwap::new(512) else { return };
    let mut stage = Stage::new();
    // The server takes more than one order.
    let config = "[reclaim]\nmode = \"off\"\nreserve = \"1MiB\"\nbudget = \"12MiB\"\n";
    let daemon = Daemon::configured(&stage, config);
    let [agent, server] = session(&mut stage, "await wake read mark awake");
    let known = daemon.eventually(seconds(20.0), "the session with its memory", |seen| {
        seen.session_with(server).filter(|session| session.memory_bytes > SAMPLED).cloned()
    });
    let id = known.id.to_string();
    let before = anonymous(server) + anonymous(agent);
    assert!(before > 80 * MIB, "{before}");

    let refused = daemon.ctl_as(FOREIGNER, &["reclaim", &id]);
    assert_eq!(refused.code, 77, "{refused:?}");
    assert_eq!(daemon.ctl(&["reclaim"]).code, 1, "no session is known to be idle");
    let planned = daemon.ctl(&["reclaim", &id, "--dry-run"]);
    assert_eq!((planned.code, planned.json()["state"].as_str()), (0, Some("planned")), "{planned:?}");
    assert!(number(&planned.json(), "paged_out_bytes") > SAMPLED, "{planned:?}");
    assert!(anonymous(server) > 60 * MIB, "a plan changes nothing");

    let done = daemon.ctl(&["reclaim", &id]);
    let receipt = done.json();
    assert_eq!((done.code, receipt["state"].as_str(), &receipt["note"]), (0, Some("done"), &Value::Null), "{done:?}");
    assert!(number(&receipt, "paged_out_bytes") > SAMPLED && number(&receipt, "swapped_bytes") > 70 * MIB, "{done:?}");
    assert!(anonymous(server) < 8 * MIB && anonymous(agent) < 8 * MIB, "{} {}", anonymous(server), anonymous(agent));
    let shown = daemon.eventually(seconds(20.0), "the swapped memory", |seen| {
        seen.session_with(server).filter(|session| session.swap_bytes > 70 * MIB).cloned()
    });
    assert!(shown.resident_bytes < 40 * MIB && shown.memory_bytes > SAMPLED, "{shown:?}");
    let text = daemon.ctl_text(&["tree"]).stdout;
    assert!(text.contains(" resident, ") && text.contains(" swapped"), "{text}");

    // It is used again.
    stage.mark("wake");
    stage.await_mark("awake");
    assert!(anonymous(server) > 60 * MIB && is_alive(agent) && is_alive(server));
    assert!(metric(&daemon, "agent_watchdog_reclaimed_bytes_total") > 80e6);
    assert!(metric(&daemon, "agent_watchdog_reclaim_seconds_total") > 0.0);
    let refaulted = || Some(metric(&daemon, "agent_watchdog_refaulted_bytes_total")).filter(|bytes| *bytes > 60e6);
    assert!(poll(limit(seconds(30.0)), refaulted).is_some(), "{}", daemon.log());
    let recorded = poll(limit(seconds(10.0)), || {
        let history = daemon.ctl_text(&["history"]).stdout;
        history.contains("(requested)").then_some(history)
    });
    assert!(recorded.is_some_and(|history| history.contains("paged out ")), "{}", daemon.ctl_text(&["history"]).stdout);
}

#[test]
fn idle_session_paged_out_automatically() {
    let Some(_swap) = TestSwap::new(512) else { return };
    let mut stage = Stage::new();
    let config = "[reclaim]\nmode = \"proactive\"\nidle = \"3s\"\nreserve = \"1MiB\"\n";
    let daemon = Daemon::configured(&stage, config);
    let [agent, server] = session(&mut stage, "");
    // A session that keeps starting processes is never idle, however slow the machine is.
    let busy = stage.agent("anon 32 report busy bury times 100000 [ spawn helper [ sleep 1 ] sleep 0.2 ]");
    let out = daemon.eventually(seconds(40.0), "the idle session in swap", |seen| {
        seen.session_with(server).filter(|session| session.swap_bytes > 70 * MIB).cloned()
    });
    assert!(out.idle_since.is_some(), "{out:?}");
    assert!(daemon.ctl_text(&["tree"]).stdout.contains("idle for "));
    // The server goes first.
    let gone = || (anonymous(server) < 8 * MIB && anonymous(agent) < 8 * MIB).then_some(());
    assert!(poll(seconds(20.0), gone).is_some(), "{} {}", anonymous(server), anonymous(agent));
    assert!(anonymous(busy) > 30 * MIB, "an active session stays resident");
    let counted = poll(limit(seconds(10.0)), || {
        let run = daemon.get("/v1/reclaim")["runs"][0].clone();
        (run["sessions"] == 1).then_some(run)
    });
    assert!(counted.is_some_and(|run| run["trigger"] == "proactive"), "{:#}", daemon.get("/v1/reclaim"));
    assert!(is_alive(agent) && is_alive(server) && is_alive(busy));
}

/// What the gate expects idle sessions to release.
fn expected(daemon: &Daemon) -> u64 {
    number(&daemon.get("/v1/queue")["room"], "reclaimable_bytes")
}

#[test]
fn restarted_daemon_knows_released_memory() {
    let Some(_swap) = TestSwap::new(512) else { return };
    let mut stage = Stage::new();
    let mut daemon = Daemon::configured(&stage, "[reclaim]\nidle = \"3s\"\nreserve = \"1MiB\"\n");
    let [_, server] = session(&mut stage, "");
    let id = daemon.eventually(seconds(20.0), "the session with its memory", |seen| {
        seen.session_with(server).filter(|session| session.memory_bytes > 80 * MIB).map(|session| session.id)
    });
    let done = daemon.ctl(&["reclaim", &id.to_string()]);
    assert!(done.code == 0 && number(&done.json(), "paged_out_bytes") > 80 * MIB, "{done:?}");
    daemon.send(Signal::TERM);
    assert!(daemon.wait(seconds(10.0)).is_some());
    assert!(daemon.state_dir().join("yields.json").exists());
    daemon.restart();
    // Another session of this profile; this run of the daemon has paged out nothing.
    stage.agent("anon 64 report other hold");
    stage.reported("other");
    let known = poll(seconds(40.0), || Some(expected(&daemon)).filter(|bytes| *bytes > 20 * MIB));
    assert!(known.is_some(), "{:#}", daemon.get("/v1/queue"));
    assert_eq!(daemon.get("/v1/reclaim")["runs"].as_array().map(Vec::len), Some(0));
}
