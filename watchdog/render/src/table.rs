//! Aligned columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::escape::escape;
use super::terminal::{Style, Terminal};

/// Spaces between columns.
const GAP: usize = 2;
/// Minimum width of the last column on a narrow terminal.
const MIN_LAST: usize = 12;

/// Rows under titles. Only the last column is cut at the edge of the terminal.
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    notes: Vec<(usize, String)>,
    indent: usize,
}

pub struct Column {
    title: &'static str,
    right: bool,
}

pub struct Cell {
    text: String,
    style: Option<Style>,
}

impl Column {
    pub const fn left(title: &'static str) -> Self {
        Self { title, right: false }
    }

    pub const fn right(title: &'static str) -> Self {
        Self { title, right: true }
    }
}

impl Cell {
    /// Escapes the text.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self { text: escape(text.as_ref()).into_owned(), style: None }
    }

    pub fn style(self, style: Style) -> Self {
        Self { style: Some(style), ..self }
    }
}

impl TextTable {
    pub fn new(indent: usize, columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new(), notes: Vec::new(), indent }
    }

    /// Appends a row with one cell for each column.
    pub fn row(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// Appends lines below the last row. They end with a line break, and are not escaped.
    pub fn note(&mut self, lines: String) {
        self.notes.push((self.rows.len(), lines));
    }

    pub fn render(&self, terminal: &Terminal) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = self.rows.iter().map(|row| row[i].text.width());
                cells.max().unwrap_or(0).max(self.columns[i].title.width())
            })
            .collect();
        let mut out = String::new();
        let titles: Vec<Cell> = self.columns.iter().map(|column| Cell::new(column.title).style(Style::Faint)).collect();
        if self.columns.iter().any(|column| !column.title.is_empty()) {
            self.line(&titles, &widths, terminal, &mut out);
        }
        let mut notes = self.notes.iter().peekable();
        for (i, row) in self.rows.iter().enumerate() {
            self.line(row, &widths, terminal, &mut out);
            while let Some((_, lines)) = notes.next_if(|(after, _)| *after == i + 1) {
                out.push_str(lines);
            }
        }
        out
    }

    fn line(&self, cells: &[Cell], widths: &[usize], terminal: &Terminal, out: &mut String) {
        out.extend(std::iter::repeat_n(' ', self.indent));
        let mut used = self.indent;
        // No padding after the last non-empty cell.
        let filled = cells.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
        for (i, (cell, column)) in cells.iter().zip(&self.columns).enumerate().take(filled) {
            let last = i + 1 == cells.len();
            let available = terminal.width.filter(|_| last).map(|width| width.saturating_sub(used).max(MIN_LAST));
            let text = available.map_or_else(|| cell.text.clone(), |columns| cut(&cell.text, columns));
            let padding = if last && !column.right { 0 } else { widths[i].saturating_sub(text.width()) };
            let spaces = std::iter::repeat_n(' ', padding);
            if column.right {
                out.extend(spaces.clone());
            }
            match cell.style {
                Some(style) => out.push_str(&terminal.paint(style, text)),
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

/// Cuts text to this many columns, with an ellipsis at the end.
pub fn cut(text: &str, columns: usize) -> String {
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

    fn example() -> TextTable {
        let mut table = TextTable::new(2, vec![Column::right("PID"), Column::left("KIND"), Column::left("COMMAND")]);
        table.row(vec![Cell::new("7"), Cell::new("mcp-server"), Cell::new("node 日本語.js --verbose")]);
        table.note("    a note\n".into());
        table.row(vec![Cell::new("41230"), Cell::new("agent"), Cell::new("\x1b[31mclaude")]);
        table.row(vec![Cell::new("9"), Cell::new("other"), Cell::new("")]);
        table
    }

    #[test]
    fn columns_align_without_trailing_spaces() {
        insta::assert_snapshot!(example().render(&plain()), @r"
          PID  KIND        COMMAND
            7  mcp-server  node 日本語.js --verbose
          a note
        41230  agent       \u{1b}[31mclaude
            9  other
        ");
    }

    #[test]
    fn last_column_is_cut_at_edge() {
        insta::assert_snapshot!(example().render(&narrow(36)), @r"
          PID  KIND        COMMAND
            7  mcp-server  node 日本語.js…
          a note
        41230  agent       \u{1b}[31mclau…
            9  other
        ");
    }

    #[test]
    fn wide_characters_count_as_two() {
        assert_eq!(cut("日本語", 6), "日本語");
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 0), "…");
    }
}
