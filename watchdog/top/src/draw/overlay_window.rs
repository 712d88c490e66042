//! Windows over the table: help, questions, receipts, explanations.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, BorderType, Clear, Widget};
use watchdog_api::{Planned, ReclaimRun, ReclaimRunState};
use watchdog_render::{Terminal, escape, explanation, page_out_receipt, receipt};

use super::palette::Palette;
use crate::model::{HELP, Overlay, OverlayContent, TopModel};

/// Columns and lines between the window and the edge of the screen.
const MARGIN: u16 = 2;
const MAX_WIDTH: u16 = 100;

/// Returns how many lines do not fit.
pub(super) fn draw_overlay(
    overlay: &Overlay,
    model: &TopModel,
    palette: Palette,
    screen: Rect,
    buffer: &mut Buffer,
) -> usize {
    let width = screen.width.saturating_sub(2 * MARGIN).min(MAX_WIDTH);
    let inner_width = usize::from(width.saturating_sub(4));
    let zone = || jiff::tz::TimeZone::try_system().unwrap_or(jiff::tz::TimeZone::UTC);
    let terminal = Terminal { width: Some(inner_width), colour: false, now: model.now, zone };
    let (title, text, question) = content(overlay, &terminal);
    let text = wrapped(text.trim_end(), &terminal);
    let lines: Vec<&str> = text.lines().collect();
    let footer = 1 + u16::from(question.is_some());
    let most = screen.height.saturating_sub(2 * MARGIN);
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2 + footer).min(most);
    let area =
        Rect { x: screen.x + (screen.width - width) / 2, y: screen.y + (screen.height - height) / 2, width, height };
    Clear.render(area, buffer);
    let block = Block::bordered().border_type(BorderType::Rounded).title(format!(" {} ", escape(&title)));
    let inner = block.inner(area);
    block.render(area, buffer);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    let room = inner.height.saturating_sub(footer);
    let hidden = lines.len().saturating_sub(usize::from(room));
    let scroll = overlay.scroll.min(hidden);
    let mut places = inner.rows();
    for (line, place) in lines.iter().skip(scroll).zip(places.by_ref().take(usize::from(room))) {
        Line::raw(*line).render(place, buffer);
    }
    let mut last = inner.rows().skip(usize::from(room));
    if let Some(question) = &question
        && let Some(place) = last.next()
    {
        Line::styled(question.clone(), palette.strong()).render(place, buffer);
    }
    if let Some(place) = last.next() {
        let more = match hidden - scroll {
            0 => String::new(),
            more => format!("↓ {more} more lines   "),
        };
        let keys = if question.is_some() { "y yes   n no" } else { "Esc close" };
        Line::styled(format!("{more}{keys}"), palette.faint()).render(place, buffer);
    }
    hidden
}

/// Breaks lines that are too long, at their own indentation.
fn wrapped(text: &str, terminal: &Terminal) -> String {
    let lines = text.lines().map(|line| {
        let words = line.trim_start();
        terminal.wrap(words, line.len() - words.len())
    });
    lines.collect()
}

/// Title, escaped text, and the question.
fn content(overlay: &Overlay, terminal: &Terminal) -> (String, String, Option<String>) {
    match &overlay.content {
        OverlayContent::Help => ("help".to_owned(), help(), None),
        OverlayContent::Busy(what) => ("please wait".to_owned(), format!("{}…", escape(what)), None),
        OverlayContent::Plan(_, planned) => {
            let text = receipt::preview(planned, "nothing to do: no targets\n", terminal);
            let question = (!planned.actions.is_empty()).then(|| receipt::question(planned).replace(" [y/N] ", ""));
            ("confirm".to_owned(), text, question)
        }
        OverlayContent::Question(action) => ("confirm".to_owned(), String::new(), Some(action.question())),
        OverlayContent::Receipts(planned) => ("receipt".to_owned(), receipts(planned, terminal), None),
        OverlayContent::PageOut(run) => {
            let (title, question) = page_out_question(run);
            (title.to_owned(), page_out_receipt(run), question)
        }
        // It has the whole screen.
        OverlayContent::Fleet => (String::new(), String::new(), None),
        OverlayContent::Explanation(pid, explained) => {
            let title = pid.map_or_else(|| "explain".to_owned(), |pid| format!("explain process {pid}"));
            (title, explanation(explained, *pid, terminal), None)
        }
        OverlayContent::Message(title, text) => {
            let lines: Vec<String> = text.lines().map(|line| terminal.wrap(&escape(line), 0)).collect();
            (title.clone(), lines.concat(), None)
        }
    }
}

fn receipts(planned: &Planned, terminal: &Terminal) -> String {
    receipt::outcomes(planned, "nothing was done: all targets have exited\n", terminal)
}

fn page_out_question(run: &ReclaimRun) -> (&'static str, Option<String>) {
    match run.state {
        ReclaimRunState::Planned if run.processes == 0 => ("page-out", None),
        ReclaimRunState::Planned => {
            let what = match (run.session, run.sessions) {
                (Some(session), _) => format!("session {session}"),
                (None, 1) => "the idle session".to_owned(),
                (None, sessions) => format!("{sessions} idle sessions"),
            };
            ("confirm", Some(format!("Page out {what}? Its processes keep running.")))
        }
        ReclaimRunState::Running => ("please wait", None),
        ReclaimRunState::Done => ("receipt", None),
    }
}

fn help() -> String {
    HELP.iter().map(|(keys, meaning)| format!("{keys:24}  {meaning}\n")).collect()
}
