//! What is said while a launch waits: one line that is written anew in its place on a terminal; elsewhere a line when it
//! begins and when the reason changes.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use super::super::show::{cut, span, visible};
use crate::api::{RefusalReason, Waiting};

/// Columns of a terminal that does not say how many it has.
const USUAL_WIDTH: usize = 80;

/// What has been said, and to whom.
pub(super) struct Progress {
    to: Listener,
    began: Instant,
    /// Where the launch stands, as far as is known.
    stands: Option<Waiting>,
    /// The reason that was told last.
    told: Option<RefusalReason>,
    /// There is a line on the terminal that is not finished.
    drawn: bool,
}

/// Who reads standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    /// A person: the line can be rewritten.
    Terminal,
    /// A file or a pipe.
    Log,
    /// A program that wants one JSON document and nothing else.
    Program,
}

impl Listener {
    /// Of standard error.
    pub(super) fn of_stderr(json: bool) -> Self {
        let rewritten = || std::env::var_os("TERM").is_some_and(|kind| kind != "dumb");
        match (json, io::stderr().is_terminal()) {
            (true, _) => Self::Program,
            (false, true) if rewritten() => Self::Terminal,
            (false, _) => Self::Log,
        }
    }
}

impl Progress {
    /// Nothing has been said yet.
    pub(super) fn new(to: Listener, began: Instant) -> Self {
        Self { to, began, stands: None, told: None, drawn: false }
    }

    /// How often the line is to be drawn anew; `None` where it is not.
    pub(super) fn pace(&self) -> Option<Duration> {
        (self.to == Listener::Terminal && self.stands.is_some()).then_some(Duration::from_secs(1))
    }

    /// It stands there now.
    pub(super) fn waits(&mut self, waiting: Waiting) {
        let news = self.told != Some(waiting.reason);
        self.told = Some(waiting.reason);
        if self.to == Listener::Log && news {
            write(&format!("watchdogctl: {}\n", line(&waiting, self.began.elapsed())));
        }
        self.stands = Some(waiting);
        self.draw();
    }

    /// Time has passed.
    pub(super) fn draw(&mut self) {
        let Some(waiting) = &self.stands else { return };
        if self.to == Listener::Terminal {
            write(&drawn(&line(waiting, self.began.elapsed()), width()));
            self.drawn = true;
        }
    }

    /// Something worth a line of its own.
    pub(super) fn note(&mut self, text: &str) {
        self.clear();
        if self.to != Listener::Program {
            write(&format!("watchdogctl: {}\n", visible(text)));
        }
        self.stands = None;
        self.told = None;
    }

    /// Takes the line off the terminal.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            write("\r\x1b[K");
        }
    }
}

/// There is nobody to tell when that fails.
fn write(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map(|size| usize::from(size.ws_col));
    columns.ok().filter(|&columns| columns > 0).unwrap_or(USUAL_WIDTH)
}

/// Over what stood there, and never onto a second line: that could not be rewritten.
fn drawn(line: &str, width: usize) -> String {
    format!("\r{}\x1b[K", cut(line, width.saturating_sub(1)))
}

fn line(waiting: &Waiting, waited: Duration) -> String {
    let estimate = waiting.estimate_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let estimate =
        estimate.map_or_else(String::new, |left| format!(", about {} to go", span(left.max(Duration::from_secs(1)))));
    let so_far = if waited < Duration::from_secs(1) { String::new() } else { format!(" for {}", waited_for(waited)) };
    let (place, why) = (waiting.position, visible(&waiting.detail));
    format!("waiting{so_far}, place {place} in the queue{estimate}: {why}")
}

/// With its seconds up to an hour: a person looks whether it goes on.
fn waited_for(waited: Duration) -> String {
    match waited.as_secs() {
        seconds @ 60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => span(waited),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn third() -> Waiting {
        Waiting {
            position: 3,
            reason: RefusalReason::Quota,
            detail: "10 of 10 sessions run".into(),
            estimate_seconds: Some(40.4),
        }
    }

    #[test]
    fn a_line_says_for_how_long_where_and_why() {
        insta::assert_snapshot!(line(&third(), Duration::from_millis(20)),
            @"waiting, place 3 in the queue, about 40s to go: 10 of 10 sessions run");
        insta::assert_snapshot!(line(&third(), Duration::from_secs(62)),
            @"waiting for 1m 02s, place 3 in the queue, about 40s to go: 10 of 10 sessions run");
        let soon = Waiting { estimate_seconds: Some(0.2), ..third() };
        assert!(line(&soon, Duration::ZERO).contains(", about 1s to go: "));
        let unknown = Waiting { estimate_seconds: None, position: 1, ..third() };
        insta::assert_snapshot!(line(&unknown, Duration::from_secs(7_500)),
            @"waiting for 2h 5m, place 1 in the queue: 10 of 10 sessions run");
    }

    #[test]
    fn what_the_daemon_says_cannot_command_the_terminal() {
        let odd = Waiting { detail: "\x1b[2J\n".into(), estimate_seconds: Some(f64::NAN), ..third() };
        let line = line(&odd, Duration::ZERO);
        assert!(!line.contains(['\x1b', '\n']), "{line:?}");
    }

    #[test]
    fn a_drawn_line_never_fills_the_last_column() {
        assert_eq!(drawn("waiting for 1m", 9), "\rwaiting…\x1b[K");
        assert_eq!(drawn("waiting", 80), "\rwaiting\x1b[K");
    }
}
