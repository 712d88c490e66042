//! Draws the state. Reads the model only, and changes nothing.

mod columns;
mod fitting;
mod fleet_screen;
mod footer;
mod header;
mod overlay_window;
mod palette;
mod panes;
mod table;
mod timeline;

pub(crate) use self::palette::Palette;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::widgets::Widget;

use self::header::HEADER;
use crate::model::{Overlay, OverlayContent, ScreenSource, TopModel};

/// The smallest screen on which everything has its place.
const MIN_WIDTH: u16 = 40;
const MIN_HEIGHT: u16 = 12;
/// Lines of the row's details.
const DETAILS: u16 = 2;
/// Lines of the lower pane without its title.
const MAX_PANE: u16 = 8;

/// Where everything is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScreenAreas {
    header: Rect,
    timeline: Rect,
    table: Rect,
    details: Rect,
    pane: Rect,
    footer: Rect,
}

impl ScreenAreas {
    pub(crate) fn of(model: &TopModel, area: Rect) -> Self {
        let timeline = if matches!(model.source, ScreenSource::Live) { 0 } else { 2 };
        let lines = match (&model.source, &model.observation) {
            (ScreenSource::History(window), _) => window.happened().take(usize::from(MAX_PANE)).count(),
            (_, Some(observation)) => observation.findings.len(),
            (_, None) => 0,
        };
        // A third of the screen at most.
        let lines = u16::try_from(lines).unwrap_or(u16::MAX).min(MAX_PANE).min(area.height / 3);
        let pane = if lines == 0 { 0 } else { lines + 1 };
        let constraints = [
            Constraint::Length(HEADER),
            Constraint::Length(timeline),
            Constraint::Fill(1),
            Constraint::Length(DETAILS),
            Constraint::Length(pane),
            Constraint::Length(1),
        ];
        let [header, timeline, table, details, pane, footer] = Layout::vertical(constraints).areas(area);
        Self { header, timeline, table, details, pane, footer }
    }

    /// Everything between the header and the footer.
    fn below_header(&self) -> Rect {
        self.timeline.union(self.table).union(self.details).union(self.pane)
    }

    /// Rows of the table below its title, and the line of the first one.
    pub(crate) fn table_rows(&self) -> (usize, u16) {
        (usize::from(self.table.height.saturating_sub(1)), self.table.y + 1)
    }
}

/// Returns how many lines of the window over the table do not fit.
pub(crate) fn draw(model: &TopModel, palette: Palette, frame: &mut Frame<'_>) -> usize {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < MIN_WIDTH || area.height < MIN_HEIGHT {
        format!("too small: {}x{}, needs {MIN_WIDTH}x{MIN_HEIGHT}", area.width, area.height).render(area, buffer);
        return 0;
    }
    let areas = ScreenAreas::of(model, area);
    header::draw_header(model, palette, areas.header, buffer);
    timeline::draw_timeline(model, palette, areas.timeline, buffer);
    if let Some(Overlay { content: OverlayContent::Fleet, scroll }) = model.overlay {
        footer::draw_footer(model, palette, areas.footer, buffer);
        return fleet_screen::draw_fleet(model, palette, areas.below_header(), scroll, buffer);
    }
    table::draw_table(model, palette, areas.table, buffer);
    panes::draw_details(model, palette, areas.details, buffer);
    panes::draw_pane(model, palette, areas.pane, buffer);
    footer::draw_footer(model, palette, areas.footer, buffer);
    model.overlay.as_ref().map_or(0, |overlay| overlay_window::draw_overlay(overlay, model, palette, area, buffer))
}

#[cfg(test)]
mod tests;
