//! The sampler: one read gives the memory of every tracked process.

use core::ffi::c_void;

use aya_ebpf::{bindings::seq_file, helpers::generated::bpf_seq_write};
use watchdog_common::{LineageFlags, SampleFlags, SampleRecord, same_start};

use crate::{lifecycle::tracked, maps::DEAD, task::Task};

/// `struct bpf_iter__task` (kernel/bpf/task_iter.c).
#[repr(C)]
pub struct TaskIterator {
    meta: *mut Meta,
    task: *const c_void,
}

impl TaskIterator {
    /// The task that it has come to; null at the end.
    #[inline(always)]
    pub fn task(&self) -> Task {
        Task::from_argument(self.task)
    }

    /// Appends a value to what the reader gets. A buffer that is full ends the read, and the next one begins with this task
    /// again.
    #[inline(always)]
    pub fn write<T: Copy>(&self, value: &T) {
        // SAFETY: `seq` is the iterator's own file; the verifier knows the types, and that the value is whole.
        unsafe { bpf_seq_write((*self.meta).seq, (&raw const *value).cast(), size_of::<T>() as u32) };
    }
}

/// `struct bpf_iter_meta` (include/linux/bpf.h).
#[repr(C)]
struct Meta {
    seq: *mut seq_file,
    session_id: u64,
    seq_num: u64,
}

/// Whether a process was tracked, and has exited.
#[inline(always)]
fn is_zombie(tgid: u32, leader: Task) -> bool {
    // SAFETY: the pointer is a map value, which is read once.
    DEAD.get_ptr(tgid).is_some_and(|start| same_start(unsafe { start.read_volatile() }, leader.start()))
}

/// `DEFINE_BPF_ITER_FUNC(task, struct bpf_iter_meta *meta, struct task_struct *task)`, since Linux 5.8. It visits every
/// thread of the host, and once nothing, at the end.
///
/// Cost: a thread is three loads, an untracked process two look-ups more; a tracked one adds a dozen loads and 80 bytes of
/// output: 0.5 µs. aya-ebpf has no macro for iterators.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn sample(ctx: *mut TaskIterator) -> i32 {
    // SAFETY: the kernel hands over a context of this layout; the verifier knows the types behind it.
    let iterator = unsafe { &*ctx };
    let task = iterator.task();
    if task.is_null() {
        return 0;
    }
    let leader = task.leader();
    let mm = task.mm();
    // A process whose first thread has exited lives on in the others, and its memory is found there.
    if !task.is_leader() && (mm.is_null() || !leader.mm().is_null()) {
        return 0;
    }
    let tgid = task.tgid();
    let dead = match tracked(tgid, leader) {
        Some(entry) if entry.lineage.flags & LineageFlags::WITNESS != 0 => return 0,
        // Its exit went by before it was tracked, or the kernel skipped the program. That no thread is alive any more would be
        // early: before Linux 6.16 an exit is reported when the address space is gone.
        Some(_) => leader.has_exited() && task.process().is_alone(),
        None if task.is_leader() && is_zombie(tgid, leader) => true,
        None => return 0,
    };
    let zombie = if dead { SampleFlags::ZOMBIE } else { 0 };
    if mm.is_null() && zombie == 0 {
        // The first thread has exited, and another one will tell of the process.
        return 0;
    }
    let tty = if task.process().has_tty() { SampleFlags::TTY } else { 0 };
    let record = SampleRecord {
        start: leader.start(),
        pages: if mm.is_null() { [0; 4] } else { mm.counters() },
        hiwater_rss: mm.peak(),
        tgid,
        ppid: leader.parent().tgid(),
        flags: zombie | tty,
        reserved: 0,
        comm: leader.comm(),
    };
    iterator.write(&record);
    0
}
