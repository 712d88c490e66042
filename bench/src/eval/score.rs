//! Counting, and the table.

use super::generate::LeakShape;
use crate::quantile::quantile;

/// Verdicts of one detector on some families of traces.
#[derive(Clone, Debug, Default)]
pub(super) struct Score {
    pub(super) hours: f64,
    /// Healthy processes that it called leaking, and leaking ones before they leaked.
    pub(super) false_alarms: u32,
    healthy: u32,
    pub(super) leaking: u32,
    /// Leaks that it named before they began.
    early: u32,
    /// Seconds until each found leak was found, and its growth in MiB by then.
    found: Vec<(f64, f64)>,
    /// Leaks of 100 MiB an hour and more, and those of them that were not found before they had grown 300 MiB.
    quick: u32,
    pub(super) late: u32,
    /// Leaks of about 50 MiB a minute, and those of them that were not found before they had grown 150 MiB.
    quickest: u32,
    pub(super) overdue: u32,
}

/// A leak of this many MiB a second,
const QUICK: f64 = 100.0 / 3_600.0;
/// has to be found before it has grown by this many.
const GROWN: f64 = 300.0;
/// The same of a leak of at least 45 MiB a minute.
const QUICKEST: f64 = 45.0 / 60.0;
const GROWN_QUICKEST: f64 = 150.0;

impl Score {
    pub(super) fn add_healthy(&mut self, seconds: f64, alarm: Option<f64>) {
        self.hours += seconds / 3_600.0;
        self.healthy += 1;
        self.false_alarms += u32::from(alarm.is_some());
    }

    pub(super) fn add_leak(&mut self, leak: LeakShape, alarm: Option<f64>) {
        self.leaking += 1;
        let before = alarm.is_some_and(|at| at < leak.began);
        self.false_alarms += u32::from(before);
        self.early += u32::from(before);
        let delay = alarm.filter(|_| !before).map(|at| at - leak.began);
        self.found.extend(delay.map(|delay| (delay, delay * leak.rate)));
        if leak.rate >= QUICKEST {
            self.quickest += 1;
            self.overdue += u32::from(delay.is_none_or(|delay| delay * leak.rate > GROWN_QUICKEST));
        }
        if leak.rate >= QUICK {
            self.quick += 1;
            self.late += u32::from(delay.is_none_or(|delay| delay * leak.rate > GROWN));
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        let Self { hours, false_alarms, healthy, leaking, early, found, quick, late, quickest, overdue } = other;
        self.hours += hours;
        self.false_alarms += false_alarms;
        self.healthy += healthy;
        self.leaking += leaking;
        self.early += early;
        self.quickest += quickest;
        self.overdue += overdue;
        self.found.extend(found);
        self.quick += quick;
        self.late += late;
    }

    pub(super) fn confusion_head() -> String {
        let columns = ["healthy", "alarms", "leaks", "in time", "late", "missed", "too soon"];
        format!("{:26} {}", "", columns.map(|column| format!("{column:>9}")).join(" "))
    }

    /// How many processes of the family got which verdict.
    pub(super) fn confusion_row(&self, name: &str) -> String {
        let found = u32::try_from(self.found.len()).unwrap_or(u32::MAX);
        let late = |(delay, grown): &&(f64, f64)| *grown > GROWN && *grown >= QUICK * delay;
        let after = u32::try_from(self.found.iter().filter(late).count()).unwrap_or(u32::MAX);
        let alarms = self.false_alarms - self.early;
        let counts = [
            self.healthy - alarms,
            alarms,
            self.leaking,
            found - after,
            after,
            self.leaking - found - self.early,
            self.early,
        ];
        format!("{name:26} {}", counts.map(|count| format!("{count:>9}")).join(" "))
    }

    pub(super) fn head() -> String {
        format!(
            "{:26} {:>8} {:>7} {:>7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
            "", "hours", "false", "leaks", "precision", "recall", "delay", "grown", "grown 95%", "late"
        )
    }

    /// The part of the leaks that was found.
    pub(super) fn recall(&self) -> f64 {
        self.found.len() as f64 / f64::from(self.leaking.max(1))
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
