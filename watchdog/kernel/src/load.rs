//! Loads the programs into the kernel and attaches them.

use std::path::Path;

use aya::EbpfLoader;
use aya::maps::{Array, RingBuf};
use watchdog_common::{ABSENT, FNV_OFFSET, LoadSettings, name_hash_step};
use zerocopy::IntoBytes;

use super::btf::Btf;
use super::denied_programs::DeniedFileTable;
use super::error::KernelError;
use super::features::load_programs;
use super::gated_sessions::GatedSessions;
use super::layout::Layout;
use super::logs::KernelLog;
use super::maps::{TrackingMaps, open};
use super::pin_paths;
use super::stream::EventRing;
use super::tracer::{Streams, Tracer};
use super::user_shares::UserShares;
use watchdog_config::Candidates;
use watchdog_host::namespaces::{PidNamespace, boottime_offset};
use watchdog_types::Bytes;

/// Built by `cargo xtask build-ebpf`.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../watchdog-ebpf/prebuilt/watchdog.bpf.o"));

#[derive(Clone, Debug)]
pub struct LoadOptions<'a> {
    /// Most processes tracked at once.
    pub max_processes: u32,
    /// Names of possible agents, matched at the exec of an untracked process.
    pub candidates: &'a Candidates,
    /// Close watch: the change of a process's memory between two events.
    pub memory_step: Bytes,
    /// Size of the ring for fork, exec and exit, in bytes: a power of two, and whole pages. Each page is mapped twice, and
    /// both count as this process's memory.
    pub lifecycle_ring: u32,
}

impl<'a> LoadOptions<'a> {
    /// The default sizes for this host's number of CPUs.
    #[must_use]
    pub fn new(max_processes: u32, candidates: &'a Candidates) -> Self {
        // Where the number is unknown, the smallest ring still works.
        let cpus = aya::util::online_cpus().map_or(1, |cpus| cpus.len());
        Self { max_processes, candidates, memory_step: Bytes::from_mib(4), lifecycle_ring: lifecycle_ring(cpus) }
    }
}

/// Room for 0.1 to 0.2 s of a flood: each CPU runs at most some 1,000 processes a second from fork to exit, 0.9 KiB of
/// records each, and there is one reader.
fn lifecycle_ring(cpus: usize) -> u32 {
    const EACH_CPU: u32 = 256 << 10;
    u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(EACH_CPU).clamp(512 << 10, 4 << 20).next_power_of_two()
}

/// The kernel drops the oldest entries 128 at a time, and each CPU may keep as many free ones.
fn root_deaths(cpus: usize) -> u32 {
    const EACH_CPU: u32 = 256;
    u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(EACH_CPU).clamp(1_024, 1 << 18)
}

/// Entries of the map of that name in a pid namespace: as many as zombies are known.
const FREED_AS: u32 = 4_096;

/// Where programs, links and maps are pinned.
#[derive(Clone, Copy)]
pub(super) enum Pinning<'a> {
    Nowhere,
    /// In this empty directory.
    New(&'a Path),
    /// In this directory, by an earlier daemon with the same [`LoadPlan`].
    Existing(&'a Path),
}

impl<'a> Pinning<'a> {
    fn directory(self) -> Option<&'a Path> {
        match self {
            Self::Nowhere => None,
            Self::New(dir) | Self::Existing(dir) => Some(dir),
        }
    }
}

/// Everything that programs and maps depend on.
pub(super) struct LoadPlan<'a> {
    options: &'a LoadOptions<'a>,
    layout: Layout,
    settings: LoadSettings,
    root_deaths: u32,
}

impl<'a> LoadPlan<'a> {
    pub(super) fn new(options: &'a LoadOptions<'a>) -> Result<Self, KernelError> {
        let layout = Layout::of(&Btf::of_running_kernel()?)?;
        let namespace = PidNamespace::own().ok_or(KernelError::ForeignProc)?;
        if !namespace.is_initial() && layout.offsets.task_thread_pid == ABSENT {
            return Err(KernelError::PidNamespace(namespace));
        }
        let settings = LoadSettings {
            memory_step_pages: step_pages(options.memory_step),
            max_processes: options.max_processes,
            pid_namespace: if namespace.is_initial() { 0 } else { namespace.inode() },
            reserved: 0,
            boottime_offset: boottime_offset(),
        };
        Ok(Self { options, layout, settings, root_deaths: root_deaths(aya::util::nr_cpus().unwrap_or(1)) })
    }

    /// A hash: two plans with the same one create the same programs and maps. Candidates are not part of it; their map is
    /// updated.
    pub(super) fn layout_hash(&self) -> u64 {
        let Self { options, layout, settings, root_deaths } = self;
        let LoadOptions { max_processes, candidates: _, memory_step: _, lifecycle_ring } = options;
        let sizes = [*max_processes, *lifecycle_ring, *root_deaths, KernelLog::RING_BYTES];
        let parts = [OBJECT, layout.offsets.as_bytes(), settings.as_bytes(), sizes.as_bytes()];
        parts.into_iter().flatten().fold(FNV_OFFSET, |hash, byte| name_hash_step(hash, *byte))
    }

    /// Loads everything, and attaches everything but close watch.
    pub(super) fn execute(&self, pinning: Pinning<'_>) -> Result<(Tracer, Streams), KernelError> {
        let Self { options, layout, settings, root_deaths } = self;
        let pinned_maps = match pinning {
            Pinning::Existing(dir) => pin_paths::pinned_maps(dir)?,
            Pinning::Nowhere | Pinning::New(_) => Vec::new(),
        };
        let in_namespace = settings.pid_namespace != 0;
        let mut ebpf = {
            let mut loader = EbpfLoader::new();
            // The loader reads all of the kernel's types to relocate C programs: 25 MB, and these programs need none.
            loader.btf(None);
            loader
                .override_global("OFFSETS", layout.offsets.as_bytes(), true)
                .override_global("SETTINGS", settings.as_bytes(), true)
                .map_max_entries("TRACKED", options.max_processes)
                .map_max_entries("ROOT_DEATHS", *root_deaths)
                .map_max_entries("FREED_AS", if in_namespace { FREED_AS } else { 1 })
                .map_max_entries("LIFECYCLE", options.lifecycle_ring)
                .map_max_entries("AYA_LOGS", KernelLog::RING_BYTES);
            for (name, path) in &pinned_maps {
                loader.map_pin_path(name, path);
            }
            loader.load(OBJECT)?
        };
        // The loader creates a map whose pin is missing, which the attached programs would not share.
        let is_pinned = |name: &str| pinned_maps.iter().any(|(pinned, _)| pinned == name);
        let maps = || ebpf.maps().filter(|(name, _)| !name.starts_with('.'));
        match pinning {
            Pinning::Nowhere => {}
            Pinning::New(dir) => {
                for (name, map) in maps() {
                    map.pin(dir.join(name)).map_err(|error| pin_paths::not_pinned(name, dir, &error))?;
                }
            }
            Pinning::Existing(dir) => {
                if !maps().all(|(name, _)| is_pinned(name)) {
                    return Err(KernelError::PinsIncomplete(dir.to_owned()));
                }
            }
        }
        let is_attached = |program: &str| match pinning {
            Pinning::Existing(dir) => pin_paths::link_path(dir, program).exists(),
            Pinning::Nowhere | Pinning::New(_) => false,
        };
        let features = load_programs(&mut ebpf, layout, in_namespace, is_attached)?;
        release_freed_memory();

        let maps = TrackingMaps::open(&mut ebpf)?;
        let streams = Streams {
            lifecycle: EventRing::new(
                open(&mut ebpf, "LIFECYCLE", RingBuf::try_from)?,
                open(&mut ebpf, "LIFECYCLE_QUIET", Array::try_from)?,
            ),
            memory: EventRing::new(
                open(&mut ebpf, "MEMORY", RingBuf::try_from)?,
                open(&mut ebpf, "MEMORY_QUIET", Array::try_from)?,
            ),
        };
        let sessions = GatedSessions::open(&mut ebpf)?;
        let denied = DeniedFileTable::open(&mut ebpf)?;
        let users = UserShares::open(&mut ebpf, options.max_processes)?;
        let log = KernelLog::open(&mut ebpf);
        let mut tracer = Tracer::new(ebpf, maps, features, sessions, denied, users, log);
        tracer.set_candidates(options.candidates)?;
        tracer.attach_all(layout.variants, pinning.directory())?;
        Ok((tracer, streams))
    }
}

impl Tracer {
    /// Loads all programs and attaches all but those of close watch.
    ///
    /// When the kernel refuses a program that tracking can do without (signals, the OOM killer, the sampler, close watch, limits of
    /// gated sessions), the feature is off and a warning logged: see [`Tracer::features`].
    ///
    /// # Errors
    /// When this kernel's types lack a required member, or it refuses a program on fork, exec, exit or free, as it does without
    /// root (or CAP_BPF and CAP_PERFMON). When /proc shows another pid namespace than that of this process.
    pub fn load(options: &LoadOptions<'_>) -> Result<(Self, Streams), KernelError> {
        LoadPlan::new(options)?.execute(Pinning::Nowhere)
    }
}

fn step_pages(step: Bytes) -> u32 {
    let pages = step.0 / rustix::param::page_size() as u64;
    u32::try_from(pages).unwrap_or(u32::MAX).max(1)
}

/// Returns the memory that reading the kernel's types took: glibc would keep 16 MB of it for the life of the daemon.
fn release_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim may be called at any time, by any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::unknown(0, 512 << 10)]
    #[case::small(2, 512 << 10)]
    #[case::odd(6, 2 << 20)]
    #[case::large(64, 4 << 20)]
    #[case::endless(usize::MAX, 4 << 20)]
    fn lifecycle_ring_scales_with_cpus(#[case] cpus: usize, #[case] bytes: u32) {
        assert_eq!(lifecycle_ring(cpus), bytes);
        assert!(bytes.is_power_of_two());
    }

    #[rstest::rstest]
    #[case::small(2, 1_024)]
    #[case::large(256, 65_536)]
    #[case::largest(usize::MAX, 1 << 18)]
    fn root_deaths_scale_with_cpus(#[case] cpus: usize, #[case] entries: u32) {
        assert_eq!(root_deaths(cpus), entries);
    }
}
