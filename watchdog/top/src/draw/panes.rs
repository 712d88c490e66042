//! The details of the selected row, and the findings below it; for the past, what happened until then.

use jiff::SignedDuration;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use watchdog_api::{Finding, Past, Record, Severity};
use watchdog_render::{count, escape, record_parts, short_command, span};
use watchdog_types::units;

use super::fitting::cut_after_word;
use super::header::clock;
use super::palette::Palette;
use crate::model::{Focus, HistoryWindow, Observation, ScreenSource, TopModel, severity_of, verdict};

/// Below this width a finding has no severity, and a record no kind.
const NARROW: usize = 70;

/// What the row is, and why it is in its state.
pub(super) fn draw_details(model: &TopModel, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let Some((row, observation)) =
        model.place().and_then(|place| model.rows.get(place)).zip(model.observation.as_ref())
    else {
        return;
    };
    let Some((session, process)) = model.subject(row) else { return };
    let width = usize::from(area.width);
    let first = match process {
        Some(process) => format!(
            "process {} of session {}: {}, rss {}, swap {}",
            process.pid,
            session.id,
            if process.comm.is_empty() { short_command(&process.argv, "") } else { process.comm.clone() },
            units::size(process.rss_bytes),
            units::size(process.swap_bytes),
        ),
        None => {
            let age = units::age(&session.started_at, observation.at).map(span);
            let age = age.map_or_else(String::new, |age| format!(", started {age} ago"));
            let gate = if session.gated { ", launched through the gate" } else { "" };
            let zombies = match session.zombies {
                0 => String::new(),
                zombies => format!(", {}", count(zombies, "zombie", "zombies")),
            };
            let idle = session.idle_since.as_deref().and_then(|since| since.parse().ok());
            let idle = idle.map_or_else(String::new, |since| {
                let elapsed = observation.at.duration_since(since);
                format!(", idle since {}", clock(model, since, elapsed > SignedDuration::from_hours(24)))
            });
            let swap = match session.swap_bytes {
                0 => String::new(),
                swap => format!(", rss {}, swap {}", units::size(session.resident_bytes), units::size(swap)),
            };
            let (id, profile, user) = (session.id, &session.profile, &session.user);
            format!("session {id}: {profile} of {user}{swap}{idle}{age}{gate}{zombies}")
        }
    };
    let verdict = verdict(observation, row);
    let style = severity_of(observation, row).map_or_else(|| palette.faint(), |severity| palette.severity(severity));
    let lines = [
        Line::styled(cut_after_word(&escape(&first), width), palette.faint()),
        Line::styled(cut_after_word(&escape(&verdict), width), style),
    ];
    for (line, place) in lines.into_iter().zip(area.rows()) {
        line.render(place, buffer);
    }
}

pub(super) fn draw_pane(model: &TopModel, palette: Palette, area: Rect, buffer: &mut Buffer) {
    if let ScreenSource::History(window) = &model.source {
        happened(window, model, palette, area, buffer);
    } else if let Some(observation) = &model.observation {
        findings(model, observation, palette, area, buffer);
    }
}

fn heading(text: &str, palette: Palette, place: Rect, buffer: &mut Buffer) {
    let rule = "─".repeat(usize::from(place.width).saturating_sub(text.chars().count() + 1));
    Line::from(vec![Span::styled(format!("{text} "), palette.strong()), Span::styled(rule, palette.faint())])
        .render(place, buffer);
}

fn findings(model: &TopModel, observation: &Observation, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut places = area.rows();
    let Some(first) = places.next() else { return };
    let shown = usize::from(area.height) - 1;
    let all = observation.findings.len();
    let more = if all > shown { format!(" ({all}; Tab selects)") } else { String::new() };
    heading(&format!("findings{more}"), palette, first, buffer);
    let offset = (model.finding + 1).saturating_sub(shown);
    for (place, (index, finding)) in places.zip(observation.findings.iter().enumerate().skip(offset)) {
        finding_line(finding, observation, usize::from(area.width), palette).render(place, buffer);
        if model.focus == Focus::Findings && index == model.finding {
            buffer.set_style(place, palette.selected());
        }
    }
}

fn finding_line(finding: &Finding, observation: &Observation, width: usize, palette: Palette) -> Line<'static> {
    let age = units::age(&finding.opened_at, observation.at).map_or_else(String::new, span);
    let severity = if width < NARROW { String::new() } else { format!("{:8} ", finding.severity.name()) };
    let head = format!("{:9} {severity}{age:>6} ", finding.kind.name());
    let text = cut_after_word(&escape(&finding.summary), width.saturating_sub(head.chars().count()));
    Line::from(vec![Span::styled(head, palette.severity(finding.severity)), Span::raw(text)])
}

fn happened(window: &HistoryWindow, model: &TopModel, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let mut places = area.rows();
    let Some(first) = places.next() else { return };
    heading("until then, the latest first", palette, first, buffer);
    for (place, record) in places.zip(window.happened()) {
        record_line(record, model, usize::from(area.width), palette).render(place, buffer);
    }
}

fn record_line(record: &Record, model: &TopModel, width: usize, palette: Palette) -> Line<'static> {
    let (kind, _, text) = record_parts(&record.what);
    let at = record.at.parse::<jiff::Timestamp>().ok();
    let at = at.map(|at| at.to_zoned_datetime(model.zone.clone()).strftime("%H:%M:%S").to_string());
    let kind = if width < NARROW { String::new() } else { format!("{kind:15} ") };
    let head = format!("{} {kind}", at.unwrap_or_default());
    let style = match &record.what {
        Past::Oom(_) | Past::Death(_) => palette.severity(Severity::Critical),
        Past::Finding(change) => palette.severity(change.finding.severity),
        Past::Action(_) => palette.severity(Severity::Warning),
        _ => palette.faint(),
    };
    let text = cut_after_word(&escape(&text), width.saturating_sub(head.chars().count()));
    Line::from(vec![Span::styled(head, style), Span::raw(text)])
}
