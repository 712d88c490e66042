//! What one user may take of what all share: places in the queue, and promised memory.
//!
//! The bound is a dynamic threshold (Choudhury and Hahne, 1998): a user has at most [`TIMES`] times what is still free. One
//! user alone gets nine tenths, two get 47 % each, and there is always something left for one that comes next. Root is
//! exempt.

use super::admission::Place;
use super::line::Waiter;
use super::{Launch, MEMORY_MOVES, Obstacle, SOME_TIME};
use crate::api::RefusalReason;
use crate::engine::Step;
use crate::engine::id::{Bytes, Uid};
use crate::units;

/// A user may have so many times what is free.
const TIMES: u64 = 9;
/// A shorter queue is too short to be divided.
const SHORTEST_QUEUE: usize = 4;

impl Step<'_> {
    /// The queue has no room for one that would have to wait, as is known without a closer look.
    pub(super) fn queue_is_full(&self, launch: &Launch) -> Option<Obstacle> {
        let engine = &*self.engine;
        let full = self.no_room_for(launch.uid);
        // While nobody may pass, nobody has to be asked; but of an empty line nothing was decided.
        let shut = engine.gate.shut && !engine.gate.line.is_empty();
        (full && shut && launch.waits).then(|| self.full(launch.uid))
    }

    /// The queue has no room for one more of this user.
    pub(super) fn no_room_for(&self, uid: Uid) -> bool {
        let (line, max) = (&self.engine.gate.line, self.engine.config.gate.max_queue);
        let (own, free) = (line.of_user(uid), max.saturating_sub(line.len()));
        let over_share = max >= SHORTEST_QUEUE && (own as u64 >= TIMES * free as u64 || own + 1 >= max);
        // The last hundredth is for users of whom no launch waits: the shares of several users together leave less.
        let over_share = over_share || own > 0 && free <= max / 100;
        free == 0 || uid != Uid::ROOT && over_share
    }

    pub(super) fn full(&self, uid: Uid) -> Obstacle {
        let (line, max) = (&self.engine.gate.line, self.engine.config.gate.max_queue);
        let detail = if line.len() >= max {
            format!("{} launches wait already", line.len())
        } else {
            let (own, free) = (line.of_user(uid), max - line.len());
            format!(
                "{own} launches of this user wait already, which is the share of one user while {free} of {max} places are \
                 free; these are kept for other users"
            )
        };
        Obstacle {
            reason: RefusalReason::QueueFull,
            detail,
            bound: "[gate] max_queue".to_owned(),
            holders: Vec::new(),
            retry_after: Some(SOME_TIME),
        }
    }

    /// A launch whose memory is free, but would leave less than its share to other users.
    pub(super) fn over_share(&self, waiter: &Waiter, needed: Bytes, free: Bytes, places: &[Place]) -> Option<Obstacle> {
        let (gate, uid) = (&self.engine.gate, waiter.launch.uid);
        let hold = self.engine.config.gate.hold;
        let own = gate.leases.values().filter(|held| held.lease.uid == uid);
        let own: Bytes = own.map(|held| held.promised(self.now, hold)).sum();
        self.exceeds_share(uid, own + needed, own + free, places).then(|| Obstacle {
            reason: RefusalReason::Memory,
            detail: format!(
                "{} needed and {} promised to this user already: together more than the share of one user, which is 90% of \
                 the {} that can be promised; the rest is kept for other users",
                units::size(needed.0),
                units::size(own.0),
                units::size((own + free).0),
            ),
            bound: "the share of one user".to_owned(),
            holders: Vec::new(),
            retry_after: Some(MEMORY_MOVES),
        })
    }

    /// A user may not be promised so much of this memory. Where the gate knows of no other user, it may.
    pub(super) fn exceeds_share(&self, uid: Uid, promised: Bytes, of: Bytes, places: &[Place]) -> bool {
        let shared = places.iter().any(|place| place.uid != uid) || self.engine.gate.line.knows_others(uid);
        let left = of.0.saturating_sub(promised.0);
        uid != Uid::ROOT && shared && promised.0 > TIMES.saturating_mul(left)
    }
}
