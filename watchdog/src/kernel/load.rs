//! Puts the programs into the kernel and attaches them.

use std::path::Path;

use aya::maps::{Array, HashMap, Map, MapError, PerCpuArray, RingBuf};
use aya::{Ebpf, EbpfLoader};
use watchdog_common::{ABSENT, FNV_OFFSET, Settings, name_hash_step};
use zerocopy::IntoBytes;

use super::btf::Btf;
use super::error::KernelError;
use super::gate::{self, Gate};
use super::layout::{Layout, Spares, Variants};
use super::logs::KernelLog;
use super::programs::{iterator_program, tracepoint_program};
use super::stream::EventRing;
use super::takeover::{self, Inherited};
use super::tracer::{Feature, Features, Maps, Streams, Tracer};
use super::users::Users;
use crate::config::Candidates;
use crate::engine::id::Bytes;
use crate::host::pins::{self, PinError, Pins};

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

/// The kernel drops the oldest entries 128 at a time, and each CPU may keep as many free ones for itself.
fn root_deaths(cpus: usize) -> u32 {
    const EACH_CPU: u32 = 256;
    u32::try_from(cpus).unwrap_or(u32::MAX).saturating_mul(EACH_CPU).clamp(1_024, 1 << 18)
}

/// Where programs, links and maps are pinned.
#[derive(Clone, Copy)]
enum Pinning<'a> {
    Nowhere,
    /// In this directory, which is empty.
    New(&'a Path),
    /// In this directory, by an earlier daemon with the same [`Plan`].
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
struct Plan<'a> {
    options: &'a LoadOptions<'a>,
    layout: Layout,
    settings: Settings,
    /// Entries of `ROOT_DEATHS`.
    root_deaths: u32,
}

impl<'a> Plan<'a> {
    fn new(options: &'a LoadOptions<'a>) -> Result<Self, KernelError> {
        let layout = Layout::of(&Btf::of_running_kernel()?)?;
        let settings =
            Settings { memory_step_pages: step_pages(options.memory_step), max_processes: options.max_processes };
        Ok(Self { options, layout, settings, root_deaths: root_deaths(aya::util::nr_cpus().unwrap_or(1)) })
    }

    /// Two plans of the same number make the same programs and maps. The maps of candidates are not part of it, since they are
    /// brought up to date.
    fn layout_number(&self) -> u64 {
        let Self { options, layout, settings, root_deaths } = self;
        let LoadOptions { max_processes, candidates: _, memory_step: _, lifecycle_ring } = options;
        let sizes = [*max_processes, *lifecycle_ring, *root_deaths, KernelLog::RING_BYTES];
        let parts = [OBJECT, layout.offsets.as_bytes(), settings.as_bytes(), sizes.as_bytes()];
        parts.into_iter().flatten().fold(FNV_OFFSET, |hash, byte| name_hash_step(hash, *byte))
    }

    /// Loads and attaches everything but close watch.
    fn carry_out(&self, pinning: Pinning<'_>) -> Result<(Tracer, Streams), KernelError> {
        let Self { options, layout, settings, root_deaths } = self;
        let pinned_maps = match pinning {
            Pinning::Existing(dir) => takeover::pinned_maps(dir)?,
            Pinning::Nowhere | Pinning::New(_) => Vec::new(),
        };
        let mut ebpf = {
            let mut loader = EbpfLoader::new();
            // The loader has read all types to relocate C programs; ours need none, and reading them holds 25 MB.
            loader.btf(None);
            loader
                .override_global("OFFSETS", layout.offsets.as_bytes(), true)
                .override_global("SETTINGS", settings.as_bytes(), true)
                .map_max_entries("TRACKED", options.max_processes)
                .map_max_entries("ROOT_DEATHS", *root_deaths)
                .map_max_entries("LIFECYCLE", options.lifecycle_ring)
                .map_max_entries("AYA_LOGS", KernelLog::RING_BYTES);
            for (name, path) in &pinned_maps {
                loader.map_pin_path(name, path);
            }
            loader.load(OBJECT)?
        };
        // The loader makes a map that is not pinned, and then the programs that run would not share it.
        let is_pinned = |name: &str| pinned_maps.iter().any(|(pinned, _)| pinned == name);
        let maps = || ebpf.maps().filter(|(name, _)| !name.starts_with('.'));
        match pinning {
            Pinning::Nowhere => {}
            Pinning::New(dir) => {
                for (name, map) in maps() {
                    map.pin(dir.join(name)).map_err(|error| takeover::not_pinned(name, dir, &error))?;
                }
            }
            Pinning::Existing(dir) => {
                if !maps().all(|(name, _)| is_pinned(name)) {
                    return Err(KernelError::PinsIncomplete(dir.to_owned()));
                }
            }
        }
        let is_attached = |program: &str| match pinning {
            Pinning::Existing(dir) => takeover::link_path(dir, program).exists(),
            Pinning::Nowhere | Pinning::New(_) => false,
        };
        let features = load_programs(&mut ebpf, layout, is_attached)?;
        release_freed_memory();

        let maps = Maps {
            tracked: open(&mut ebpf, "TRACKED", HashMap::try_from)?,
            candidates: open(&mut ebpf, "CANDIDATES", HashMap::try_from)?,
            every_exec: open(&mut ebpf, "TRACK_EVERY_EXEC", Array::try_from)?,
            dead: open(&mut ebpf, "DEAD", HashMap::try_from)?,
            lost: open(&mut ebpf, "LOST", PerCpuArray::try_from)?,
            reader: open(&mut ebpf, "READER", Array::try_from)?,
            alive_at: open(&mut ebpf, "ALIVE_AT", Array::try_from)?,
            root_deaths: open(&mut ebpf, "ROOT_DEATHS", HashMap::try_from)?,
            deaths: open(&mut ebpf, "DEATHS", HashMap::try_from)?,
            death_count: open(&mut ebpf, "DEATH_COUNT", PerCpuArray::try_from)?,
        };
        let streams = Streams {
            lifecycle: EventRing::new(open(&mut ebpf, "LIFECYCLE", RingBuf::try_from)?),
            memory: EventRing::new(open(&mut ebpf, "MEMORY", RingBuf::try_from)?),
        };
        let gate = Gate::open(&mut ebpf)?;
        let users = Users::open(&mut ebpf, options.max_processes)?;
        let log = KernelLog::open(&mut ebpf);
        let mut tracer = Tracer::new(ebpf, maps, features, gate, users, log);
        tracer.set_candidates(options.candidates)?;
        tracer.attach_all(layout.variants, pinning.directory())?;
        Ok((tracer, streams))
    }
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
        Plan::new(options)?.carry_out(Pinning::Nowhere)
    }

    /// The same with pins: what runs goes on when this process ends, and what an earlier one left running is used, or, where it
    /// was built or sized in another way, replaced. At no moment is a fork not seen.
    ///
    /// What cannot be pinned is loaded all the same: see [`Inherited::pins`].
    ///
    /// # Errors
    /// As [`Tracer::load`].
    pub fn load_pinned(
        options: &LoadOptions<'_>,
        pins: Result<Pins, PinError>,
    ) -> Result<(Self, Streams, Inherited), KernelError> {
        let plan = Plan::new(options)?;
        let pins = match pins {
            Ok(pins) => pins,
            Err(error) => return Self::load_unpinned(&plan, &error),
        };
        let layout = plan.layout_number();
        let complete = pins.complete(layout);
        if complete.is_dir() {
            let taken = plan.carry_out(Pinning::Existing(&complete)).and_then(|(mut tracer, streams)| {
                let inherited = tracer.take_over(&complete)?;
                Ok((tracer, streams, inherited))
            });
            match taken {
                Ok((mut tracer, streams, mut inherited)) => {
                    tracer.import_others(&pins, &complete, &mut inherited);
                    tracer.pins = Some(pins);
                    return Ok((tracer, streams, inherited));
                }
                Err(error) => {
                    tracing::warn!("what an earlier daemon pinned cannot be used as it is, only imported: {error}");
                    if let Err(error) = pins.set_aside(&complete) {
                        return Self::load_unpinned(&plan, &error);
                    }
                }
            }
        }
        let (mut tracer, streams, mut inherited) = match Self::pin_anew(&plan, &pins, layout) {
            Ok((tracer, streams)) => {
                (tracer, streams, Inherited { pins: Ok(complete.clone()), ..Inherited::default() })
            }
            Err(KernelError::Pin(error)) => Self::load_unpinned(&plan, &error)?,
            Err(error) => return Err(error),
        };
        tracer.import_others(&pins, &complete, &mut inherited);
        tracer.pins = Some(pins);
        Ok((tracer, streams, inherited))
    }

    fn load_unpinned(plan: &Plan<'_>, why: &PinError) -> Result<(Self, Streams, Inherited), KernelError> {
        let (tracer, streams) = plan.carry_out(Pinning::Nowhere)?;
        Ok((tracer, streams, Inherited::nothing(why.to_string())))
    }

    fn pin_anew(plan: &Plan<'_>, pins: &Pins, layout: u64) -> Result<(Self, Streams), KernelError> {
        let unfinished = pins.begin(layout)?;
        let loaded = plan.carry_out(Pinning::New(&unfinished));
        let finished = loaded.and_then(|loaded| {
            pins.finish(&unfinished, layout)?;
            Ok(loaded)
        });
        if finished.is_err()
            && let Err(error) = pins::remove(&unfinished)
        {
            tracing::warn!("{error}");
        }
        finished
    }
}

/// The programs without which the table of processes may be wrong; those that stand in for each other are one group.
pub(super) fn lifecycle_programs(variants: Variants) -> [[Option<&'static str>; 2]; 4] {
    let Variants { exit, victim: _, spares } = variants;
    [
        [Some("fork"), spares.map(|spares| spares.fork)],
        [exit, spares.map(|spares| spares.exit)],
        [Some("exec"), None],
        [Some("free"), None],
    ]
}

/// The programs without which the cause of a death may not be known. (The kernel skips no LSM program.)
pub(super) fn cause_programs(variants: Variants) -> [[Option<&'static str>; 2]; 2] {
    [[Some("signal"), None], [variants.victim, None]]
}

/// Loads every program that this kernel has a place for; what may be missing becomes a feature that is off.
/// One that is attached already is not loaded once more.
fn load_programs(
    ebpf: &mut Ebpf,
    layout: &Layout,
    is_attached: impl Fn(&str) -> bool,
) -> Result<Features, KernelError> {
    let btf = aya::Btf::from_sys_fs()?;
    let exit = layout.variants.exit.ok_or(KernelError::UnknownForm("sched_process_exit"))?;
    for (program, tracepoint) in [
        ("fork", "sched_process_fork"),
        ("exec", "sched_process_exec"),
        (exit, "sched_process_exit"),
        ("free", "sched_process_free"),
    ] {
        if !is_attached(program) {
            load_tracepoint(ebpf, program, tracepoint, &btf)?;
        }
    }
    if let Some(Spares { fork, exit }) = layout.variants.spares {
        for (program, tracepoint) in [(fork, "sched_process_fork"), (exit, "sched_process_exit")] {
            if !is_attached(program) {
                load_tracepoint(ebpf, program, tracepoint, &btf)?;
            }
        }
    }
    let mut optional = |programs: &[(&str, &str)]| -> Feature {
        programs
            .iter()
            .filter(|(program, _)| !is_attached(program))
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
    let files = if layout.offsets.bprm_file == ABSENT {
        Err("its types do not tell which file is executed: denied agents are known by the path alone".to_owned())
    } else {
        Ok(())
    };
    Ok(Features { signals, oom, close_watch, sampler, counting, files, lsm })
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

    #[rstest::rstest]
    #[case::small(2, 1_024)]
    #[case::large(256, 65_536)]
    #[case::largest(usize::MAX, 1 << 18)]
    fn root_deaths_scale_with_cpus(#[case] cpus: usize, #[case] entries: u32) {
        assert_eq!(root_deaths(cpus), entries);
    }
}
