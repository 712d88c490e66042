//! The past: memory over a period, and what happened around a moment.

use jiff::{SignedDuration, Timestamp};

use super::block::{PageView, StatTile, ViewBlock};
use super::samples::{host_chart, period, period_links, samples, used};
use super::table::{ViewCell, ViewColumn, ViewRow, ViewTable};
use super::tone::ViewTone;
use super::words::share;
use crate::context::WebContext;
use crate::holders::{HostSample, LastHolders};
use crate::request::WebRequest;
use watchdog_api::client::ClientError;
use watchdog_api::{Past, Record};
use watchdog_types::units::{count, size};

/// Events are shown this long before and after a moment.
const AROUND: SignedDuration = SignedDuration::from_mins(5);
/// The host is sampled every 10 s; an older sample does not say how it was.
const FRESH: i64 = 120;
/// Events that are listed.
const MAX_EVENTS: usize = 200;

pub(super) fn page(request: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    let seconds = period(request);
    let samples = samples(context, seconds)?;
    let times: Vec<i64> = samples.iter().map(|sample| sample.at).collect();
    let chosen = request.parameter("at").and_then(|at| at.parse().ok());
    let mut blocks = vec![
        ViewBlock::Links { label: "Period", links: period_links("history", seconds) },
        ViewBlock::Chart(host_chart("Host memory", &samples)),
    ];
    if let Some(&last) = times.last() {
        blocks.push(ViewBlock::Slider { at: chosen.unwrap_or(last), times });
    }
    Ok(PageView { title: "History".into(), act: context.guard.may_act(), blocks })
}

/// The host at the moment `at`, and the events around it.
pub(super) fn moment(request: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    let at = request.parameter("at").and_then(|at| at.parse::<i64>().ok());
    let at = at.and_then(|at| Timestamp::from_second(at).ok());
    let at = at.ok_or_else(|| ClientError::BadRequest("the address names no moment".into()))?;
    let (host, events) = around(at, context)?;
    let mut blocks = Vec::new();
    match host {
        Some(host) => {
            blocks.push(ViewBlock::Tiles { tiles: tiles(&host) });
            blocks.push(ViewBlock::Table(sessions_then(&host)));
            blocks.push(ViewBlock::Table(processes_then(&host)));
        }
        None => blocks.push(ViewBlock::Text {
            title: String::new(),
            lines: vec!["No sample of the host is near this moment: the daemon did not run.".into()],
        }),
    }
    blocks.push(ViewBlock::Table(event_table(&events, context)));
    Ok(PageView { title: "History".into(), act: context.guard.may_act(), blocks })
}

/// The nearest sample, and the other records near the moment. What is later is not read.
fn around(at: Timestamp, context: &WebContext) -> Result<(Option<HostSample>, Vec<Record>), ClientError> {
    let (from, to) = (at - AROUND, at + AROUND);
    let mut lines = context.client.get_lines(&format!("/v1/history?since={from}"))?;
    let (mut nearest, mut events): (Option<HostSample>, Vec<Record>) = (None, Vec::new());
    let mut holders = LastHolders::default();
    let distance = |sample: &HostSample| (sample.at - at.as_second()).abs();
    while let Some(line) = lines.next_or_end()? {
        let Ok(record) = serde_json::from_str::<Record>(&line) else { continue };
        let Ok(when) = record.at.parse::<Timestamp>() else { continue };
        if when > to {
            break;
        }
        match holders.sample(when, &record.what) {
            Some(sample) if nearest.as_ref().is_none_or(|nearest| distance(&sample) < distance(nearest)) => {
                nearest = Some(sample);
            }
            None if events.len() < MAX_EVENTS => events.push(record),
            _ => {}
        }
    }
    Ok((nearest.filter(|sample| distance(sample) <= FRESH), events))
}

fn tiles(sample: &HostSample) -> Vec<StatTile> {
    let memory = &sample.host.memory;
    let plain = |label, value: String, detail: String| StatTile { label, value, detail, share: None, tone: None };
    let part = share(used(sample), memory.memory_total_bytes);
    let agents: u64 = sample.host.sessions.iter().map(|session| session.memory_bytes).sum();
    let mut tiles = vec![
        StatTile {
            share: Some(part),
            tone: (part > 0.9).then_some(ViewTone::Bad),
            ..plain(
                "Host memory then",
                format!("{} of {}", size(used(sample)), size(memory.memory_total_bytes)),
                format!("{} available", size(memory.memory_available_bytes)),
            )
        },
        plain("Held by agents", size(agents), count(sample.host.sessions.len() as u64, "session", "sessions")),
    ];
    if let Some(some) = memory.pressure_some_avg10 {
        tiles.push(plain("Pressure", format!("{some:.1} %"), "of the time some task waited for memory".into()));
    }
    tiles
}

fn sessions_then(sample: &HostSample) -> ViewTable {
    let total = sample.host.memory.memory_total_bytes;
    let rows = sample.host.sessions.iter().map(|session| ViewRow {
        key: session.session.to_string(),
        cells: vec![
            ViewCell::session(Some(session.session)),
            ViewCell::new(&session.profile),
            ViewCell::new(size(session.memory_bytes)).share(share(session.memory_bytes, total)),
            ViewCell::new(session.processes.to_string()),
        ],
    });
    let columns = vec![
        ViewColumn::text("Session"),
        ViewColumn::text("Agent"),
        ViewColumn::number("Memory"),
        ViewColumn::number("Processes"),
    ];
    ViewTable { title: "Who held memory".into(), columns, rows: rows.collect(), empty: "No agent was running." }
}

fn processes_then(sample: &HostSample) -> ViewTable {
    let rows = sample.host.processes.iter().map(|process| ViewRow {
        key: format!("{}/{}", process.pid, process.start_time),
        cells: vec![
            ViewCell::new(&process.name),
            ViewCell::new(process.pid.to_string()),
            ViewCell::session(Some(process.session)),
            ViewCell::new(size(process.memory_bytes)),
        ],
    });
    let columns = vec![
        ViewColumn::text("Process"),
        ViewColumn::number("PID"),
        ViewColumn::text("Session"),
        ViewColumn::number("Memory"),
    ];
    ViewTable { title: "Largest processes".into(), columns, rows: rows.collect(), empty: "No process was recorded." }
}

fn event_table(events: &[Record], context: &WebContext) -> ViewTable {
    let rows = events.iter().enumerate().map(|(number, event)| {
        let (kind, session, text) = (context.prose.record)(event);
        let tone = match &event.what {
            Past::Oom(_) | Past::Death(_) => Some(ViewTone::Bad),
            Past::Finding(record) => ViewTone::of(record.finding.severity),
            _ => None,
        };
        let cells = vec![
            ViewCell { time: Some(event.at.clone()), ..ViewCell::default() },
            ViewCell::new(kind.replace('_', " ")).tone(tone),
            ViewCell::session(session),
            ViewCell::new(text),
        ];
        ViewRow { key: number.to_string(), cells }
    });
    let columns = vec![
        ViewColumn::text("Time"),
        ViewColumn::text("Event"),
        ViewColumn::text("Session").low(),
        ViewColumn::text("What happened"),
    ];
    let title = "What happened within five minutes".to_owned();
    ViewTable { title, columns, rows: rows.collect(), empty: "Nothing was recorded around this moment." }
}
