//! The state of the screen: an input in, a new state and requests out. No I/O and no clock.

mod acting;
mod folds;
mod keys;
mod message;
mod navigation;
mod observation;
mod overlay;
mod past;
mod playback;
mod row_id;
mod rows;
mod sort;
mod time_travel;
mod trends;
mod verdicts;

pub(crate) use self::keys::HELP;
pub(crate) use self::message::{PollPlan, ProcessInterest, TopMessage, TopRequest};
pub(crate) use self::observation::{GateSummary, Observation, trouble};
pub(crate) use self::overlay::{Overlay, OverlayContent, PlainAction, Prompt, PromptPurpose, subject_name};
pub(crate) use self::past::HistoryWindow;
pub(crate) use self::playback::Playback;
pub(crate) use self::row_id::RowId;
pub(crate) use self::rows::TopRow;
pub(crate) use self::sort::SortKey;
pub(crate) use self::trends::{SeriesKey, Trends};
pub(crate) use self::verdicts::{severity_of, verdict};

use std::collections::HashMap;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use watchdog_api::{Process, Session};

use self::folds::Folds;
use self::rows::{Arrangement, arrange};

/// All sessions are unfolded at the start up to this number of processes.
const FEW_PROCESSES: u64 = 60;

/// Where the shown state comes from.
#[derive(Clone, Debug)]
pub(crate) enum ScreenSource {
    Live,
    History(HistoryWindow),
    Replay(Playback),
}

/// The pane that the keys move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Focus {
    #[default]
    Table,
    Findings,
}

/// Everything that is drawn, and what decides how keys are understood.
#[derive(Debug)]
pub(crate) struct TopModel {
    pub(crate) source: ScreenSource,
    pub(crate) observation: Option<Observation>,
    pub(crate) trends: Trends,
    /// The live state while the past is shown.
    parked: Option<(Option<Observation>, Trends)>,
    pub(crate) rows: Vec<TopRow>,
    pub(crate) selected: Option<RowId>,
    /// The first row on the screen.
    pub(crate) offset: usize,
    /// Rows on the screen, and the line of the first one.
    page: usize,
    table_top: u16,
    pub(crate) sort: SortKey,
    pub(crate) reversed: bool,
    /// In lower case.
    pub(crate) filter: String,
    search: String,
    folds: Folds,
    pub(crate) focus: Focus,
    pub(crate) finding: usize,
    pub(crate) overlay: Option<Overlay>,
    pub(crate) prompt: Option<Prompt>,
    /// Why there is no newer observation.
    pub(crate) problem: Option<String>,
    /// One line until the next key.
    pub(crate) notice: Option<String>,
    pub(crate) paused: bool,
    pub(crate) mouse: bool,
    plan: PollPlan,
    pub(crate) now: Timestamp,
    pub(crate) zone: TimeZone,
}

impl TopModel {
    pub(crate) fn new(source: ScreenSource, now: Timestamp, zone: TimeZone) -> Self {
        Self {
            source,
            observation: None,
            trends: Trends::default(),
            parked: None,
            rows: Vec::new(),
            selected: None,
            offset: 0,
            page: 1,
            table_top: 0,
            sort: SortKey::default(),
            reversed: false,
            filter: String::new(),
            search: String::new(),
            folds: Folds::default(),
            focus: Focus::default(),
            finding: 0,
            overlay: None,
            prompt: None,
            problem: None,
            notice: None,
            paused: false,
            mouse: false,
            plan: PollPlan::default(),
            now,
            zone,
        }
    }

    /// Takes one input. `now` is the present time.
    pub(crate) fn update(&mut self, message: TopMessage, now: Timestamp) -> Vec<TopRequest> {
        self.now = now;
        let mut requests = match message {
            TopMessage::Key(key) => self.key(key),
            TopMessage::Mouse(event) => self.mouse(event),
            TopMessage::Observed(observation) => {
                self.observed(*observation);
                Vec::new()
            }
            TopMessage::Unreachable(why) => {
                self.problem = Some(why);
                Vec::new()
            }
            TopMessage::Recent(records) => {
                self.recent(&records);
                Vec::new()
            }
            TopMessage::Planned(..)
            | TopMessage::Started(_)
            | TopMessage::Acted(_)
            | TopMessage::Answered(_)
            | TopMessage::PagedOut(_)
            | TopMessage::Explained(..) => {
                self.answered(message);
                Vec::new()
            }
            TopMessage::History(from, read) => {
                self.history_read(from, read);
                Vec::new()
            }
            TopMessage::ReplayLength(length) => {
                if let ScreenSource::Replay(playback) = &mut self.source {
                    playback.length = Some(length);
                }
                Vec::new()
            }
            TopMessage::ReplayProblem(problem) => {
                self.problem = Some(problem);
                Vec::new()
            }
            TopMessage::Elapsed(span) => self.elapsed(span),
        };
        let plan = self.poll_plan();
        if matches!(self.source, ScreenSource::Live | ScreenSource::History(_)) && plan != self.plan {
            self.plan = plan.clone();
            requests.push(TopRequest::Poll(plan));
        }
        requests
    }

    fn poll_plan(&self) -> PollPlan {
        let unfolded = || {
            let sessions = self.observation.iter().flat_map(|observation| &observation.tree.sessions);
            let living = sessions.filter(|session| session.process_count > 0).map(|session| session.id);
            living.filter(|id| !self.folds.is_folded(RowId::Session(*id)))
        };
        let live = matches!(self.source, ScreenSource::Live);
        let processes = match self.observation {
            _ if !live => self.plan.processes.clone(),
            Some(_) if self.filter.is_empty() && self.search.is_empty() => {
                ProcessInterest::Sessions(unfolded().collect())
            }
            Some(_) => ProcessInterest::All,
            None => ProcessInterest::default(),
        };
        let fleet = matches!(&self.overlay, Some(Overlay { content: OverlayContent::Fleet, .. }));
        PollPlan { paused: self.paused || !live, processes, fleet }
    }

    fn observed(&mut self, mut observation: Observation) {
        if matches!(self.source, ScreenSource::History(_)) || self.paused && self.observation.is_some() {
            // An answer from before.
            return;
        }
        if let Some(last) = self.observation.take() {
            keep_processes(&mut observation, last);
        } else {
            self.folds.set_all(observation.counts.processes > FEW_PROCESSES);
        }
        self.problem = None;
        self.trends.observe(&observation);
        self.show(Some(observation));
    }

    /// Prepends what the history has of the last minutes.
    fn recent(&mut self, records: &[watchdog_api::Record]) {
        if !matches!(self.source, ScreenSource::Live) {
            return;
        }
        let mut trends = Trends::default();
        trends.replay(records, self.now);
        if let Some(observation) = &self.observation {
            trends.observe(observation);
        }
        self.trends = trends;
        self.rearrange();
    }

    fn show(&mut self, observation: Option<Observation>) {
        self.observation = observation;
        if let Some(observation) = &mut self.observation {
            observation.findings.sort_by_key(|finding| std::cmp::Reverse((finding.severity, finding.id)));
        }
        let findings = self.observation.as_ref().map_or(0, |observation| observation.findings.len());
        self.finding = self.finding.min(findings.saturating_sub(1));
        if findings == 0 {
            self.focus = Focus::Table;
        }
        self.rearrange();
    }

    fn rearrange(&mut self) {
        let place = self.place();
        let arrangement =
            Arrangement { sort: self.sort, reversed: self.reversed, filter: &self.filter, folds: &self.folds };
        self.rows = match &self.observation {
            Some(observation) => arrange(observation, &self.trends, arrangement),
            None => Vec::new(),
        };
        // If the selected row is gone, the one that took its place.
        if self.place().is_none() {
            let place = place.unwrap_or_default().min(self.rows.len().saturating_sub(1));
            self.selected = self.rows.get(place).map(|row| row.id);
        }
        self.scroll_to_selected();
    }

    /// The session and the process of a row.
    pub(crate) fn subject(&self, row: &TopRow) -> Option<(&Session, Option<&Process>)> {
        let session = self.observation.as_ref()?.tree.sessions.get(row.session)?;
        Some((session, row.process.and_then(|index| session.processes.get(index))))
    }
}

/// Sessions whose processes were not requested keep those that were known.
fn keep_processes(observation: &mut Observation, last: Observation) {
    let sessions = last.tree.sessions.into_iter().map(|session| (session.id, session.processes));
    let mut known: HashMap<u64, Vec<Process>> = sessions.collect();
    for session in &mut observation.tree.sessions {
        if session.processes.is_empty() && session.process_count > 0 {
            session.processes = known.remove(&session.id).unwrap_or_default();
        }
    }
}

#[cfg(test)]
pub(crate) mod staged;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod time_tests;
