//! Puts the programs into the kernel and attaches them.

use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, HashMap, Map, MapError, PerCpuArray, RingBuf};
use aya::{Ebpf, EbpfLoader};
use watchdog_common::{ABSENT, Settings};
use zerocopy::IntoBytes;

use super::btf::Btf;
use super::error::KernelError;
use super::gate::{self, Gate};
use super::layout::{Layout, Variants};
use super::logs::KernelLog;
use super::programs::{iterator_program, tracepoint_program};
use super::stats::Misses;
use super::stream::EventRing;
use super::tracer::{Feature, Features, Maps, Streams, Tracer};
use super::users::Users;
use crate::config::Candidates;
use crate::engine::id::Bytes;

/// The programs, as `cargo xtask build-ebpf` made them.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../watchdog-ebpf/prebuilt/watchdog.bpf.o"));

/// What is decided at load time.
#[derive(Clone, Debug)]
pub struct LoadOptions<'a> {
    /// How many processes can be tracked at once.
    pub max_processes: u32,
    /// What to look out for at the exec of an untracked process.
    pub candidates: &'a Candidates,
    /// Close watch: how far memory moves between two events.
    pub memory_step: Bytes,
    /// Size of the ring for fork, exec and exit, in bytes: a power of two, and whole pages. Each page is mapped twice, and
    /// both count as this process's memory.
    pub lifecycle_ring: u32,
}

impl<'a> LoadOptions<'a> {
    /// The usual sizes, on a host with as many CPUs as this one.
    #[must_use]
    pub fn new(max_processes: u32, candidates: &'a Candidates) -> Self {
        // Where nobody says how many there are, the smallest ring still works.
        let cpus = aya::util::online_cpus().map_or(1, |cpus| cpus.len());
        Self { max_processes, candidates, memory_step: Bytes::from_mib(4), lifecycle_ring: lifecycle_ring(cpus) }
    }
}

/// Room for 0.1 to 0.2 s of a flood: each CPU forks, executes and ends some 1,000 processes a second at most, 0.9 KiB of records
/// each, while the reader is one.
fn lifecycle_ring(cpus: usize) -> u32 {
    const EACH_CPU: u32 = 256 << 10;
    u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(EACH_CPU).clamp(512 << 10, 4 << 20).next_power_of_two()
}

impl Tracer {
    /// Loads all programs and attaches all but those of close watch.
    ///
    /// A program without which processes can still be followed (signals, the OOM killer, the sampler, close watch, what holds
    /// gated sessions to their bounds) is left out aloud when the kernel refuses it: see [`Tracer::features`].
    ///
    /// # Errors
    /// When this kernel's types lack something, or a program on fork, exec, exit or free is refused. Without root (or
    /// CAP_BPF and CAP_PERFMON) it always is.
    pub fn load(options: &LoadOptions<'_>) -> Result<(Self, Streams), KernelError> {
        let layout = Layout::of(&Btf::of_running_kernel()?)?;
        let settings =
            Settings { memory_step_pages: step_pages(options.memory_step), max_processes: options.max_processes };
        let mut ebpf = {
            let mut loader = EbpfLoader::new();
            // The loader has read all types to relocate C programs; ours need none, and reading them holds 25 MB.
            loader.btf(None);
            loader
                .override_global("OFFSETS", layout.offsets.as_bytes(), true)
                .override_global("SETTINGS", settings.as_bytes(), true)
                .map_max_entries("TRACKED", options.max_processes)
                .map_max_entries("LIFECYCLE", options.lifecycle_ring)
                .map_max_entries("AYA_LOGS", KernelLog::RING_BYTES)
                .load(OBJECT)?
        };
        let features = load_programs(&mut ebpf, &layout)?;
        release_freed_memory();

        let maps = Maps {
            tracked: open(&mut ebpf, "TRACKED", HashMap::try_from)?,
            candidates: open(&mut ebpf, "CANDIDATES", HashMap::try_from)?,
            every_exec: open(&mut ebpf, "TRACK_EVERY_EXEC", Array::try_from)?,
            dead: open(&mut ebpf, "DEAD", HashMap::try_from)?,
            lost: open(&mut ebpf, "LOST", PerCpuArray::try_from)?,
        };
        let streams = Streams {
            lifecycle: EventRing::new(open(&mut ebpf, "LIFECYCLE", RingBuf::try_from)?),
            memory: EventRing::new(open(&mut ebpf, "MEMORY", RingBuf::try_from)?),
        };
        let gate = Gate::open(&mut ebpf)?;
        let users = Users::open(&mut ebpf, options.max_processes)?;
        let misses = Misses::of(lifecycle_programs(&ebpf, layout.variants));
        let log = KernelLog::open(&mut ebpf);
        let mut tracer = Self::new(ebpf, maps, features, gate, users, misses, log);
        tracer.set_candidates(options.candidates)?;
        tracer.attach_all(layout.variants)?;
        Ok((tracer, streams))
    }
}

/// The programs without which the table of processes, or a bound of the gate, may be wrong.
fn lifecycle_programs(ebpf: &Ebpf, variants: Variants) -> impl Iterator<Item = BorrowedFd<'_>> {
    let Variants { exit, victim } = variants;
    let names =
        [Some("fork"), Some("exec"), exit, Some("free"), Some("signal"), victim, Some("task_alloc"), Some("deny_exec")];
    let programs = names.into_iter().flatten().filter_map(|name| ebpf.program(name));
    programs.filter_map(|program| Some(program.fd().ok()?.as_fd()))
}

/// Loads every program that this kernel has a place for; what may be missing becomes a feature that is off.
fn load_programs(ebpf: &mut Ebpf, layout: &Layout) -> Result<Features, KernelError> {
    let btf = aya::Btf::from_sys_fs()?;
    let exit = layout.variants.exit.ok_or(KernelError::UnknownForm("sched_process_exit"))?;
    for (program, tracepoint) in [
        ("fork", "sched_process_fork"),
        ("exec", "sched_process_exec"),
        (exit, "sched_process_exit"),
        ("free", "sched_process_free"),
    ] {
        load_tracepoint(ebpf, program, tracepoint, &btf)?;
    }
    let mut optional = |programs: &[(&str, &str)]| -> Feature {
        programs
            .iter()
            .try_for_each(|(program, tracepoint)| load_tracepoint(ebpf, program, tracepoint, &btf))
            .map_err(|error| reason(&error))
    };
    let signals = optional(&[("signal", "signal_generate")]);
    let oom = match layout.variants.victim {
        Some(program) => optional(&[(program, "mark_victim")]),
        None => Err(KernelError::UnknownForm("mark_victim").to_string()),
    };
    let close_watch = if layout.offsets.mm_owner == ABSENT {
        Err("this kernel does not tell whose an address space is (no CONFIG_MEMCG)".to_owned())
    } else {
        optional(&[
            ("rss_stat", "rss_stat"),
            ("reclaim_begin", "mm_vmscan_direct_reclaim_begin"),
            ("reclaim_end", "mm_vmscan_direct_reclaim_end"),
        ])
    };
    let [sampler, counting] =
        ["sample", "recount"].map(|program| load_iterator(ebpf, program, &btf).map_err(|error| reason(&error)));
    let lsm = gate::try_lsm(ebpf, &btf).map_err(|error| reason(&error));
    Ok(Features { signals, oom, close_watch, sampler, counting, lsm })
}

/// Why a feature is off. A program that was refused before the verifier saw it has no output of that.
fn reason(error: &KernelError) -> String {
    let text = error.to_string();
    text.trim_end()
        .strip_suffix("Verifier output:")
        .map_or(text.as_str(), |text| text.trim_end_matches(['.', ' ']))
        .to_owned()
}

fn load_tracepoint(ebpf: &mut Ebpf, program: &str, tracepoint: &str, btf: &aya::Btf) -> Result<(), KernelError> {
    tracepoint_program(ebpf, program)?
        .load(tracepoint, btf)
        .map_err(|source| KernelError::program(program, "load", source))
}

fn load_iterator(ebpf: &mut Ebpf, program: &str, btf: &aya::Btf) -> Result<(), KernelError> {
    iterator_program(ebpf, program)?.load("task", btf).map_err(|source| KernelError::program(program, "load", source))
}

pub(super) fn open<T>(
    ebpf: &mut Ebpf,
    name: &'static str,
    of: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, KernelError> {
    let map = ebpf.take_map(name).ok_or(KernelError::Missing(name))?;
    of(map).map_err(|source| KernelError::Map { map: name, doing: "open", source })
}

fn step_pages(step: Bytes) -> u32 {
    let pages = step.0 / rustix::param::page_size() as u64;
    u32::try_from(pages).unwrap_or(u32::MAX).max(1)
}

/// Gives back what reading the kernel's types took: glibc would keep 16 MB of it for the life of the daemon.
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
    #[case::nobody_knows(0, 512 << 10)]
    #[case::small(2, 512 << 10)]
    #[case::odd(6, 2 << 20)]
    #[case::large(64, 4 << 20)]
    #[case::endless(usize::MAX, 4 << 20)]
    fn the_ring_is_as_large_as_the_host(#[case] cpus: usize, #[case] bytes: u32) {
        assert_eq!(lifecycle_ring(cpus), bytes);
        assert!(bytes.is_power_of_two());
    }
}
