//! Hosts that share limits through one store.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::{BootTime, Bytes};

/// A name in a fleet, such as of a host or a profile: 1 to 64 printable ASCII characters without spaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FleetName(String);

/// A name is empty, longer than 64 bytes, or has other characters than printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFleetName(
    /// The name, as it was given.
    pub String,
);

/// A limit that hosts share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PoolName {
    /// All sessions.
    All,
    /// The sessions of one user.
    User(FleetName),
    /// The sessions of one profile.
    Profile(FleetName),
    /// The sessions with one label.
    Label(FleetName),
}

/// One run of a daemon on one boot of one machine. A store ignores an incarnation that a later one has replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIncarnation {
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: FleetName,
    /// /etc/machine-id, or its replacement.
    pub machine_id: FleetName,
    /// Rises with each start of the daemon; kept in the state directory.
    pub generation: u64,
}

/// The number of a request, counted from 1 by each incarnation of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AskNumber(pub u64);

/// Identifies a grant: the incarnation of its host, and a number that only increases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetFence {
    /// The host that holds the grant.
    pub incarnation: HostIncarnation,
    /// The store's count.
    pub number: u64,
}

/// The published state of a host, apart from its slots. At most 1 KiB.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSummary {
    /// Running agents.
    pub agents: u32,
    /// Launches in the local queue.
    pub waiting: u32,
    /// Open findings.
    pub findings: u32,
    /// Memory that the gate can still grant.
    pub memory_available: Bytes,
    /// Memory of the host.
    pub memory_total: Bytes,
    /// Share of the last 10 s in which some task waited for memory, in percent.
    pub memory_pressure: f32,
    /// MemAvailable of the host.
    pub host_available: Bytes,
    /// Its gate refuses all launches because memory is short.
    pub breaker_open: bool,
    /// Its labels.
    pub labels: Vec<FleetName>,
    /// The daemon's version.
    pub version: String,
}

/// The state of a host with all of its living sessions. A later row replaces an earlier one, which releases the slots that
/// it no longer lists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRow {
    /// Slots of its living sessions, by pool.
    pub held: BTreeMap<PoolName, u32>,
    /// Its configured limits, for the view.
    pub limits: BTreeMap<PoolName, u32>,
    /// Requests up to this number are included in `held` or have timed out: the store drops their grants.
    pub settled: AskNumber,
    /// The limit of each user's pool.
    pub user_limit: Option<u32>,
    /// Launches that wait for the fleet. At zero, the host leaves the queue of hosts.
    pub waiting: u32,
    /// For the view and for placement.
    pub summary: HostSummary,
}

/// A request for one slot in each of some pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetAsk {
    /// A repeated request with the same number gets the same grant.
    pub number: AskNumber,
    /// The pools, each with its configured limit on this host. At most [`FleetAsk::MAX_POOLS`].
    pub pools: BTreeMap<PoolName, u32>,
    /// Each minute of waiting raises it by one.
    pub priority: i32,
    /// When the launch began to wait.
    pub since: BootTime,
    /// The reservation of this launch.
    pub ticket: Option<FleetName>,
}

/// How many sessions a host may run while the store is lost: a number for each pool, which the store states with each
/// renewal. Hosts that hold more keep it. All hosts can reach it at once within the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetShares {
    /// Hosts that share. 0: the shares are unknown, and nothing may start.
    pub hosts: u32,
    /// Shares by pool. A user's pool without one is shared equally.
    pub pools: BTreeMap<PoolName, u32>,
}

/// The answer to a [`FleetAsk`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum FleetAnswer {
    /// The slot is granted to this host.
    Granted {
        /// Identifies the grant.
        fence: FleetFence,
        /// Latest start of the launch, on this host's CLOCK_BOOTTIME. Later, another host may have the slot.
        deadline: BootTime,
    },
    /// A pool is full, or other hosts are first. The host is now in the queue of hosts.
    Refused {
        /// The full pool.
        pool: PoolName,
        /// Its limit, from the request.
        limit: u32,
        /// Slots in use on all hosts.
        held: u32,
        /// The hosts with the most slots, most first, at most eight.
        by_host: Vec<(FleetName, u32)>,
        /// Hosts that are served before this one.
        ahead: u32,
        /// When to retry, unless the store notifies the host earlier.
        retry_after: Duration,
    },
    /// Nothing was granted: the response was late, or the request has timed out or belongs to an earlier incarnation. Retry
    /// with a new number after a restatement.
    Void,
    /// The store did not respond. It may have granted, so the number must be settled.
    StoreLost {
        /// The failed operation and the error.
        error: String,
    },
    /// The store lost data, or its clock jumped. It grants again when the hosts have restated their rows.
    Paused {
        /// Latest end of the pause, on this host's CLOCK_BOOTTIME.
        until: BootTime,
    },
    /// Another machine uses this host's name or machine id. Nothing is granted to either.
    DuplicateMachine {
        /// The other host's name.
        host: FleetName,
    },
}

/// A host of the fleet, as the others see it.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetHostView {
    /// Its name.
    pub host: FleetName,
    /// It has restated itself within its TTL. Otherwise its slots are free.
    pub up: bool,
    /// Another machine uses its name or machine id.
    pub duplicate: bool,
    /// Since its last restatement.
    pub last_seen: Duration,
    /// Slots in each pool, including grants that are not in its row yet.
    pub held: BTreeMap<PoolName, u32>,
    /// Its last published state.
    pub summary: HostSummary,
}

/// A pool of the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetPoolView {
    /// Its name.
    pub name: PoolName,
    /// The lowest limit that a host stated.
    pub limit: Option<u32>,
    /// Slots in use, including reserved ones.
    pub held: u32,
    /// Slots in use by host.
    pub by_host: BTreeMap<FleetName, u32>,
}

/// The fleet at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetView {
    /// By name. A host is listed for an hour after its last restatement.
    pub hosts: Vec<FleetHostView>,
    /// By name.
    pub pools: Vec<FleetPoolView>,
    /// Grants pause for this time.
    pub paused: Option<Duration>,
}

impl FleetAsk {
    /// Maximum number of pools in a request.
    pub const MAX_POOLS: usize = 16;
}

impl FleetShares {
    /// The share in a pool with this limit.
    #[must_use]
    pub fn of(&self, pool: &PoolName, limit: u32) -> u32 {
        let equal = limit.checked_div(self.hosts).unwrap_or(0);
        match (self.pools.get(pool), pool) {
            (Some(share), _) => equal.min(*share),
            (None, PoolName::User(_)) => equal,
            // It had no limit when the store was last seen.
            (None, PoolName::All | PoolName::Profile(_) | PoolName::Label(_)) => 0,
        }
    }
}

impl FleetName {
    /// The most bytes of a name.
    pub const MAX_BYTES: usize = 64;

    /// # Errors
    /// When it is empty, too long, or not printable ASCII without spaces.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidFleetName> {
        let name = name.into();
        if (1..=Self::MAX_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(name))
        } else {
            Err(InvalidFleetName(name))
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FleetName {
    type Error = InvalidFleetName;
    fn try_from(name: String) -> Result<Self, InvalidFleetName> {
        Self::new(name)
    }
}

impl FromStr for FleetName {
    type Err = InvalidFleetName;
    fn from_str(name: &str) -> Result<Self, InvalidFleetName> {
        Self::new(name)
    }
}

impl From<FleetName> for String {
    fn from(name: FleetName) -> Self {
        name.0
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for InvalidFleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        let most = FleetName::MAX_BYTES;
        write!(f, "{name:?} is no name for a fleet: it must have 1 to {most} printable ASCII characters and no space")
    }
}

impl std::error::Error for InvalidFleetName {}

impl fmt::Display for PoolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::User(name) => write!(f, "user:{name}"),
            Self::Profile(name) => write!(f, "profile:{name}"),
            Self::Label(name) => write!(f, "label:{name}"),
        }
    }
}

impl FromStr for PoolName {
    type Err = InvalidFleetName;
    fn from_str(text: &str) -> Result<Self, InvalidFleetName> {
        match text.split_once(':') {
            None if text == "all" => Ok(Self::All),
            Some(("user", name)) => Ok(Self::User(name.parse()?)),
            Some(("profile", name)) => Ok(Self::Profile(name.parse()?)),
            Some(("label", name)) => Ok(Self::Label(name.parse()?)),
            _ => Err(InvalidFleetName(text.to_owned())),
        }
    }
}

impl TryFrom<String> for PoolName {
    type Error = InvalidFleetName;
    fn try_from(text: String) -> Result<Self, InvalidFleetName> {
        text.parse()
    }
}

impl From<PoolName> for String {
    fn from(pool: PoolName) -> Self {
        pool.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("all", Some(PoolName::All))]
    #[case("user:ana", Some(PoolName::User(FleetName("ana".into()))))]
    #[case("label:gpu:a100", Some(PoolName::Label(FleetName("gpu:a100".into()))))]
    #[case("user:", None)]
    #[case("user:a b", None)]
    #[case("profile:\u{1b}[2J", None)]
    #[case("host:a", None)]
    fn pools_are_read_back(#[case] text: &str, #[case] pool: Option<PoolName>) {
        assert_eq!(text.parse().ok(), pool);
        assert_eq!(pool.map(|pool| pool.to_string()), text.parse::<PoolName>().ok().map(|_| text.to_owned()));
    }
}
