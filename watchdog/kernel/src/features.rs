//! Features of the running kernel beyond tracking, found by loading the programs.

use aya::Ebpf;
use watchdog_common::ABSENT;

use super::error::KernelError;
use super::layout::{Layout, Spares};
use super::lsm;
use super::programs::{iterator_program, read_iterator, tracepoint_program, while_interrupted};

/// On, or the reason why not.
pub type Feature = Result<(), String>;

/// Features of this kernel beyond tracking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Senders of signals.
    pub signals: Feature,
    /// Choices of the OOM killer.
    pub oom: Feature,
    /// Memory events.
    pub close_watch: Feature,
    /// Reading the memory of all tracked processes at once.
    pub sampler: Feature,
    /// Counting the processes of gated sessions.
    pub counting: Feature,
    /// Identifying an executed file by more than its path.
    pub files: Feature,
    /// Refusing a fork or an exec: the kernel loads LSM programs and calls them.
    pub lsm: Feature,
}

/// Loads every program that this kernel has a hook for. A refused program turns its feature off, unless tracking requires it.
/// A program that is attached already is not loaded again. `in_namespace`: not the initial pid namespace.
pub(super) fn load_programs(
    ebpf: &mut Ebpf,
    layout: &Layout,
    in_namespace: bool,
    is_attached: impl Fn(&str) -> bool,
) -> Result<Features, KernelError> {
    let btf = aya::Btf::from_sys_fs()?;
    if in_namespace {
        load_iterator(ebpf, "own_level", &btf)?;
        std::io::copy(&mut read_iterator(ebpf, "own_level")?, &mut std::io::sink())
            .map_err(|error| KernelError::Iterator("own_level", error))?;
        iterator_program(ebpf, "own_level")?
            .unload()
            .map_err(|source| KernelError::program("own_level", "unload", source))?;
    }
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
        Some("victim_pid") if in_namespace => {
            Err("this kernel (before Linux 6.10) reports a victim by a pid that is not of this pid namespace"
                .to_owned())
        }
        Some(program) => optional(&[(program, "mark_victim")]),
        None => Err(KernelError::UnknownForm("mark_victim").to_string()),
    };
    let close_watch = if layout.offsets.mm_owner == ABSENT {
        Err("the kernel does not record the owner of an address space (no CONFIG_MEMCG)".to_owned())
    } else {
        optional(&[
            ("rss_stat", "rss_stat"),
            ("reclaim_begin", "mm_vmscan_direct_reclaim_begin"),
            ("reclaim_end", "mm_vmscan_direct_reclaim_end"),
        ])
    };
    let [sampler, counting] =
        ["sample", "recount"].map(|program| load_iterator(ebpf, program, &btf).map_err(|error| reason(&error)));
    let lsm = lsm::load(ebpf, &btf).map_err(|error| reason(&error));
    let files = if layout.offsets.bprm_file == ABSENT {
        Err("the kernel's types do not identify the executed file: denied agents are matched by path only".to_owned())
    } else {
        Ok(())
    };
    Ok(Features { signals, oom, close_watch, sampler, counting, files, lsm })
}

/// Why a feature is off, without an empty verifier log.
fn reason(error: &KernelError) -> String {
    let text = error.to_string();
    text.trim_end()
        .strip_suffix("Verifier output:")
        .map_or(text.as_str(), |text| text.trim_end_matches(['.', ' ']))
        .to_owned()
}

fn load_tracepoint(ebpf: &mut Ebpf, program: &str, tracepoint: &str, btf: &aya::Btf) -> Result<(), KernelError> {
    let tracepoint_program = tracepoint_program(ebpf, program)?;
    while_interrupted(|| tracepoint_program.load(tracepoint, btf))
        .map_err(|source| KernelError::program(program, "load", source))
}

fn load_iterator(ebpf: &mut Ebpf, program: &str, btf: &aya::Btf) -> Result<(), KernelError> {
    let iterator = iterator_program(ebpf, program)?;
    while_interrupted(|| iterator.load("task", btf)).map_err(|source| KernelError::program(program, "load", source))
}
