//! The fleet: hosts that share limits through one store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The response to `GET /v1/fleet`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Fleet {
    /// Whether the store answers this host.
    pub store: StoreState,
    /// Address of the store, as configured.
    pub address: String,
    /// Why it is lost, or why grants pause; null otherwise.
    pub problem: Option<String>,
    /// When it was lost, RFC 3339; null while it is up.
    pub lost_at: Option<String>,
    /// `[fleet] when_lost`: `share`, `deny` or `allow`.
    pub when_lost: String,
    /// The name of this host.
    pub this_host: String,
    /// All hosts that this daemon has seen, by name.
    pub hosts: Vec<FleetHost>,
    /// The pools with a limit or a holder, by name.
    pub pools: Vec<FleetPool>,
}

/// Whether the store is reachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StoreState {
    /// The store answers.
    Up,
    /// The store does not answer: `[fleet] when_lost` decides about launches.
    #[default]
    Lost,
}

/// A host of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FleetHost {
    /// Its name.
    pub host: String,
    /// Whether it reports to the store.
    pub state: HostState,
    /// Time since its last report. The other fields have the values of that report.
    pub last_seen_seconds: f64,
    /// Sessions with a living agent, including agents that were started without the gate.
    pub agents: u64,
    /// Launches that wait in its queue.
    pub waiting: u64,
    /// Open findings.
    pub findings: u64,
    /// MemAvailable.
    pub memory_available_bytes: u64,
    /// MemTotal.
    pub memory_total_bytes: u64,
    /// Memory that its gate can still grant.
    pub memory_free_bytes: u64,
    /// `some avg10` of /proc/pressure/memory, per cent; null without PSI.
    pub pressure_some_avg10: Option<f64>,
    /// Its breaker is open: it refuses all launches.
    pub breaker_open: bool,
    /// `[fleet] labels`.
    pub labels: Vec<String>,
    /// The version of its daemon.
    pub version: String,
}

/// Whether a host reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum HostState {
    /// It has reported within `[fleet] ttl`.
    Up,
    /// It has not, or the state is unknown because the store is lost.
    Unreachable,
}

/// A limit that hosts share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct FleetPool {
    /// `all`, `user:UID`, `profile:NAME` or `label:NAME`.
    pub name: String,
    /// As configured on this host; null without a limit.
    pub limit: Option<u64>,
    /// Granted sessions on all hosts.
    pub held: u64,
    /// The same by host, without hosts at zero.
    pub by_host: BTreeMap<String, u64>,
}

/// The body of `POST /v1/fleet/place`: choose a host for a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PlaceRequest {
    /// Expected memory of the session, in bytes; null for `[gate] expected_memory`.
    #[cfg_attr(feature = "openapi", schemars(range(min = 1)))]
    pub memory_bytes: Option<u64>,
    /// Labels that the host must have.
    pub labels: Vec<String>,
    /// The profile whose limits apply; null for none.
    pub profile: Option<String>,
    /// The host; null for the best of two that are chosen at random.
    pub host: Option<String>,
}

/// A host for a launch, with a reserved slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct HostChoice {
    /// A host was found.
    pub placed: bool,
    /// The host; null if none was found.
    pub host: Option<String>,
    /// `--ticket` of the launch on that host, which uses the reserved slot.
    pub ticket: Option<String>,
    /// How long the slot stays reserved.
    pub expires_in_seconds: Option<f64>,
    /// The state of the host, or why none was found.
    pub detail: String,
    /// When to retry; null if a host was found, or if a retry is useless.
    pub retry_after_seconds: Option<f64>,
    /// The chosen host is the host of this daemon.
    pub is_this_host: bool,
}
