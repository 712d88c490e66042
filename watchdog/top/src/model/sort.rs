//! The order of sessions, and of siblings within a session.

use std::cmp::Ordering;

/// By what rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SortKey {
    #[default]
    Memory,
    Growth,
    Peak,
    /// The oldest first.
    Age,
    Command,
}

/// What rows are compared by.
#[derive(Clone, Debug, Default)]
pub(crate) struct SortValues<'a> {
    pub(crate) memory_bytes: u64,
    pub(crate) growth: Option<i64>,
    pub(crate) peak_bytes: u64,
    /// Session id or start time.
    pub(crate) started: u64,
    pub(crate) command: &'a str,
}

impl SortKey {
    pub(crate) const ALL: [Self; 5] = [Self::Memory, Self::Growth, Self::Peak, Self::Age, Self::Command];

    /// The next key, the first after the last.
    pub(crate) fn next(self) -> Self {
        let place = Self::ALL.iter().position(|key| *key == self).unwrap_or_default();
        Self::ALL[(place + 1) % Self::ALL.len()]
    }

    /// Largest, oldest and alphabetically first values come first, unless `reversed`. Equal rows keep the order of their start.
    pub(crate) fn compare(self, a: &SortValues<'_>, b: &SortValues<'_>, reversed: bool) -> Ordering {
        let order = match self {
            Self::Memory => b.memory_bytes.cmp(&a.memory_bytes),
            Self::Growth => b.growth.cmp(&a.growth),
            Self::Peak => b.peak_bytes.cmp(&a.peak_bytes),
            Self::Age => a.started.cmp(&b.started),
            Self::Command => a.command.cmp(b.command),
        };
        if reversed { order.reverse() } else { order }.then(a.started.cmp(&b.started))
    }
}
