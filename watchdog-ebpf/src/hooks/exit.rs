//! `sched_process_exit`: reports the exit of a tracked process, and keeps its death for a later daemon.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{DeathRecord, ExitRecord, LineageFlags, RawLineage, RecordKind, Tracked};

use crate::{
    atomic, emit,
    maps::{DEAD, DEATH_COUNT, DEATHS, FREED_AS, ROOT_DEATHS},
    namespace,
    task::Task,
    tracking,
};

/// A process that lived this long, in nanoseconds, may have children that outlive it.
const LONG_LIVED_NANOS: u64 = 1_000_000_000;
/// The bits of a wait status that hold the signal (wait(2)).
const SIGNAL: u32 = 0x7f;

/// `TP_PROTO(struct task_struct *p, bool group_dead)`, since Linux 6.16. It fires before the address space is released.
///
/// Cost: a thread's exit is one load; an untracked process's one look-up more; a tracked one's adds a record.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit_flag(ctx: BtfTracePointContext) -> Option<()> {
    exited_by_flag(&ctx)
}

/// [`exit_flag`] again, with a recursion guard of its own, as `fork_spare`. The program that removes the entry reports the exit.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit_flag_spare(ctx: BtfTracePointContext) -> Option<()> {
    exited_by_flag(&ctx)
}

#[inline(always)]
fn exited_by_flag(ctx: &BtfTracePointContext) -> Option<()> {
    let group_dead: u64 = ctx.arg(1);
    if group_dead & 1 == 0 {
        return None;
    }
    exited(Task::from_argument(ctx.arg::<*const c_void>(0)))
}

/// `TP_PROTO(struct task_struct *p)`, before Linux 6.16. It fires after the count of live threads was decremented and
/// the address space released: peaks come from `signal->maxrss`.
///
/// Cost: as [`exit_flag`]. When several threads exit at once, each of them may see that none is left; the one that removes
/// the entry reports the exit.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit_count(ctx: BtfTracePointContext) -> Option<()> {
    let task = Task::from_argument(ctx.arg::<*const c_void>(0));
    if !task.thread_group().is_dead() {
        return None;
    }
    exited(task)
}

/// `task` is the last thread of its process, which need not be the leader.
#[inline(always)]
fn exited(task: Task) -> Option<()> {
    let tgid = task.tgid();
    let leader = task.leader();
    let entry = tracking::entry(tgid, leader)?;
    let Tracked { lineage, inherited_peak, .. } = *entry;
    let (flags, is_root) = (lineage.flags, lineage.root == tgid);
    if !tracking::remove(tgid, entry) {
        return None;
    }
    let group = task.thread_group();
    let record = ExitRecord {
        header: emit::header(RecordKind::Exit, leader),
        maxrss: group.maxrss(),
        inherited_peak,
        hiwater_rss: task.mm().peak(),
        status: group.wait_status(leader),
        flags,
        comm: leader.comm(),
    };
    let is_long_lived = is_long_lived(&record);
    let is_witness = flags & LineageFlags::WITNESS != 0;
    // A zombie before its exit is reported: the reader of the record finds it.
    if !is_witness {
        let _ = DEAD.insert(tgid, record.header.start, 0);
        if namespace::inode() != 0 {
            let _ = FREED_AS.insert(leader.host_tgid(), tgid, 0);
        }
    }
    // What it started may have become orphans: the whole session, or a part of it.
    let sent = if is_root || is_long_lived { emit::urgent(&record) } else { emit::lifecycle(&record) };
    if !is_witness && (is_root || is_long_lived || (!sent && record.status & SIGNAL != 0)) {
        keep_death(&record, lineage);
    }
    Some(())
}

/// Whether children of a process may have outlived it.
#[inline(always)]
fn is_long_lived(exit: &ExitRecord) -> bool {
    exit.header.at.saturating_sub(exit.header.start) >= LONG_LIVED_NANOS
}

/// Keeps a death for the next daemon, in case none runs now. The ring holds recent exits too, but without their lineage, which
/// nothing needs of short-lived children.
///
/// Cost: 0.9 µs, the insert into a full map: twice as much as the rest of the program, so not at every exit.
#[inline(always)]
fn keep_death(exit: &ExitRecord, lineage: RawLineage) {
    let tgid = exit.header.tgid;
    let death = DeathRecord { exit: *exit, lineage };
    // Programs that only share an agent's name are roots too, and there are many.
    if lineage.root == tgid && lineage.flags & LineageFlags::PROVISIONAL == 0 {
        let _ = ROOT_DEATHS.insert(tgid, death, 0);
        return;
    }
    let _ = DEATHS.insert(tgid, death, 0);
    if let Some(count) = DEATH_COUNT.get_ptr_mut(0) {
        atomic::add(count.cast(), 1);
    }
}
