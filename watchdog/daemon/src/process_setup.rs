//! Prepares the daemon's own process: OOM score, open files, malloc.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The daemon reports OOM kills, so it must be among the last victims, but not exempt.
const OOM_SCORE_ADJ: &str = "-900";

/// A waiting launch takes two descriptors, some tracked processes one.
const OPEN_FILES: u64 = 65_536;

/// Makes glibc return freed memory to the kernel. By default its threshold rises to the largest block that was ever freed,
/// with an arena for each thread: the 15 MB that parsing BTF takes for a moment would never be returned. Setting any of
/// these parameters switches that off.
#[cfg(target_env = "gnu")]
fn tune_malloc() {
    const LARGE: libc::c_int = 128 * 1024;
    for (parameter, value) in [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE)]
    {
        // SAFETY: mallopt takes two numbers, and may be called while no other thread runs, which holds before the first
        // runtime is built. It ignores invalid values.
        unsafe { libc::mallopt(parameter, value) };
    }
}

#[cfg(not(target_env = "gnu"))]
fn tune_malloc() {}

/// Returns free pages to the kernel, also those below memory in use; glibc itself returns only the end of the heap. Walks
/// the free blocks while other threads wait to allocate: about a millisecond for 16 MiB.
#[cfg(target_env = "gnu")]
pub(super) fn trim() {
    // SAFETY: malloc_trim takes a number, and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
pub(super) fn trim() {}

/// Lowers the memory use and the OOM score of the process, raises its limit of open files, and survives that of file sizes.
/// None of it is essential.
pub(super) fn apply_process_limits() {
    tune_malloc();
    // A write beyond RLIMIT_FSIZE then fails, as on a full disk. By default the signal would end the daemon.
    // SAFETY: no handler is installed, and no other thread runs.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ) {
        tracing::info!("cannot lower oom_score_adj: {error}");
    }
    let limit = getrlimit(Resource::Nofile);
    let enough = Some(limit.maximum.map_or(OPEN_FILES, |maximum| maximum.max(OPEN_FILES)));
    if limit.maximum.is_some() && setrlimit(Resource::Nofile, Rlimit { current: enough, maximum: enough }).is_ok() {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::info!("cannot raise the limit of open files above {:?}: {error}", limit.current);
    }
}

/// The limit of open files.
pub(super) fn open_files() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}
