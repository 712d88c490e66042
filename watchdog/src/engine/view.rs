//! What the engine shows: its state as the types of the control API.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Engine;
use super::id::{BootTime, Uid};
use crate::api::{Counts, Findings, ProcessKind, SessionState, Tree};

/// Who looks. Decided by SO_PEERCRED, never by what the client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Sees everything.
    Root,
    /// Sees processes of this user only.
    User(Uid),
}

/// How moments and users are written.
pub struct Naming<'a> {
    /// Wall-clock time of the boot: `UNIX_EPOCH + boot` is when CLOCK_BOOTTIME was 0.
    pub boot: Duration,
    /// A user's name, or the number in digits.
    pub user: &'a dyn Fn(Uid) -> String,
}

/// The numbers that the metrics show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Sessions by profile and state.
    pub sessions: BTreeMap<(String, &'static str), u64>,
    /// Living processes by profile and kind.
    pub processes: BTreeMap<(String, &'static str), u64>,
    /// Memory by profile, shared pages counted once.
    pub memory: BTreeMap<String, u64>,
    /// Open findings by kind.
    pub findings_open: BTreeMap<&'static str, u64>,
    /// Findings ever opened by kind.
    pub findings_total: BTreeMap<&'static str, u64>,
    /// Zombies of all sessions.
    pub zombies: u64,
    /// Victims of the OOM killer that were seen.
    pub oom_kills: u64,
    /// Times that the table was brought back into line.
    pub reconciles: u64,
}

impl Naming<'_> {
    /// The moment as RFC 3339, in UTC, with milliseconds.
    #[must_use]
    pub fn moment(&self, at: BootTime) -> String {
        let since_epoch = self.boot + Duration::from_nanos(at.0);
        let millis = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX).to_string()
    }
}

impl Engine {
    /// `GET /v1/tree`
    #[must_use]
    pub fn tree(&self, _viewer: Viewer, _naming: &Naming<'_>) -> Tree {
        Tree::default()
    }

    /// `GET /v1/findings`: the open ones, or all that are remembered.
    #[must_use]
    pub fn findings(&self, _viewer: Viewer, _naming: &Naming<'_>, _all: bool) -> Findings {
        Findings::default()
    }

    /// The counts of `GET /v1/status`.
    #[must_use]
    pub fn counts(&self, _viewer: Viewer) -> Counts {
        Counts::default()
    }

    /// The numbers of `/metrics`.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let _ = (SessionState::ALL, ProcessKind::ALL);
        Gauges::default()
    }
}
