//! The identity of a row.

use watchdog_api::Process;

use super::trends::SeriesKey;

/// What a row is about. It survives a new order and new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RowId {
    Session(u64),
    Process { session: u64, pid: u32, start_time: u64 },
}

impl RowId {
    pub(crate) const fn session(self) -> u64 {
        match self {
            Self::Session(id) | Self::Process { session: id, .. } => id,
        }
    }

    pub(crate) const fn of(session: u64, process: &Process) -> Self {
        Self::Process { session, pid: process.pid, start_time: process.start_time }
    }

    pub(crate) const fn series(self) -> SeriesKey {
        match self {
            Self::Session(id) => SeriesKey::Session(id),
            Self::Process { pid, start_time, .. } => SeriesKey::Process { pid, start_time },
        }
    }
}
