//! Progress of a waiting launch on stderr: one line that is redrawn on a terminal; elsewhere a line at the start and at
//! each new reason.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crate::output::print_error;
use crate::render::{cut, escape, span};
use watchdog_api::{RefusalReason, Waiting};

/// Columns of a terminal of unknown width.
const DEFAULT_WIDTH: usize = 80;

pub(super) struct QueueProgress {
    style: ProgressStyle,
    began: Instant,
    waiting: Option<Waiting>,
    /// The reason of the last printed line.
    printed: Option<RefusalReason>,
    /// The terminal shows an unfinished line.
    drawn: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgressStyle {
    /// One line, redrawn.
    Terminal,
    /// A line for each new reason.
    Log,
    /// Nothing: with `--json`, stderr holds one document.
    Silent,
}

impl ProgressStyle {
    pub(super) fn of_stderr(json: bool) -> Self {
        let can_redraw = || std::env::var_os("TERM").is_some_and(|kind| kind != "dumb");
        match (json, io::stderr().is_terminal()) {
            (true, _) => Self::Silent,
            (false, true) if can_redraw() => Self::Terminal,
            (false, _) => Self::Log,
        }
    }
}

impl QueueProgress {
    pub(super) fn new(style: ProgressStyle, began: Instant) -> Self {
        Self { style, began, waiting: None, printed: None, drawn: false }
    }

    /// How often the line must be redrawn.
    pub(super) fn interval(&self) -> Option<Duration> {
        (self.style == ProgressStyle::Terminal && self.waiting.is_some()).then_some(Duration::from_secs(1))
    }

    pub(super) fn update(&mut self, waiting: Waiting) {
        let is_new = self.printed != Some(waiting.reason);
        self.printed = Some(waiting.reason);
        if self.style == ProgressStyle::Log && is_new {
            print_error(&format!("watchdogctl: {}\n", line(&waiting, self.began.elapsed())));
        }
        self.waiting = Some(waiting);
        self.draw();
    }

    /// Redraws the line with the current time.
    pub(super) fn draw(&mut self) {
        let Some(waiting) = &self.waiting else { return };
        if self.style == ProgressStyle::Terminal {
            print_error(&drawn(&line(waiting, self.began.elapsed()), width()));
            self.drawn = true;
        }
    }

    /// Prints a separate line.
    pub(super) fn note(&mut self, text: &str) {
        self.clear();
        if self.style != ProgressStyle::Silent {
            print_error(&format!("watchdogctl: {}\n", escape(text)));
        }
        self.waiting = None;
        self.printed = None;
    }

    /// Removes the line from the terminal.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            print_error("\r\x1b[K");
        }
    }
}

fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map(|size| usize::from(size.ws_col));
    columns.ok().filter(|&columns| columns > 0).unwrap_or(DEFAULT_WIDTH)
}

/// Overwrites the current line, and never wraps: a second line could not be redrawn.
fn drawn(line: &str, width: usize) -> String {
    format!("\r{}\x1b[K", cut(line, width.saturating_sub(1)))
}

fn line(waiting: &Waiting, waited: Duration) -> String {
    let estimate = waiting.estimate_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let estimate =
        estimate.map_or_else(String::new, |left| format!(", about {} left", span(left.max(Duration::from_secs(1)))));
    let so_far = if waited < Duration::from_secs(1) { String::new() } else { format!(" for {}", waited_for(waited)) };
    let (position, why) = (waiting.position, escape(&waiting.detail));
    format!("waiting{so_far}, position {position} in the queue{estimate}: {why}")
}

/// With seconds up to an hour, so that the line visibly changes.
fn waited_for(waited: Duration) -> String {
    match waited.as_secs() {
        seconds @ 60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => span(waited),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn third_in_queue() -> Waiting {
        Waiting {
            position: 3,
            reason: RefusalReason::Quota,
            detail: "10 of 10 sessions run".into(),
            estimate_seconds: Some(40.4),
        }
    }

    #[test]
    fn line_has_time_position_and_reason() {
        insta::assert_snapshot!(line(&third_in_queue(), Duration::from_millis(20)),
            @"waiting, position 3 in the queue, about 40s left: 10 of 10 sessions run");
        insta::assert_snapshot!(line(&third_in_queue(), Duration::from_secs(62)),
            @"waiting for 1m 02s, position 3 in the queue, about 40s left: 10 of 10 sessions run");
        let soon = Waiting { estimate_seconds: Some(0.2), ..third_in_queue() };
        assert!(line(&soon, Duration::ZERO).contains(", about 1s left: "));
        let unknown = Waiting { estimate_seconds: None, position: 1, ..third_in_queue() };
        insta::assert_snapshot!(line(&unknown, Duration::from_secs(7_500)),
            @"waiting for 2h 5m, position 1 in the queue: 10 of 10 sessions run");
    }

    #[test]
    fn detail_is_escaped() {
        let odd = Waiting { detail: "\x1b[2J\n".into(), estimate_seconds: Some(f64::NAN), ..third_in_queue() };
        let line = line(&odd, Duration::ZERO);
        assert!(!line.contains(['\x1b', '\n']), "{line:?}");
    }

    #[test]
    fn drawn_line_leaves_last_column() {
        assert_eq!(drawn("waiting for 1m", 9), "\rwaiting…\x1b[K");
        assert_eq!(drawn("waiting", 80), "\rwaiting\x1b[K");
    }
}
