//! Each user's share of [`TRACKED`](crate::maps::TRACKED): no user can use up the room for another's processes.
//!
//! A user may hold at most as many entries as are free. So n users together hold at most n/(n+1) of the map, and a new
//! user always finds room. Root may fill the map.
//!
//! Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", 1998.
//!
//! Users for whom [`CHARGED`] has no room share one account.
//!
//! The programs and the daemon count in separate values, so that no addition is lost between the two.

use aya_ebpf::bindings::BPF_NOEXIST;
use watchdog_common::SHARED_ACCOUNT;

use crate::{
    atomic,
    maps::{CHARGED, CHARGED_BY_DAEMON, ENTRY_COUNT, SETTINGS},
};

const ROOT: u32 = 0;

/// Slots of [`ENTRY_COUNT`].
const BY_PROGRAMS: u32 = 0;
const BY_DAEMON: u32 = 1;

/// Whether there is room for another entry of this user. Cost: five look-ups, two of them in an array.
#[inline(always)]
pub fn admits(uid: u32) -> bool {
    if uid == ROOT {
        return true;
    }
    // SAFETY: a read of an initialised static.
    let room = unsafe { core::ptr::read_volatile(&raw const SETTINGS.max_processes) };
    let entries = entries(BY_PROGRAMS) + entries(BY_DAEMON);
    let account = account(uid);
    // SAFETY: the pointers are map values, which are read once.
    let charged = unsafe {
        CHARGED.get_ptr(account).map_or(0, |count| count.read_volatile())
            + CHARGED_BY_DAEMON.get_ptr(account).map_or(0, |count| count.read_volatile())
    };
    charged < i64::from(room) - entries
}

/// Charges this user for entries; a negative number credits removed ones.
#[inline(always)]
pub fn charge(uid: u32, entries: i64) {
    if let Some(count) = ENTRY_COUNT.get_ptr_mut(BY_PROGRAMS) {
        atomic::add(count, entries);
    }
    if uid == ROOT {
        return;
    }
    if let Some(charged) = CHARGED.get_ptr_mut(account(uid)) {
        atomic::add(charged, entries);
    }
}

/// The key of this user's count in both maps. Keys are never removed, so it never changes.
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
fn entries(slot: u32) -> i64 {
    // SAFETY: the pointer is a map value, which is read once.
    ENTRY_COUNT.get_ptr(slot).map_or(0, |count| unsafe { count.read_volatile() })
}
