//! The host at a glance: memory and its holders, sessions, findings, the queue.

use std::collections::BTreeMap;

use super::block::{PageView, StatTile, ViewBlock};
use super::samples::{host_chart, period, period_links, samples};
use super::table::{ViewCell, ViewColumn, ViewRow, ViewTable};
use super::tone::ViewTone;
use super::words::{age, share};
use super::{findings, session};
use crate::context::WebContext;
use crate::holders::HostSample;
use crate::request::WebRequest;
use watchdog_api::client::ClientError;
use watchdog_api::{Evidence, Finding, Overview, Queue, Session, SessionState, Severity, Status, Tree};
use watchdog_types::units::{count, seconds, size};

pub(super) fn page(request: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    // One response without processes: a list of thousands costs the daemon milliseconds, and a page asks every three seconds.
    let path = "/v1/overview?processes_of=&findings=true&queue=true";
    let Overview { status, tree: Tree { mut sessions }, findings, queue } =
        context.client.get::<Overview>(path)?.document;
    let findings = findings.map(|findings| findings.findings).unwrap_or_default();
    let queue = queue.ok_or_else(|| ClientError::InvalidResponse {
        request: format!("GET {path}"),
        why: "the queue is missing".to_owned(),
    })?;
    // What is kept outlives its session.
    sessions.retain(|session| session.state != SessionState::Ended || session.process_count > 0);
    sessions.sort_by_key(|session| std::cmp::Reverse(session.memory_bytes));
    let seconds = period(request);
    let mut samples = samples(context, seconds)?;
    samples.push(HostSample::now(status.host, &sessions));
    let act = context.guard.may_act();
    let blocks = vec![
        ViewBlock::Tiles { tiles: tiles(&status, &sessions, &findings, &queue) },
        ViewBlock::Links { label: "Period", links: period_links("overview", seconds) },
        ViewBlock::Chart(host_chart("Host memory: who held it", &samples)),
        ViewBlock::Table(session_table(&sessions, &status, &orphans(&findings), act)),
        ViewBlock::Table(findings::table(&findings)),
        ViewBlock::Table(queue_table(&queue)),
    ];
    Ok(PageView { title: "Overview".into(), act, blocks })
}

/// Orphans by session, as the open findings count them.
fn orphans(findings: &[Finding]) -> BTreeMap<u64, usize> {
    let mut orphans = BTreeMap::new();
    for finding in findings {
        if let (Some(session), Evidence::Orphan(group)) = (finding.session, &finding.evidence) {
            *orphans.entry(session).or_default() += group.count;
        }
    }
    orphans
}

fn tiles(status: &Status, sessions: &[Session], findings: &[Finding], queue: &Queue) -> Vec<StatTile> {
    let (host, counts) = (&status.host, &status.counts);
    let used = host.memory_total_bytes.saturating_sub(host.memory_available_bytes);
    let part = share(used, host.memory_total_bytes);
    let swap = match host.swap_total_bytes {
        0 => ", no swap".into(),
        total => format!(", swap {} of {}", size(total.saturating_sub(host.swap_free_bytes)), size(total)),
    };
    let pressure = host.pressure_some_avg10.map_or_else(String::new, |some| format!(", pressure {some:.1} %"));
    let orphaned = match counts.sessions_orphaned {
        0 => String::new(),
        orphaned => format!(", {orphaned} with orphans only"),
    };
    let idle = sessions.iter().filter(|one| one.state == SessionState::Running && one.idle_since.is_some());
    let idle: Vec<u64> = idle.map(|one| one.resident_bytes).collect();
    let idle = match idle.len() {
        0 => String::new(),
        sessions => format!(", {sessions} idle with {} resident", size(idle.iter().sum())),
    };
    let worst = findings.iter().map(|finding| finding.severity).max();
    let severe = findings.iter().filter(|finding| finding.severity > Severity::Info).count() as u64;
    let mut tiles = vec![
        StatTile {
            label: "Host memory",
            value: size(used),
            detail: format!("of {}{swap}{pressure}", size(host.memory_total_bytes)),
            share: Some(part),
            tone: if part > 0.9 { Some(ViewTone::Bad) } else { (part > 0.8).then_some(ViewTone::Warn) },
        },
        StatTile {
            label: "Held by agents",
            value: size(counts.memory_bytes),
            detail: count(counts.processes, "process", "processes"),
            share: Some(share(counts.memory_bytes, host.memory_total_bytes)),
            tone: None,
        },
        StatTile {
            label: "Sessions",
            value: (counts.sessions_running + counts.sessions_orphaned).to_string(),
            detail: format!("{} running{idle}{orphaned}", counts.sessions_running),
            share: None,
            tone: (counts.sessions_orphaned > 0).then_some(ViewTone::Warn),
        },
        StatTile {
            label: "Findings",
            value: counts.findings_open.to_string(),
            detail: format!("{severe} to act on"),
            share: None,
            tone: worst.and_then(ViewTone::of),
        },
        StatTile {
            label: "Launch queue",
            value: queue.waiting.len().to_string(),
            detail: if queue.breaker.open {
                format!("breaker open: {}", queue.breaker.detail)
            } else {
                format!("{} free for launches", size(queue.room.free_bytes))
            },
            share: None,
            tone: queue.breaker.open.then_some(ViewTone::Bad),
        },
    ];
    if status.degraded || status.lost_events > 0 {
        tiles.push(StatTile {
            label: "Daemon",
            value: if status.degraded { "degraded" } else { "events lost" }.into(),
            detail: format!("{}; see watchdogctl doctor", count(status.lost_events, "event lost", "events lost")),
            share: None,
            tone: Some(ViewTone::Warn),
        });
    }
    tiles
}

fn session_table(sessions: &[Session], status: &Status, orphans: &BTreeMap<u64, usize>, act: bool) -> ViewTable {
    let total = status.host.memory_total_bytes;
    let mut columns = vec![
        ViewColumn::text("Session"),
        ViewColumn::text("Agent"),
        ViewColumn::text("State"),
        ViewColumn::number("Memory"),
        ViewColumn::number("Resident").low(),
        ViewColumn::number("Swapped").low(),
        ViewColumn::text("Idle since").low(),
        ViewColumn::number("Processes"),
        ViewColumn::text("User").low(),
        ViewColumn::text("Age").low(),
    ];
    if act {
        columns.push(ViewColumn::text("Actions"));
    }
    let rows = sessions.iter().map(|session| {
        let orphans = orphans.get(&session.id).copied().unwrap_or_default();
        let (state, tone) = match (session.state, orphans) {
            (SessionState::Orphaned, _) => ("orphaned".into(), Some(ViewTone::Warn)),
            (state, 0) => (state.name().to_owned(), None),
            (state, orphans) => {
                let orphans = count(orphans as u64, "orphan", "orphans");
                (format!("{}, {orphans}", state.name()), Some(ViewTone::Warn))
            }
        };
        let mut cells = vec![
            ViewCell::link(session.id.to_string(), format!("#session?id={}", session.id)),
            ViewCell::link(&session.profile, format!("#session?id={}", session.id)),
            ViewCell::new(state).tone(tone),
            ViewCell::new(size(session.memory_bytes)).share(share(session.memory_bytes, total)),
            ViewCell::new(size(session.resident_bytes)),
            ViewCell::new(size(session.swap_bytes)),
            ViewCell::new(session::idle_since(session)),
            ViewCell::new(session.process_count.to_string()),
            ViewCell::new(&session.user),
            ViewCell::new(age(&session.started_at)),
        ];
        if act {
            cells.push(ViewCell::buttons(session::buttons(session.id, session.state, orphans > 0)));
        }
        ViewRow { key: session.id.to_string(), cells }
    });
    ViewTable { title: "Sessions".into(), columns, rows: rows.collect(), empty: "No agent is running." }
}

fn queue_table(queue: &Queue) -> ViewTable {
    let rows = queue.waiting.iter().map(|waiter| ViewRow {
        key: format!("{}/{}", waiter.pid, waiter.start_time),
        cells: vec![
            ViewCell::new(waiter.position.to_string()),
            ViewCell::new(&waiter.profile),
            ViewCell::new(&waiter.user),
            ViewCell::new(seconds(waiter.waited_seconds.round())),
            ViewCell::new(size(waiter.memory_bytes)),
            ViewCell::new(format!("{}: {}", waiter.reason.name(), waiter.detail)),
        ],
    });
    let columns = vec![
        ViewColumn::number("Position"),
        ViewColumn::text("Agent"),
        ViewColumn::text("User"),
        ViewColumn::number("Waited"),
        ViewColumn::number("Needs"),
        ViewColumn::text("Waits for"),
    ];
    ViewTable { title: "Launch queue".into(), columns, rows: rows.collect(), empty: "No launch is waiting." }
}
