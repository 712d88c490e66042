//! The hosts of the fleet and its pools, in place of the table.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;
use unicode_width::UnicodeWidthStr;
use watchdog_api::{Fleet, FleetHost, FleetPool, HostState};
use watchdog_render::{
    Style as Meaning, count, cut, escape, fleet_size, fleet_store, host_state, last_seen, pool_holders, size,
};

use super::columns::fit;
use super::fitting::{cut_after_word, cut_before, fitting, part};
use super::palette::Palette;
use crate::model::TopModel;

/// Widths of the columns after the host and its state: seen, agents, waiting, available, pressure, findings.
const NUMBERS: [usize; 6] = [7, 6, 7, 9, 8, 8];
/// Their places in the order in which a narrow screen leaves them out. Agents stay.
const LEAST: [usize; 5] = [4, 0, 5, 3, 2];
const STATE: usize = 12;
const MIN_HOST: usize = 12;
const MAX_HOST: usize = 40;
/// Columns of a pool's name, its places and its limit.
const POOL: usize = 24;
const PLACES: usize = 7;

/// Returns how many lines do not fit.
pub(super) fn draw_fleet(model: &TopModel, palette: Palette, area: Rect, scroll: usize, buffer: &mut Buffer) -> usize {
    let width = usize::from(area.width);
    let lines = match model.observation.as_ref().and_then(|observation| observation.fleet.as_ref()) {
        None => vec![Line::styled("asking the daemon…", palette.faint())],
        Some(Err(why)) => why.lines().map(|line| Line::styled(cut(&escape(line), width), palette.bad())).collect(),
        Some(Ok(fleet)) => lines(fleet, model, width, palette),
    };
    let hidden = lines.len().saturating_sub(usize::from(area.height));
    for (line, place) in lines.into_iter().skip(scroll.min(hidden)).zip(area.rows()) {
        line.render(place, buffer);
    }
    hidden
}

fn lines(fleet: &Fleet, model: &TopModel, width: usize, palette: Palette) -> Vec<Line<'static>> {
    let (meaning, store) = fleet_store(fleet, model.now);
    let up = fleet.hosts.iter().filter(|host| host.state == HostState::Up);
    let (agents, waiting) = up.fold((0, 0), |(agents, waiting), host| (agents + host.agents, waiting + host.waiting));
    let size = vec![
        part(0, fleet_size(fleet), Style::new()),
        part(1, format!("; {}", count(agents, "agent", "agents")), Style::new()),
        part(1, format!(", {waiting} waiting"), Style::new()),
    ];
    let mut lines =
        vec![Line::styled(cut(&store, width), style(meaning, palette)), fitting(size, width), Line::default()];
    let titles = ["HOST", "STATE", "SEEN", "AGENTS", "WAITING", "AVAILABLE", "PRESSURE", "FINDINGS"].map(str::to_owned);
    let columns = HostColumns::for_width(width);
    lines.push(columns.line(titles, "LABELS", palette.strong(), palette.strong()));
    lines.extend(fleet.hosts.iter().map(|host| host_line(host, host.host == fleet.this_host, columns, palette)));
    if !fleet.pools.is_empty() {
        lines.push(Line::default());
        lines.push(pool_line("POOL", ["HELD", "LIMIT"].map(str::to_owned), "HELD BY", width, palette.strong()));
        lines.extend(fleet.pools.iter().map(|pool| limit_line(pool, width, palette)));
    }
    lines
}

/// Room for the host's name, its numbers and its labels. What has no room is not shown.
#[derive(Clone, Copy, Debug)]
struct HostColumns {
    host: usize,
    numbers: [usize; 6],
    labels: usize,
}

impl HostColumns {
    fn for_width(width: usize) -> Self {
        let mut numbers = NUMBERS;
        let rest = |numbers: &[usize; 6]| {
            let used: usize = numbers.iter().filter(|width| **width > 0).map(|width| width + 1).sum();
            width.saturating_sub(STATE + 1 + used)
        };
        for least in LEAST {
            if rest(&numbers) < MIN_HOST {
                numbers[least] = 0;
            }
        }
        let rest = rest(&numbers);
        let host = if rest > MAX_HOST { MAX_HOST.max(rest / 2) } else { rest };
        Self { host, numbers, labels: rest.saturating_sub(host + 1) }
    }

    fn line(self, cells: [String; 8], labels: &str, state: Style, rest: Style) -> Line<'static> {
        let [host, word, numbers @ ..] = cells;
        let shown = numbers.iter().zip(self.numbers).filter(|(_, width)| *width > 0);
        let numbers: String = shown.map(|(text, width)| format!(" {}", fit(text, width, true))).collect();
        Line::from(vec![
            Span::styled(fit(&host, self.host, false), rest),
            Span::styled(format!(" {}", fit(&word, STATE, false)), state),
            Span::styled(format!("{numbers} {}", fit(labels, self.labels, false)), rest),
        ])
    }
}

fn host_line(host: &FleetHost, own: bool, columns: HostColumns, palette: Palette) -> Line<'static> {
    let (meaning, state) = host_state(host);
    let cells = [
        cut_before(&escape(&host.host), if own { " (this)" } else { "" }, columns.host),
        state.to_owned(),
        last_seen(host),
        host.agents.to_string(),
        host.waiting.to_string(),
        size(host.memory_available_bytes),
        host.pressure_some_avg10.map_or_else(|| "-".to_owned(), |some| format!("{some:.1} %")),
        host.findings.to_string(),
    ];
    // What an unreachable host reported is old.
    let rest = if meaning == Meaning::Bad { palette.faint() } else { Style::new() };
    columns.line(cells, &escape(&host.labels.join(" ")), style(meaning, palette), rest)
}

fn limit_line(pool: &FleetPool, width: usize, palette: Palette) -> Line<'static> {
    let full = pool.limit.is_some_and(|limit| pool.held >= limit);
    let limit = pool.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let places = [pool.held.to_string(), limit];
    let style = if full { palette.warn() } else { Style::new() };
    pool_line(&escape(&pool.name), places, &escape(&pool_holders(&pool.by_host)), width, style)
}

fn pool_line(name: &str, [held, limit]: [String; 2], by_host: &str, width: usize, style: Style) -> Line<'static> {
    let places = format!("{} {}", fit(&held, PLACES, true), fit(&limit, PLACES, true));
    let name = fit(name, POOL.min(width.saturating_sub(places.len() + 1)), false);
    let start = format!("{name} {places}");
    let holders = cut_after_word(by_host, width.saturating_sub(start.width() + 2));
    Line::styled(format!("{start}  {holders}"), style)
}

fn style(meaning: Meaning, palette: Palette) -> Style {
    match meaning {
        Meaning::Good => palette.good(),
        Meaning::Warn => palette.warn(),
        Meaning::Bad => palette.bad(),
        Meaning::Strong => palette.strong(),
        Meaning::Faint => palette.faint(),
    }
}
