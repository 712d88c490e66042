//! The connections of a listener: who holds how many, and which one is closed to make room for another.
//!
//! A connection is idle while it waits for its client: for a complete request, or for the client to take an answer. When a
//! limit is reached, the longest idle connection is closed first. A request in progress is closed only for a user who would
//! otherwise have no more than a few connections, and only to the cost of the user who has the most.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

use crate::engine::id::Uid;

/// Connections of a user that no other user's connections displace.
const RESERVE: usize = 4;

/// How many connections are open at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Of one user.
    per_user: usize,
    /// Of all users.
    in_all: usize,
    /// Of these, places that only root gets: whatever others do, root gets in.
    for_root: usize,
    /// Connections of one user may be those of several clients: when none is idle, the oldest gives way.
    shared: bool,
}

impl Sizes {
    /// Requests in progress other than launches.
    pub(super) const DESK: Self = Self { per_user: 64, in_all: 128, for_root: 16, shared: false };
    /// Descriptors that a connection takes: its own, and its process's.
    const DESCRIPTORS: usize = 2;

    /// All connections, where so many launches may wait and so many files may be open: half of them are left for looking at
    /// processes.
    pub(super) fn house(max_queue: usize, open_files: usize) -> Self {
        let Self { per_user, in_all, for_root, shared } = Self::DESK;
        let most = open_files / 2 / Self::DESCRIPTORS;
        let queue = max_queue.min(most.saturating_sub(in_all));
        // A few launches more than may wait, so that the gate can refuse them in its own words.
        Self { per_user: queue + per_user, in_all: queue + in_all, for_root, shared }
    }

    /// As many connections of clients whose user is not known.
    pub(super) const fn anonymous(in_all: usize) -> Self {
        Self { per_user: in_all, in_all, for_root: 0, shared: true }
    }
}

/// One connection as the rule sees it.
#[derive(Clone, Copy, Debug)]
struct Claim {
    number: u64,
    uid: Uid,
    /// When it began to wait for its client; `None` while its client waits for us.
    idle: Option<Instant>,
    /// When its present request came.
    since: Instant,
}

/// Whether there is room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vacancy {
    Free,
    /// When this one is closed.
    InPlaceOf(u64),
    None,
}

/// The rule. Its cost is linear in the number of connections.
fn room(claims: &[Claim], sizes: Sizes, uid: Uid) -> Vacancy {
    let mut held: HashMap<Uid, usize> = HashMap::new();
    for claim in claims {
        *held.entry(claim.uid).or_default() += 1;
    }
    let of = |uid: Uid| held.get(&uid).copied().unwrap_or_default();
    let (own, roots) = (of(uid), of(Uid::ROOT));
    let longest_idle = |may_go: &dyn Fn(&Claim) -> bool| {
        let idle = claims.iter().filter(|claim| may_go(claim)).filter_map(|claim| Some((claim.idle?, claim.number)));
        idle.min().map(|(_, number)| number)
    };
    if own >= sizes.per_user {
        let own = |claim: &Claim| claim.uid == uid;
        let oldest = claims.iter().filter(|claim| sizes.shared && own(claim)).map(|claim| claim.number).min();
        return longest_idle(&own).or(oldest).map_or(Vacancy::None, Vacancy::InPlaceOf);
    }
    let of_others = claims.len() - roots;
    if claims.len() < sizes.in_all && (uid == Uid::ROOT || of_others < sizes.in_all - sizes.for_root) {
        return Vacancy::Free;
    }
    let reserve = |uid: Uid| if uid == Uid::ROOT { sizes.for_root.max(RESERVE) } else { RESERVE };
    let mut victim = None;
    // With more users than reserves, connections are shared out one by one.
    for shared in [usize::MAX, own + 1] {
        let keeps = |held_by: Uid| match held_by == Uid::ROOT {
            true => reserve(held_by),
            false => reserve(held_by).min(shared),
        };
        let may_go = |claim: &Claim| of(claim.uid) > keeps(claim.uid);
        victim = victim.or_else(|| longest_idle(&may_go));
        if own >= reserve(uid) {
            break;
        }
        // The youngest request of the user who has the most: it has waited the least.
        let busy = claims.iter().filter(|claim| may_go(claim));
        let youngest = busy.max_by_key(|claim| (of(claim.uid), claim.uid.0, claim.since, claim.number));
        victim = victim.or(youngest.map(|claim| claim.number));
    }
    victim.map_or(Vacancy::None, Vacancy::InPlaceOf)
}

/// What a connection does.
#[derive(Clone, Copy, Debug)]
enum PlaceState {
    /// No request has come since.
    Waits(Instant),
    /// A request came then.
    Serves { since: Instant, desk: bool, stalled: Option<Instant> },
}

#[derive(Debug)]
struct Visitor {
    uid: Uid,
    doing: PlaceState,
    evicted: Arc<Notify>,
}

impl Visitor {
    fn claim(&self, number: u64) -> Claim {
        let (idle, since) = match self.doing {
            PlaceState::Waits(since) => (Some(since), since),
            PlaceState::Serves { since, stalled, .. } => (stalled, since),
        };
        Claim { number, uid: self.uid, idle, since }
    }

    fn is_at_desk(&self) -> bool {
        matches!(self.doing, PlaceState::Serves { desk: true, .. })
    }
}

#[derive(Debug)]
struct Crowd {
    house: Sizes,
    desk: Sizes,
    next: u64,
    visitors: BTreeMap<u64, Visitor>,
}

impl Crowd {
    /// Makes room, if that is possible, by closing a connection where it must be.
    fn make_room(&mut self, uid: Uid, at_desk: bool) -> bool {
        let sizes = if at_desk { self.desk } else { self.house };
        let counted = self.visitors.iter().filter(|(_, visitor)| !at_desk || visitor.is_at_desk());
        let claims: Vec<Claim> = counted.map(|(number, visitor)| visitor.claim(*number)).collect();
        match room(&claims, sizes, uid) {
            Vacancy::Free => true,
            Vacancy::InPlaceOf(number) => {
                if let Some(visitor) = self.visitors.remove(&number) {
                    visitor.evicted.notify_one();
                }
                true
            }
            Vacancy::None => false,
        }
    }
}

/// The connections, shared by the door and every place.
type Inside = Arc<Mutex<Crowd>>;

/// Lets connections in.
#[derive(Clone, Debug)]
pub(super) struct Door {
    inside: Inside,
}

/// A place inside, held until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    inside: Inside,
    number: u64,
    evicted: Arc<Notify>,
}

impl Door {
    /// One that lets so many in, of which so many may be served something else than a launch.
    pub(super) fn new(house: Sizes, desk: Sizes) -> Self {
        Self { inside: Arc::new(Mutex::new(Crowd { house, desk, next: 0, visitors: BTreeMap::new() })) }
    }

    /// Lets so many in from now on. Those inside stay.
    pub(super) fn resize(&self, house: Sizes) {
        lock(&self.inside).house = house;
    }

    /// A place for one more connection of this user, if there is one or one can be made.
    pub(super) fn enter(&self, uid: Uid) -> Option<Place> {
        let mut inside = lock(&self.inside);
        if !inside.make_room(uid, false) {
            return None;
        }
        let (number, evicted) = (inside.next, Arc::new(Notify::new()));
        inside.next += 1;
        inside
            .visitors
            .insert(number, Visitor { uid, doing: PlaceState::Waits(Instant::now()), evicted: Arc::clone(&evicted) });
        drop(inside);
        Some(Place { inside: Arc::clone(&self.inside), number, evicted })
    }
}

impl Place {
    /// A request has come; whether there is room for it. A launch (`desk` is false) always has: the gate limits those.
    pub(super) fn begin(&self, desk: bool) -> bool {
        let mut inside = lock(&self.inside);
        let Some(uid) = inside.visitors.get(&self.number).map(|visitor| visitor.uid) else { return false };
        if desk && !inside.make_room(uid, true) {
            return false;
        }
        let doing = PlaceState::Serves { since: Instant::now(), desk, stalled: None };
        inside.visitors.entry(self.number).and_modify(|visitor| visitor.doing = doing);
        true
    }

    /// The request waits for its client, or no longer does.
    pub(super) fn stall(&self, waits: bool) {
        if let Some(Visitor { doing: PlaceState::Serves { stalled, .. }, .. }) =
            lock(&self.inside).visitors.get_mut(&self.number)
        {
            *stalled = waits.then(Instant::now);
        }
    }

    /// The request is answered.
    pub(super) fn finish(&self) {
        if let Some(visitor) = lock(&self.inside).visitors.get_mut(&self.number) {
            visitor.doing = PlaceState::Waits(Instant::now());
        }
    }

    /// Waits until the place is given to another connection.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.inside).visitors.remove(&self.number);
    }
}

/// The crowd is whole after every statement that changes it, so a panic elsewhere leaves nothing half done.
fn lock(inside: &Inside) -> MutexGuard<'_, Crowd> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "door_tests.rs"]
mod tests;
