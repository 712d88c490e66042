//! The namespaces of the daemon, whose pids and clock all records and maps have, so that they agree with its /proc.
//!
//! Both are constants for the verifier: in the initial namespaces nothing remains of this but the load of a constant.

use crate::maps::{NAMESPACE_LEVEL, SETTINGS};

/// The most levels of pid namespaces is 32 (`MAX_PID_NS_LEVEL` in include/linux/pid_namespace.h), so a level fits in these bits.
const LEVELS: u32 = 63;

/// The inode of the pid namespace; 0 for the initial one.
#[inline(always)]
pub fn inode() -> u32 {
    // SAFETY: a read of an initialised static.
    unsafe { core::ptr::read_volatile(&raw const SETTINGS.pid_namespace) }
}

/// Whether the process with this id is outside the pid namespace, and so is none of the daemon's concern.
#[inline(always)]
pub fn excludes(tgid: u32) -> bool {
    inode() != 0 && tgid == 0
}

/// How many pid namespaces lie around this one.
#[inline(always)]
pub fn level() -> u32 {
    // The mask bounds what is added to a pointer.
    NAMESPACE_LEVEL.get(0).map_or(0, |level| *level) & LEVELS
}

#[inline(always)]
pub fn set_level(level: u32) {
    let _ = NAMESPACE_LEVEL.set(0, &level, 0);
}

/// A moment of the host's CLOCK_BOOTTIME, as the daemon's time namespace shows it.
#[inline(always)]
pub fn boot_time(host: u64) -> u64 {
    // SAFETY: a read of an initialised static.
    match unsafe { core::ptr::read_volatile(&raw const SETTINGS.boottime_offset) } {
        0 => host,
        offset => host.wrapping_add_signed(offset),
    }
}
