//! `task_alloc`: refuses forks of a gated session beyond its limit.

use aya_ebpf::{macros::lsm, programs::LsmContext};
use watchdog_common::{FORK_DENIED_INTERVAL_NANOS, ForkDeniedRecord, RecordKind};

use crate::{atomic, emit, maps::LSM_TRIAL, sessions, task::Task, tracking};

/// include/uapi/linux/sched.h
const CLONE_THREAD: u64 = 0x0001_0000;
/// include/uapi/asm-generic/errno-base.h
const EPERM: i32 = 1;
const EAGAIN: i32 = 11;

/// `LSM_HOOK(int, 0, task_alloc, struct task_struct *task, unsigned long clone_flags)`, all versions. The forking task calls it
/// before anything of the child exists.
///
/// Forks that are between here and `sched_process_fork` on other CPUs at the same moment are not counted yet: as many forks as
/// run at once may pass the limit together, and none after them.
///
/// Cost: a new thread is one comparison; a fork of an untracked process three loads and a look-up, of a gated one a look-up
/// more. It could only be measured in an emulated guest (Linux 6.12, by `kernel.bpf_stats_enabled`), where an untracked fork's
/// run took 1.4 times that of the program on `sched_process_fork`: so 0.25 µs, where that is 0.17 µs. Attached only while a
/// session has a limit.
#[lsm(hook = "task_alloc")]
pub fn task_alloc(ctx: LsmContext) -> i32 {
    let earlier: i32 = ctx.arg(2);
    if earlier != 0 {
        return earlier_refusal(earlier);
    }
    let flags: u64 = ctx.arg(1);
    if flags & CLONE_THREAD != 0 || !limit_reached() {
        return 0;
    }
    -EAGAIN
}

/// Counts the threads that the process in the first slot of [`LSM_TRIAL`] starts: a kernel may have the hooks and never call
/// them (`lsm=` without `bpf`), although LSM programs load and attach. Attached for as long as it takes to start a thread.
#[lsm(hook = "task_alloc")]
pub fn lsm_trial(ctx: LsmContext) -> i32 {
    let earlier: i32 = ctx.arg(2);
    if LSM_TRIAL.get(0).is_some_and(|tgid| *tgid == Task::current().tgid())
        && let Some(count) = LSM_TRIAL.get_ptr_mut(1)
    {
        // SAFETY: the map's value, which no program removes. Only one thread of that process starts threads meanwhile.
        unsafe { count.write_volatile(count.read_volatile() + 1) };
    }
    if earlier != 0 { earlier_refusal(earlier) } else { 0 }
}

/// The result of an earlier program on the hook, in the range that the verifier demands.
#[inline(always)]
pub fn earlier_refusal(earlier: i32) -> i32 {
    if earlier < 0 && earlier >= -4095 { earlier } else { -EPERM }
}

/// Whether the running process's session has as many processes as it may. Reports it at most once per
/// [`FORK_DENIED_INTERVAL_NANOS`].
#[inline(always)]
fn limit_reached() -> bool {
    let leader = Task::current().leader();
    let Some(entry) = tracking::entry(leader.tgid(), leader) else { return false };
    let Some(session) = sessions::get(entry.counted) else { return false };
    let (live, limit) = (session.live, session.max_processes);
    if limit == 0 || live < i64::from(limit) {
        return false;
    }
    atomic::add((&raw mut session.refused).cast(), 1);
    let now = emit::now();
    // CPUs may race here; then two records are sent.
    if session.reported_at == 0 || now.saturating_sub(session.reported_at) >= FORK_DENIED_INTERVAL_NANOS {
        session.reported_at = now;
        let record = ForkDeniedRecord {
            header: emit::header(RecordKind::ForkDenied, leader),
            root_start: entry.lineage.root_start,
            refused: session.refused,
            root: entry.lineage.root,
            live: live as u32,
            limit,
            reserved: 0,
            comm: leader.comm(),
        };
        emit::lifecycle(&record);
    }
    true
}
