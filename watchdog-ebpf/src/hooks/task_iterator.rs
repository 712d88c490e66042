//! What the programs on the task iterator share. aya-ebpf has no macro for iterators.

use core::ffi::c_void;

use aya_ebpf::{bindings::seq_file, helpers::generated::bpf_seq_write};

use crate::task::Task;

/// `struct bpf_iter__task` (kernel/bpf/task_iter.c).
#[repr(C)]
pub struct TaskIterator {
    meta: *mut IteratorMeta,
    task: *const c_void,
}

/// `struct bpf_iter_meta` (include/linux/bpf.h).
#[repr(C)]
struct IteratorMeta {
    seq: *mut seq_file,
    session_id: u64,
    seq_num: u64,
}

impl TaskIterator {
    /// The current task; null at the end.
    #[inline(always)]
    pub fn task(&self) -> Task {
        Task::from_argument(self.task)
    }

    /// Appends a value to the output. A full buffer ends the read; the next read begins with this task again.
    #[inline(always)]
    pub fn write<T: Copy>(&self, value: &T) {
        // SAFETY: `seq` is the iterator's own file; the verifier knows the types, and that the value is whole.
        unsafe { bpf_seq_write((*self.meta).seq, (&raw const *value).cast(), size_of::<T>() as u32) };
    }
}
