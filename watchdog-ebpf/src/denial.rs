//! Agents started past the gate: which files are denied, and to which processes.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_send_signal;
use watchdog_common::{FileId, READER_ABSENT_NANOS};

use crate::{
    emit,
    maps::{ALIVE_AT, DENIED, DENIED_FILES, KILL_DENIED, SEEN_DENIED},
    name_hash, sessions,
    task::{self, Task},
    tracking,
};

const SIGKILL: u32 = 9;

/// Parts of a file's own name that are hashed: enough for the 255 bytes of NAME_MAX.
const FILE_NAME_PARTS: usize = 2;

/// Maximum number of reads of a session's number. For each change of it, the daemon visits every thread of the host.
const READS: usize = 4;

/// Whether denied programs are killed at their exec: only while a daemon runs, since without one no launch is granted.
///
/// Cost: one load; where it is on, one more and the clock.
#[inline(always)]
pub fn kills_at_exec() -> bool {
    KILL_DENIED.get(0).is_some_and(|on| *on != 0)
        && ALIVE_AT.get(0).is_some_and(|alive_at| emit::now().saturating_sub(*alive_at) < READER_ABSENT_NANOS)
}

/// Kills the process if the program it has just executed is denied to it; `true` when SIGKILL is pending, so that the program's
/// first instruction never runs. `name` is the hash of the path's last component. Of a script only the path is known here:
/// `bprm->file` is its interpreter by now.
#[inline(always)]
pub fn kill_if_denied(task: Task, bprm: *const c_void, name: u64) -> bool {
    if !is_denied(bprm, name) || is_gated(task) {
        return false;
    }
    // Fails only for init, which is then spared.
    // SAFETY: the helper has no precondition.
    if unsafe { bpf_send_signal(SIGKILL) } != 0 {
        return false;
    }
    emit::exec_denied(task, bprm, true);
    true
}

/// Whether a process belongs to a gated session. When a session's limit changes, the daemon first moves its processes to a new
/// number, then removes the old one. So a number that is not found is read again, until it no longer changes.
///
/// Cost: two look-ups, unless the number changes.
#[inline(always)]
pub fn is_gated(leader: Task) -> bool {
    let number = || tracking::entry(leader.tgid(), leader).map_or(0, |entry| entry.counted);
    let mut last = number();
    for _ in 0..READS {
        if sessions::get(last).is_some() {
            return true;
        }
        let next = number();
        if next == last {
            return false;
        }
        last = next;
    }
    false
}

/// Whether a file is denied: by the name it is executed as, whose hash is `name`, by its own name, or by its inode. A file with
/// its own name only is denied by its inode from then on. With several links, one may be the name of another program.
///
/// Cost: five look-ups at most, and a hash over the file's own name.
#[inline(always)]
pub fn is_denied(bprm: *const c_void, name: u64) -> bool {
    let (file, links) = task::file_of(bprm);
    let own_name = name_hash::last_component(task::file_name_of(bprm), FILE_NAME_PARTS);
    let by_own_name = DENIED.get_ptr(own_name).is_some();
    if by_own_name && links == 1 && file.generation != 0 {
        // A full map drops the least recently used file.
        let _ = SEEN_DENIED.insert(&file, &1, 0);
    }
    by_own_name
        || DENIED.get_ptr(name).is_some()
        || file.inode != 0
            && (DENIED_FILES.get_ptr(file).is_some()
                || DENIED_FILES.get_ptr(FileId { generation: 0, ..file }).is_some()
                || SEEN_DENIED.get_ptr(file).is_some())
}
