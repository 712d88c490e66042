//! The iterator `own_level`: finds how many pid namespaces lie around the daemon's own, which only the kernel can see.

use super::task_iterator::TaskIterator;
use crate::{namespace, task::Task};

/// `DEFINE_BPF_ITER_FUNC(task, struct bpf_iter_meta *meta, struct task_struct *task)`, since Linux 5.8. The daemon reads it once,
/// in a pid namespace only. It visits the threads of that namespace.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn own_level(_ctx: *mut TaskIterator) -> i32 {
    namespace::set_level(Task::current().pid().level());
    0
}
