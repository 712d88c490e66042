//! `signal_generate`: reports signals that may end a tracked process, with their senders.

use core::ffi::c_void;

use aya_ebpf::{EbpfContext, macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{RecordKind, SignalFlags, SignalRecord};

use crate::{
    emit,
    task::{self, Task},
    tracking,
};

/// Signals that end a process unless it handles them, by their numbers on x86-64 and arm64: HUP, INT, QUIT, ILL, TRAP,
/// ABRT, BUS, FPE, KILL, SEGV, TERM, XCPU, SYS. Not PIPE, ALRM or the user signals, which programs
/// use to communicate.
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
    tracking::entry(target.tgid(), leader)?;
    let sender = Task::current().leader();
    let record = SignalRecord {
        header: emit::header(RecordKind::Signal, leader),
        sender_start: sender.start(),
        sender: sender.tgid(),
        sender_uid: sender.uid(),
        signal,
        code: task::signal_code(task::raw_argument(ctx.as_ptr(), 1)),
        result: ctx.arg::<u64>(4) as u32,
        flags: if Task::current().is_exiting() { SignalFlags::SENDER_THREAD_EXITS } else { 0 },
        sender_comm: sender.comm(),
    };
    emit::lifecycle(&record);
    Some(())
}
