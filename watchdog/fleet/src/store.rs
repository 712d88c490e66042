//! The interface of a store.

use std::ops::ControlFlow;
use std::time::Duration;

use watchdog_types::{Bytes, FleetAnswer, FleetAsk, FleetName, FleetShares, FleetView, HostRow, PoolName};

/// A store that hosts share. Each method blocks for at most [`FleetStore::TIMEOUT`], and as long again to connect, so each
/// task has its own thread and clone: a slow response never delays the renewal.
pub trait FleetStore: Send + 'static {
    /// Timeout of a call.
    const TIMEOUT: Duration = Duration::from_secs(2);

    /// A clone with its own connection and the shared fence.
    #[must_use]
    fn duplicate(&self) -> Self
    where
        Self: Sized;

    /// Replaces this host's row, and renews it for one TTL. Must be called every third of the TTL, and when slots are
    /// released. A row lists the slots of *all* living sessions; the store adds grants after `settled` itself.
    ///
    /// # Errors
    /// When the store did not accept it.
    fn restate(&mut self, row: &HostRow) -> Result<Restated, FleetStoreError>;

    /// Requests a slot in each pool. A host without a row gets [`FleetAnswer::Void`].
    fn ask(&mut self, ask: &FleetAsk) -> FleetAnswer;

    /// Reads the fleet. Takes milliseconds for a thousand hosts.
    fn view(&mut self) -> Result<FleetView, FleetStoreError>;

    /// Reserves a slot on another host for a later launch, which passes the ticket in [`FleetAsk::ticket`].
    fn reserve(&mut self, placement: &Placement) -> Result<PlacementAnswer, FleetStoreError>;

    /// Reports notifications of the store until `wake` breaks or the connection fails. Calls `wake` at least every second.
    ///
    /// # Errors
    /// When the connection failed. The caller waits, and watches again.
    fn watch(&mut self, wake: &mut dyn FnMut(StoreCall) -> ControlFlow<()>) -> Result<(), FleetStoreError>;

    /// What `doctor` reports.
    fn health(&mut self) -> Result<StoreHealth, FleetStoreError>;
}

/// What [`FleetStore::watch`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreCall {
    /// Listening has begun. Retry now, because earlier notifications were missed.
    Listening,
    /// A slot is free for this host: retry now.
    Place,
    /// No notification within a second.
    Idle,
}

/// Hosts of the fleet by their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCounts {
    /// They restated themselves within their TTL.
    pub up: u32,
    /// They did so within the last hour, but not within their TTL.
    pub unreachable: u32,
}

/// The result of a restatement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Restated {
    /// The row was replaced.
    Done {
        /// This one included.
        hosts: HostCounts,
        /// Grants pause for this time.
        paused: Option<Duration>,
        /// For the time when the store is lost. Unknown in a pause, and in the first TTL of a host.
        shares: FleetShares,
    },
    /// A later incarnation of this host's daemon runs. Nothing was changed.
    Superseded,
    /// Another machine uses this host's name or machine id. The row was replaced; nothing is granted to either.
    DuplicateMachine { host: FleetName },
}

/// A reservation on a host, for a launch within some seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    pub host: FleetName,
    /// Chosen by the caller. Random, because any launch with the ticket can use the slot.
    pub ticket: FleetName,
    pub pools: Vec<(PoolName, u32)>,
    /// Memory that the launch needs.
    pub memory: Bytes,
    /// How long the slot stays reserved. At most a minute.
    pub lifetime: Duration,
}

/// The result of a [`Placement`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementAnswer {
    Reserved,
    /// A pool is full, or waiting hosts are first.
    Full {
        pool: PoolName,
        limit: u32,
        /// Slots in use.
        held: u32,
    },
    /// The host has too little free memory after its reservations.
    NoMemory {
        /// The free memory.
        available: Bytes,
    },
    /// The host has not restated itself within its TTL, or its name is used twice.
    HostUnreachable,
    /// Grants pause for this time.
    Paused(Duration),
}

/// The settings and state of a store that grants depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    /// The server's version.
    pub version: String,
    /// Only `noeviction` is safe.
    pub eviction_policy: String,
    /// Rows survive a restart: an append-only file is written.
    pub persistent: bool,
    /// It is a replica, which accepts no writes.
    pub replica: bool,
    pub round_trip: Duration,
    /// Milliseconds by which the server's clock is ahead of this host's.
    pub clock_ahead: i64,
}

/// A call of the store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetStoreError {
    /// No connection, or a timeout.
    #[error("the fleet's store {store} is unreachable: {error}")]
    Unreachable {
        /// Its address, without a password.
        store: String,
        /// What failed.
        error: String,
    },
    /// Wrong password, or the ACL forbids a command or key.
    #[error("the fleet's store {store} denied access: {error}; docs/fleet-store.md has the ACL line")]
    Denied {
        /// Its address.
        store: String,
        /// What it denied.
        error: String,
    },
    /// It rejects writes: a replica, a full memory or a full disk.
    #[error("the fleet's store {store} takes no writes: {error}")]
    NotWritable {
        /// Its address.
        store: String,
        /// Why.
        error: String,
    },
    /// A newer agent-watchdog has changed the layout of the store's data.
    #[error("the fleet's store {store} holds data of a newer agent-watchdog: upgrade this host")]
    NewerLayout {
        /// Its address.
        store: String,
    },
    /// Its response is invalid.
    #[error("the fleet's store {store} sent an invalid response: {error}")]
    Nonsense {
        /// Its address.
        store: String,
        /// What was expected.
        error: String,
    },
    /// The URL is invalid, or needs a feature that this build lacks.
    #[error("the address of the fleet's store is invalid: {error}")]
    Address {
        /// Why.
        error: String,
    },
}
