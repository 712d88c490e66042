//! Where in time the screen is: a slider over the history's window, or over a recording.

use std::time::Duration;

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use watchdog_api::{Past, Severity};
use watchdog_render::span;

use super::palette::Palette;
use crate::model::{HistoryWindow, Playback, ScreenSource, TopModel};

pub(super) fn draw_timeline(model: &TopModel, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut places = area.rows();
    let (Some(first), Some(second)) = (places.next(), places.next()) else { return };
    match &model.source {
        ScreenSource::Live => {}
        ScreenSource::History(window) => {
            let (bar, scale) = of_history(window, model, usize::from(area.width), palette);
            bar.render(first, buffer);
            scale.render(second, buffer);
        }
        ScreenSource::Replay(playback) => of_replay(playback, usize::from(area.width), palette).render(first, buffer),
    }
}

/// A column of the slider.
#[derive(Clone, Copy, Debug, Default)]
struct SliderColumn {
    /// Memory in use, per cent.
    used: Option<u64>,
    event: Option<Severity>,
}

fn of_history(
    window: &HistoryWindow,
    model: &TopModel,
    width: usize,
    palette: Palette,
) -> (Line<'static>, Line<'static>) {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut columns = vec![SliderColumn::default(); width];
    let column = |at: Timestamp| {
        let (span, past) = (window.to.duration_since(window.from), at.duration_since(window.from));
        let place = past.as_secs() * i64::try_from(width).unwrap_or(i64::MAX) / span.as_secs().max(1);
        usize::try_from(place).unwrap_or_default().min(width.saturating_sub(1))
    };
    for (at, host) in window.hosts() {
        let memory = &host.memory;
        let used = memory.memory_total_bytes.saturating_sub(memory.memory_available_bytes);
        let percent = used.saturating_mul(100) / memory.memory_total_bytes.max(1);
        let slot = &mut columns[column(at)];
        slot.used = slot.used.max(Some(percent));
    }
    for record in window.records() {
        let severity = match &record.what {
            Past::Finding(change) if change.change != "closed" => change.finding.severity,
            Past::Oom(_) | Past::Death(_) => Severity::Critical,
            Past::Action(_) => Severity::Warning,
            _ => continue,
        };
        if let Ok(at) = record.at.parse() {
            let slot = &mut columns[column(at)];
            slot.event = slot.event.max(Some(severity));
        }
    }
    let cursor = column(window.cursor);
    let spans = columns.iter().enumerate().map(|(place, slot)| {
        let level = slot.used.and_then(|used| LEVELS.get((usize::try_from(used).unwrap_or_default() * 8 / 101).min(7)));
        let style = slot.event.map_or_else(|| palette.chart(), |severity| palette.severity(severity));
        let style = if place == cursor { style.add_modifier(Modifier::REVERSED) } else { style };
        Span::styled(level.unwrap_or(&'·').to_string(), style)
    });
    let time = |at: Timestamp| at.to_zoned_datetime(model.zone.clone()).strftime("%m-%d %H:%M").to_string();
    let (from, to) = (time(window.from), time(window.to));
    let middles = ["memory in use; ←→ [ ] { } move, @ time, h back", "←→ [ ] { } move, h back", ""];
    let ends = from.len() + to.len();
    let fits = |middle: &&str| ends + middle.chars().count() + 2 <= width;
    let middle = middles.into_iter().find(fits).unwrap_or_default();
    let gap = width.saturating_sub(ends + middle.chars().count());
    let (left, right) = (" ".repeat(gap / 2), " ".repeat(gap - gap / 2));
    let scale = format!("{from}{left}{middle}{right}{to}");
    (Line::from(spans.collect::<Vec<_>>()), Line::styled(scale, palette.faint()))
}

/// Columns of a recording's bar, at least.
const MIN_BAR: usize = 8;

fn of_replay(playback: &Playback, width: usize, palette: Palette) -> Line<'static> {
    let state = if playback.playing { "▶" } else { "⏸" };
    let length = playback.length.map_or_else(|| "…".to_owned(), position);
    let label = format!("{state} {} of {length}, {}x", position(playback.position), playback.speed);
    let ends = ["; p play, ←→ [ ] { } move, + - speed ", "; p play, + - speed ", " "];
    let fits = |end: &&str| label.chars().count() + end.chars().count() + MIN_BAR <= width;
    let label = label.clone() + ends.into_iter().find(fits).unwrap_or(" ");
    let room = width.saturating_sub(label.chars().count());
    let millis = |span: Duration| usize::try_from(span.as_millis()).unwrap_or(usize::MAX);
    let done = playback.length.map_or(0, |length| {
        (millis(playback.position).saturating_mul(room) / millis(length).max(1)).min(room.saturating_sub(1))
    });
    Line::from(vec![
        Span::styled(label, Style::new()),
        Span::styled("━".repeat(done), palette.chart()),
        Span::styled("╸", palette.strong()),
        Span::styled("─".repeat(room.saturating_sub(done + 1)), palette.faint()),
    ])
}

/// `1:02:03`, or a longer span in its two largest units.
fn position(at: Duration) -> String {
    let seconds = at.as_secs();
    if seconds >= 86_400 {
        return span(at);
    }
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}
