//! Each user's share of [`TRACKED`](crate::maps::TRACKED): no user's processes keep another's from being tracked.
//!
//! A user may hold at most as many entries as are free. So n users together never hold more than n/(n+1) of the map, and a new
//! user always finds room. Root may fill it.
//!
//! Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998.
//!
//! Users for whom [`CHARGED`] has no room share one account.
//!
//! Programs and the daemon add up entries in values of their own, so that no addition is lost between the two.

use aya_ebpf::bindings::BPF_NOEXIST;
use watchdog_common::SHARED_ACCOUNT;

use crate::{
    atomic,
    maps::{CHARGED, CHARGED_BY_DAEMON, HELD, SETTINGS},
};

const ROOT: u32 = 0;

/// Slots of [`HELD`].
const BY_PROGRAMS: u32 = 0;
const BY_DAEMON: u32 = 1;

/// Whether there is room for another entry of this user. Five look-ups, two of them in an array.
#[inline(always)]
pub fn admits(uid: u32) -> bool {
    if uid == ROOT {
        return true;
    }
    // SAFETY: a read of an initialised static.
    let room = unsafe { core::ptr::read_volatile(&raw const SETTINGS.max_processes) };
    let held = held(BY_PROGRAMS) + held(BY_DAEMON);
    let account = account(uid);
    // SAFETY: the pointers are map values, which are read once.
    let charged = unsafe {
        CHARGED.get_ptr(account).map_or(0, |count| count.read_volatile())
            + CHARGED_BY_DAEMON.get_ptr(account).map_or(0, |count| count.read_volatile())
    };
    charged < i64::from(room) - held
}

/// Counts entries of this user that were added, or removed when `entries` is negative.
#[inline(always)]
pub fn charge(uid: u32, entries: i64) {
    if let Some(held) = HELD.get_ptr_mut(BY_PROGRAMS) {
        atomic::add(held, entries);
    }
    if uid == ROOT {
        return;
    }
    if let Some(charged) = CHARGED.get_ptr_mut(account(uid)) {
        atomic::add(charged, entries);
    }
}

/// The key under which this user's entries are counted, in both maps. No key is ever removed, so it stays the same.
#[inline(always)]
fn account(uid: u32) -> u32 {
    if CHARGED.get_ptr(uid).is_some() {
        return uid;
    }
    // Another CPU may be first.
    let _ = CHARGED.insert(uid, 0, u64::from(BPF_NOEXIST));
    if CHARGED.get_ptr(uid).is_some() { uid } else { SHARED_ACCOUNT }
}

#[inline(always)]
fn held(slot: u32) -> i64 {
    // SAFETY: the pointer is a map value, which is read once.
    HELD.get_ptr(slot).map_or(0, |count| unsafe { count.read_volatile() })
}
