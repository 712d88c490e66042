//! Decodes the bytes of a record into an event. Pure; any bytes are safe.

use std::sync::LazyLock;
use std::time::Duration;

use watchdog_common as raw;
use watchdog_common::{
    ARGV_MAX, ExecDeniedRecord, ExecRecord, ExitRecord, ForkDeniedRecord, ForkRecord, MemoryStepRecord, PATH_MAX,
    ReclaimRecord, RecordHeader, RecordKind, SignalFlags, SignalRecord, VictimRecord,
};
use zerocopy::FromBytes;

use watchdog_types::{
    Attempt, BootTime, Bytes, Denied, Exec, Exit, ExitStatus, Fork, Image, KernelEvent, Lineage, Memory, MissedExit,
    Oom, Pid, ProcessId, Reclaim, Sample, Signal, Uid, text,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("a record of {0} bytes is shorter than its header")]
    NoHeader(usize),
    #[error("unknown kind of record: {0}")]
    UnknownKind(u32),
    #[error("a {kind:?} record of {len} bytes is too short")]
    TooShort { kind: RecordKind, len: usize },
    /// Lengths of path or argv beyond the record, or beyond their maximum.
    #[error("an exec record states {path} bytes of path and {argv} of argv, but has {len} bytes of text")]
    BadText {
        /// The stated length of the path.
        path: u16,
        /// The stated length of argv.
        argv: u16,
        /// The bytes that follow the fixed part.
        len: usize,
    },
}

/// Decodes one record.
///
/// # Errors
/// When the bytes are no valid record: the kernel programs are of another version.
pub fn decode(bytes: &[u8]) -> Result<KernelEvent, DecodeError> {
    let (header, _) = RecordHeader::read_from_prefix(bytes).map_err(|_| DecodeError::NoHeader(bytes.len()))?;
    let kind = RecordKind::from_raw(header.kind).ok_or(DecodeError::UnknownKind(header.kind))?;
    Ok(match kind {
        RecordKind::Fork => KernelEvent::Fork(fork(&record(kind, bytes)?.0)),
        RecordKind::Exec => {
            let (exec_record, text) = record(kind, bytes)?;
            KernelEvent::Exec(exec(&exec_record, text)?)
        }
        RecordKind::Exit => KernelEvent::Exit(exit(&record(kind, bytes)?.0)),
        RecordKind::Oom => KernelEvent::Oom(oom(&record(kind, bytes)?.0)),
        RecordKind::Signal => KernelEvent::Signal(signal(&record(kind, bytes)?.0)),
        RecordKind::MemoryStep => KernelEvent::MemoryStep(memory_step(&record(kind, bytes)?.0)),
        RecordKind::Reclaim => KernelEvent::Reclaim(reclaim(&record(kind, bytes)?.0)),
        RecordKind::ForkDenied => KernelEvent::Denied(fork_denied(&record(kind, bytes)?.0)),
        RecordKind::ExecDenied => KernelEvent::Denied(exec_denied(&record(kind, bytes)?.0)),
    })
}

#[must_use]
pub fn missed_exit(death: &raw::DeathRecord) -> MissedExit {
    MissedExit {
        exit: exit(&death.exit),
        lineage: lineage(&death.lineage),
        uid: Uid(death.exit.header.uid),
        comm: text(&death.exit.comm),
    }
}

#[must_use]
pub fn lineage(lineage: &raw::RawLineage) -> Lineage {
    let flag = |bit| lineage.flags & bit != 0;
    Lineage {
        root: ProcessId::from_kernel(lineage.root, lineage.root_start),
        parent: (lineage.parent != 0).then(|| ProcessId::from_kernel(lineage.parent, lineage.parent_start)),
        depth: lineage.depth,
        provisional: flag(raw::LineageFlags::PROVISIONAL),
        forked: flag(raw::LineageFlags::FORKED),
        witness: flag(raw::LineageFlags::WITNESS),
    }
}

fn record<T: FromBytes>(kind: RecordKind, bytes: &[u8]) -> Result<(T, &[u8]), DecodeError> {
    T::read_from_prefix(bytes).map_err(|_| DecodeError::TooShort { kind, len: bytes.len() })
}

fn fork(record: &ForkRecord) -> Fork {
    Fork {
        at: BootTime(record.header.at),
        process: process(&record.header),
        lineage: lineage(&record.lineage),
        uid: Uid(record.header.uid),
        comm: text(&record.comm),
    }
}

fn exec(record: &ExecRecord, rest: &[u8]) -> Result<Exec, DecodeError> {
    let bad = || DecodeError::BadText { path: record.path_len, argv: record.argv_len, len: rest.len() };
    let (path_len, argv_len) = (usize::from(record.path_len), usize::from(record.argv_len));
    if path_len > PATH_MAX || argv_len > ARGV_MAX {
        return Err(bad());
    }
    let (path, rest) = rest.split_at_checked(path_len).ok_or_else(bad)?;
    let argv = rest.get(..argv_len).ok_or_else(bad)?;
    Ok(Exec {
        at: BootTime(record.header.at),
        process: process(&record.header),
        lineage: lineage(&record.lineage),
        uid: Uid(record.header.uid),
        ppid: Pid(record.ppid),
        comm: text(&record.comm),
        image: Image {
            path: text(path),
            argv: arguments(argv),
            truncated: record.argv_total as usize > argv_len || path_len == PATH_MAX - 1,
            script: None,
        },
    })
}

fn exit(record: &ExitRecord) -> Exit {
    let peak = if record.hiwater_rss > 0 {
        Some(record.hiwater_rss)
    } else {
        // `maxrss` covers every program that the process ran. Unless it exceeds that of the last exec, the last program's peak is
        // unknown.
        (record.maxrss > record.inherited_peak).then_some(record.maxrss)
    };
    Exit {
        at: BootTime(record.header.at),
        process: process(&record.header),
        status: Some(status(record.status)),
        peak: peak.map(pages),
    }
}

/// A wait status (wait(2)): the lower seven bits are the signal; if they are 0, the next eight are the exit code.
fn status(status: u32) -> ExitStatus {
    match (status & 0x7f) as u8 {
        0 => ExitStatus::Code((status >> 8) as u8),
        signal => ExitStatus::Signal(signal),
    }
}

fn oom(record: &VictimRecord) -> Oom {
    Oom {
        at: BootTime(record.header.at),
        pid: Pid(record.header.tgid),
        process: (record.header.start != 0).then(|| process(&record.header)),
        comm: text(&record.comm),
        trigger: Pid(record.trigger),
        uid: (record.header.start != 0).then_some(Uid(record.header.uid)),
    }
}

fn signal(record: &SignalRecord) -> Signal {
    Signal {
        at: BootTime(record.header.at),
        process: process(&record.header),
        signal: u8::try_from(record.signal).unwrap_or(u8::MAX),
        code: record.code,
        delivered: record.result == 0,
        sender: ProcessId::from_kernel(record.sender, record.sender_start),
        sender_comm: text(&record.sender_comm),
        sender_uid: Uid(record.sender_uid),
        sender_thread_exits: record.flags & SignalFlags::SENDER_THREAD_EXITS != 0,
    }
}

fn memory_step(record: &MemoryStepRecord) -> Sample {
    Sample {
        at: BootTime(record.header.at),
        process: process(&record.header),
        memory: memory(record.pages, 0),
        ppid: None,
        zombie: false,
        tty: None,
        comm: None,
    }
}

fn reclaim(record: &ReclaimRecord) -> Reclaim {
    Reclaim {
        at: BootTime(record.header.at),
        process: process(&record.header),
        stalled: Duration::from_nanos(record.stalled),
        reclaimed: pages(record.reclaimed),
    }
}

fn fork_denied(record: &ForkDeniedRecord) -> Denied {
    let ForkDeniedRecord { header, root_start, refused, root, live, limit, reserved: _, comm } = *record;
    let root = ProcessId::from_kernel(root, root_start);
    denied(&header, &comm, Attempt::Fork { root, live, bound: limit, refused })
}

fn exec_denied(record: &ExecDeniedRecord) -> Denied {
    let ExecDeniedRecord { header, ppid, killed, comm, path } = record;
    denied(header, comm, Attempt::Exec { ppid: Pid(*ppid), path: text(path), killed: *killed != 0 })
}

fn denied(header: &RecordHeader, comm: &[u8], what: Attempt) -> Denied {
    Denied { at: BootTime(header.at), process: process(header), uid: Uid(header.uid), comm: text(comm), what }
}

fn process(header: &RecordHeader) -> ProcessId {
    ProcessId::from_kernel(header.tgid, header.start)
}

/// The kernel's counters lag behind by some pages: a small negative one means zero.
fn memory(counters: [i64; 4], peak: u64) -> Memory {
    let [file, anon, swap, shmem] = counters.map(|count| pages(u64::try_from(count).unwrap_or(0)));
    Memory { anon, file, shmem, swap, peak: pages(peak), proportional: None }
}

fn pages(count: u64) -> Bytes {
    static PAGE_SIZE: LazyLock<u64> = LazyLock::new(|| rustix::param::page_size() as u64);
    Bytes(count.saturating_mul(*PAGE_SIZE))
}

/// NUL-separated arguments. The last one may be truncated.
fn arguments(bytes: &[u8]) -> Vec<String> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let ended = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    ended.split(|&byte| byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

#[cfg(test)]
mod tests;
