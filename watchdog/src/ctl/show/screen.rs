//! What is known of the place that the text goes to.

use std::borrow::Cow;
use std::env;
use std::io::{IsTerminal, stdout};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use unicode_width::UnicodeWidthStr;

/// Where, when and how text is shown. Everything that a rendering depends on besides the data.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    /// Columns; `None` when it is no terminal, so that nothing may be cut off.
    pub(crate) width: Option<usize>,
    /// Colours may be used.
    pub(crate) colour: bool,
    /// The moment that ages are counted to.
    pub(crate) now: Timestamp,
    /// The zone in which moments are written. Asked for only where one is: to find it takes longer than all else.
    pub(crate) zone: fn() -> TimeZone,
}

/// What a colour stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// A heading.
    Strong,
    /// Beside the point.
    Faint,
    /// As it should be.
    Good,
    /// Worth a look.
    Warn,
    /// Worth a look at once.
    Bad,
}

impl Screen {
    /// The standard output of this process.
    #[must_use]
    pub(crate) fn of_stdout() -> Self {
        let terminal = stdout().is_terminal();
        let width = rustix::termios::tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col));
        Self {
            width: width.filter(|&columns| terminal && columns > 0),
            colour: terminal && colour_is_wanted(|name| env::var_os(name).map(|value| value.into_encoded_bytes())),
            now: Timestamp::now(),
            zone: || TimeZone::try_system().unwrap_or(TimeZone::UTC),
        }
    }

    /// The text in lines that fit the screen, as far as words allow.
    #[must_use]
    pub(crate) fn fold(&self, text: &str) -> String {
        let Some(width) = self.width else { return text.to_owned() };
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let line = lines.last().map_or(0, |line| line.width());
            if line > 0 && line + 1 + word.width() > width {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines.join("\n")
    }

    /// The text in this ink, if there are colours.
    #[must_use]
    pub(crate) fn paint<'a>(&self, ink: Ink, text: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let text = text.into();
        if !self.colour || text.is_empty() {
            return text;
        }
        let code = match ink {
            Ink::Strong => "1",
            Ink::Faint => "2",
            Ink::Good => "32",
            Ink::Warn => "33",
            Ink::Bad => "31",
        };
        format!("\x1b[{code}m{text}\x1b[0m").into()
    }
}

/// By the customs of no-color.org, bixense.com/clicolors and of terminals that know nothing.
fn colour_is_wanted(variable: impl Fn(&str) -> Option<Vec<u8>>) -> bool {
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
    #[case(&[("TERM", "xterm")], true)]
    #[case(&[("TERM", "xterm"), ("NO_COLOR", "1")], false)]
    #[case(&[("TERM", "xterm"), ("NO_COLOR", "")], true)]
    #[case(&[("TERM", "xterm"), ("CLICOLOR", "0")], false)]
    #[case(&[("TERM", "xterm"), ("CLICOLOR", "1")], true)]
    #[case(&[("TERM", "dumb")], false)]
    #[case(&[], false)]
    fn colours_follow_the_environment(#[case] environment: &[(&str, &str)], #[case] wanted: bool) {
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_bytes().to_vec())
        };
        assert_eq!(colour_is_wanted(variable), wanted);
    }
}
