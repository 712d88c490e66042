//! Who waits, and who goes next.
//!
//! Of one user, the higher priority goes first, then whoever came earlier; a minute of waiting is worth one step of priority, so
//! that nobody waits for ever behind those who came later. Between users, what counts is the priority of the first of each
//! (one above 0 only if it is root's), with the time since that user last got something; then who has fewer sessions; then
//! whose turn is longer ago; then who came earlier. So a user with five hundred launches holds up another's one for a turn,
//! not for five hundred.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::admission::Place;
use super::profiles::Profiles;
use super::{Launch, Obstacle};
use crate::engine::id::{BootTime, ProcessId, Uid};

/// This much waiting is worth one step of priority.
pub(super) const AGING: Duration = Duration::from_secs(60);

/// A launch that waits.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) launch: Launch,
    /// The profiles whose bounds hold.
    pub(super) profiles: Profiles,
    pub(super) queued: BootTime,
    /// Refused when it still waits then.
    pub(super) deadline: BootTime,
    /// Its client was there before the daemon last ended, and has not come back.
    pub(super) away: bool,
    /// It keeps its place if it is not granted at once.
    pub(super) stays: bool,
    /// What it waits for, as of the last decision.
    pub(super) obstacle: Option<Obstacle>,
    /// The position and the obstacle that its client was last told.
    pub(super) told: Option<(u64, Obstacle)>,
}

/// All who wait, by the number that each got when it came.
#[derive(Debug, Default)]
pub(super) struct Line {
    waiters: BTreeMap<u64, Waiter>,
    by_process: BTreeMap<ProcessId, u64>,
    by_user: BTreeMap<Uid, usize>,
    last: u64,
    /// When each user last got something.
    turns: BTreeMap<Uid, BootTime>,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// How many of this user wait.
    pub(super) fn of_user(&self, uid: Uid) -> usize {
        self.by_user.get(&uid).copied().unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Waiter)> {
        self.waiters.iter().map(|(number, waiter)| (*number, waiter))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.waiters.values_mut()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Waiter> {
        self.waiters.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Waiter> {
        self.waiters.get_mut(&number)
    }

    pub(super) fn of(&self, process: ProcessId) -> Option<u64> {
        self.by_process.get(&process).copied()
    }

    pub(super) fn of_mut(&mut self, process: ProcessId) -> Option<&mut Waiter> {
        self.waiters.get_mut(self.by_process.get(&process)?)
    }

    /// Appends a launch; its number.
    pub(super) fn push(&mut self, waiter: Waiter) -> u64 {
        self.last += 1;
        self.by_process.insert(waiter.launch.process, self.last);
        *self.by_user.entry(waiter.launch.uid).or_default() += 1;
        self.waiters.insert(self.last, waiter);
        self.last
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&number)?;
        self.by_process.remove(&waiter.launch.process);
        if let Entry::Occupied(mut count) = self.by_user.entry(waiter.launch.uid) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(waiter)
    }

    /// Launches of other users wait, or were granted lately.
    pub(super) fn knows_others(&self, uid: Uid) -> bool {
        self.by_user.keys().chain(self.turns.keys()).any(|known| *known != uid)
    }

    /// A user got something now.
    pub(super) fn served(&mut self, uid: Uid, now: BootTime) {
        self.turns.insert(uid, now);
    }

    /// Lets go of users who have waited for nothing for a while.
    pub(super) fn forget_turns(&mut self, now: BootTime) {
        let (waiting, by) = (&self.by_user, now.minus(AGING * 300));
        self.turns.retain(|uid, turn| *turn > by || waiting.contains_key(uid));
    }

    /// The order in which they go from now on, when these places are taken.
    pub(super) fn order(&self, now: BootTime, places: &[Place]) -> Order {
        let mut running: BTreeMap<Uid, usize> = BTreeMap::new();
        for place in places {
            *running.entry(place.uid).or_default() += 1;
        }
        let mut users: BTreeMap<Uid, Vec<Candidate>> = BTreeMap::new();
        for (number, waiter) in &self.waiters {
            let launch = &waiter.launch;
            let (number, priority, queued) = (*number, launch.priority, waiter.queued);
            users.entry(launch.uid).or_default().push(Candidate { number, priority, queued });
        }
        let users = users.into_iter().map(|(uid, mut waiting)| {
            waiting.sort_by_key(|candidate| {
                (std::cmp::Reverse(aged(candidate.priority, now.since(candidate.queued))), candidate.number)
            });
            let (running, turn) = (running.get(&uid).copied().unwrap_or(0), self.turns.get(&uid).copied());
            User { uid, waiting: waiting.into(), running, turn: turn.unwrap_or_default() }
        });
        Order { now, users: users.collect() }
    }
}

#[derive(Debug)]
struct Candidate {
    number: u64,
    priority: i32,
    queued: BootTime,
}

#[derive(Debug)]
struct User {
    uid: Uid,
    waiting: VecDeque<Candidate>,
    running: usize,
    turn: BootTime,
}

/// The order at one moment, taken one by one.
#[derive(Debug)]
pub(super) struct Order {
    now: BootTime,
    users: Vec<User>,
}

impl Order {
    /// The number of the one that goes next, and the user it belongs to here.
    pub(super) fn next(&self) -> Option<(usize, u64)> {
        let heads = self.users.iter().enumerate().filter_map(|(user, line)| Some((user, line, line.waiting.front()?)));
        let best = heads.min_by_key(|(_, line, head)| {
            let waited = self.now.since(head.queued.max(line.turn));
            (
                std::cmp::Reverse(aged(among_users(line.uid, head.priority), waited)),
                line.running,
                line.turn,
                head.number,
            )
        });
        best.map(|(user, _, head)| (user, head.number))
    }

    /// It was granted.
    pub(super) fn granted(&mut self, user: usize) {
        if let Some(line) = self.users.get_mut(user) {
            line.waiting.pop_front();
            line.running += 1;
            line.turn = self.now;
        }
    }

    /// Something that holds for it alone is in its way.
    pub(super) fn passed_over(&mut self, user: usize) {
        if let Some(line) = self.users.get_mut(user) {
            line.waiting.pop_front();
        }
    }
}

impl Iterator for Order {
    type Item = u64;

    /// As if each were granted in its turn.
    fn next(&mut self) -> Option<u64> {
        let (user, number) = Self::next(self)?;
        self.granted(user);
        Some(number)
    }
}

/// What a priority is worth among users: only root's is above the usual one.
fn among_users(uid: Uid, priority: i32) -> i32 {
    if uid == Uid::ROOT { priority } else { priority.min(0) }
}

/// A priority with what waiting has added to it.
fn aged(priority: i32, waited: Duration) -> i64 {
    let steps = waited.as_secs() / AGING.as_secs();
    i64::from(priority).saturating_add(i64::try_from(steps).unwrap_or(i64::MAX))
}
