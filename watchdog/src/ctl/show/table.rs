//! Columns that line up.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::escape::visible;
use super::screen::{Ink, Screen};

/// Columns between two columns.
const GAP: usize = 2;
/// What the last column keeps on the narrowest terminal.
const LEAST: usize = 12;

/// Rows of cells under titles. The last column is cut at the edge of the terminal, the others never.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    notes: Vec<(usize, String)>,
    indent: usize,
}

/// A column's title and its side.
pub(crate) struct Column {
    title: &'static str,
    right: bool,
}

/// What stands in a row's column.
pub(crate) struct Cell {
    text: String,
    ink: Option<Ink>,
}

impl Column {
    /// A column of words.
    #[must_use]
    pub(crate) const fn left(title: &'static str) -> Self {
        Self { title, right: false }
    }

    /// A column of numbers.
    #[must_use]
    pub(crate) const fn right(title: &'static str) -> Self {
        Self { title, right: true }
    }
}

impl Cell {
    /// This text, made safe to print.
    #[must_use]
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self { text: visible(text.as_ref()).into_owned(), ink: None }
    }

    /// The same in colour.
    #[must_use]
    pub(crate) fn ink(self, ink: Ink) -> Self {
        Self { ink: Some(ink), ..self }
    }
}

impl Table {
    /// A table without rows, set off from the left by `indent`.
    #[must_use]
    pub(crate) fn new(indent: usize, columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new(), notes: Vec::new(), indent }
    }

    /// Appends a row of as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Appends a finished line, or several, below the last row.
    pub(crate) fn note(&mut self, lines: String) {
        self.notes.push((self.rows.len(), lines));
    }

    /// The lines, each with its line break.
    #[must_use]
    pub(crate) fn render(&self, screen: &Screen) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = self.rows.iter().map(|row| row[i].text.width());
                cells.max().unwrap_or(0).max(self.columns[i].title.width())
            })
            .collect();
        let mut out = String::new();
        let titles: Vec<Cell> = self.columns.iter().map(|column| Cell::new(column.title).ink(Ink::Faint)).collect();
        if self.columns.iter().any(|column| !column.title.is_empty()) {
            self.line(&titles, &widths, screen, &mut out);
        }
        let mut notes = self.notes.iter().peekable();
        for (i, row) in self.rows.iter().enumerate() {
            self.line(row, &widths, screen, &mut out);
            while let Some((_, lines)) = notes.next_if(|(after, _)| *after == i + 1) {
                out.push_str(lines);
            }
        }
        out
    }

    fn line(&self, cells: &[Cell], widths: &[usize], screen: &Screen, out: &mut String) {
        out.extend(std::iter::repeat_n(' ', self.indent));
        let mut used = self.indent;
        // Nothing is padded behind the last cell that holds anything.
        let filled = cells.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
        for (i, (cell, column)) in cells.iter().zip(&self.columns).enumerate().take(filled) {
            let last = i + 1 == cells.len();
            let room = screen.width.filter(|_| last).map(|width| width.saturating_sub(used).max(LEAST));
            let text = room.map_or_else(|| cell.text.clone(), |room| cut(&cell.text, room));
            let padding = if last && !column.right { 0 } else { widths[i].saturating_sub(text.width()) };
            let spaces = std::iter::repeat_n(' ', padding);
            if column.right {
                out.extend(spaces.clone());
            }
            match cell.ink {
                Some(ink) => out.push_str(&screen.paint(ink, text)),
                None => out.push_str(&text),
            }
            if i + 1 < filled {
                if !column.right {
                    out.extend(spaces);
                }
                out.extend(std::iter::repeat_n(' ', GAP));
            }
            used += widths[i] + GAP;
        }
        out.push('\n');
    }
}

/// The text in at most this many columns; an ellipsis stands for what was cut off.
#[must_use]
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used > columns {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::super::testing::{narrow, plain};
    use super::*;

    fn example() -> Table {
        let mut table = Table::new(2, vec![Column::right("PID"), Column::left("KIND"), Column::left("COMMAND")]);
        table.row(vec![Cell::new("7"), Cell::new("mcp-server"), Cell::new("node 日本語.js --verbose")]);
        table.note("    a note\n".into());
        table.row(vec![Cell::new("41230"), Cell::new("agent"), Cell::new("\x1b[31mclaude")]);
        table.row(vec![Cell::new("9"), Cell::new("other"), Cell::new("")]);
        table
    }

    #[test]
    fn columns_line_up_and_no_line_ends_in_spaces() {
        insta::assert_snapshot!(example().render(&plain()), @r"
          PID  KIND        COMMAND
            7  mcp-server  node 日本語.js --verbose
          a note
        41230  agent       \u{1b}[31mclaude
            9  other
        ");
    }

    #[test]
    fn only_the_last_column_is_cut_at_the_edge() {
        insta::assert_snapshot!(example().render(&narrow(36)), @r"
          PID  KIND        COMMAND
            7  mcp-server  node 日本語.js…
          a note
        41230  agent       \u{1b}[31mclau…
            9  other
        ");
    }

    #[test]
    fn wide_characters_are_cut_by_the_columns_they_take() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "…");
    }
}
