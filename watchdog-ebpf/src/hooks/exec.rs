//! `sched_process_exec`: reports a tracked process's new program, and starts to track possible agents.

use core::ffi::c_void;

use aya_ebpf::{helpers::generated, macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{ARGV_MAX, ExecRecord, LineageFlags, PATH_MAX, RawLineage, RecordKind, Tracked};

use crate::{
    denial, emit,
    maps::{CANDIDATES, ExecScratch, TRACK_EVERY_EXEC},
    name_hash::PathHashes,
    namespace, scratch,
    task::{self, Task},
    tracking::{self, track},
};

/// `TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`, all versions. It fires when the new image
/// is in place and has not run: comm, credentials and argv are the new ones. The caller of exec has become the leader.
///
/// Cost: a tracked process's exec copies path and argv (2 KiB at most) into a record: 2.2 to 2.4 µs. An untracked one's is
/// a look-up, the copy of the path, a hash over its bytes and two look-ups: 1.0 to 1.7 µs with 60 names. While agents past the
/// gate are killed here ([`denial::kills_at_exec`]), it is a look-up more, at most 0.2 µs, and a tracked process's exec pays for
/// the hash too, 0.1 µs.
///
/// Why names, and not every exec: with [`TRACK_EVERY_EXEC`] an untracked process pays 2.9 to 4.2 µs at its exec, another
/// 1.0 µs at its exit and 0.5 µs when it is freed. It also wakes the daemon twice, which reads, judges and drops it. Measured
/// on Linux 6.18, two CPUs busy with builds, over 3,000 starts of /bin/true a mode (2 ms each), by
/// `kernel.bpf_stats_enabled`. So the second mode is on only if a profile matches by something other than file names.
///
/// The verifier of Linux 6.1 visits 85,000 instructions of it, of a million that it may.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn exec(ctx: BtfTracePointContext) -> Option<()> {
    let Some(scratch) = scratch::claim() else {
        emit::lost(RecordKind::Exec as u32);
        return None;
    };
    let done = executed(&ctx, scratch);
    scratch::release(scratch);
    done
}

#[inline(always)]
fn executed(ctx: &BtfTracePointContext, scratch: &mut ExecScratch) -> Option<()> {
    let task = Task::from_argument(ctx.arg::<*const c_void>(0));
    let bprm = ctx.arg::<*const c_void>(2);
    let tgid = task.tgid();
    if namespace::excludes(tgid) {
        return None;
    }
    // Not kept in a register: the verifier would visit the rest twice, once for an empty path and once for others.
    scratch.record.path_len = task::read_path(bprm, &mut scratch.text[..PATH_MAX]) as u16;
    let names = if denial::kills_at_exec() || tracking::member(tgid, task).is_none() {
        PathHashes::of(&scratch.text[..PATH_MAX])
    } else {
        PathHashes::EMPTY
    };
    // Looked up again: with the first result carried over the loop, the verifier visits the loop three times.
    let member = tracking::member(tgid, task);
    let killed = denial::kills_at_exec() && denial::kill_if_denied(task, bprm, names.last);
    match member {
        Some(entry) => {
            entry.lineage.flags &= !LineageFlags::FORKED;
            entry.inherited_peak = task.thread_group().maxrss();
            report(scratch, task, entry.lineage);
        }
        // A witness that executes an agent becomes an agent: a shell that runs `exec claude`.
        None => {
            if killed || !is_candidate(names) {
                return None;
            }
            let lineage = RawLineage {
                root_start: task.start(),
                parent_start: 0,
                root: tgid,
                parent: 0,
                depth: 0,
                flags: LineageFlags::PROVISIONAL,
            };
            let inherited_peak = task.thread_group().maxrss();
            track(ctx, task, Tracked { lineage, start: task.start(), inherited_peak, counted: 0, uid: task.uid() });
            report(scratch, task, lineage);
        }
    }
    Some(())
}

/// Whether one of the two names is that of a possible agent, or every exec is a possible agent's.
#[inline(always)]
fn is_candidate(names: PathHashes) -> bool {
    TRACK_EVERY_EXEC.get(0).is_some_and(|every| *every != 0)
        || CANDIDATES.get_ptr(names.last).is_some()
        || CANDIDATES.get_ptr(names.before).is_some()
}

/// Completes a record whose path is already in place, and sends it.
#[inline(always)]
fn report(scratch: &mut ExecScratch, task: Task, lineage: RawLineage) {
    // The mask proves to the verifier that the path's length is bounded.
    // SAFETY: a read of an initialised field.
    let path_len = unsafe { (&raw const scratch.record.path_len).read_volatile() } as usize & (PATH_MAX - 1);
    let (start, total) = task.mm().arguments();
    let wanted = if total > ARGV_MAX as u64 { ARGV_MAX } else { total as usize };
    let argv_len = read_argv(&mut scratch.text, path_len, start, wanted);
    scratch.record = ExecRecord {
        header: emit::header(RecordKind::Exec, task),
        lineage,
        comm: task.comm(),
        ppid: task.parent().tgid(),
        argv_total: if total > u32::MAX as u64 { u32::MAX } else { total as u32 },
        path_len: path_len as u16,
        argv_len: argv_len as u16,
        reserved: 0,
    };
    emit::exec(scratch);
}

/// Copies argv to `at`, behind the path, and returns the bytes copied: all or none.
#[inline(always)]
fn read_argv(text: &mut [u8], at: usize, start: u64, len: usize) -> usize {
    // SAFETY: `at + len` is at most PATH_MAX - 1 + ARGV_MAX, as the verifier proves again.
    let copied =
        unsafe { generated::bpf_probe_read_user(text.as_mut_ptr().add(at).cast(), len as u32, start as *const c_void) };
    if copied == 0 { len } else { 0 }
}
