//! Three lines: where the data comes from, memory, and pressure, gate and findings.

use jiff::Timestamp;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use watchdog_api::Host;
use watchdog_render::{count, escape, size, span};

use super::fitting::{fitting, part};
use super::palette::Palette;
use crate::model::{Observation, ScreenSource, SeriesKey, TopModel};

/// Lines that it takes.
pub(super) const HEADER: u16 = 3;
const BAR: usize = 16;

pub(super) fn draw_header(model: &TopModel, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let (observation, width) = (model.observation.as_ref(), usize::from(area.width));
    let lines = [
        source(model, width, palette),
        observation.map_or_else(Line::default, |seen| memory(seen, model, width, palette)),
        observation.map_or_else(Line::default, |seen| gate(seen, width, palette)),
    ];
    for (line, place) in lines.into_iter().zip(area.rows()) {
        line.render(place, buffer);
    }
}

pub(super) fn clock(model: &TopModel, at: Timestamp, date: bool) -> String {
    let local = at.to_zoned_datetime(model.zone.clone());
    local.strftime(if date { "%Y-%m-%d %H:%M:%S" } else { "%H:%M:%S" }).to_string()
}

fn source(model: &TopModel, width: usize, palette: Palette) -> Line<'static> {
    let plain = Style::new();
    let mut parts = vec![part(7, "agent-watchdog  ", palette.strong())];
    let at = model.observation.as_ref().map(|observation| observation.at);
    let shown = |date| at.map_or_else(String::new, |at| format!(" {}", clock(model, at, date)));
    match &model.source {
        ScreenSource::Live => {
            let (state, style) = match (&model.problem, model.paused) {
                (Some(_), _) => ("no connection", palette.bad()),
                (None, true) => ("paused", palette.warn()),
                (None, false) => ("live", palette.good()),
            };
            parts.push(part(0, state, style));
            parts.push(part(3, shown(false), plain));
        }
        ScreenSource::History(window) => {
            parts.push(part(3, "history ", palette.warn()));
            parts.push(part(0, clock(model, window.cursor, true), palette.strong()));
            if window.records.is_none() {
                parts.push(part(0, " reading…", plain));
            }
        }
        ScreenSource::Replay(playback) => {
            parts.push(part(0, "recording", palette.warn()));
            parts.push(part(5, format!(" {}", escape(&playback.name)), plain));
            parts.push(part(3, shown(true), plain));
        }
    }
    if let Some(observation) = &model.observation {
        let counts = &observation.counts;
        let sessions = count(counts.sessions_running + counts.sessions_orphaned, "session", "sessions");
        parts.push(part(1, format!("   {sessions}"), plain));
        parts.push(part(2, format!(", {}", count(counts.processes, "process", "processes")), plain));
        parts.push(part(4, format!(", {}", size(counts.memory_bytes)), plain));
        if counts.sessions_orphaned > 0 {
            parts.push(part(0, format!("  {} orphaned", counts.sessions_orphaned), palette.bad()));
        }
        if let Some(trouble) = &observation.trouble {
            let (what, detail) = trouble.split_at(trouble.find(':').unwrap_or(trouble.len()));
            parts.push(part(0, format!("  {}", escape(what)), palette.warn()));
            parts.push(part(6, escape(detail), palette.warn()));
        }
    }
    fitting(parts, width)
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bar")]
fn filled(used: u64, total: u64) -> usize {
    if total == 0 { 0 } else { (used as f64 / total as f64 * BAR as f64).round() as usize }.min(BAR)
}

fn memory(observation: &Observation, model: &TopModel, width: usize, palette: Palette) -> Line<'static> {
    let Host { memory_total_bytes: total, memory_available_bytes: available, .. } = observation.host;
    if total == 0 {
        return Line::raw("memory    not known");
    }
    let used = total.saturating_sub(available);
    let full = filled(used, total);
    let style = match available.saturating_mul(100) / total {
        ..10 => palette.bad(),
        10..25 => palette.warn(),
        _ => palette.good(),
    };
    let plain = Style::new();
    let swap = match observation.host.swap_total_bytes {
        0 => String::new(),
        total => {
            let used = total.saturating_sub(observation.host.swap_free_bytes);
            format!("   swap {} of {}", size(used), size(total))
        }
    };
    let mut spans = fitting(
        vec![
            part(0, "memory ", palette.faint()),
            part(1, "   ", plain),
            part(2, "█".repeat(full), style),
            part(2, format!("{} ", "░".repeat(BAR - full)), palette.faint()),
            part(0, format!("{} available", size(available)), plain),
            part(1, format!(" of {}", size(total)), plain),
            part(3, swap, plain),
        ],
        width,
    )
    .spans;
    let left: usize = spans.iter().map(Span::width).sum();
    let trend = model.trends.sparkline(SeriesKey::Host, width.saturating_sub(left + 13).min(40));
    if !trend.is_empty() && width > left + 20 {
        spans.push(Span::styled("   available ", palette.faint()));
        spans.push(Span::styled(trend, palette.chart()));
    }
    Line::from(spans)
}

fn gate(observation: &Observation, width: usize, palette: Palette) -> Line<'static> {
    let plain = Style::new();
    let mut parts = vec![part(2, "pressure  ", palette.faint())];
    match observation.host.pressure_some_avg10 {
        Some(some) => {
            let style = if some >= 10.0 { palette.bad() } else { plain };
            let full = observation.host.pressure_full_avg10.unwrap_or_default();
            parts.push(part(2, format!("some {some:.1} %"), style));
            parts.push(part(4, format!(" full {full:.1} %"), style));
            parts.push(part(2, "   ", plain));
        }
        None => parts.push(part(2, "not known   ", palette.faint())),
    }
    let findings = observation.findings.len();
    let style = if findings > 0 { palette.warn() } else { plain };
    parts.push(part(0, "findings ", palette.faint()));
    parts.push(part(0, findings.to_string(), style));
    if let Some(gate) = &observation.gate {
        parts.push(part(0, "   gate ", palette.faint()));
        if let Some(why) = &gate.breaker {
            parts.push(part(0, "breaker open", palette.bad()));
            parts.push(part(5, format!(": {}", escape(why)), palette.bad()));
            parts.push(part(1, "; ", palette.bad()));
        }
        let style = if gate.waiting > 0 { palette.warn() } else { plain };
        let rank = u8::from(gate.breaker.is_some());
        parts.push(part(rank, format!("{} waiting", gate.waiting), style));
        parts.push(part(3, format!(", {} launched", gate.launched), plain));
        parts.push(part(6, format!(", {} free", size(gate.free_bytes)), plain));
    }
    fitting(parts, width)
}

/// How long ago the shown data was read, for the banner.
pub(super) fn data_age(model: &TopModel) -> String {
    let Some(observation) = &model.observation else { return String::new() };
    let age = std::time::Duration::try_from(model.now.duration_since(observation.at)).unwrap_or_default();
    format!(" (shown: {} ago)", span(age))
}
