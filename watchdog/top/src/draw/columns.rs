//! Which columns fit, and their cells.

use unicode_width::UnicodeWidthStr;
use watchdog_render::{cut, size};

/// The columns of the table, from the left. The command takes the rest. A column without width is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub(super) pid: usize,
    pub(super) memory: usize,
    pub(super) trend: usize,
    pub(super) growth: usize,
    pub(super) peak: usize,
    pub(super) kind: usize,
    pub(super) state: usize,
    pub(super) command: usize,
    pub(super) verdict: usize,
    /// Sizes with whole units: `812 MiB` instead of `812M`.
    pub(super) long_sizes: bool,
}

/// From this width on, verdicts have a column.
const WIDE: usize = 110;
/// A command needs this room; a narrow screen leaves out columns for it.
const MIN_COMMAND: usize = 16;

impl Columns {
    pub(super) fn for_width(width: usize) -> Self {
        let wide = width >= WIDE;
        let mut columns = Self {
            pid: 7,
            memory: if wide { 8 } else { 5 },
            trend: if wide { 10 } else { 8 },
            growth: if wide { 9 } else { 6 },
            peak: if wide { 8 } else { 5 },
            kind: if wide { 13 } else { 10 },
            state: 8,
            command: 0,
            verdict: 0,
            long_sizes: wide,
        };
        while width < columns.before_command() + MIN_COMMAND && columns.leave_one_out() {}
        let rest = width.saturating_sub(columns.before_command());
        if wide {
            columns.verdict = rest.saturating_sub(1) / 2;
            columns.command = rest.saturating_sub(columns.verdict + 1);
        } else {
            columns.command = rest;
        }
        columns
    }

    /// With a gap after each column.
    fn before_command(&self) -> usize {
        let Self { pid, memory, trend, growth, peak, kind, state, .. } = *self;
        [pid, memory, trend, growth, peak, kind, state].iter().filter(|width| **width > 0).map(|width| width + 1).sum()
    }

    /// The least important column first. False if all others must stay.
    const fn leave_one_out(&mut self) -> bool {
        let Self { trend, growth, peak, kind, .. } = self;
        let least = match (&trend, &peak, &kind) {
            (1.., ..) => trend,
            (_, 1.., _) => peak,
            (_, _, 1..) => kind,
            _ => growth,
        };
        let shown = *least > 0;
        *least = 0;
        shown
    }

    pub(super) fn size(&self, bytes: u64) -> String {
        let long = size(bytes);
        if self.long_sizes { long } else { short(&long) }
    }

    /// With a sign; empty for no growth worth a line.
    pub(super) fn growth(&self, growth: Option<i64>) -> String {
        /// Less a minute is noise.
        const NOISE: u64 = 64 << 10;
        match growth {
            None => String::new(),
            Some(bytes) if bytes.unsigned_abs() < NOISE => "0".to_owned(),
            Some(bytes) => format!("{}{}", if bytes < 0 { '-' } else { '+' }, self.size(bytes.unsigned_abs())),
        }
    }
}

/// `812 MiB` as `812M`.
fn short(size: &str) -> String {
    match size.split_once(' ') {
        Some((number, unit)) => format!("{number}{}", &unit[..1]),
        None => size.to_owned(),
    }
}

/// Exactly this many columns of the terminal.
pub(super) fn fit(text: &str, width: usize, right: bool) -> String {
    if width == 0 {
        return String::new();
    }
    let text = cut(text, width);
    let padding = " ".repeat(width.saturating_sub(text.width()));
    if right { padding + &text } else { text + &padding }
}
