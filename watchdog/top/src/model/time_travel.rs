//! Moves through the history and through a recording.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use watchdog_api::Record;

use super::past::{HALF_WINDOW, HistoryWindow, parse_moment};
use super::{Overlay, ScreenSource, TopModel, TopRequest, Trends};

/// How far a key moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeStep {
    /// To the next record; of a recording, a second.
    Record,
    /// Ten records; of a recording, ten seconds.
    Ten,
    /// Ten minutes; of a recording, a minute.
    Far,
}

impl TopModel {
    /// Whether left and right move through time.
    pub(crate) const fn travels(&self) -> bool {
        !matches!(self.source, ScreenSource::Live)
    }

    pub(super) fn enter_history(&mut self) -> Vec<TopRequest> {
        match self.source {
            ScreenSource::Live => self.go_to(self.now),
            ScreenSource::History(_) => {
                self.leave_history();
                Vec::new()
            }
            ScreenSource::Replay(_) => Vec::new(),
        }
    }

    pub(super) fn leave_history(&mut self) {
        if let Some((observation, trends)) = self.parked.take() {
            self.source = ScreenSource::Live;
            self.trends = trends;
            self.problem = None;
            self.show(observation);
        }
    }

    pub(super) fn go_to_text(&mut self, text: &str) -> Vec<TopRequest> {
        let Some(moment) = parse_moment(text, self.now, &self.zone) else {
            self.notice = Some("not a time: expected 03:00, yesterday 03:00, 2026-01-02 03:00 or 2h".to_owned());
            return Vec::new();
        };
        if moment > self.now {
            self.notice = Some("that time is in the future".to_owned());
            return Vec::new();
        }
        self.go_to(moment)
    }

    fn go_to(&mut self, moment: Timestamp) -> Vec<TopRequest> {
        if matches!(self.source, ScreenSource::Live) {
            self.parked = Some((self.observation.clone(), std::mem::take(&mut self.trends)));
        }
        if let ScreenSource::History(window) = &mut self.source
            && window.records.is_some()
            && window.from <= moment
            && moment <= window.to
        {
            window.cursor = moment;
            self.show_moment();
            return Vec::new();
        }
        let window = HistoryWindow::around(moment, self.now);
        let request = TopRequest::ReadHistory { from: window.from, to: window.to };
        self.source = ScreenSource::History(window);
        vec![request]
    }

    pub(super) fn history_read(&mut self, from: Timestamp, read: Result<Vec<Record>, String>) {
        let ScreenSource::History(window) = &mut self.source else { return };
        if window.from != from {
            return;
        }
        match read {
            Ok(records) => {
                window.records = Some(records);
                // The present has no record yet.
                let last = window.hosts().next_back().map(|(at, _)| at).filter(|last| *last < window.cursor);
                if let Some(last) = last
                    && window.to.duration_since(window.cursor) < SignedDuration::from_secs(30)
                {
                    window.cursor = last;
                }
                self.show_moment();
            }
            Err(why) => {
                self.leave_history();
                self.overlay = Some(Overlay::message("history", why));
            }
        }
    }

    fn show_moment(&mut self) {
        let ScreenSource::History(window) = &self.source else { return };
        let observation = window.observation();
        let mut trends = Trends::default();
        trends.replay(window.records(), window.cursor);
        self.trends = trends;
        self.show(observation);
    }

    pub(super) fn travel(&mut self, step: TimeStep, forward: bool) -> Vec<TopRequest> {
        let sign = if forward { 1 } else { -1 };
        match &mut self.source {
            ScreenSource::Live => Vec::new(),
            ScreenSource::History(window) => {
                let steps = match step {
                    TimeStep::Record => Some(1),
                    TimeStep::Ten => Some(10),
                    TimeStep::Far => None,
                };
                let next = steps.and_then(|steps| window.step(sign * steps));
                let span = match step {
                    // Beyond the records of the window: further by a part of it.
                    TimeStep::Record => SignedDuration::from_secs(10),
                    TimeStep::Ten => SignedDuration::from_secs(100),
                    TimeStep::Far => HALF_WINDOW / 3,
                };
                let moment = next.or_else(|| window.cursor.checked_add(span * sign).ok()).unwrap_or(window.cursor);
                self.go_to(moment.min(self.now))
            }
            ScreenSource::Replay(playback) => {
                let span = match step {
                    TimeStep::Record => Duration::from_secs(1),
                    TimeStep::Ten => Duration::from_secs(10),
                    TimeStep::Far => Duration::from_secs(60),
                };
                let position = if forward { playback.position + span } else { playback.position.saturating_sub(span) };
                if playback.seek(position) { vec![TopRequest::ReplayTo(playback.position)] } else { Vec::new() }
            }
        }
    }

    pub(super) fn elapsed(&mut self, span: Duration) -> Vec<TopRequest> {
        match &mut self.source {
            ScreenSource::Replay(playback) => {
                if playback.play(span) {
                    vec![TopRequest::ReplayTo(playback.position)]
                } else {
                    Vec::new()
                }
            }
            ScreenSource::Live | ScreenSource::History(_) => Vec::new(),
        }
    }
}
