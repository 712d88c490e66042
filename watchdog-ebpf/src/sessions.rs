//! Gated sessions: how many of their processes live.
//!
//! A gated session has a number, and each of its processes carries the number in its [`TRACKED`](crate::maps::TRACKED) entry.
//! A child inherits the number inside the fork, so the count is as exact as lineage is, and a reused pid never refers to
//! another session. A process that carries a number was counted, and is taken off once, at its exit.

use core::mem::offset_of;

use watchdog_common::{GatedSession, Tracked};

use crate::{atomic, maps::GATED};

const _: () =
    assert!(offset_of!(Tracked, counted) % 8 == 0 && offset_of!(Tracked, uid) == offset_of!(Tracked, counted) + 4);

/// Adds to the living processes of the session with this number; 0 means no session. Cost: one comparison, else a look-up.
#[inline(always)]
pub fn count(number: u32, processes: i64) {
    if let Some(session) = get(number) {
        atomic::add(&raw mut session.live, processes);
    }
}

/// Counts a process under another number; `false` when it is counted there already. Exact also when two CPUs do so at once.
#[inline(always)]
pub fn move_to(number: u32, entry: &mut Tracked) -> bool {
    // Written together with the user, which never changes: the exchange takes 64 bits.
    let value = u64::from(number) | u64::from(entry.uid) << 32;
    let before = atomic::exchange((&raw mut entry.counted).cast(), value) as u32;
    if before == number {
        return false;
    }
    count(before, -1);
    count(number, 1);
    true
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
