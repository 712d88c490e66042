//! The table of outcomes.

use std::fmt::Write as _;

use super::result::RunReport;

const HEAD: [&str; 9] =
    ["", "guard", "died, in this order", "after", "freed", "was to live", "paged out", "first answer", "won"];

/// A row per run, with the notes of all runs below the table.
pub(super) fn table(reports: &[RunReport]) -> String {
    let rows: Vec<[String; 9]> = std::iter::once(HEAD.map(str::to_owned)).chain(reports.iter().map(row)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    for report in reports {
        for note in &report.notes {
            let _ = writeln!(text, "{} {}: {note}", report.scenario, report.guard);
        }
    }
    text
}

fn row(report: &RunReport) -> [String; 9] {
    let RunReport { scenario, guard, died, took, freed_mib, lives, paged_out, answer, win, notes: _, kernel: _ } =
        report;
    let freed = if *freed_mib == 0 { "-".to_owned() } else { format!("{freed_mib} MiB") };
    let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let win = if *win { "yes" } else { "no" };
    [
        scenario.clone(),
        guard.clone(),
        or_dash(died),
        or_dash(took),
        freed,
        or_dash(lives),
        or_dash(paged_out),
        or_dash(answer),
        win.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_is_row_with_notes() {
        let report = RunReport {
            died: "innocent".to_owned(),
            took: "1.2 s".to_owned(),
            freed_mib: 181,
            notes: vec!["the kernel killed no process".to_owned()],
            ..RunReport::missing("A2", "earlyoom")
        };
        assert_eq!(
            table(&[report]),
            "    guard     died, in this order  after  freed    was to live  paged out  first answer  won\n\
             A2  earlyoom  innocent             1.2 s  181 MiB  -            -          -             no\n\
             A2 earlyoom: the kernel killed no process\n"
        );
    }
}
