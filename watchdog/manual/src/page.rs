//! Parts of a man page in roff.

use clap_mangen::roff::{Inline, Roff, bold, roman};

/// What the head and the foot of each page show.
pub(crate) struct Edition {
    pub(crate) version: String,
    pub(crate) date: String,
}

impl Edition {
    pub(crate) fn source(&self) -> String {
        format!("agent-watchdog {}", self.version)
    }
}

pub(crate) const MANUAL: &str = "agent-watchdog";

/// Columns of a source line, by the advice of mandoc.
const WIDTH: usize = 80;

/// What roff writes before each part, and a page needs once.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// The page in the form that `mandoc -Tlint` advises.
pub(crate) fn tidy(page: &str) -> String {
    let page = page.replace(PREAMBLE, "");
    // An empty line takes no break beside it.
    let page = page.replace(".br\n\n.br\n", ".PP\n");
    let mut tidied = PREAMBLE.to_owned();
    let (mut is_filled, mut is_after_heading) = (true, false);
    for line in page.lines().map(str::trim_end) {
        if is_after_heading && line == ".PP" {
            continue;
        }
        is_after_heading = line.starts_with(".SH ") || line.starts_with(".SS ");
        match line {
            ".nf" => is_filled = false,
            ".fi" => is_filled = true,
            _ => {}
        }
        if is_filled && !line.starts_with('.') {
            wrap(line, &mut tidied);
        } else {
            tidied.push_str(line);
            tidied.push('\n');
        }
    }
    tidied
}

fn wrap(line: &str, to: &mut String) {
    let mut column = 0;
    for (number, word) in line.split(' ').enumerate() {
        // A line that starts with one of these is a request.
        let may_start = !word.starts_with(['.', '\'']) && !word.is_empty();
        let breaks = column + 1 + word.chars().count() > WIDTH && may_start;
        if number > 0 {
            to.push(if breaks { '\n' } else { ' ' });
        }
        column = if breaks || number == 0 { 0 } else { column + 1 } + word.chars().count();
        to.push_str(word);
    }
    to.push('\n');
}

/// Text with paragraphs separated by empty lines. Indented lines keep their line breaks.
pub(crate) fn prose(roff: &mut Roff, text: &str) {
    for (number, paragraph) in text.trim_matches('\n').split("\n\n").enumerate() {
        if number > 0 {
            roff.control("PP", []);
        }
        if paragraph.lines().any(|line| line.starts_with(' ')) {
            verbatim(roff, paragraph);
        } else {
            roff.text([roman(paragraph.split_whitespace().collect::<Vec<_>>().join(" "))]);
        }
    }
}

pub(crate) fn verbatim(roff: &mut Roff, text: &str) {
    roff.control("nf", []);
    for line in text.lines() {
        // An empty line in a block is a request of its own.
        if line.is_empty() {
            roff.control("sp", [])
        } else {
            roff.text([roman(line)])
        };
    }
    roff.control("fi", []);
}

/// `name(1), name(8)`, without the page itself.
pub(crate) fn see_also(roff: &mut Roff, pages: &[(String, &str)]) {
    roff.control("SH", ["SEE ALSO"]);
    let mut line: Vec<Inline> = Vec::new();
    for (number, (name, section)) in pages.iter().enumerate() {
        let comma = if number + 1 < pages.len() { ", " } else { "" };
        line.extend([bold(name), roman(format!("({section}){comma}"))]);
    }
    roff.text(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_lines_are_wrapped() {
        let long = "word ".repeat(30);
        let tidied = tidy(&format!("{PREAMBLE}.SH A\n{long}\n{PREAMBLE}.nf\n{long}\n.fi\n"));
        assert_eq!(tidied.matches(PREAMBLE).count(), 1);
        let lengths: Vec<usize> = tidied.lines().map(str::len).collect();
        assert_eq!(lengths[3..], [79, 69, 3, 149, 3]);
    }

    #[test]
    fn wrapped_line_starts_no_request() {
        let mut wrapped = String::new();
        wrap(&format!("{} .nf 'tis", "x".repeat(79)), &mut wrapped);
        assert_eq!(wrapped.lines().count(), 1);
    }
}
