//! The iterator `recount`: counts the living processes of a session anew.

use watchdog_common::{LineageFlags, RawLineage, Tracked, same_start};

use super::task_iterator::TaskIterator;
use crate::{
    maps::{RECOUNT, TRACKED},
    sessions, tracking,
};

/// `DEFINE_BPF_ITER_FUNC(task, struct bpf_iter_meta *meta, struct task_struct *task)`, since Linux 5.8. Counts living processes
/// under the number in [`RECOUNT`], and writes a byte for each that was not counted there yet. Userspace reads it until it is
/// empty: a child being forked meanwhile may still get its parent's old number, and members of an inner session are found
/// after its root.
///
/// Cost: 0.05 µs for each thread of the host, as the sampler.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn recount(ctx: *mut TaskIterator) -> i32 {
    // SAFETY: the kernel hands over a context of this layout.
    let iterator = unsafe { &*ctx };
    let task = iterator.task();
    if task.is_null() || !task.is_leader() {
        return 0;
    }
    let (Some(wanted), Some(entry)) = (RECOUNT.get(0), tracking::entry(task.tgid(), task)) else { return 0 };
    let lineage = &entry.lineage;
    let of_session = lineage.root == wanted.root && same_start(lineage.root_start, wanted.root_start);
    let counted_before = wanted.before != 0 && entry.counted == wanted.before;
    // An exiting process is taken off where it was counted, or was already.
    if !(of_session || counted_before || is_inside(task.tgid(), entry, wanted.number))
        || lineage.flags & LineageFlags::WITNESS != 0
        || task.thread_group().is_dead()
    {
        return 0;
    }
    if sessions::move_to(wanted.number, entry) {
        iterator.write(&1u8);
    }
    0
}

/// Whether a process belongs to an inner session: one without a number of its own, started by a process that is counted under
/// this number. The inner root is judged by the process that started it, its members by the root. Two look-ups at most.
#[inline(always)]
fn is_inside(tgid: u32, entry: &Tracked, number: u32) -> bool {
    let RawLineage { root, root_start, parent, parent_start, .. } = entry.lineage;
    let (by, start) = if root == tgid { (parent, parent_start) } else { (root, root_start) };
    if number == 0 || root == tgid && sessions::get(entry.counted).is_some_and(|own| own.root == tgid) {
        return false;
    }
    // SAFETY: the verifier knows that the pointer is a map value. Two words of it are read, which no program changes while
    // userspace counts.
    TRACKED.get_ptr(by).is_some_and(|by| unsafe { (*by).counted == number && same_start((*by).start, start) })
}
