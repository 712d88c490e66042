//! One session: its tree, its memory over time, findings, deaths and actions.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;

use super::block::{PageView, StatTile, ViewBlock};
use super::samples::{samples, session_chart};
use super::table::{ViewCell, ViewColumn, ViewRow, ViewTable};
use super::tone::ViewTone;
use super::words::{age, share};
use super::{findings, receipts};
use crate::act_call::{ActButton, ActCall, ActName};
use crate::context::WebContext;
use crate::holders::HostSample;
use crate::request::WebRequest;
use watchdog_api::client::ClientError;
use watchdog_api::{Death, Explanation, Host, Process, ProcessState, Session, SessionState, Tree};
use watchdog_types::units::{self, count, size};

/// Deaths that are listed.
const MAX_DEATHS: usize = 50;
const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn page(request: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    let id = request.parameter("id").and_then(|id| id.parse::<u64>().ok());
    let id = id.ok_or_else(|| ClientError::BadRequest("the address names no session".into()))?;
    let session = match context.client.get::<Tree>(&format!("/v1/tree?session={id}")) {
        Ok(reply) => reply.document.sessions.into_iter().next(),
        // It has ended, and only its records are left.
        Err(ClientError::NotFound(_)) => None,
        Err(error) => return Err(error),
    };
    let explained = context.client.get::<Explanation>(&format!("/v1/explain?session={id}"));
    let explained = match (explained, &session) {
        (Ok(reply), _) => reply.document,
        (Err(ClientError::NotFound(_)), Some(_)) => Explanation::default(),
        (Err(error), _) => return Err(error),
    };
    let act = context.guard.may_act();
    let mut blocks = Vec::new();
    let mut title = format!("Session {id}");
    if let Some(session) = &session {
        title = format!("Session {id}: {}", session.profile);
        blocks.push(ViewBlock::Tiles { tiles: tiles(session) });
        let orphans = session.processes.iter().any(|process| process.state == ProcessState::Orphaned);
        let buttons = buttons(id, session.state, orphans);
        if act && !buttons.is_empty() {
            blocks.push(ViewBlock::Buttons { buttons });
        }
    }
    if !explained.summary.is_empty() {
        blocks.push(ViewBlock::Text { title: String::new(), lines: vec![explained.summary] });
    }
    blocks.push(ViewBlock::Chart(session_chart(id, &recent(session.as_ref(), context)?)));
    if let Some(session) = &session {
        blocks.push(ViewBlock::Table(process_table(session, context)));
    }
    let cards = findings::cards(explained.findings, context);
    blocks.push(ViewBlock::Cards { title: "Findings".into(), cards, empty: "No findings about this session." });
    blocks.push(ViewBlock::Table(death_table(&explained.deaths)));
    blocks.push(ViewBlock::Table(receipts::table(
        "Actions",
        &explained.receipts,
        context,
        "No action on this session.",
    )));
    Ok(PageView { title, act, blocks })
}

/// An hour of a young session, a day of others.
fn recent(session: Option<&Session>, context: &WebContext) -> Result<Vec<HostSample>, ClientError> {
    let began = session.and_then(|session| units::age(&session.started_at, Timestamp::now()));
    let hours = if began.is_some_and(|age| age < HOUR) { 1 } else { 24 };
    let mut samples = samples(context, hours * HOUR.as_secs())?;
    if let Some(session) = session.filter(|session| session.state != SessionState::Ended) {
        samples.push(HostSample::now(Host::default(), std::slice::from_ref(session)));
    }
    Ok(samples)
}

/// What can be done with a session.
pub(super) fn buttons(id: u64, state: SessionState, orphans: bool) -> Vec<ActButton> {
    let button =
        |label: &str, danger, name| ActButton { label: label.into(), danger, call: ActCall::on_session(name, id) };
    match state {
        SessionState::Ended => Vec::new(),
        SessionState::Orphaned => vec![button("Reap", true, ActName::Reap), button("Keep", false, ActName::Adopt)],
        SessionState::Running => {
            let mut buttons = vec![button("Reclaim", false, ActName::Reclaim), button("End", true, ActName::End)];
            if orphans {
                buttons.insert(0, button("Reap", true, ActName::Reap));
            }
            buttons
        }
    }
}

fn tiles(session: &Session) -> Vec<StatTile> {
    let plain = |label, value: String, detail: String| StatTile { label, value, detail, share: None, tone: None };
    let largest = session.processes.iter().max_by_key(|process| memory(process));
    let largest = largest.map_or_else(String::new, |process| {
        format!("largest: {} (pid {}) with {}", process.comm, process.pid, size(memory(process)))
    });
    let gated = if session.gated { "started through the gate" } else { "started without the gate" };
    let idle = session.idle_since.as_deref().map_or_else(String::new, |since| format!("idle for {}, ", age(since)));
    let orphaned = session.state == SessionState::Orphaned;
    vec![
        plain("Memory", size(session.memory_bytes), largest),
        plain("Resident", size(session.resident_bytes), format!("{} swapped", size(session.swap_bytes))),
        plain(
            "Processes",
            session.processes.len().to_string(),
            if session.zombies > 0 { count(session.zombies, "zombie", "zombies") } else { String::new() },
        ),
        StatTile {
            tone: orphaned.then_some(ViewTone::Warn),
            ..plain("State", session.state.name().into(), format!("{idle}{gated}"))
        },
        plain("Age", age(&session.started_at), format!("user {}", session.user)),
    ]
}

/// `-` while it is active.
pub(super) fn idle_since(session: &Session) -> String {
    session.idle_since.as_deref().map_or_else(|| "-".into(), |since| format!("{} ago", age(since)))
}

/// anon + shmem + swap, as the sums of sessions.
fn memory(process: &Process) -> u64 {
    process.anon_bytes.saturating_add(process.shmem_bytes).saturating_add(process.swap_bytes)
}

fn process_table(session: &Session, context: &WebContext) -> ViewTable {
    let act = context.guard.may_act() && session.processes.iter().any(|process| !process_buttons(process).is_empty());
    let most = session.processes.iter().map(memory).max().unwrap_or(0);
    let rows = in_tree_order(&session.processes).into_iter().map(|(process, level)| {
        let tone = match process.state {
            ProcessState::Orphaned | ProcessState::Stale | ProcessState::Detached => Some(ViewTone::Warn),
            ProcessState::Zombie => Some(ViewTone::Faint),
            ProcessState::Kept => Some(ViewTone::Good),
            ProcessState::Running => None,
        };
        let state = match &process.kept_because {
            Some(why) => format!("{}: {why}", process.state.name()),
            None => process.state.name().to_owned(),
        };
        let mut cells = vec![
            ViewCell::new((context.prose.command)(process)).indent(level),
            ViewCell::new(process.pid.to_string()),
            ViewCell::new(process.kind.name()),
            ViewCell::new(state).tone(tone),
            ViewCell::new(size(memory(process))).share(share(memory(process), most)),
            ViewCell::new(size(process.swap_bytes)),
            ViewCell::new(size(process.peak_bytes)),
        ];
        if act {
            cells.push(ViewCell::buttons(process_buttons(process)));
        }
        ViewRow { key: format!("{}/{}", process.pid, process.start_time), cells }
    });
    let mut columns = vec![
        ViewColumn::text("Command"),
        ViewColumn::number("PID"),
        ViewColumn::text("Kind").low(),
        ViewColumn::text("State"),
        ViewColumn::number("Memory"),
        ViewColumn::number("Swapped").low(),
        ViewColumn::number("Peak").low(),
    ];
    if act {
        columns.push(ViewColumn::text("Actions"));
    }
    ViewTable { title: "Processes".into(), columns, rows: rows.collect(), empty: "No process is left." }
}

fn process_buttons(process: &Process) -> Vec<ActButton> {
    let button = |label: &str, danger, name| ActButton {
        label: label.into(),
        danger,
        call: ActCall::on_process(name, process.pid),
    };
    match process.state {
        ProcessState::Orphaned => vec![button("Reap", true, ActName::Reap), button("Keep", false, ActName::Adopt)],
        ProcessState::Kept => vec![button("Stop keeping", false, ActName::Unadopt)],
        ProcessState::Running | ProcessState::Detached | ProcessState::Stale | ProcessState::Zombie => Vec::new(),
    }
}

/// Children below the parent that forked them, with their level.
fn in_tree_order(processes: &[Process]) -> Vec<(&Process, usize)> {
    let known: HashMap<u32, &Process> = processes.iter().map(|process| (process.pid, process)).collect();
    let mut children: HashMap<Option<u32>, Vec<&Process>> = HashMap::new();
    for process in processes {
        // A parent is older: a pid that was reused is none.
        let parent = known
            .get(&process.parent_pid)
            .filter(|parent| parent.pid != process.pid && parent.start_time <= process.start_time);
        children.entry(parent.map(|parent| parent.pid)).or_default().push(process);
    }
    let mut ordered = Vec::with_capacity(processes.len());
    let mut pending: Vec<(&Process, usize)> = Vec::new();
    let mut push = |pending: &mut Vec<_>, parent: Option<u32>, level: usize| {
        let below = children.remove(&parent).unwrap_or_default();
        pending.extend(below.into_iter().rev().map(|process| (process, level)));
    };
    push(&mut pending, None, 0);
    while let Some((process, level)) = pending.pop() {
        ordered.push((process, level));
        push(&mut pending, Some(process.pid), level + 1);
    }
    // Two processes of the same tick may each name the other, by reused pids.
    for process in children.into_values().flatten() {
        ordered.push((process, 0));
    }
    ordered
}

fn death_table(deaths: &[Death]) -> ViewTable {
    let rows = deaths.iter().take(MAX_DEATHS).map(|death| {
        let facts = &death.facts;
        ViewRow {
            key: format!("{}/{}", facts.pid, facts.start_time),
            cells: vec![
                ViewCell::new(format!("{} ago", age(&death.died_at))),
                ViewCell::new(&facts.name),
                ViewCell::new(facts.pid.to_string()),
                ViewCell::new(facts.summary.clone()),
            ],
        }
    });
    let columns = vec![
        ViewColumn::text("Died"),
        ViewColumn::text("Process"),
        ViewColumn::number("PID").low(),
        ViewColumn::text("Why"),
    ];
    ViewTable { title: "Deaths".into(), columns, rows: rows.collect(), empty: "No recorded death." }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn process(pid: u32, parent: u32, start: u64) -> Process {
        serde_json::from_value(json!({
            "pid": pid, "start_time": start, "ppid": 1, "parent_pid": parent, "depth": 0, "kind": "tool", "comm": "c",
            "argv": [], "state": "running", "rss_bytes": 0, "anon_bytes": 1, "shmem_bytes": 2, "swap_bytes": 4,
            "peak_bytes": 0,
        }))
        .unwrap()
    }

    fn order(processes: &[Process]) -> Vec<(u32, usize)> {
        in_tree_order(processes).into_iter().map(|(process, level)| (process.pid, level)).collect()
    }

    #[test]
    fn children_stand_below_their_parent() {
        let processes = [process(1, 0, 1), process(2, 1, 2), process(3, 1, 3), process(4, 2, 4), process(9, 77, 5)];
        assert_eq!(order(&processes), [(1, 0), (2, 1), (4, 2), (3, 1), (9, 0)]);
    }

    #[test]
    fn parent_circle_loses_no_process() {
        let circle = [process(1, 2, 5), process(2, 1, 5), process(3, 3, 1), process(4, 1, 1)];
        let mut pids: Vec<u32> = order(&circle).into_iter().map(|(pid, _)| pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [1, 2, 3, 4]);
    }

    #[test]
    fn buttons_depend_on_session_state() {
        let names = |state, orphans| {
            buttons(1, state, orphans).into_iter().map(|button| button.label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(SessionState::Running, false), "Reclaim End");
        assert_eq!(names(SessionState::Running, true), "Reap Reclaim End");
        assert_eq!(names(SessionState::Orphaned, true), "Reap Keep");
        assert_eq!(names(SessionState::Ended, true), "");
    }
}
