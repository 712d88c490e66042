//! The share of one user in queue places and in committed memory.
//!
//! A dynamic threshold (Choudhury and Hahne, 1998): a user has at most [`SHARE_FACTOR`] times what is still free. One user
//! alone gets 90 %, two get 47 % each, and something is always left for the next one. Root is exempt.

use super::launch::{Blocker, DEFAULT_RETRY, Launch, MEMORY_RETRY};
use super::queue::QueuedLaunch;
use super::session_slot::SessionSlot;
use crate::Step;
use watchdog_api::RefusalReason;
use watchdog_types::{Bytes, Uid, units};

const SHARE_FACTOR: u64 = 9;
/// Shorter queues are not shared out.
const MIN_SHARED_QUEUE: usize = 4;

impl Step<'_> {
    /// The blocker of a launch that would certainly have to wait.
    pub(super) fn queue_is_full(&self, launch: &Launch) -> Option<Blocker> {
        let engine = &*self.engine;
        let full = self.queue_full_for(launch.uid);
        // An empty queue leaves no blocker from the last decision.
        let shut = engine.gate.all_blocked && !engine.gate.queue.is_empty();
        (full && shut && launch.waits).then(|| self.queue_full_blocker(launch.uid))
    }

    pub(super) fn queue_full_for(&self, uid: Uid) -> bool {
        let (queue, max) = (&self.engine.gate.queue, self.engine.config.gate.max_queue);
        let (own, free) = (queue.of_user(uid), max.saturating_sub(queue.len()));
        let over_share = max >= MIN_SHARED_QUEUE && (own as u64 >= SHARE_FACTOR * free as u64 || own + 1 >= max);
        // The last hundredth is for users without a queued launch; the shares of several users leave less.
        let over_share = over_share || own > 0 && free <= max / 100;
        free == 0 || uid != Uid::ROOT && over_share
    }

    pub(super) fn queue_full_blocker(&self, uid: Uid) -> Blocker {
        let (queue, max) = (&self.engine.gate.queue, self.engine.config.gate.max_queue);
        let detail = if queue.len() >= max {
            format!("{} of {max} launches queued", queue.len())
        } else {
            let (own, free) = (queue.of_user(uid), max - queue.len());
            format!(
                "{own} launches of this user queued, the share of one user; the {free} of {max} free places are for other users"
            )
        };
        Blocker::new(RefusalReason::QueueFull, detail, "[gate] max_queue", DEFAULT_RETRY)
    }

    /// The memory is free, but granting it would leave other users less than their share.
    pub(super) fn share_blocker(
        &self,
        waiter: &QueuedLaunch,
        needed: Bytes,
        free: Bytes,
        slots: &[SessionSlot],
    ) -> Option<Blocker> {
        let (gate, uid) = (&self.engine.gate, waiter.launch.uid);
        let hold = self.engine.config.gate.hold;
        let own = gate.commitments().filter(|held| held.lease.uid == uid);
        let own: Bytes = own.map(|held| held.promised(self.now, hold)).sum();
        self.exceeds_share(uid, own + needed, own + free, slots).then(|| {
            Blocker::new(
                RefusalReason::Memory,
                format!(
                    "needs {}, {} already committed to this user: exceeds one user's share (90% of {} grantable)",
                    units::size(needed.0),
                    units::size(own.0),
                    units::size((own + free).0),
                ),
                "user share",
                MEMORY_RETRY,
            )
        })
    }

    /// Whether this commitment exceeds the user's share of `of`. Without other users there is no limit.
    pub(super) fn exceeds_share(&self, uid: Uid, promised: Bytes, of: Bytes, slots: &[SessionSlot]) -> bool {
        let shared = slots.iter().any(|slot| slot.uid != uid) || self.engine.gate.queue.has_other_users(uid);
        let left = of.0.saturating_sub(promised.0);
        uid != Uid::ROOT && shared && promised.0 > SHARE_FACTOR.saturating_mul(left)
    }
}
