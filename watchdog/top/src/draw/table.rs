//! The table of sessions and processes.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use unicode_width::UnicodeWidthStr;
use watchdog_api::{Session, SessionState};
use watchdog_render::{escape, process_command, span};
use watchdog_types::units;

use super::columns::{Columns, fit};
use super::fitting::{cut_after_word, cut_before};
use super::palette::Palette;
use crate::model::{Focus, ScreenSource, SortKey, TopModel, TopRow, severity_of, verdict};

/// The titles, and as many rows as fit.
pub(super) fn draw_table(model: &TopModel, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let columns = Columns::for_width(usize::from(area.width));
    let mut lines = area.rows();
    if let Some(line) = lines.next() {
        title(model, &columns, palette).render(line, buffer);
    }
    for (row, line) in model.rows.iter().skip(model.offset).zip(lines) {
        if let Some(text) = row_line(model, row, &columns, palette) {
            text.render(line, buffer);
        }
        if Some(row.id) == model.selected && model.focus == Focus::Table {
            buffer.set_style(line, palette.selected());
        }
    }
    if model.rows.is_empty() && area.height > 1 {
        let line = Rect { y: area.y + 1, height: 1, ..area };
        Line::styled(format!("  {}", nothing(model)), palette.faint()).render(line, buffer);
    }
}

fn nothing(model: &TopModel) -> &'static str {
    match &model.observation {
        None => "no data yet",
        Some(_) if !model.filter.is_empty() => "no row matches the filter",
        Some(_) => "no sessions: no process matches a profile, or all belong to other users",
    }
}

fn title(model: &TopModel, columns: &Columns, palette: Palette) -> Line<'static> {
    let sorted = match model.sort {
        SortKey::Memory => "MEM",
        SortKey::Growth => "/MIN",
        SortKey::Peak => "PEAK",
        SortKey::Age => "ID/PID",
        SortKey::Command => "COMMAND",
    };
    let cells = [
        ("ID/PID", columns.pid, true),
        (if columns.long_sizes { "MEMORY" } else { "MEM" }, columns.memory, true),
        ("TREND", columns.trend, false),
        (if columns.long_sizes { "GROWTH/m" } else { "/MIN" }, columns.growth, true),
        ("PEAK", columns.peak, true),
        ("KIND", columns.kind, false),
        ("STATE", columns.state, false),
        ("COMMAND", columns.command, false),
        ("VERDICT", columns.verdict, false),
    ];
    let mut spans = Vec::new();
    for (text, width, right) in cells.into_iter().filter(|(_, width, _)| *width > 0) {
        let is_sorted = text.starts_with(sorted) || sorted == "/MIN" && text.starts_with("GROWTH");
        let style = if is_sorted { palette.selected() } else { palette.strong() };
        spans.push(Span::styled(fit(text, width, right), style));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

/// An agent that does nothing has its idle time in place of `running`.
fn session_state(session: &Session, now: Timestamp, palette: Palette) -> (String, Style) {
    let idle = session.idle_since.as_deref().filter(|_| session.state == SessionState::Running);
    match idle.and_then(|since| units::age(since, now)) {
        // Its largest unit: two do not fit.
        Some(age) => (format!("idle {}", span(age).split(' ').next().unwrap_or_default()), palette.faint()),
        None => (session.state.name().to_owned(), palette.session(session.state)),
    }
}

/// Profile, number of processes, user and the session around it, as far as they fit; the number always does.
fn session_label(session: &Session, fold: &str, columns: usize) -> String {
    let nested = session.parent_session.map_or_else(String::new, |parent| format!(" in session {parent}"));
    let (profile, processes) = (escape(&session.profile), session.process_count);
    let user = format!(" ({processes}, {})", escape(&session.user));
    let ends = [format!("{user}{nested}"), user, format!(" ({processes})")];
    let start = format!("{fold} {profile}");
    let fits = |end: &&String| start.width() + end.width() <= columns;
    cut_before(&start, ends.iter().find(fits).unwrap_or(&ends[2]), columns)
}

fn row_line(model: &TopModel, row: &TopRow, columns: &Columns, palette: Palette) -> Option<Line<'static>> {
    let (session, process) = model.subject(row)?;
    let observation = model.observation.as_ref()?;
    let (id, kind, state, state_style, command, command_style) = match process {
        None => {
            let fold = if row.hidden > 0 { "▸" } else { "▾" };
            let command = session_label(session, fold, columns.command);
            let (state, style) = session_state(session, observation.at, palette);
            // The rest of its memory is resident.
            let kind = match session.swap_bytes {
                0 => "session".to_owned(),
                swapped => format!("{} swap", columns.size(swapped)),
            };
            (format!("#{}", session.id), kind, state, style, command, palette.strong())
        }
        Some(process) => {
            let more = if row.hidden > 0 { format!(" (+{})", row.hidden) } else { String::new() };
            let command = escape(&process_command(process)).into_owned();
            let command = cut_before(&format!("{}{command}", row.branch), &more, columns.command);
            let (state, style) = (process.state.name(), palette.process(process.state));
            (process.pid.to_string(), process.kind.name().to_owned(), state.to_owned(), style, command, Style::new())
        }
    };
    // Records of the history have neither.
    let (kind, state) = match (&model.source, process) {
        (ScreenSource::History(_), Some(_)) => Default::default(),
        (ScreenSource::History(_), None) => (kind, String::new()),
        (ScreenSource::Live | ScreenSource::Replay(_), _) => (kind, state),
    };
    let growth_style = match row.growth {
        Some(growth) if growth > 10 << 20 => palette.warn(),
        _ => Style::new(),
    };
    let peak = if row.peak_bytes == 0 { "-".to_owned() } else { columns.size(row.peak_bytes) };
    let mut cells = vec![
        Span::raw(fit(&id, columns.pid, true)),
        Span::styled(fit(&columns.size(row.memory_bytes), columns.memory, true), command_style),
        Span::styled(
            fit(&model.trends.sparkline(row.id.series(), columns.trend), columns.trend, true),
            palette.chart(),
        ),
        Span::styled(fit(&columns.growth(row.growth), columns.growth, true), growth_style),
        Span::styled(fit(&peak, columns.peak, true), palette.faint()),
        Span::raw(fit(&kind, columns.kind, false)),
        Span::styled(fit(&state, columns.state, false), state_style),
        Span::styled(fit(&command, columns.command, false), command_style),
    ];
    if columns.verdict > 0 {
        let style =
            severity_of(observation, row).map_or_else(|| palette.faint(), |severity| palette.severity(severity));
        let verdict = cut_after_word(&escape(&verdict(observation, row)), columns.verdict);
        cells.push(Span::styled(fit(&verdict, columns.verdict, false), style));
    }
    let mut spans = Vec::with_capacity(2 * cells.len());
    for cell in cells.into_iter().filter(|cell| !cell.content.is_empty()) {
        spans.push(cell);
        spans.push(Span::raw(" "));
    }
    Some(Line::from(spans))
}
