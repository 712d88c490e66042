//! When a walk over the whole table is due again: when the table has changed, or at a time that the last walk named.

use watchdog_types::BootTime;

/// One walk's.
#[derive(Debug, Default)]
pub(super) struct Recheck {
    /// [`Table::moves`](super::table::Table::moves) at the last walk.
    seen: Option<u64>,
    due: Option<BootTime>,
}

impl Recheck {
    /// Whether to walk now, which forgets what the walk before this one named.
    pub(super) fn is_due(&mut self, moves: u64, now: BootTime) -> bool {
        let is_due = self.seen != Some(moves) || self.due.is_some_and(|due| now >= due);
        if is_due {
            *self = Self { seen: Some(moves), due: None };
        }
        is_due
    }

    /// Asks for another walk at this moment; the earliest one counts.
    pub(super) fn at(&mut self, moment: BootTime) {
        self.due = Some(self.due.map_or(moment, |due| due.min(moment)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_due_after_change_or_deadline() {
        let mut revisit = Recheck::default();
        assert!(revisit.is_due(0, BootTime(0)));
        assert!(!revisit.is_due(0, BootTime(1)));
        assert!(revisit.is_due(1, BootTime(1)));
        revisit.at(BootTime(9));
        revisit.at(BootTime(5));
        assert!(!revisit.is_due(1, BootTime(4)));
        assert!(revisit.is_due(1, BootTime(5)));
        assert!(!revisit.is_due(1, BootTime(99)), "the walk has named no moment");
    }
}
