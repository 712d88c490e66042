//! The queue and its order.
//!
//! Within a user: higher priority first, then arrival. A minute of waiting adds one step of priority, so no launch starves.
//! Between users, by the first launch of each: priority (above 0 only for root) plus the time since the user was last served;
//! then fewer running sessions; then served longest ago; then arrival. A user with five hundred launches delays another
//! user's launch by one turn, not by five hundred.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::launch::{Blocker, Launch};
use super::profiles::LimitingProfiles;
use super::session_slot::SessionSlot;
use watchdog_types::{BootTime, ProcessId, Uid};

/// Waiting time that adds one step of priority.
pub(super) const AGING: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct QueuedLaunch {
    pub(super) launch: Launch,
    pub(super) profiles: LimitingProfiles,
    pub(super) queued: BootTime,
    /// Refused if still queued then.
    pub(super) deadline: BootTime,
    /// Restored from an earlier run; its client has not reconnected.
    pub(super) client_disconnected: bool,
    /// It is queued if it is not granted at once.
    pub(super) may_queue: bool,
    /// It is persisted, and its client is notified.
    pub(super) announced: bool,
    /// As of the last decision.
    pub(super) blocker: Option<Blocker>,
    /// The position and the blocker last sent to the client.
    pub(super) last_notified: Option<(u64, Blocker)>,
}

/// Queued launches by arrival number.
#[derive(Debug, Default)]
pub(super) struct LaunchQueue {
    waiters: BTreeMap<u64, QueuedLaunch>,
    by_process: BTreeMap<ProcessId, u64>,
    by_user: BTreeMap<Uid, usize>,
    last: u64,
    /// The last grant of each user.
    last_served: BTreeMap<Uid, BootTime>,
}

impl LaunchQueue {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn of_user(&self, uid: Uid) -> usize {
        self.by_user.get(&uid).copied().unwrap_or(0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &QueuedLaunch)> {
        self.waiters.iter().map(|(number, waiter)| (*number, waiter))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut QueuedLaunch> {
        self.waiters.values_mut()
    }

    pub(super) fn get(&self, number: u64) -> Option<&QueuedLaunch> {
        self.waiters.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut QueuedLaunch> {
        self.waiters.get_mut(&number)
    }

    pub(super) fn of(&self, process: ProcessId) -> Option<u64> {
        self.by_process.get(&process).copied()
    }

    pub(super) fn of_mut(&mut self, process: ProcessId) -> Option<&mut QueuedLaunch> {
        self.waiters.get_mut(self.by_process.get(&process)?)
    }

    /// Returns the arrival number.
    pub(super) fn push(&mut self, waiter: QueuedLaunch) -> u64 {
        self.last += 1;
        self.by_process.insert(waiter.launch.process, self.last);
        *self.by_user.entry(waiter.launch.uid).or_default() += 1;
        self.waiters.insert(self.last, waiter);
        self.last
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<QueuedLaunch> {
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

    /// Whether launches of other users are queued, or were granted recently.
    pub(super) fn has_other_users(&self, uid: Uid) -> bool {
        self.by_user.keys().chain(self.last_served.keys()).any(|known| *known != uid)
    }

    pub(super) fn served(&mut self, uid: Uid, now: BootTime) {
        self.last_served.insert(uid, now);
    }

    /// Drops users without a queued launch who were last served long ago.
    pub(super) fn expire_last_served(&mut self, now: BootTime) {
        let (waiting, by) = (&self.by_user, now.minus(AGING * 300));
        self.last_served.retain(|uid, turn| *turn > by || waiting.contains_key(uid));
    }

    pub(super) fn order(&self, now: BootTime, slots: &[SessionSlot]) -> ServiceOrder {
        let mut running: BTreeMap<Uid, usize> = BTreeMap::new();
        for slot in slots {
            *running.entry(slot.uid).or_default() += 1;
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
            let (running, turn) = (running.get(&uid).copied().unwrap_or(0), self.last_served.get(&uid).copied());
            UserQueue { uid, waiting: waiting.into(), running, turn: turn.unwrap_or_default() }
        });
        ServiceOrder { now, users: users.collect() }
    }
}

#[derive(Debug)]
struct Candidate {
    number: u64,
    priority: i32,
    queued: BootTime,
}

#[derive(Debug)]
struct UserQueue {
    uid: Uid,
    waiting: VecDeque<Candidate>,
    running: usize,
    turn: BootTime,
}

/// The order of service at one time. Each grant changes it.
#[derive(Debug)]
pub(super) struct ServiceOrder {
    now: BootTime,
    users: Vec<UserQueue>,
}

impl ServiceOrder {
    /// The index of the user and the number of the launch to serve next.
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

    pub(super) fn granted(&mut self, user: usize) {
        if let Some(line) = self.users.get_mut(user) {
            line.waiting.pop_front();
            line.running += 1;
            line.turn = self.now;
        }
    }

    /// Skips a launch with a blocker that blocks no other launch.
    pub(super) fn passed_over(&mut self, user: usize) {
        if let Some(line) = self.users.get_mut(user) {
            line.waiting.pop_front();
        }
    }
}

impl Iterator for ServiceOrder {
    type Item = u64;

    /// The order if each launch were granted in turn.
    fn next(&mut self) -> Option<u64> {
        let (user, number) = Self::next(self)?;
        self.granted(user);
        Some(number)
    }
}

/// Priority between users: above 0 only for root.
pub(super) fn among_users(uid: Uid, priority: i32) -> i32 {
    if uid == Uid::ROOT { priority } else { priority.min(0) }
}

/// Priority plus the bonus for waiting.
fn aged(priority: i32, waited: Duration) -> i64 {
    let steps = waited.as_secs() / AGING.as_secs();
    i64::from(priority).saturating_add(i64::try_from(steps).unwrap_or(i64::MAX))
}
