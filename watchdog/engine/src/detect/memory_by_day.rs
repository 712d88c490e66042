//! The trend of an amount over days: the line through its hourly minima.

use std::collections::VecDeque;

use watchdog_types::{BootTime, Bytes};

const HOUR_NANOS: u64 = 3_600_000_000_000;
/// A week.
const HOURS: usize = 168;
/// Hours that a trend needs.
const NEEDED: usize = 6;

/// Minima of the hours, the latest last. 16 bytes for each.
#[derive(Debug, Default)]
pub(super) struct HourlyMinima {
    hours: VecDeque<(u64, Bytes)>,
}

impl HourlyMinima {
    pub(super) fn add(&mut self, at: BootTime, amount: Bytes) {
        let hour = at.0 / HOUR_NANOS;
        match self.hours.back_mut() {
            Some((last, least)) if *last == hour => *least = amount.min(*least),
            _ => self.hours.push_back((hour, amount)),
        }
        if self.hours.len() > HOURS {
            self.hours.pop_front();
        }
    }

    /// The median of the slopes between all hours (Theil and Sen), so that a few busy hours do not count. 28,000 subtractions
    /// for a week.
    pub(super) fn bytes_per_day(&self) -> Option<f64> {
        // The latest hour has no minimum yet.
        let hours: Vec<(f64, f64)> =
            self.hours.iter().rev().skip(1).map(|(hour, least)| point(*hour, *least)).collect();
        if hours.len() < NEEDED {
            return None;
        }
        let pairs =
            hours.iter().enumerate().flat_map(|(at, one)| hours[at + 1..].iter().map(move |other| (one, other)));
        let mut slopes: Vec<f64> = pairs.map(|((x1, y1), (x0, y0))| (y1 - y0) / (x1 - x0)).collect();
        let middle = slopes.len() / 2;
        let (_, median, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
        Some(*median * 24.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "no host has 2^52 bytes, or runs for 2^52 hours")]
fn point(hour: u64, amount: Bytes) -> (f64, f64) {
    (hour as f64, amount.0 as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_hours(amounts: impl IntoIterator<Item = u64>) -> HourlyMinima {
        let mut minima = HourlyMinima::default();
        for (hour, mib) in (0..).zip(amounts) {
            minima.add(BootTime(hour * HOUR_NANOS + 7), Bytes::from_mib(mib + 500));
            minima.add(BootTime(hour * HOUR_NANOS + 9), Bytes::from_mib(mib));
        }
        minima
    }

    fn mib_per_day(minima: &HourlyMinima) -> Option<i64> {
        minima.bytes_per_day().map(|bytes| (bytes / f64::from(1 << 20)).round() as i64)
    }

    #[test]
    fn trend_follows_the_minima() {
        assert_eq!(mib_per_day(&of_hours((0..48).map(|hour| hour * 10))), Some(240));
        assert_eq!(mib_per_day(&of_hours((0..48).map(|hour| 1_000 - hour * 10))), Some(-240));
    }

    #[test]
    fn busy_hours_are_no_trend() {
        let busy = (0..72).map(|hour| if hour % 9 == 8 { 9_000 } else { 400 });
        assert_eq!(mib_per_day(&of_hours(busy)), Some(0));
    }

    #[test]
    fn few_hours_have_no_trend() {
        assert_eq!(mib_per_day(&of_hours(0..6)), None);
    }

    #[test]
    fn one_week_is_kept() {
        let minima = of_hours((0..400).map(|hour| if hour < 200 { hour * 100 } else { 7 }));
        assert_eq!((minima.hours.len(), mib_per_day(&minima)), (HOURS, Some(0)));
    }
}
