//! What the floor of a series did lately, whether it leaks or not: since when it is flat, and what it did before.

use super::minima::{Floors, SCALES, length};
use watchdog_types::units::{size, span};
use watchdog_types::{BootTime, Bytes};

/// Memory is on a plateau while its floor stays within this part of it, or within [`LEVEL_LEAST`].
const LEVEL_PART: u32 = 128;
/// In KiB.
const LEVEL_LEAST: u32 = 2 * 1024;
/// The number of minima of a scale at one level that make a plateau.
const SAME: usize = 4;
/// The distance that growth at the earlier rate would have covered by then, in levels.
const CERTAIN: f64 = 3.0;
/// The shortest plateau, in tenths of a second.
const PLATEAU_LEAST: u32 = 600;

/// Time in tenths of a second since the beginning of the series, memory in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloorTrend {
    /// The floor now.
    pub(super) level: u32,
    /// Since when it has been there, where that is long enough for a plateau.
    pub(super) flat_since: Option<u32>,
    /// What the floor was at the oldest moment that a scale remembers beyond that.
    pub(super) before: Option<(u32, u32)>,
}

/// What memory did lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryTrend {
    /// The floor now.
    pub(super) level: Bytes,
    pub(super) flat_since: Option<BootTime>,
    /// An earlier moment, and the floor then, where that differs.
    pub(super) before: Option<(BootTime, Bytes)>,
}

impl MemoryTrend {
    /// "Memory plateau since 14m ago at 312 MiB, after +220 MiB within 3m"
    pub(super) fn text(self, now: BootTime) -> String {
        let Self { level, flat_since, before } = self;
        let moved = before.map(|(at, memory)| {
            let sign = if level >= memory { '+' } else { '-' };
            let within = flat_since.unwrap_or(now).since(at);
            let per_minute = (level.0.abs_diff(memory.0) as f64 / within.as_secs_f64().max(1.0) * 60.0) as u64;
            (
                format!("{sign}{} within {}", size(level.0.abs_diff(memory.0)), span(within)),
                format!("{sign}{}", size(per_minute)),
            )
        });
        match (flat_since, moved) {
            (Some(since), None) => format!("Memory plateau since {} ago at {}", span(now.since(since)), size(level.0)),
            (Some(since), Some((moved, _))) => {
                format!("Memory plateau since {} ago at {}, after {moved}", span(now.since(since)), size(level.0))
            }
            (None, Some((moved, rate))) => format!("Memory trend: {moved}, {rate}/min"),
            (None, None) => format!("No memory trend yet, at {}", size(level.0)),
        }
    }
}

/// `None` until the first spans are complete.
pub(super) fn trend(floors: &Floors, now: u32) -> Option<FloorTrend> {
    let newest = floors.minima(0).last()?.kib;
    let plateau = plateau(floors).filter(|(since, _)| now.saturating_sub(*since) >= PLATEAU_LEAST);
    if let Some((since, level)) = plateau {
        let before = moved(floors, since, level);
        // What grew this slowly before may be growing still.
        let may_grow = before.is_some_and(|(at, kib)| {
            let rate = f64::from(kib.abs_diff(level)) / f64::from(since - at);
            rate * f64::from(now - since) < f64::from(allowance(level)) * CERTAIN
        });
        if !may_grow {
            return Some(FloorTrend { level, flat_since: Some(since), before });
        }
    }
    Some(FloorTrend { level: newest, flat_since: None, before: moved(floors, now, newest) })
}

/// The oldest minimum of the finest scale that reaches well beyond a moment, if it differs from the level since.
fn moved(floors: &Floors, start: u32, level: u32) -> Option<(u32, u32)> {
    let oldest = |scale: usize| floors.minima(scale).next().map(|minimum| (minimum.began(scale), minimum.kib));
    let before = (0..SCALES).filter_map(oldest).find(|(began, _)| began + PLATEAU_LEAST <= start);
    before.filter(|(_, kib)| kib.abs_diff(level) > allowance(level))
}

/// Since when the floor has been where it is, and where: the finest scale that shows a plateau has the level, and coarser
/// ones with the same level reach back further.
fn plateau(floors: &Floors) -> Option<(u32, u32)> {
    let mut found: Option<(u32, u32)> = None;
    for scale in 0..SCALES {
        match (found, level_since(floors, scale)) {
            (None, level) => found = level,
            (Some((since, level)), Some((earlier, same)))
                if same.abs_diff(level) <= allowance(level) && earlier + length(scale) < since =>
            {
                found = Some((earlier, level));
            }
            _ => {}
        }
    }
    found
}

/// The newest minimum of a scale, and since when minima have been like it, if several are and they make a plateau.
fn level_since(floors: &Floors, scale: usize) -> Option<(u32, u32)> {
    let minima: Vec<_> = floors.minima(scale).collect();
    let level = minima.last()?.kib;
    let same = minima.iter().rev().take_while(|minimum| minimum.kib.abs_diff(level) <= allowance(level));
    let since = same.clone().last()?.began(scale);
    (same.count() >= SAME).then_some((since, level))
}

fn allowance(level: u32) -> u32 {
    (level / LEVEL_PART).max(LEVEL_LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1024;

    fn after(seconds: u32, memory: impl Fn(u32) -> u32) -> FloorTrend {
        let mut floors = Floors::new();
        for second in 0..=seconds {
            let _ = floors.note(second * 10, memory(second) * MIB, None);
        }
        trend(&floors, seconds * 10).unwrap()
    }

    #[test]
    fn plateau_begins_where_growth_ended() {
        for (grows, stays) in [(90, 120), (90, 3_000), (600, 900)] {
            let trend = after(grows + stays, |second| 60 + second.min(grows));
            let since = trend.flat_since.unwrap() / 10;
            assert!(since.abs_diff(grows) <= 12 + stays / 16, "{trend:?}, not {grows}");
            assert_eq!(trend.level, (60 + grows) * MIB);
        }
    }

    #[test]
    fn step_ends_the_plateau_before() {
        for to in [200, 40] {
            let trend = after(3_300, |second| if second < 3_000 { 90 } else { to });
            assert!(trend.flat_since.unwrap().abs_diff(30_000) <= 300, "{trend:?}");
            assert_eq!((trend.level, trend.before.unwrap().1), (to * MIB, 90 * MIB));
        }
    }

    #[test]
    fn saw_teeth_stand_on_a_plateau() {
        let trend = after(1_200, |second| 80 + second % 20 * 6);
        assert!(trend.flat_since.unwrap() <= 100, "{trend:?}");
        assert_eq!(trend.before, None);
    }

    #[test]
    fn growth_is_no_plateau() {
        let trend = after(600, |second| 60 + second);
        assert_eq!(trend.flat_since, None);
        assert!(trend.before.is_some_and(|(_, kib)| kib < trend.level), "{trend:?}");
    }
}
