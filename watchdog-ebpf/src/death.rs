//! Why processes die: the OOM killer's choices, and signals with their senders.

use core::ffi::c_void;

use aya_ebpf::{EbpfContext, macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{COMM_LEN, Header, OomRecord, RecordKind, SignalRecord};

use crate::{
    emit, lifecycle,
    task::{self, Task},
};

/// Signals that end a process unless it handles them, by their numbers on x86-64 and arm64: HUP, INT, QUIT, ILL, TRAP,
/// ABRT, BUS, FPE, KILL, SEGV, TERM, XCPU, SYS. Not PIPE, ALRM or the user signals, which programs use to talk.
const DEADLY: u64 = bits(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 15, 24, 31]);

const fn bits(signals: &[u32]) -> u64 {
    let mut set = 0;
    let mut i = 0;
    while i < signals.len() {
        set |= 1 << signals[i];
        i += 1;
    }
    set
}

/// `TP_PROTO(int sig, struct kernel_siginfo *info, struct task_struct *task, int group, int result)`, all versions.
///
/// Cost: any other signal is one load; a deadly one to an untracked process adds one look-up.
#[btf_tracepoint(function = "signal_generate")]
pub fn signal(ctx: BtfTracePointContext) -> Option<()> {
    let signal = ctx.arg::<u64>(0) as u32;
    if signal >= u64::BITS || DEADLY & (1 << signal) == 0 {
        return None;
    }
    let target = Task::from_argument(ctx.arg::<*const c_void>(2));
    let leader = target.leader();
    lifecycle::tracked(target.tgid(), leader)?;
    let sender = Task::current().leader();
    let record = SignalRecord {
        header: emit::header(RecordKind::Signal, leader),
        sender_start: sender.start(),
        sender: sender.tgid(),
        sender_uid: sender.uid(),
        signal,
        code: task::signal_code(task::raw_argument(ctx.as_ptr(), 1)),
        result: ctx.arg::<u64>(4) as u32,
        reserved: 0,
        sender_comm: sender.comm(),
    };
    emit::lifecycle(&record);
    Some(())
}

/// `TP_PROTO(struct task_struct *task, uid_t uid)`, since Linux 6.10 or so.
///
/// Cost: one record; rare. Victims that are not tracked are told too: they explain a host's state.
#[btf_tracepoint(function = "mark_victim")]
pub fn victim_task(ctx: BtfTracePointContext) -> Option<()> {
    let leader = Task::from_argument(ctx.arg::<*const c_void>(0)).leader();
    report_victim(emit::header(RecordKind::Oom, leader), leader.comm());
    Some(())
}

/// `TP_PROTO(int pid)`, before.
///
/// Cost: one record; rare.
#[btf_tracepoint(function = "mark_victim")]
pub fn victim_pid(ctx: BtfTracePointContext) -> Option<()> {
    let current = Task::current();
    let mut header = emit::header(RecordKind::Oom, current);
    header.tgid = ctx.arg::<u64>(0) as u32;
    header.start = 0;
    header.uid = 0;
    report_victim(header, [0; COMM_LEN]);
    Some(())
}

#[inline(always)]
fn report_victim(header: Header, comm: [u8; COMM_LEN]) {
    let record = OomRecord { header, comm, trigger: Task::current().tgid(), reserved: 0 };
    emit::lifecycle(&record);
}
