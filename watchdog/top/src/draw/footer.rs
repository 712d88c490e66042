//! The last line: a prompt, a problem, a notice, or the keys.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use watchdog_render::{cut, escape};

use super::fitting::{fitting, part};
use super::header::data_age;
use super::palette::Palette;
use crate::model::{Overlay, OverlayContent, ScreenSource, TopModel};

/// Room for what the user types; a longer label is shortened for it.
const MIN_INPUT: usize = 20;

pub(super) fn draw_footer(model: &TopModel, palette: Palette, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let line = if let Some(prompt) = &model.prompt {
        let label = prompt.purpose.label();
        let short = label.split_once(" (").map_or(label, |(name, _)| name);
        let label = if width < label.len() + MIN_INPUT {
            format!("{}: ", short.trim_end_matches(": "))
        } else {
            label.to_owned()
        };
        let room = width.saturating_sub(label.chars().count() + 1);
        // The end of a long text, where the user types.
        let text: String = prompt.text.chars().rev().take(room).collect::<Vec<_>>().into_iter().rev().collect();
        Line::from(vec![
            Span::styled(label, palette.strong()),
            Span::raw(escape(&text).into_owned()),
            Span::styled(" ", palette.selected()),
        ])
    } else if let Some(problem) = &model.problem {
        let first = escape(problem.lines().next().unwrap_or_default());
        // A path can be long, so that it comes last.
        let text = match model.source {
            ScreenSource::Live => format!("trying again every second{}: {first}", data_age(model)),
            ScreenSource::History(_) | ScreenSource::Replay(_) => first.into_owned(),
        };
        Line::styled(cut(&text, width), palette.bad())
    } else if let Some(notice) = &model.notice {
        Line::styled(cut(&escape(notice), width), palette.warn())
    } else {
        keys(model, width, palette)
    };
    line.render(area, buffer);
}

fn keys(model: &TopModel, width: usize, palette: Palette) -> Line<'static> {
    if matches!(model.overlay, Some(Overlay { content: OverlayContent::Fleet, .. })) {
        return hints(
            &[("F", "back to the sessions"), ("↑ ↓ PgUp PgDn Home End", "scroll"), ("Ctrl-C", "quit")],
            width,
            palette,
        );
    }
    let mut pairs = vec![("?", "help"), ("q", "quit"), ("/", "search"), ("f", "filter"), ("s", "sort")];
    match model.source {
        ScreenSource::Live => pairs.extend([
            ("space", "fold"),
            ("x", "explain"),
            ("r", "reap"),
            ("e", "end"),
            ("a", "adopt"),
            ("t", "thaw"),
            ("o", "page out"),
            ("h", "history"),
        ]),
        ScreenSource::History(_) => pairs.extend([("space", "fold"), ("@", "time"), ("h", "back to now")]),
        ScreenSource::Replay(_) => pairs.extend([("space", "fold"), ("p", "play or pause")]),
    }
    let filter = format!("filter: {} ", escape(&model.filter));
    if model.filter.is_empty() {
        return hints(&pairs, width, palette);
    }
    let filter = Span::styled(cut(&filter, width / 2), palette.warn());
    let mut line = hints(&pairs, width.saturating_sub(filter.width()), palette);
    line.spans.insert(0, filter);
    line
}

/// The keys that fit.
fn hints(pairs: &[(&'static str, &str)], width: usize, palette: Palette) -> Line<'static> {
    let keys = pairs.iter().zip(0..).flat_map(|((key, name), rank)| {
        [part(rank, *key, palette.strong()), part(rank, format!(" {name}  "), palette.faint())]
    });
    // The gap after the last key needs no room.
    fitting(keys.collect(), width + 2)
}
