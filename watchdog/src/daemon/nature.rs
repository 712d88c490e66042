//! What the daemon makes of its own process before it starts.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whoever reports who was killed for want of memory must be among the last to be killed, yet not exempt.
const OOM_SCORE_ADJ: &str = "-900";

/// Launches that wait take two files each, and some tracked processes one.
const OPEN_FILES: u64 = 65_536;

/// Has freed memory go back to the kernel. By default glibc takes the largest block that was ever freed for the size of
/// block to hold on to, in an arena for each thread: what reading the kernel's types takes for a moment (some 15 MB) would
/// stay ours for good. Setting any of these switches that off.
#[cfg(target_env = "gnu")]
fn give_memory_back() {
    const LARGE: libc::c_int = 128 * 1024;
    for (parameter, value) in [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE)]
    {
        // SAFETY: mallopt takes two numbers, and may be called as long as no other thread runs, which is so before the
        // first runtime is built. What it refuses it leaves as it was.
        unsafe { libc::mallopt(parameter, value) };
    }
}

#[cfg(not(target_env = "gnu"))]
fn give_memory_back() {}

/// Returns free pages to the kernel, those below memory in use too: glibc itself returns only what is free at the end of the
/// heap. Costs a walk over the free blocks, during which other threads wait to allocate: about a millisecond for 16 MiB.
#[cfg(target_env = "gnu")]
pub(super) fn trim() {
    // SAFETY: malloc_trim takes a number, and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn trim() {}

/// Makes the process small, and hard to kill for want of memory, and lets it open as many files as it may: a descriptor is kept for
/// tracked processes and connections. Neither is indispensable.
pub(super) fn prepare() {
    give_memory_back();
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ) {
        tracing::info!("this process stays as likely as others to be killed for want of memory: {error}");
    }
    let limit = getrlimit(Resource::Nofile);
    let enough = Some(limit.maximum.map_or(OPEN_FILES, |maximum| maximum.max(OPEN_FILES)));
    if limit.maximum.is_some() && setrlimit(Resource::Nofile, Rlimit { current: enough, maximum: enough }).is_ok() {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::info!("the number of open files stays limited to {:?}: {error}", limit.current);
    }
}

/// How many files may be open.
pub(super) fn open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}
