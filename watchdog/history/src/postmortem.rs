//! Reconstructs the minutes before the host or the daemon went down, from the history.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::filter::visible;
use super::read::{HistoryLines, HistoryReadError, RecordHead, StoredLine};
use watchdog_api::{End, Finding, Growth, Host, HostTrend, Postmortem, ProcessMemory, Repeats, SessionMemory};
use watchdog_types::Viewer;

/// Time before the end that is covered.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Most recent deaths, OOM kills and actions that are listed.
const KILLED_MAX: usize = 200;

#[derive(Clone, Debug)]
pub struct PostmortemRequest {
    pub viewer: Viewer,
    /// The last run in this boot: 0 is the present one, -1 the one before. `None`: the last run of all.
    pub boot: Option<i64>,
    /// The daemon's current run, which has not ended.
    pub running: Option<String>,
    pub boot_id: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PostmortemError {
    #[error(transparent)]
    Read(#[from] HistoryReadError),
    #[error("cannot read the history: {0}")]
    Io(#[from] io::Error),
    /// The argument completes the sentence.
    #[error("no ended daemon run in the history{0}")]
    NoSuchRun(&'static str),
}

#[derive(Clone, Debug)]
struct DaemonRun {
    name: String,
    boot_id: String,
    version: String,
    last: Timestamp,
    stopped: bool,
}

/// Reads the history twice.
pub fn reconstruct(
    open: impl Fn() -> Result<HistoryLines<File>, HistoryReadError>,
    question: &PostmortemRequest,
) -> Result<Postmortem, PostmortemError> {
    let (runs, damaged_lines) = runs(open()?)?;
    let position = choose(&runs, question)?;
    let run = &runs[position];
    let next_boot = runs.get(position + 1).map_or(&question.boot_id, |next| &next.boot_id);
    let end = match (run.stopped, run.boot_id == *next_boot) {
        (true, _) => End::Stopped,
        (false, true) => End::DaemonDied,
        (false, false) => End::HostWentDown,
    };
    let from = run.last.checked_sub(WINDOW).unwrap_or(Timestamp::MIN);
    let mut scene = Timeline { from, ..Timeline::default() };
    let mut lines = open()?;
    while let Some(found) = lines.next()? {
        let StoredLine::Record(json) = found else { continue };
        let Some(head) = RecordHead::of(json).filter(|head| head.run == run.name) else { continue };
        let at = head.at;
        // Of earlier records only findings matter: they may still be open.
        if at < from && head.kind != "finding" {
            continue;
        }
        if let Some(json) = visible(question.viewer, &head, json) {
            scene.take(at, &head.kind, &json);
        }
    }
    Ok(Postmortem {
        run: run.name.clone(),
        boot_id: run.boot_id.clone(),
        version: run.version.clone(),
        end,
        from: scene.first.unwrap_or(run.last).to_string(),
        to: run.last.to_string(),
        host: scene.host,
        sessions: by_growth(scene.sessions),
        processes: by_growth(scene.processes),
        findings: scene.findings.into_values().collect(),
        killed: scene.killed,
        damaged_lines,
    })
}

/// All runs in the order of the file, and the number of damaged lines.
fn runs(mut lines: HistoryLines<File>) -> Result<(Vec<DaemonRun>, u64), PostmortemError> {
    let mut runs: Vec<DaemonRun> = Vec::new();
    let mut damaged = 0;
    while let Some(found) = lines.next()? {
        let json = match found {
            StoredLine::Record(json) => json,
            StoredLine::Damaged => {
                damaged += 1;
                continue;
            }
            // The daemon is writing, or was killed while it wrote.
            StoredLine::Truncated => break,
        };
        let Some(head) = RecordHead::of(json) else { continue };
        if runs.last().is_none_or(|run| run.name != head.run) {
            runs.push(DaemonRun {
                name: head.run.into_owned(),
                boot_id: String::new(),
                version: String::new(),
                last: head.at,
                stopped: false,
            });
        }
        let Some(run) = runs.last_mut() else { continue };
        // A late record has the time of its event.
        run.last = run.last.max(head.at);
        match head.kind.as_ref() {
            "daemon_started" => {
                if let Ok(RunStart { version, boot_id }) = serde_json::from_str(json) {
                    (run.version, run.boot_id) = (version, boot_id);
                }
            }
            "daemon_stopped" => run.stopped = true,
            _ => {}
        }
    }
    Ok((runs, damaged))
}

/// The index of the run.
fn choose(runs: &[DaemonRun], question: &PostmortemRequest) -> Result<usize, PostmortemError> {
    let ended = |run: &DaemonRun| question.running.as_ref() != Some(&run.name);
    let Some(boot) = question.boot else {
        return runs.iter().rposition(ended).ok_or(PostmortemError::NoSuchRun(""));
    };
    // The present boot first, then the earlier ones, latest first.
    let mut boots = vec![&question.boot_id];
    for run in runs.iter().rev().filter(|run| !run.boot_id.is_empty()) {
        if !boots.contains(&&run.boot_id) {
            boots.push(&run.boot_id);
        }
    }
    let wanted = usize::try_from(boot.unsigned_abs()).ok().filter(|_| boot <= 0).and_then(|back| boots.get(back));
    wanted
        .and_then(|boot| runs.iter().rposition(|run| ended(run) && run.boot_id == **boot))
        .ok_or(PostmortemError::NoSuchRun(" in that boot"))
}

#[derive(Default)]
struct Timeline {
    from: Timestamp,
    first: Option<Timestamp>,
    host: Option<HostTrend>,
    sessions: BTreeMap<u64, Growth<SessionMemory>>,
    processes: BTreeMap<(u32, u64), Growth<ProcessMemory>>,
    findings: BTreeMap<u64, Finding>,
    killed: Vec<Value>,
}

// Types of the needed fields only: `Record` would add much code to the daemon.

#[derive(Deserialize)]
struct RunStart {
    version: String,
    boot_id: String,
}

#[derive(Deserialize)]
struct Largest {
    sessions: Vec<SessionMemory>,
    processes: Vec<ProcessMemory>,
}

impl Timeline {
    fn take(&mut self, at: Timestamp, kind: &str, json: &str) {
        let within = at >= self.from;
        if within {
            self.first.get_or_insert(at);
        }
        match kind {
            // Earlier findings may still be open.
            "finding" => {
                // A count of repeated findings has no end.
                if serde_json::from_str::<Repeats>(json).is_ok() {
                    return;
                }
                let Ok(found) = serde_json::from_str::<Finding>(json) else { return };
                if found.closed_at.is_some() && !within {
                    self.findings.remove(&found.id);
                } else {
                    self.findings.insert(found.id, found);
                }
            }
            "host" if within => {
                if let (Ok(host), Ok(largest)) = (serde_json::from_str(json), serde_json::from_str(json)) {
                    self.sample(host, &largest);
                }
            }
            "death" | "oom" | "action" if within => {
                if self.killed.len() == KILLED_MAX {
                    self.killed.remove(0);
                }
                self.killed.extend(serde_json::from_str::<Value>(json));
            }
            _ => {}
        }
    }

    fn sample(&mut self, now: Host, largest: &Largest) {
        let trend = self.host.get_or_insert(HostTrend {
            first: now,
            last: now,
            lowest_available_bytes: u64::MAX,
            highest_pressure_some_avg10: None,
            highest_pressure_full_avg10: None,
        });
        let Host { memory_available_bytes, pressure_some_avg10, pressure_full_avg10, .. } = now;
        trend.last = now;
        trend.lowest_available_bytes = trend.lowest_available_bytes.min(memory_available_bytes);
        raise(&mut trend.highest_pressure_some_avg10, pressure_some_avg10);
        raise(&mut trend.highest_pressure_full_avg10, pressure_full_avg10);
        for session in &largest.sessions {
            grow(&mut self.sessions, session.session, session, session.memory_bytes);
        }
        for process in &largest.processes {
            grow(&mut self.processes, (process.pid, process.start_time), process, process.memory_bytes);
        }
    }
}

fn raise(highest: &mut Option<f64>, now: Option<f64>) {
    *highest = match (*highest, now) {
        (Some(highest), Some(now)) => Some(highest.max(now)),
        (highest, now) => now.or(highest),
    };
}

fn grow<K: Ord, T: Clone>(grown: &mut BTreeMap<K, Growth<T>>, key: K, now: &T, memory_bytes: u64) {
    let growth = grown.entry(key).or_insert_with(|| Growth {
        last: now.clone(),
        first_memory_bytes: memory_bytes,
        growth_bytes: 0,
    });
    growth.last = now.clone();
    growth.growth_bytes = memory_bytes.cast_signed().saturating_sub(growth.first_memory_bytes.cast_signed());
}

fn by_growth<K, T>(grown: BTreeMap<K, Growth<T>>) -> Vec<Growth<T>> {
    let mut all: Vec<Growth<T>> = grown.into_values().collect();
    all.sort_by_key(|growth| std::cmp::Reverse(growth.growth_bytes));
    all
}
