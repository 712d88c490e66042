//! The map of tracked processes: look-up, insert and removal, with all counts that depend on it.

use aya_ebpf::{bindings::BPF_NOEXIST, programs::BtfTracePointContext};
use aya_log_ebpf::warn;
use watchdog_common::{LineageFlags, LossCause, Tracked, same_start};

use crate::{emit, maps::TRACKED, sessions, shares, task::Task};

/// The entry of the process whose leader is `leader`; `None` also when the entry is that of an earlier process with this pid.
///
/// Cost: one look-up; two loads more when there is an entry.
#[inline(always)]
pub fn entry(tgid: u32, leader: Task) -> Option<&'static mut Tracked> {
    let entry = TRACKED.get_ptr_mut(tgid)?;
    // SAFETY: the verifier knows that the pointer is a map value. Other CPUs may write it at the same time: each field is
    // then one of the two values, and only the flags of one and the same process are ever contended.
    let entry = unsafe { &mut *entry };
    same_start(entry.start, leader.start()).then_some(entry)
}

/// As [`entry`], for members of a session only: `None` for a witness.
#[inline(always)]
pub fn member(tgid: u32, leader: Task) -> Option<&'static mut Tracked> {
    entry(tgid, leader).filter(|entry| entry.lineage.flags & LineageFlags::WITNESS == 0)
}

/// Inserts a process into the map and charges its user; `false`, and counted as lost, where there is no room.
#[inline(always)]
pub fn track(ctx: &BtfTracePointContext, leader: Task, value: Tracked) -> bool {
    let tgid = leader.tgid();
    let fits = shares::admits(value.uid) && insert(tgid, &value);
    if fits {
        shares::charge(value.uid, 1);
    } else {
        emit::lost(LossCause::MAP_FULL);
        // Rare enough for a log line. The log is one page; a flood of lines is dropped.
        warn!(ctx, "no room to track process {} of session {}", tgid, value.lineage.root);
    }
    fits
}

#[inline(always)]
fn insert(tgid: u32, value: &Tracked) -> bool {
    if TRACKED.insert(tgid, value, u64::from(BPF_NOEXIST)).is_ok() {
        return true;
    }
    // The present entry is this process as a witness, or an earlier process with this pid whose exit was missed.
    let Some(before) = TRACKED.get_ptr_mut(tgid) else { return false };
    // SAFETY: as in `entry`.
    remove(tgid, unsafe { &*before });
    TRACKED.insert(tgid, value, u64::from(BPF_NOEXIST)).is_ok()
}

/// Removes an entry and takes it off its user's and its session's counts; `false` when it was removed already.
#[inline(always)]
pub fn remove(tgid: u32, entry: &Tracked) -> bool {
    // Once the element is free, another process may get it.
    let Tracked { counted, uid, .. } = *entry;
    let removed = TRACKED.remove(tgid).is_ok();
    if removed {
        shares::charge(uid, -1);
        sessions::count(counted, -1);
    }
    removed
}
