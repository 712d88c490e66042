//! Limits the connections of a listener, in all and for each user, and selects the one that is closed to make room for
//! another.
//!
//! A connection is idle while it waits for its client: for a complete request, or for the client to read an answer. At a
//! limit, the longest idle connection is closed first. A request in progress is closed only for a user with at most a
//! few connections, and only if it belongs to the user with the most. If each user has one, the oldest is closed for a user
//! without one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use watchdog_types::Uid;

/// Connections of a user that no other user's connections displace.
const RESERVE: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    per_user: usize,
    total: usize,
    /// Part of `total` that is reserved for root.
    reserved_for_root: usize,
    /// A user's connections may belong to several clients: when none is idle, the oldest is closed.
    shared: bool,
    /// Counts requests in progress other than launches.
    requests: bool,
}

impl ConnectionLimits {
    /// Requests in progress other than launches.
    pub(super) const CONTROL: Self =
        Self { per_user: 64, total: 128, reserved_for_root: 16, shared: false, requests: true };
    /// Descriptors for each connection: its own, and its process's.
    const DESCRIPTORS: usize = 2;

    /// All connections, for this maximum of waiting launches and of open files. Half of the files are left for reading
    /// processes.
    pub(super) fn for_queue(max_queue: usize, open_files: usize) -> Self {
        let Self { per_user, total, reserved_for_root, shared, requests: _ } = Self::CONTROL;
        let most = open_files / 2 / Self::DESCRIPTORS;
        let queue = max_queue.min(most.saturating_sub(total));
        // A few more than may wait, so that the gate can refuse launches itself.
        Self { per_user: queue + per_user, total: queue + total, reserved_for_root, shared, requests: false }
    }

    /// For clients whose user is not known.
    pub(super) const fn anonymous(total: usize) -> Self {
        Self { per_user: total, total, reserved_for_root: 0, shared: true, requests: false }
    }
}

/// A connection, as [`vacancy`] sees it.
#[derive(Clone, Copy, Debug)]
struct Claim {
    number: u64,
    uid: Uid,
    /// Since when it waits for its client; `None` while its client waits for the daemon.
    idle: Option<Instant>,
    /// When its present request came.
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vacancy {
    Free,
    /// Free once this one is closed.
    AfterClosing(u64),
    None,
}

/// Decides whether there is room for one more. Its cost is linear in the number of connections.
fn vacancy(claims: &[Claim], limits: ConnectionLimits, uid: Uid) -> Vacancy {
    let mut held: HashMap<Uid, usize> = HashMap::new();
    for claim in claims {
        *held.entry(claim.uid).or_default() += 1;
    }
    let of = |uid: Uid| held.get(&uid).copied().unwrap_or_default();
    let (own, roots) = (of(uid), of(Uid::ROOT));
    let longest_idle = |closable: &dyn Fn(&Claim) -> bool| {
        let idle = claims.iter().filter(|claim| closable(claim)).filter_map(|claim| Some((claim.idle?, claim.number)));
        idle.min().map(|(_, number)| number)
    };
    if own >= limits.per_user {
        let own = |claim: &Claim| claim.uid == uid;
        let oldest = claims.iter().filter(|claim| limits.shared && own(claim)).map(|claim| claim.number).min();
        return longest_idle(&own).or(oldest).map_or(Vacancy::None, Vacancy::AfterClosing);
    }
    let of_others = claims.len() - roots;
    if claims.len() < limits.total && (uid == Uid::ROOT || of_others < limits.total - limits.reserved_for_root) {
        return Vacancy::Free;
    }
    let reserve = |uid: Uid| if uid == Uid::ROOT { limits.reserved_for_root.max(RESERVE) } else { RESERVE };
    let mut victim = None;
    // With more users than reserves, each user gets an equal share.
    for shared in [usize::MAX, own + 1] {
        let keeps = |held_by: Uid| match held_by == Uid::ROOT {
            true => reserve(held_by),
            false => reserve(held_by).min(shared),
        };
        let closable = |claim: &Claim| of(claim.uid) > keeps(claim.uid);
        victim = victim.or_else(|| longest_idle(&closable));
        if own >= reserve(uid) {
            break;
        }
        // The newest request of the user with the most: it has waited the least.
        let busy = claims.iter().filter(|claim| closable(claim));
        let youngest = busy.max_by_key(|claim| (of(claim.uid), claim.uid.0, claim.since, claim.number));
        victim = victim.or(youngest.map(|claim| claim.number));
    }
    // More users than connections: those that wait for their client give way to a user without one. Of requests the oldest
    // does, most likely a stream, which its client can resume.
    if own == 0 {
        let of_users = |claim: &Claim| claim.uid != Uid::ROOT;
        victim = victim.or_else(|| longest_idle(&of_users));
        let oldest = claims.iter().filter(|claim| limits.requests && of_users(claim));
        victim = victim.or_else(|| oldest.min_by_key(|claim| (claim.since, claim.number)).map(|claim| claim.number));
    }
    victim.map_or(Vacancy::None, Vacancy::AfterClosing)
}

#[derive(Clone, Copy, Debug)]
enum ConnectionState {
    /// No request since then.
    Idle(Instant),
    /// A request since then.
    Busy { since: Instant, control: bool, stalled: Option<Instant> },
}

#[derive(Debug)]
struct AdmittedConnection {
    uid: Uid,
    state: ConnectionState,
    evicted: Arc<Notify>,
}

impl AdmittedConnection {
    fn claim(&self, number: u64) -> Claim {
        let (idle, since) = match self.state {
            ConnectionState::Idle(since) => (Some(since), since),
            ConnectionState::Busy { since, stalled, .. } => (stalled, since),
        };
        Claim { number, uid: self.uid, idle, since }
    }

    fn counts_against_control(&self) -> bool {
        matches!(self.state, ConnectionState::Busy { control: true, .. })
    }
}

#[derive(Debug)]
struct ConnectionTable {
    all: ConnectionLimits,
    control: ConnectionLimits,
    next: u64,
    connections: BTreeMap<u64, AdmittedConnection>,
}

impl ConnectionTable {
    /// Makes room, by closing a connection if it must; `false` when that is not possible.
    fn make_room(&mut self, uid: Uid, for_control: bool) -> bool {
        let limits = if for_control { self.control } else { self.all };
        let counted =
            self.connections.iter().filter(|(_, connection)| !for_control || connection.counts_against_control());
        let claims: Vec<Claim> = counted.map(|(number, connection)| connection.claim(*number)).collect();
        match vacancy(&claims, limits, uid) {
            Vacancy::Free => true,
            Vacancy::AfterClosing(number) => {
                if let Some(connection) = self.connections.remove(&number) {
                    connection.evicted.notify_one();
                }
                true
            }
            Vacancy::None => false,
        }
    }
}

type SharedTable = Arc<Mutex<ConnectionTable>>;

#[derive(Clone, Debug)]
pub(super) struct ConnectionLimiter {
    table: SharedTable,
}

/// Permission to keep a connection open, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    table: SharedTable,
    number: u64,
    evicted: Arc<Notify>,
}

impl ConnectionLimiter {
    /// Allows so many connections, and so many requests in progress other than launches.
    pub(super) fn new(all: ConnectionLimits, control: ConnectionLimits) -> Self {
        Self { table: Arc::new(Mutex::new(ConnectionTable { all, control, next: 0, connections: BTreeMap::new() })) }
    }

    /// Changes the limit for new connections; open ones stay.
    pub(super) fn resize(&self, all: ConnectionLimits) {
        lock(&self.table).all = all;
    }

    /// `None` when there is no room, and none can be made.
    pub(super) fn try_acquire(&self, uid: Uid) -> Option<ConnectionPermit> {
        let mut table = lock(&self.table);
        if !table.make_room(uid, false) {
            return None;
        }
        let (number, evicted) = (table.next, Arc::new(Notify::new()));
        table.next += 1;
        table.connections.insert(
            number,
            AdmittedConnection { uid, state: ConnectionState::Idle(Instant::now()), evicted: Arc::clone(&evicted) },
        );
        drop(table);
        Some(ConnectionPermit { table: Arc::clone(&self.table), number, evicted })
    }
}

impl ConnectionPermit {
    /// A request has come; returns whether it may be served. A launch (`control` is false) always may: the gate limits those.
    pub(super) fn begin(&self, control: bool) -> bool {
        let mut table = lock(&self.table);
        let Some(uid) = table.connections.get(&self.number).map(|connection| connection.uid) else { return false };
        if control && !table.make_room(uid, true) {
            return false;
        }
        let state = ConnectionState::Busy { since: Instant::now(), control, stalled: None };
        table.connections.entry(self.number).and_modify(|connection| connection.state = state);
        true
    }

    /// The request waits for its client, or no longer does.
    pub(super) fn stall(&self, waits: bool) {
        if let Some(AdmittedConnection { state: ConnectionState::Busy { stalled, .. }, .. }) =
            lock(&self.table).connections.get_mut(&self.number)
        {
            *stalled = waits.then(Instant::now);
        }
    }

    /// The request is answered.
    pub(super) fn finish(&self) {
        if let Some(connection) = lock(&self.table).connections.get_mut(&self.number) {
            connection.state = ConnectionState::Idle(Instant::now());
        }
    }

    /// Waits until this permit is given to another connection.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        lock(&self.table).connections.remove(&self.number);
    }
}

/// Each statement leaves the table consistent, so a panic elsewhere does no harm.
fn lock(table: &SharedTable) -> MutexGuard<'_, ConnectionTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "connection_limit_tests.rs"]
mod tests;
