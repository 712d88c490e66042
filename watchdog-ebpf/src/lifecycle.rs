//! fork, exec, exit and the end of a zombie: what makes lineage exact.

use core::ffi::c_void;

use aya_ebpf::{bindings::BPF_NOEXIST, helpers::generated, macros::btf_tracepoint, programs::BtfTracePointContext};
use aya_log_ebpf::warn;
use watchdog_common::{
    ARGV_MAX, DeathRecord, ExecRecord, ExitRecord, FNV_OFFSET, ForkRecord, Lineage, LineageFlags, LossCause,
    NANOS_PER_TICK, PATH_MAX, RecordKind, Tracked, name_hash_step, same_start,
};

use crate::{
    atomic, emit, gate,
    maps::{CANDIDATES, DEAD, DEATH_COUNT, DEATHS, ExecScratch, LAST_REFUSED, ROOT_DEATHS, TRACK_EVERY_EXEC, TRACKED},
    scratch,
    task::{self, Task},
    users,
};

/// A process that lived this long, in nanoseconds, may have children that outlive it.
const LONG_LIVED_NANOS: u64 = 1_000_000_000;
/// The bits of a wait status that hold the signal (wait(2)).
const SIGNAL: u32 = 0x7f;

/// The entry of the process that `leader` stands for; `None` also when the entry is an earlier process's of that pid.
///
/// One map look-up; two loads more when there is an entry.
#[inline(always)]
pub fn tracked(tgid: u32, leader: Task) -> Option<&'static mut Tracked> {
    let entry = TRACKED.get_ptr_mut(tgid)?;
    // SAFETY: the verifier knows that the pointer is a map value. Other CPUs may write it at the same time: each field is
    // then one of the two values, and only the flags of one and the same process are ever contended.
    let entry = unsafe { &mut *entry };
    same_start(entry.start, leader.start()).then_some(entry)
}

/// The entry of a process that belongs to a session: of a witness none.
#[inline(always)]
fn member(tgid: u32, leader: Task) -> Option<&'static mut Tracked> {
    tracked(tgid, leader).filter(|entry| entry.lineage.flags & LineageFlags::WITNESS == 0)
}

/// `TP_PROTO(struct task_struct *parent, struct task_struct *child)`, all versions. It fires before the child can run.
///
/// Cost: an untracked process's fork is three loads and one look-up; a new thread two loads. A tracked fork adds an
/// insert and a record: 1.0 µs. In a gated session a look-up and an addition come on top, at the fork and at the exit: too
/// little to be measured beside it.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn fork(ctx: BtfTracePointContext) -> Option<()> {
    forked(&ctx, false)
}

/// [`fork`] once more, with a recursion guard of its own: it handles the forks for which the kernel skips the first program, because
/// another task was preempted in it. Loaded only where that can happen.
///
/// Cost: an untracked process's fork pays as much again, a tracked one's a look-up more.
#[btf_tracepoint(function = "sched_process_fork")]
pub fn fork_spare(ctx: BtfTracePointContext) -> Option<()> {
    forked(&ctx, true)
}

#[inline(always)]
fn forked(ctx: &BtfTracePointContext, spare: bool) -> Option<()> {
    let parent = Task::from_argument(ctx.arg::<*const c_void>(0));
    let child = Task::from_argument(ctx.arg::<*const c_void>(1));
    if !child.is_leader() {
        return None;
    }
    let forker = parent.leader();
    let entry = tracked(parent.tgid(), forker)?;
    if entry.lineage.flags & LineageFlags::WITNESS != 0 {
        return None;
    }
    let lineage = Lineage {
        root_start: entry.lineage.root_start,
        parent_start: forker.start(),
        root: entry.lineage.root,
        parent: parent.tgid(),
        depth: entry.lineage.depth + 1,
        flags: (entry.lineage.flags & LineageFlags::PROVISIONAL) | LineageFlags::FORKED,
    };
    let (counted, uid) = (entry.counted, entry.uid);
    if spare && is_handled(child) {
        return None;
    }
    // Tracked before it is announced: whoever reads the record finds the entry. Counted only if its exit will be seen.
    if track(ctx, child, Tracked { lineage, start: child.start(), inherited_peak: 0, counted, uid }) {
        gate::enter(counted);
    } else if let Some(refused) = LAST_REFUSED.get_ptr_mut(0) {
        // SAFETY: the map's value. A program that interrupts this one on its CPU may write it, too: then it is another child's.
        unsafe { refused.write_volatile(child.start()) };
    }
    let record = ForkRecord { header: emit::header(RecordKind::Fork, child), lineage, comm: child.comm() };
    emit::lifecycle(&record);
    Some(())
}

/// Whether [`fork`] has run for this child, which has not run yet: it has an entry, or there was no room for one.
#[inline(always)]
fn is_handled(child: Task) -> bool {
    let start = child.start();
    // SAFETY: as in `tracked`.
    let entered = TRACKED.get_ptr(child.tgid()).is_some_and(|entry| unsafe { (*entry).start } == start);
    // SAFETY: the map's value, which is read once.
    entered || LAST_REFUSED.get_ptr(0).is_some_and(|refused| unsafe { refused.read_volatile() } == start)
}

/// `TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`, all versions. It fires when the new image
/// is in place and has not run: comm, credentials and argv are the new ones. The leader is whoever called exec.
///
/// Cost: a tracked process's exec copies path and argv (2 KiB at most) into a record: 2.2 to 2.4 µs. An untracked one's is
/// a look-up, the copy of the path, a hash over its bytes and two look-ups: 1.0 to 1.7 µs with 60 names. While agents past the gate are killed here
/// ([`gate::kills_denied`]) it is a look-up more, at most 0.2 µs, and a tracked process's exec pays for the hash too, 0.1 µs.
///
/// Why names, and not every exec: with [`TRACK_EVERY_EXEC`] an untracked process pays 2.9 to 4.2 µs at its exec, another
/// 1.0 µs at its exit and 0.5 µs when it is freed, and it wakes the daemon twice, which reads, judges and drops it. Measured
/// on Linux 6.18, two CPUs busy with builds, over 3,000 starts of /bin/true a mode (2 ms each), by
/// `kernel.bpf_stats_enabled`. So a configuration pays for the second mode only if it has a profile that no file name tells.
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
    let path_len = task::read_path(bprm, &mut scratch.text[..PATH_MAX]);
    let names = if gate::kills_denied() || member(tgid, task).is_none() {
        Names::of(&scratch.text[..PATH_MAX])
    } else {
        Names::NONE
    };
    // Looked up once more: to carry the first answer over the loop would have the verifier go through it three times.
    // A third look-up, right before the entry is written, would be more than the verifier of Linux 6.1 goes through.
    let member = member(tgid, task);
    let killed = gate::kills_denied() && gate::killed_at_exec(member.as_deref(), task, bprm, names.last);
    match member {
        Some(entry) => {
            entry.lineage.flags &= !LineageFlags::FORKED;
            entry.inherited_peak = task.process().maxrss();
            announce_exec(scratch, task, entry.lineage, path_len);
        }
        // A witness that becomes an agent is one: a shell that was told to `exec` it.
        None => {
            if killed || !names.may_be_agents() {
                return None;
            }
            let lineage = Lineage {
                root_start: task.start(),
                parent_start: 0,
                root: tgid,
                parent: 0,
                depth: 0,
                flags: LineageFlags::PROVISIONAL,
            };
            let inherited_peak = task.process().maxrss();
            track(ctx, task, Tracked { lineage, start: task.start(), inherited_peak, counted: 0, uid: task.uid() });
            announce_exec(scratch, task, lineage, path_len);
        }
    }
    Some(())
}

/// `TP_PROTO(struct task_struct *p, bool group_dead)`, since Linux 6.16. It fires before the address space is let go.
///
/// Cost: a thread's exit is one load; an untracked process's one look-up more; a tracked one's adds a record.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit_told(ctx: BtfTracePointContext) -> Option<()> {
    told(&ctx)
}

/// [`exit_told`] once more, as [`fork_spare`]. The one that removes the entry reports the exit.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit_told_spare(ctx: BtfTracePointContext) -> Option<()> {
    told(&ctx)
}

#[inline(always)]
fn told(ctx: &BtfTracePointContext) -> Option<()> {
    let group_dead: u64 = ctx.arg(1);
    if group_dead & 1 == 0 {
        return None;
    }
    exited(Task::from_argument(ctx.arg::<*const c_void>(0)))
}

/// `TP_PROTO(struct task_struct *p)`, before Linux 6.16. It fires after the count of live threads was brought down, and
/// after the address space was let go: peaks come from `signal->maxrss`.
///
/// Cost: as [`exit_told`]. When several threads exit at once, all of them may see that none is left; the one that removes the
/// entry reports the exit.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn exit_counted(ctx: BtfTracePointContext) -> Option<()> {
    let task = Task::from_argument(ctx.arg::<*const c_void>(0));
    if !task.process().is_dead() {
        return None;
    }
    exited(task)
}

/// `TP_PROTO(struct task_struct *p)`, all versions. It fires a grace period of RCU after the parent has waited.
///
/// Cost: a thread's is two loads; a process's two look-ups more.
#[btf_tracepoint(function = "sched_process_free")]
pub fn free(ctx: BtfTracePointContext) -> Option<()> {
    let task = Task::from_argument(ctx.arg::<*const c_void>(0));
    if !task.is_leader() {
        return None;
    }
    let tgid = task.tgid();
    // The pid may be another process's by now, which then started later.
    let outlived = |start: u64| start / NANOS_PER_TICK <= task.start() / NANOS_PER_TICK;
    // SAFETY: the pointer is a map value, which is read once.
    if DEAD.get_ptr(tgid).is_some_and(|start| outlived(unsafe { start.read_volatile() })) {
        let _ = DEAD.remove(tgid);
    }
    // An entry that is still there was made too late for the exit, or the kernel skipped the program on exit.
    let entry = TRACKED.get_ptr_mut(tgid)?;
    // SAFETY: as in `tracked`.
    let entry = unsafe { &*entry };
    if outlived(entry.start) {
        forget(tgid, entry);
    }
    Some(())
}

/// The last thread of a process is gone; `task` is that thread, which need not be the leader.
#[inline(always)]
fn exited(task: Task) -> Option<()> {
    let tgid = task.tgid();
    let leader = task.leader();
    let entry = tracked(tgid, leader)?;
    let Tracked { lineage, inherited_peak, .. } = *entry;
    let (flags, is_root) = (lineage.flags, lineage.root == tgid);
    if !forget(tgid, entry) {
        return None;
    }
    let process = task.process();
    let record = ExitRecord {
        header: emit::header(RecordKind::Exit, leader),
        maxrss: process.maxrss(),
        inherited_peak,
        hiwater_rss: task.mm().peak(),
        status: process.wait_status(leader),
        flags,
        comm: leader.comm(),
    };
    // A whole session may be left behind.
    let sent = if is_root { emit::urgent(&record) } else { emit::lifecycle(&record) };
    if flags & LineageFlags::WITNESS != 0 {
        return Some(());
    }
    let _ = DEAD.insert(tgid, record.header.start, 0);
    if is_root || is_long_lived(&record) || (!sent && record.status & SIGNAL != 0) {
        keep_death(&record, lineage);
    }
    Some(())
}

/// Whether children of a process may have outlived it.
#[inline(always)]
fn is_long_lived(exit: &ExitRecord) -> bool {
    exit.header.at.saturating_sub(exit.header.start) >= LONG_LIVED_NANOS
}

/// Keeps a death for a daemon that does not run now. The ring keeps those that it has room for, too, but not where they belong:
/// of short-lived children nobody asks for that.
///
/// Cost: 0.9 µs, the insert into a full map. For every exit it would be twice what all the rest of the program takes.
#[inline(always)]
fn keep_death(exit: &ExitRecord, lineage: Lineage) {
    let tgid = exit.header.tgid;
    let death = DeathRecord { exit: *exit, lineage };
    // A program that only has an agent's name is a root too, and there are many.
    if lineage.root == tgid && lineage.flags & LineageFlags::PROVISIONAL == 0 {
        let _ = ROOT_DEATHS.insert(tgid, death, 0);
        return;
    }
    let _ = DEATHS.insert(tgid, death, 0);
    if let Some(count) = DEATH_COUNT.get_ptr_mut(0) {
        atomic::add(count.cast(), 1);
    }
}

/// Enters a process into the map; `false`, and counted, where there was no room.
#[inline(always)]
fn track(ctx: &BtfTracePointContext, leader: Task, value: Tracked) -> bool {
    let tgid = leader.tgid();
    let fits = users::admits(value.uid) && insert(tgid, &value);
    if fits {
        users::charge(value.uid, 1);
    } else {
        emit::lost(LossCause::MAP_FULL);
        // Rare, and worth a line; when it comes in numbers, the log's one page drops the rest.
        warn!(ctx, "no room to track process {} of session {}", tgid, value.lineage.root);
    }
    fits
}

#[inline(always)]
fn insert(tgid: u32, value: &Tracked) -> bool {
    if TRACKED.insert(tgid, value, u64::from(BPF_NOEXIST)).is_ok() {
        return true;
    }
    // What is there is this process as a witness, or an earlier one of this pid whose exit went by unseen.
    let Some(before) = TRACKED.get_ptr_mut(tgid) else { return false };
    // SAFETY: as in `tracked`.
    forget(tgid, unsafe { &*before });
    TRACKED.insert(tgid, value, u64::from(BPF_NOEXIST)).is_ok()
}

/// Removes an entry, and takes it off where it was counted; `false` when it was removed already.
#[inline(always)]
fn forget(tgid: u32, entry: &Tracked) -> bool {
    // Another process may have the element once it is free.
    let Tracked { counted, uid, .. } = *entry;
    let removed = TRACKED.remove(tgid).is_ok();
    if removed {
        users::charge(uid, -1);
        gate::leave(counted);
    }
    removed
}

/// Fills in the rest of the record behind a path that is already there, and sends it.
#[inline(always)]
fn announce_exec(scratch: &mut ExecScratch, task: Task, lineage: Lineage, path_len: usize) {
    // The verifier must see that the path's length has a bound.
    let path_len = path_len & (PATH_MAX - 1);
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

/// Copies argv behind the path; nothing when it is not to be had. Returns the bytes that were copied.
#[inline(always)]
fn read_argv(text: &mut [u8], at: usize, start: u64, len: usize) -> usize {
    // SAFETY: `at + len` is at most PATH_MAX - 1 + ARGV_MAX, as the verifier proves again.
    let copied =
        unsafe { generated::bpf_probe_read_user(text.as_mut_ptr().add(at).cast(), len as u32, start as *const c_void) };
    if copied == 0 { len } else { 0 }
}

/// The hashes of a path's last two components.
#[derive(Clone, Copy)]
struct Names {
    last: u64,
    before: u64,
}

impl Names {
    /// Nobody asked.
    const NONE: Self = Self { last: FNV_OFFSET, before: FNV_OFFSET };

    #[inline(always)]
    fn of(path: &[u8]) -> Self {
        let mut names = Self::NONE;
        for &byte in path {
            match byte {
                0 => break,
                b'/' => {
                    names.before = names.last;
                    names.last = FNV_OFFSET;
                }
                byte => names.last = name_hash_step(names.last, byte),
            }
        }
        names
    }

    /// Whether one of the two is the name of a possible agent, or every exec is one's.
    #[inline(always)]
    fn may_be_agents(self) -> bool {
        TRACK_EVERY_EXEC.get(0).is_some_and(|every| *every != 0)
            || CANDIDATES.get_ptr(self.last).is_some()
            || CANDIDATES.get_ptr(self.before).is_some()
    }
}
