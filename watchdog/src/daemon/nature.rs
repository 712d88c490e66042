//! What the daemon makes of its own process before it starts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whoever reports who was killed for want of memory must be among the last to be killed, yet not exempt.
const OOM_SCORE_ADJ: &str = "-900";

/// Keeps memory small, makes the process hard to kill for want of memory, and lets it open as many files as it may: a descriptor is kept for
/// tracked processes and connections. Neither is indispensable.
pub(super) fn prepare() {
    share_one_heap();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ) {
        tracing::info!("this process stays as likely as others to be killed for want of memory: {error}");
    }
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::info!("the number of open files stays limited to {:?}: {error}", limit.current);
    }
}

/// Has all threads allocate from one heap. glibc would give each its own, and returns to the kernel only what is free at
/// the end of the first: what the thread `tracer` takes to read the kernel's types, 15 MiB, would stay for ever. Threads
/// that allocate little do not get into each other's way.
fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: called before there is a second thread; it sets numbers inside the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
