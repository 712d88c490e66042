//! The rows of the table: sessions, and the processes of those that are unfolded.

use std::borrow::Cow;

use watchdog_api::{Process, Session, SessionState};
use watchdog_render::{Forest, branch, process_command};

use super::folds::Folds;
use super::observation::Observation;
use super::row_id::RowId;
use super::sort::{SortKey, SortValues};
use super::trends::{SeriesKey, Trends, charged};

/// A row, with indices into the observation that it was made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopRow {
    pub(crate) id: RowId,
    pub(crate) session: usize,
    pub(crate) process: Option<usize>,
    pub(crate) branch: String,
    /// Processes below it that are not shown.
    pub(crate) hidden: usize,
    /// With what is hidden below it.
    pub(crate) memory_bytes: u64,
    /// Of a process with hidden ones, the largest. 0 if it is not known.
    pub(crate) peak_bytes: u64,
    pub(crate) growth: Option<i64>,
}

/// How the table is arranged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrangement<'a> {
    pub(crate) sort: SortKey,
    pub(crate) reversed: bool,
    /// In lower case; empty shows everything.
    pub(crate) filter: &'a str,
    pub(crate) folds: &'a Folds,
}

/// Whether the text of a session contains the filter.
pub(crate) fn session_matches(session: &Session, filter: &str) -> bool {
    let Session { id, profile, state, user, .. } = session;
    contains(&format!("session {id} {profile} {} {user}", state.name()), filter)
}

/// Whether the text of a process contains the filter. Arguments that are not shown are not searched.
pub(crate) fn process_matches(process: &Process, filter: &str) -> bool {
    let command = process_command(process);
    contains(&command, filter)
        || contains(&process.comm, filter)
        || process.kind.name().contains(filter)
        || process.state.name().contains(filter)
        || process.pid.to_string().contains(filter)
}

fn contains(text: &str, filter: &str) -> bool {
    let text = if text.chars().any(char::is_uppercase) { Cow::Owned(text.to_lowercase()) } else { Cow::Borrowed(text) };
    text.contains(filter)
}

/// All rows in their order.
pub(crate) fn arrange(observation: &Observation, trends: &Trends, arrangement: Arrangement<'_>) -> Vec<TopRow> {
    let sessions = &observation.tree.sessions;
    let mut chosen: Vec<(usize, SortValues<'_>)> = sessions
        .iter()
        .enumerate()
        .filter(|(_, session)| session.state != SessionState::Ended || session.process_count > 0)
        .map(|(index, session)| {
            let values = SortValues {
                memory_bytes: session.memory_bytes,
                growth: trends.growth_per_minute(SeriesKey::Session(session.id)),
                // It is sampled, and the memory is newer.
                peak_bytes: match session.peak_memory_bytes {
                    0 => 0,
                    peak => peak.max(session.memory_bytes),
                },
                started: session.id,
                command: &session.profile,
            };
            (index, values)
        })
        .collect();
    chosen.sort_by(|(_, a), (_, b)| arrangement.sort.compare(a, b, arrangement.reversed));
    let mut rows = Vec::new();
    for (index, values) in chosen {
        let session = &sessions[index];
        let whole = arrangement.filter.is_empty() || session_matches(session, arrangement.filter);
        let id = RowId::Session(session.id);
        let folded = arrangement.folds.is_folded(id);
        let below = SessionRows { session: index, processes: &session.processes, id: session.id, trends, arrangement };
        let below = if folded && whole { Vec::new() } else { below.arrange(whole) };
        if !whole && below.is_empty() {
            continue;
        }
        let hidden = if folded { usize::try_from(session.process_count).unwrap_or(usize::MAX) } else { 0 };
        rows.push(TopRow {
            id,
            session: index,
            process: None,
            branch: String::new(),
            hidden,
            memory_bytes: values.memory_bytes,
            peak_bytes: values.peak_bytes,
            growth: values.growth,
        });
        if !folded {
            rows.extend(below);
        }
    }
    rows
}

/// The processes of one session.
struct SessionRows<'a> {
    session: usize,
    id: u64,
    processes: &'a [Process],
    trends: &'a Trends,
    arrangement: Arrangement<'a>,
}

/// Sums of a process with everything below it.
#[derive(Clone, Copy, Debug, Default)]
struct SubtreeSums {
    memory_bytes: u64,
    peak_bytes: u64,
    growth: Option<i64>,
    processes: usize,
    matches: bool,
}

impl SessionRows<'_> {
    /// Without `whole`, only processes that match the filter, with their ancestors.
    fn arrange(&self, whole: bool) -> Vec<TopRow> {
        let forest = Forest::of(self.processes);
        let own: Vec<SubtreeSums> = self.processes.iter().map(|process| self.own(process, whole)).collect();
        let mut sums = own.clone();
        // Children are listed after their parents.
        for parent in (0..self.processes.len()).rev() {
            for &child in &forest.children[parent] {
                let below = sums[child];
                let sum = &mut sums[parent];
                sum.memory_bytes = sum.memory_bytes.saturating_add(below.memory_bytes);
                sum.peak_bytes = sum.peak_bytes.max(below.peak_bytes);
                sum.growth = sum.growth.zip(below.growth).map(|(a, b)| a.saturating_add(b)).or(sum.growth);
                sum.processes += below.processes;
                sum.matches |= below.matches;
            }
        }
        let commands: Vec<String> = match self.arrangement.sort {
            SortKey::Command => self.processes.iter().map(process_command).collect(),
            _ => Vec::new(),
        };
        let siblings = |indices: &[usize]| {
            let mut shown: Vec<usize> = indices.iter().copied().filter(|&index| sums[index].matches).collect();
            let values = |index: usize| SortValues {
                memory_bytes: sums[index].memory_bytes,
                growth: sums[index].growth,
                peak_bytes: sums[index].peak_bytes,
                started: self.processes[index].start_time,
                command: commands.get(index).map_or("", String::as_str),
            };
            shown.sort_by(|&a, &b| {
                self.arrangement.sort.compare(&values(a), &values(b), self.arrangement.reversed).then(a.cmp(&b))
            });
            shown
        };
        let mut rows = Vec::with_capacity(self.processes.len());
        let mut open: Vec<bool> = Vec::new();
        let roots = siblings(&forest.roots);
        let last = roots.len().saturating_sub(1);
        let mut stack: Vec<(usize, usize, bool)> =
            roots.iter().enumerate().rev().map(|(n, &root)| (root, 1, n < last)).collect();
        while let Some((index, level, more)) = stack.pop() {
            open.truncate(level - 1);
            open.push(more);
            let id = RowId::of(self.id, &self.processes[index]);
            let folded = self.arrangement.folds.is_folded(id) && !forest.children[index].is_empty();
            let sum = if folded { sums[index] } else { own[index] };
            rows.push(TopRow {
                id,
                session: self.session,
                process: Some(index),
                branch: branch(&open),
                hidden: sum.processes - 1,
                memory_bytes: sum.memory_bytes,
                peak_bytes: sum.peak_bytes,
                growth: sum.growth,
            });
            if !folded {
                let children = siblings(&forest.children[index]);
                let last = children.len().saturating_sub(1);
                stack.extend(children.iter().enumerate().rev().map(|(n, &child)| (child, level + 1, n < last)));
            }
        }
        rows
    }

    fn own(&self, process: &Process, whole: bool) -> SubtreeSums {
        SubtreeSums {
            memory_bytes: charged(process),
            peak_bytes: process.peak_bytes,
            growth: self.trends.growth_per_minute(RowId::of(self.id, process).series()),
            processes: 1,
            matches: whole || process_matches(process, self.arrangement.filter),
        }
    }
}
