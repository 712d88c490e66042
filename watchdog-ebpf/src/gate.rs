//! What the gate granted is counted and held to its bound; what came past it is not let start.
//!
//! A gated session has a number, and each of its processes carries the number in its entry: [`TRACKED`](crate::maps::TRACKED).
//! A child gets its parent's inside the fork, so that the count is as exact as lineage is, and a pid that comes again
//! can mean no other session. Who carries a number was counted, and is taken off once, at its exit.

use core::ffi::c_void;

use aya_ebpf::{helpers::generated::bpf_send_signal, macros::lsm, programs::LsmContext};
use watchdog_common::{
    FNV_OFFSET, FORK_DENIED_INTERVAL_NANOS, FileId, ForkDeniedRecord, Gated, Lineage, LineageFlags,
    READER_ABSENT_NANOS, RecordKind, Tracked, name_hash_step, same_start,
};

use crate::{
    atomic, emit,
    iter::TaskIterator,
    lifecycle::tracked,
    maps::{ALIVE_AT, DENIED, DENIED_FILES, GATED, KILL_DENIED, LSM_TRIAL, RECOUNT, SEEN_DENIED, TRACKED},
    task::{self, PATH_PART, Task},
};

/// include/uapi/linux/sched.h
const CLONE_THREAD: u64 = 0x0001_0000;
/// include/uapi/asm-generic/errno-base.h
const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const SIGKILL: u32 = 9;

/// Counts one more process in the session with this number. One comparison where there is none, else a look-up more.
#[inline(always)]
pub fn enter(number: u32) {
    if let Some(session) = session(number) {
        atomic::add(&raw mut session.live, 1);
    }
}

/// Takes one off again. As [`enter`].
#[inline(always)]
pub fn leave(number: u32) {
    if let Some(session) = session(number) {
        atomic::add(&raw mut session.live, -1);
    }
}

/// Whether this process, which is on its way out of an exec, was denied it; then SIGKILL is pending, and the new program's
/// first instruction is never executed. `name` is the hash of the path's last component. Of a script the interpreter is known
/// here, so it is denied by that name alone.
#[inline(always)]
pub fn killed_at_exec(entry: Option<&Tracked>, task: Task, bprm: *const c_void, name: u64) -> bool {
    if !is_denied(bprm, name) || is_gated(entry) {
        return false;
    }
    // It fails for nobody but init, which is then left alone.
    // SAFETY: the helper has no precondition.
    if unsafe { bpf_send_signal(SIGKILL) } != 0 {
        return false;
    }
    emit::exec_denied(task, bprm, true);
    true
}

/// Whether what is denied is killed at its exec: only while a daemon runs, since nothing can be launched through the gate of
/// one that does not. One load, and where it is on, one more and the clock.
#[inline(always)]
pub fn kills_denied() -> bool {
    KILL_DENIED.get(0).is_some_and(|on| *on != 0)
        && ALIVE_AT.get(0).is_some_and(|alive_at| emit::now().saturating_sub(*alive_at) < READER_ABSENT_NANOS)
}

/// `LSM_HOOK(int, 0, task_alloc, struct task_struct *task, unsigned long clone_flags)`, all versions. It is called before
/// anything of the child exists, by whoever forks.
///
/// What is under way on other CPUs at the same moment, between here and `sched_process_fork`, is not counted yet: as many
/// forks as run at once may pass on the same last place, and none after them.
///
/// Cost: a new thread is one comparison; a fork of an untracked process three loads and a look-up, of a gated one a look-up
/// more. It could only be measured in an emulated guest (Linux 6.12, by `kernel.bpf_stats_enabled`), where an untracked fork's
/// run took 1.4 times that of the program on `sched_process_fork`: so 0.25 µs, where that is 0.17 µs. Attached only while a
/// session has a bound.
#[lsm(hook = "task_alloc")]
pub fn task_alloc(ctx: LsmContext) -> i32 {
    let earlier: i32 = ctx.arg(2);
    if earlier != 0 {
        return refused(earlier);
    }
    let flags: u64 = ctx.arg(1);
    if flags & CLONE_THREAD != 0 || !bound_reached() {
        return 0;
    }
    -EAGAIN
}

/// `LSM_HOOK(int, 0, bprm_creds_for_exec, struct linux_binprm *bprm)`, since Linux 5.8. It is called once for an exec, before
/// the file is even looked at, and while the old program could still go on; `bprm_check_security` would be called
/// once more for each interpreter of a script, with the same `filename`: the script's.
///
/// Cost: the copy of the path, a hash over its bytes and [`is_denied`]. With one look-up instead it was, in the emulated
/// guest, as much as the program on `sched_process_exec` for an untracked process, so 0.7 to 0.9 µs. Attached only while agents
/// past the gate are denied.
#[lsm(hook = "bprm_creds_for_exec")]
pub fn deny_exec(ctx: LsmContext) -> i32 {
    let earlier: i32 = ctx.arg(1);
    if earlier != 0 {
        return refused(earlier);
    }
    let bprm = ctx.arg::<*const c_void>(0);
    if !is_denied(bprm, hash_of(task::path_of(bprm), watchdog_common::PATH_MAX / PATH_PART)) {
        return 0;
    }
    let leader = Task::current().leader();
    if is_gated(tracked(leader.tgid(), leader).map(|entry| &*entry)) {
        return 0;
    }
    emit::exec_denied(leader, bprm, false);
    -EPERM
}

/// Counts the threads that the process in the first slot of [`LSM_TRIAL`] starts: a kernel may have the hooks and never call
/// them (`lsm=` without `bpf`), and that an LSM program can be loaded and attached says nothing of it. Attached for as
/// long as it takes to start a thread.
#[lsm(hook = "task_alloc")]
pub fn lsm_trial(ctx: LsmContext) -> i32 {
    let earlier: i32 = ctx.arg(2);
    if LSM_TRIAL.get(0).is_some_and(|tgid| *tgid == Task::current().tgid())
        && let Some(count) = LSM_TRIAL.get_ptr_mut(1)
    {
        // SAFETY: the map's value, which no program removes. Only one thread of that process starts threads meanwhile.
        unsafe { count.write_volatile(count.read_volatile() + 1) };
    }
    if earlier != 0 { refused(earlier) } else { 0 }
}

/// A task iterator, as [`sample`](crate::iter): counts living processes of one session where [`RECOUNT`] says, and writes a
/// byte for each that was not counted there yet. Userspace reads it until nothing comes: a child that is being forked
/// meanwhile may still get its parent's old number, and who belongs there by somebody else is found after that one.
///
/// Cost: 0.05 µs for each thread of the host, as the sampler.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn recount(ctx: *mut TaskIterator) -> i32 {
    // SAFETY: the kernel hands over a context of this layout.
    let iterator = unsafe { &*ctx };
    let task = iterator.task();
    if task.is_null() || !task.is_leader() {
        return 0;
    }
    let (Some(wanted), Some(entry)) = (RECOUNT.get(0), tracked(task.tgid(), task)) else { return 0 };
    let lineage = &entry.lineage;
    let of_session = lineage.root == wanted.root && same_start(lineage.root_start, wanted.root_start);
    let counted_before = wanted.before != 0 && entry.counted == wanted.before;
    // Who is on the way out is taken off where it was counted, or was already.
    if !(of_session || counted_before || is_inside(task.tgid(), entry, wanted.number))
        || lineage.flags & LineageFlags::WITNESS != 0
        || task.process().is_dead()
    {
        return 0;
    }
    if entry.counted != wanted.number {
        leave(entry.counted);
        entry.counted = wanted.number;
        enter(wanted.number);
        iterator.write(&1u8);
    }
    0
}

/// Whether a process belongs to a session without a number of its own that was started by somebody who is counted under this
/// one: its root goes by who started it, and everybody else by the root, once that is counted. Two look-ups at most.
#[inline(always)]
fn is_inside(tgid: u32, entry: &Tracked, number: u32) -> bool {
    let Lineage { root, root_start, parent, parent_start, .. } = entry.lineage;
    let (by, start) = if root == tgid { (parent, parent_start) } else { (root, root_start) };
    if number == 0 || root == tgid && session(entry.counted).is_some_and(|own| own.root == tgid) {
        return false;
    }
    // SAFETY: the verifier knows that the pointer is a map value, of which two words are read that no program changes while
    // userspace counts.
    TRACKED.get_ptr(by).is_some_and(|by| unsafe { (*by).counted == number && same_start((*by).start, start) })
}

/// Whether the session of the running process has as many processes as it may; says so, if it was not said just now.
#[inline(always)]
fn bound_reached() -> bool {
    let leader = Task::current().leader();
    let Some(entry) = tracked(leader.tgid(), leader) else { return false };
    let Some(session) = session(entry.counted) else { return false };
    let (live, bound) = (session.live, session.max_processes);
    if bound == 0 || live < i64::from(bound) {
        return false;
    }
    atomic::add((&raw mut session.refused).cast(), 1);
    let now = emit::now();
    // CPUs may race for the moment; then it is told twice.
    if session.told == 0 || now.saturating_sub(session.told) >= FORK_DENIED_INTERVAL_NANOS {
        session.told = now;
        let record = ForkDeniedRecord {
            header: emit::header(RecordKind::ForkDenied, leader),
            root_start: entry.lineage.root_start,
            refused: session.refused,
            root: entry.lineage.root,
            live: live as u32,
            bound,
            reserved: 0,
            comm: leader.comm(),
        };
        emit::lifecycle(&record);
    }
    true
}

/// The session with this number; `None` also for 0, and when nothing is held of it any more.
#[inline(always)]
fn session(number: u32) -> Option<&'static mut Gated> {
    if number == 0 {
        return None;
    }
    // SAFETY: the verifier knows that the pointer is a map value. `live` and `refused` are only ever added to in one
    // instruction.
    GATED.get_ptr_mut(number).map(|session| unsafe { &mut *session })
}

#[inline(always)]
fn is_gated(entry: Option<&Tracked>) -> bool {
    entry.is_some_and(|entry| session(entry.counted).is_some())
}

/// Whether a file is denied: by the name that it is executed as, of which `name` is the hash, by its own, or as a file that is
/// known. A file that has its own name only is known from then on; with several, one of them may be somebody else's program.
///
/// Cost: five look-ups at most and a hash over the file's own name.
#[inline(always)]
fn is_denied(bprm: *const c_void, name: u64) -> bool {
    let (file, names) = task::file_of(bprm);
    let by_own_name = DENIED.get_ptr(hash_of(task::file_name_of(bprm), FILE_NAME_PARTS)).is_some();
    if by_own_name && names == 1 && file.generation != 0 {
        // Full, the map forgets what was looked up longest ago.
        let _ = SEEN_DENIED.insert(&file, &1, 0);
    }
    by_own_name
        || DENIED.get_ptr(name).is_some()
        || file.inode != 0
            && (DENIED_FILES.get_ptr(file).is_some()
                || DENIED_FILES.get_ptr(FileId { generation: 0, ..file }).is_some()
                || SEEN_DENIED.get_ptr(file).is_some())
}

/// Names of up to 127 bytes: with all 255 of NAME_MAX the verifier of Linux 6.1 comes close to its limit in the program on exec.
const FILE_NAME_PARTS: usize = 1;

/// The hash of the last component of a path of the kernel's. As [`task::read_path`], a piece at a time, since an LSM
/// program has no scratch.
#[inline(always)]
fn hash_of(path: *const c_void, parts: usize) -> u64 {
    let mut part = [0u8; PATH_PART + 1];
    let mut hash = FNV_OFFSET;
    for number in 0..parts {
        let more = task::read_part(path, number, &mut part);
        for &byte in &part {
            match byte {
                0 => break,
                b'/' => hash = FNV_OFFSET,
                byte => hash = name_hash_step(hash, byte),
            }
        }
        if !more {
            break;
        }
    }
    hash
}

/// What an earlier program of the hook decided, in the range that the verifier asks for.
#[inline(always)]
fn refused(earlier: i32) -> i32 {
    if earlier < 0 && earlier >= -4095 { earlier } else { -EPERM }
}
