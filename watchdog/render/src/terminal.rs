//! Width, colours and clock of the output.

use std::borrow::Cow;
use std::env;
use std::io::{IsTerminal, stdout};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthStr;

use super::escape::escape;
use watchdog_types::units;

/// Columns by which the continuation of a line is indented more than the line.
const HANGING: usize = 2;

/// Everything that a rendering depends on besides the data.
#[derive(Clone, Debug)]
pub struct Terminal {
    /// Columns; `None` if the output is no terminal, so that nothing is cut.
    pub width: Option<usize>,
    pub colour: bool,
    /// Ages are relative to this.
    pub now: Timestamp,
    /// The local time zone. A function, because finding the zone costs more than most commands.
    pub zone: fn() -> TimeZone,
}

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Strong,
    Faint,
    Good,
    Warn,
    Bad,
}

impl Terminal {
    pub fn of_stdout() -> Self {
        let terminal = stdout().is_terminal();
        let width = rustix::termios::tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col));
        Self {
            width: width.filter(|&columns| terminal && columns > 0),
            colour: terminal && wants_colour(|name| env::var_os(name).map(|value| value.into_encoded_bytes())),
            now: Timestamp::now(),
            zone: || TimeZone::try_system().unwrap_or(TimeZone::UTC),
        }
    }

    /// For text that is no terminal's: nothing is cut or coloured.
    pub fn none() -> Self {
        let zone = || TimeZone::try_system().unwrap_or(TimeZone::UTC);
        Self { width: None, colour: false, now: Timestamp::now(), zone }
    }

    /// Wraps text between words at the width of the terminal. Each line is indented and ends with a line break.
    pub fn wrap(&self, text: &str, indent: usize) -> String {
        break_line(&format!("{:indent$}{text}\n", ""), self.width.unwrap_or(usize::MAX), indent)
    }

    /// Breaks lines that are wider than the terminal between words, and indents what follows a little more.
    #[must_use]
    pub fn fit(&self, text: &str) -> String {
        let Some(width) = self.width else { return text.to_owned() };
        let indent = |line: &str| (line.len() - line.trim_start_matches(' ').len() + HANGING).min(width / 2);
        text.split_inclusive('\n').map(|line| break_line(line, width, indent(line))).collect()
    }

    /// How long ago a time was. A text that is no time is escaped.
    pub fn ago(&self, time: &str) -> String {
        units::age(time, self.now).map_or_else(|| escape(time).into_owned(), |age| format!("{} ago", units::span(age)))
    }

    /// The age of a time. A text that is no time is escaped.
    pub fn age(&self, time: &str) -> String {
        units::age(time, self.now).map_or_else(|| escape(time).into_owned(), units::span)
    }

    /// Date and time of day in the local zone. A text that is no time is escaped.
    pub fn local_time(&self, time: &str) -> String {
        units::clock(time, (self.zone)()).unwrap_or_else(|| escape(time).into_owned())
    }

    /// The text in this style, if colours are on.
    pub fn paint<'a>(&self, style: Style, text: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let text = text.into();
        if !self.colour || text.is_empty() {
            return text;
        }
        let code = match style {
            Style::Strong => "1",
            Style::Faint => "2",
            Style::Good => "32",
            Style::Warn => "33",
            Style::Bad => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m").into()
    }
}

/// Breaks a line between words, and indents what follows.
fn break_line(line: &str, width: usize, indent: usize) -> String {
    if columns(line.trim_end()) <= width {
        return line.to_owned();
    }
    let (mut fitted, mut used, mut is_first) = (String::new(), 0, true);
    for word in line.split_inclusive(' ') {
        if !is_first && used + columns(word.trim_end()) > width {
            fitted.truncate(fitted.trim_end_matches(' ').len());
            fitted.push_str(&format!("\n{:indent$}", ""));
            (used, is_first) = (indent, true);
        }
        // The padding of a column is none at the beginning of a line.
        if is_first && word == " " && used == indent {
            continue;
        }
        is_first &= word == " ";
        fitted.push_str(word);
        used += columns(word);
    }
    fitted
}

/// Columns of a text that [`Terminal::paint`] may have coloured.
fn columns(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    first + parts.map(|part| part.split_once('m').map_or(0, |(_, shown)| shown.width())).sum::<usize>()
}

/// See <https://no-color.org> and <https://bixense.com/clicolors>.
fn wants_colour(variable: impl Fn(&str) -> Option<Vec<u8>>) -> bool {
    let no_color = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = variable("TERM").is_none_or(|value| value == b"dumb");
    let clicolor_off = variable("CLICOLOR").is_some_and(|value| value == b"0");
    !no_color && !dumb && !clicolor_off
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::short("a line that fits\n", "a line that fits\n")]
    #[case::sentence("  one two three four five\n", "  one two three four\n    five\n")]
    #[case::label("swap        none of it is left\n", "swap        none of\n  it is left\n")]
    #[case::coloured("\x1b[1mone two three four\x1b[0m five\n", "\x1b[1mone two three four\x1b[0m\n  five\n")]
    #[case::long_word("one /a/path/longer/than/it\n", "one\n  /a/path/longer/than/it\n")]
    #[case::wide("日本語 日本語 日本語 日\n", "日本語 日本語 日本語\n  日\n")]
    #[case::columns("fork     session 1         12  forked by 7\n", "fork     session 1\n  12  forked by 7\n")]
    #[case::prompt("proceed? [y/N] ", "proceed? [y/N] ")]
    fn wide_lines_break_between_words(#[case] text: &str, #[case] fitted: &str) {
        let terminal = Terminal { width: Some(20), ..Terminal::none() };
        assert_eq!(terminal.fit(text), fitted);
        assert_eq!(Terminal::none().fit(text), text);
    }

    #[rstest]
    #[case(&[("TERM", "xterm")], true)]
    #[case(&[("TERM", "xterm"), ("NO_COLOR", "1")], false)]
    #[case(&[("TERM", "xterm"), ("NO_COLOR", "")], true)]
    #[case(&[("TERM", "xterm"), ("CLICOLOR", "0")], false)]
    #[case(&[("TERM", "xterm"), ("CLICOLOR", "1")], true)]
    #[case(&[("TERM", "dumb")], false)]
    #[case(&[], false)]
    fn environment_controls_colours(#[case] environment: &[(&str, &str)], #[case] wanted: bool) {
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes().to_vec())
        };
        assert_eq!(wants_colour(variable), wanted);
    }
}
