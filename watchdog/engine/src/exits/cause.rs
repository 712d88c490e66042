//! The cause of an exit, from its status, the received signals and its memory.

use std::time::Duration;

use super::record::ExitedProcess;
use super::signal_note::SignalNote;
use watchdog_api::{Cause, HeapLimit, KernelReason, Relation};
use watchdog_classify::{Program, v8};
use watchdog_types::signals::{
    SIGABRT, SIGBUS, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP,
    SIGXCPU, SIGXFSZ,
};
use watchdog_types::{Bytes, ExitStatus};

/// Signals of the CPU's exceptions and of seccomp.
const FAULTS: [u8; 6] = [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS];
/// V8 aborts; builds with immediate crashes trap.
const V8_ABORT_SIGNALS: [u8; 3] = [SIGABRT, SIGILL, SIGTRAP];

/// An exit so soon after a terminating signal is its effect, with status 128 + signal or another one.
const EXIT_AFTER_SIGNAL: Duration = Duration::from_secs(30);
const OTHER_EXIT_AFTER_SIGNAL: Duration = Duration::from_secs(5);

/// RLIMIT_CPU counts whole seconds.
const MIN_CPU_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct ExitDiagnosis<'a> {
    pub(super) cause: Cause,
    /// The fatal signal.
    pub(super) signal: Option<&'a SignalNote>,
    pub(super) heap: Option<HeapLimit>,
}

pub(super) fn diagnose(dead: &ExitedProcess) -> ExitDiagnosis<'_> {
    match dead.status {
        None if dead.oom.is_some() => ExitDiagnosis { cause: Cause::Oom, signal: None, heap: None },
        None => ExitDiagnosis { cause: Cause::Unknown, signal: None, heap: None },
        Some(ExitStatus::Code(code)) => {
            let signal = exit_request(dead, code);
            let cause = match (signal, code) {
                (Some(_), _) => Cause::AskedToEnd,
                (None, 0) => Cause::Finished,
                (None, _) => Cause::Failed,
            };
            ExitDiagnosis { cause, signal, heap: None }
        }
        Some(ExitStatus::Signal(number)) => by_signal(dead, number),
    }
}

fn by_signal(dead: &ExitedProcess, number: u8) -> ExitDiagnosis<'_> {
    let signal = fatal_signal(dead, number);
    let relation = signal.map(|note| note.relation);
    let by_itself = matches!(relation, None | Some(Relation::Itself | Relation::Kernel));
    let heap = heap_limit_reached(dead).filter(|_| V8_ABORT_SIGNALS.contains(&number) && by_itself);
    let cause = match (number, relation) {
        (SIGKILL, _) if dead.oom.is_some() => Cause::Oom,
        _ if heap.is_some() => Cause::HeapLimit,
        (SIGABRT, None | Some(Relation::Itself)) => Cause::Aborted,
        // The kernel sends this one as if the process had, and the programs do not report it.
        (SIGXFSZ, None | Some(Relation::Itself)) => Cause::KernelSignal,
        (SIGPIPE, None | Some(Relation::Kernel)) => Cause::BrokenPipe,
        (number, None | Some(Relation::Kernel)) if FAULTS.contains(&number) => Cause::Fault,
        (SIGKILL, None) if dead.limits.as_deref().is_some_and(|limits| limits.strict_seccomp) => Cause::KernelSignal,
        (_, Some(Relation::Kernel)) => Cause::KernelSignal,
        (_, _) => Cause::Killed,
    };
    ExitDiagnosis { cause, signal, heap }
}

/// The fatal signal. The first SIGKILL is fatal; of other signals the last one.
fn fatal_signal(dead: &ExitedProcess, number: u8) -> Option<&SignalNote> {
    let mut same = dead.signals.iter().filter(|note| note.signal == number);
    if number == SIGKILL { same.next() } else { same.next_back() }
}

/// The terminating signal that this exit responds to.
fn exit_request(dead: &ExitedProcess, code: u8) -> Option<&SignalNote> {
    dead.signals.iter().rev().find(|note| {
        let asks = matches!(note.signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM) && note.delivered;
        let says_so = code.checked_sub(128) == Some(note.signal);
        let patience = if says_so { EXIT_AFTER_SIGNAL } else { OTHER_EXIT_AFTER_SIGNAL };
        asks && dead.at.since(note.at) <= patience
    })
}

/// The heap limit that a process of node or deno reached. The resident set is a little larger than the heap: code, stacks, the young
/// generation and buffers do not count towards the limit.
fn heap_limit_reached(dead: &ExitedProcess) -> Option<HeapLimit> {
    let program = Program::of(&dead.image);
    if !program.runs_on_v8() {
        return None;
    }
    let limits = dead.limits.as_deref();
    let known = limits.and_then(|limits| limits.v8_heap);
    let stated = known.is_some() && !limits.is_some_and(|limits| limits.v8_default);
    let default = || if program.runs_on_node() { v8::default_heap(None, dead.host.total) } else { None };
    let limit = known.or_else(default)?;
    let (least, most) = (limit.percent(85).0, limit.0.saturating_mul(3) / 2 + Bytes::from_mib(256).0);
    (least..=most).contains(&dead.peak.max(dead.last).0).then_some(HeapLimit { limit_bytes: limit.0, stated })
}

/// The hard limit of RLIMIT_CPU in seconds, as last read.
pub(super) fn cpu_limit(dead: &ExitedProcess) -> Option<u64> {
    dead.limits.as_deref()?.cpu_seconds
}

/// Why the kernel killed a process, as far as that was observed.
pub(super) fn kernel_reason(dead: &ExitedProcess, diagnosis: &ExitDiagnosis<'_>) -> Option<KernelReason> {
    if diagnosis.cause != Cause::KernelSignal || dead.status != Some(ExitStatus::Signal(SIGKILL)) {
        return None;
    }
    let Some(note) = diagnosis.signal else { return Some(KernelReason::Seccomp) };
    // At the soft limit SIGXCPU comes once a second, at the hard one SIGKILL.
    let warned = dead.signals.iter().any(|note| note.signal == SIGXCPU && note.relation == Relation::Kernel);
    // Where both are equal, as `ulimit -t` sets them, SIGKILL comes alone, in the process that runs.
    let limited = cpu_limit(dead).is_some_and(|_| note.sender == dead.id && dead.age() >= Some(MIN_CPU_LIMIT));
    let out_of_time = warned || limited;
    if note.by_namespace_end { Some(KernelReason::NamespaceEnd) } else { out_of_time.then_some(KernelReason::CpuLimit) }
}
