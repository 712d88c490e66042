//! States for tests: the tree of `watchdog_render::testing`, an orphaned session, and many.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use watchdog_api::{Evidence, Finding, FindingKind, ProcessKind, ProcessState, SessionState, Severity, Tree};
use watchdog_render::testing::{busy_queue, healthy_status, process, tree};

use super::{GateSummary, Observation, ScreenSource, TopMessage, TopModel, TopRequest};

/// Noon of 2 January 2026.
pub(crate) fn noon() -> Timestamp {
    Timestamp::from_second(1_767_355_200).unwrap()
}

pub(crate) fn finding(id: u64, session: u64, pid: u32, summary: &str) -> Finding {
    Finding {
        id,
        kind: FindingKind::Orphan,
        severity: Severity::Warning,
        session: Some(session),
        pid,
        start_time: u64::from(pid),
        opened_at: "2026-01-02T11:57:00Z".into(),
        closed_at: None,
        closed_because: None,
        summary: summary.into(),
        evidence: Evidence::default(),
        proposed_action: "terminate".into(),
        action_taken: None,
    }
}

/// Session 3 of 7 processes, and the orphaned session 4 whose names are hostile.
pub(crate) fn observation() -> Observation {
    let mut both = tree();
    let running = &mut both.sessions[0];
    (running.process_count, running.peak_memory_bytes) = (7, 1900 << 20);
    let mut orphaned = running.clone();
    (orphaned.id, orphaned.state, orphaned.profile) = (4, SessionState::Orphaned, "codex".into());
    (orphaned.memory_bytes, orphaned.peak_memory_bytes, orphaned.process_count) = (90 << 20, 300 << 20, 3);
    orphaned.processes = vec![
        process(50_001, 1, ProcessKind::McpServer, &["evil\x1b[2J\u{202e}gpj"], 60),
        process(50_002, 50_001, ProcessKind::Tool, &["日本語のプログラム"], 20),
        process(50_003, 1, ProcessKind::Other, &["sleep", "100"], 10),
    ];
    for (process, state) in
        orphaned.processes.iter_mut().zip([ProcessState::Orphaned, ProcessState::Orphaned, ProcessState::Kept])
    {
        process.state = state;
    }
    orphaned.processes[2].kept_because = Some("started through nohup".into());
    both.sessions.push(orphaned);
    let status = healthy_status();
    let mut gate = GateSummary::from(&busy_queue());
    gate.breaker = None;
    Observation {
        at: noon(),
        host: status.host,
        counts: watchdog_api::Counts { sessions_running: 1, sessions_orphaned: 1, processes: 10, ..status.counts },
        tree: both,
        findings: vec![finding(12, 4, 50_001, "2 orphaned processes (80 MiB) from codex (pid 50000)")],
        gate: Some(gate),
        trouble: None,
        in_fleet: false,
        fleet: None,
    }
}

/// Session 3 has been idle for 25 minutes and has memory in swap; the host belongs to a fleet.
pub(crate) fn idle_model() -> TopModel {
    let mut model = live();
    let mut seen = observation();
    let session = &mut seen.tree.sessions[0];
    session.idle_since = Some("2026-01-02T11:35:00Z".into());
    (session.resident_bytes, session.swap_bytes) = (1_530 << 20, 210 << 20);
    seen.in_fleet = true;
    model.update(TopMessage::Observed(Box::new(seen)), noon());
    model
}

/// `sessions` sessions with `processes` processes in each.
pub(crate) fn many(sessions: u64, processes: u32) -> Observation {
    let one = tree().sessions.remove(0);
    let sessions = (1..=sessions).map(|id| {
        let first = u32::try_from(id).unwrap() * 10_000;
        let rows = (0..processes).map(|n| {
            let parent = if n == 0 { 1 } else { first + n / 4 };
            process(first + n, parent, ProcessKind::Tool, &["node", "/x/server/dist/index.js"], u64::from(n % 50) + 1)
        });
        let rows = rows.collect();
        watchdog_api::Session { id, process_count: u64::from(processes), processes: rows, ..one.clone() }
    });
    Observation { tree: Tree { sessions: sessions.collect() }, ..observation() }
}

pub(crate) fn live() -> TopModel {
    TopModel::new(ScreenSource::Live, noon(), TimeZone::UTC)
}

/// The staged state over a minute, in which process 41250 grew by 60 MiB.
pub(crate) fn model() -> TopModel {
    let mut model = live();
    model.set_view(20, 4);
    for second in 0..=60 {
        let mut seen = observation();
        let grown = (60 - second) << 20;
        seen.tree.sessions[0].processes[4].anon_bytes -= grown;
        seen.tree.sessions[0].memory_bytes -= grown;
        seen.at = noon().checked_sub(SignedDuration::from_secs(60 - second.cast_signed())).unwrap();
        let at = seen.at;
        model.update(TopMessage::Observed(Box::new(seen)), at);
    }
    model
}

pub(crate) fn press(model: &mut TopModel, keys: &str) -> Vec<TopRequest> {
    let codes = keys.chars().map(|key| match key {
        '\n' => KeyCode::Enter,
        '\x1b' => KeyCode::Esc,
        '\t' => KeyCode::Tab,
        '↓' => KeyCode::Down,
        '↑' => KeyCode::Up,
        '←' => KeyCode::Left,
        '→' => KeyCode::Right,
        key => KeyCode::Char(key),
    });
    let keys = codes.map(|code| TopMessage::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    keys.flat_map(|key| model.update(key, noon())).collect()
}
