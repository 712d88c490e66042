//! `[actions]`: what policy does about findings, and when memory runs out.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::FindingKind;

/// `[actions]`
#[derive(Clone, Debug, PartialEq)]
pub struct Actions {
    /// `enforce`: policy acts. Otherwise it proposes, and only people act.
    pub enforce: bool,
    /// What is done about findings of each kind: `orphan = "terminate"` and so on. A kind that is not in here is reported.
    pub about: Reactions,
    /// `grace`: how long a finding has been open before policy acts on it, orphans aside: those have `[orphans] grace`.
    pub grace: Duration,
    /// `kill_after`: how long a process has to end after SIGTERM before it gets SIGKILL.
    pub kill_after: Duration,
    /// `max_kills_per_minute`: how many processes policy ends in a minute at most.
    pub max_kills_per_minute: u32,
    /// `emergency`: with `enforce`, policy also acts when memory runs out, in its own order.
    pub emergency: bool,
    /// `emergency_term`: below this share of memory and swap that is available, in per cent, it ends helpers,
    pub emergency_term: u8,
    /// `emergency_kill`: and below this share it sends SIGKILL at once.
    pub emergency_kill: u8,
    /// `settle`: how long an emergency waits for the memory of what it ended before it looks for more.
    pub settle: Duration,
    /// `notify`, `notify_user`, `webhook`: who is told of receipts.
    pub notify: Notify,
}

/// What is done about findings of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reactions(pub BTreeMap<FindingKind, Reaction>);

/// What is done about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// People are told, and nothing else.
    Report,
    /// Its processes are ended.
    Terminate,
    /// The session's memory.high is lowered to what it holds.
    Throttle,
    /// Its processes are stopped.
    Freeze,
}

/// Who is told of receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notify {
    /// `notify`: a program with its arguments; the receipt is on its stdin as JSON.
    pub command: Option<Vec<String>>,
    /// `notify_user`: as whom it runs.
    pub user: String,
    /// `webhook`: an address that takes alerts as Alertmanager does.
    pub webhook: Option<String>,
}

impl Reactions {
    /// What is done about findings of this kind, where it is said.
    #[must_use]
    pub fn about(&self, kind: FindingKind) -> Option<Reaction> {
        self.0.get(&kind).copied()
    }
}

impl Default for Actions {
    fn default() -> Self {
        Self {
            enforce: false,
            about: Reactions(BTreeMap::from([(FindingKind::Orphan, Reaction::Terminate)])),
            grace: Duration::from_secs(30),
            kill_after: Duration::from_secs(10),
            max_kills_per_minute: 100,
            emergency: true,
            emergency_term: 10,
            emergency_kill: 5,
            settle: Duration::from_secs(15),
            notify: Notify { user: "nobody".to_owned(), ..Notify::default() },
        }
    }
}
