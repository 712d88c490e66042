//! `mark_victim`: reports the OOM killer's choices.

use core::ffi::c_void;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};
use watchdog_common::{COMM_LEN, RecordHeader, RecordKind, VictimRecord};

use crate::{emit, namespace, task::Task};

/// `TP_PROTO(struct task_struct *task, uid_t uid)`, since Linux 6.10 or so.
///
/// Cost: one record; rare. Untracked victims are reported too: they explain the state of the host.
#[btf_tracepoint(function = "mark_victim")]
pub fn victim_task(ctx: BtfTracePointContext) -> Option<()> {
    let leader = Task::from_argument(ctx.arg::<*const c_void>(0)).leader();
    let header = emit::header(RecordKind::Oom, leader);
    if namespace::excludes(header.tgid) {
        return None;
    }
    report_victim(header, leader.comm());
    Some(())
}

/// `TP_PROTO(int pid)`, before. Loaded only in the initial pid namespace, whose pid it is.
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
fn report_victim(header: RecordHeader, comm: [u8; COMM_LEN]) {
    let record = VictimRecord { header, comm, trigger: Task::current().tgid(), reserved: 0 };
    emit::urgent(&record);
}
