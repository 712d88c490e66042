//! Gated sessions: how many of their processes live.
//!
//! A gated session has a number, and each of its processes carries the number in its [`TRACKED`](crate::maps::TRACKED) entry.
//! A child inherits the number inside the fork, so the count is as exact as lineage is, and a reused pid never refers to
//! another session. A process that carries a number was counted, and is taken off once, at its exit.

use watchdog_common::GatedSession;

use crate::{atomic, maps::GATED};

/// Adds to the living processes of the session with this number; 0 means no session. Cost: one comparison, else a look-up.
#[inline(always)]
pub fn count(number: u32, processes: i64) {
    if let Some(session) = get(number) {
        atomic::add(&raw mut session.live, processes);
    }
}

/// The session with this number; `None` also for 0, and when the session has been released.
#[inline(always)]
pub fn get(number: u32) -> Option<&'static mut GatedSession> {
    if number == 0 {
        return None;
    }
    // SAFETY: the verifier knows that the pointer is a map value. `live` and `refused` change only by atomic additions.
    GATED.get_ptr_mut(number).map(|session| unsafe { &mut *session })
}
