//! Counting, and the table.

use super::generate::Leak;
use crate::quantile::quantile;

/// What a detector said of the processes of some families.
#[derive(Clone, Debug, Default)]
pub(super) struct Score {
    pub(super) hours: f64,
    /// Healthy processes that it called leaking, and leaking ones before they leaked.
    pub(super) false_alarms: u32,
    pub(super) leaking: u32,
    /// Of each leak that was found: the seconds that it took, and the MiB that it had grown.
    found: Vec<(f64, f64)>,
    /// Leaks of 100 MiB an hour and more, and those of them that were not found before they had grown 300 MiB.
    quick: u32,
    pub(super) late: u32,
}

/// A leak of this many MiB a second,
const QUICK: f64 = 100.0 / 3_600.0;
/// has to be found before it has grown by this many.
const GROWN: f64 = 300.0;

impl Score {
    pub(super) fn add_healthy(&mut self, seconds: f64, alarm: Option<f64>) {
        self.hours += seconds / 3_600.0;
        self.false_alarms += u32::from(alarm.is_some());
    }

    pub(super) fn add_leak(&mut self, leak: Leak, alarm: Option<f64>) {
        self.leaking += 1;
        let before = alarm.is_some_and(|at| at < leak.began);
        self.false_alarms += u32::from(before);
        let delay = alarm.filter(|_| !before).map(|at| at - leak.began);
        self.found.extend(delay.map(|delay| (delay, delay * leak.rate)));
        if leak.rate >= QUICK {
            self.quick += 1;
            self.late += u32::from(delay.is_none_or(|delay| delay * leak.rate > GROWN));
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let Self { hours, false_alarms, leaking, found, quick, late } = other;
        self.hours += hours;
        self.false_alarms += false_alarms;
        self.leaking += leaking;
        self.found.extend(found);
        self.quick += quick;
        self.late += late;
    }

    /// The head of the table.
    pub(super) fn head() -> String {
        format!(
            "{:26} {:>8} {:>7} {:>7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
            "", "hours", "false", "leaks", "precision", "recall", "delay", "grown", "grown 95%", "late"
        )
    }

    /// One row: a detector, or a family.
    pub(super) fn row(&self, name: &str) -> String {
        let found = self.found.len() as f64;
        let alarms = found + f64::from(self.false_alarms);
        let share = |part: f64, whole: f64| if whole > 0.0 { format!("{:.4}", part / whole) } else { "-".into() };
        let of_found = |part: f64, value: fn(&(f64, f64)) -> f64| {
            let values: Vec<f64> = self.found.iter().map(value).collect();
            (!values.is_empty()).then(|| quantile(&values, part))
        };
        let shown = |value: Option<f64>, unit: &str| value.map_or("-".into(), |value| format!("{value:.0} {unit}"));
        format!(
            "{name:26} {:>8.0} {:>7} {:>7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
            self.hours,
            self.false_alarms,
            self.leaking,
            share(found, alarms),
            share(found, f64::from(self.leaking)),
            shown(of_found(0.5, |found| found.0), "s"),
            shown(of_found(0.5, |found| found.1), "MiB"),
            shown(of_found(0.95, |found| found.1), "MiB"),
            format!("{}/{}", self.late, self.quick),
        )
    }
}
