//! `bprm_creds_for_exec`: refuses to execute a denied file.

use core::ffi::c_void;

use aya_ebpf::{macros::lsm, programs::LsmContext};
use watchdog_common::PATH_MAX;

use super::task_alloc::earlier_refusal;
use crate::{
    denial, emit, name_hash, namespace,
    task::{self, PATH_PART, Task},
};

/// include/uapi/asm-generic/errno-base.h
const EPERM: i32 = 1;

/// `LSM_HOOK(int, 0, bprm_creds_for_exec, struct linux_binprm *bprm)`, since Linux 5.8. It is called once for an exec, before
/// the kernel looks at the file and while the old program can still continue. `bprm_check_security` would be called
/// again for each interpreter of a script, with the same `filename`: the script's.
///
/// Cost: the copy of the path, a hash over its bytes and [`denial::is_denied`]. With one look-up instead it was, in an emulated
/// guest, as much as the program on `sched_process_exec` for an untracked process, so 0.7 to 0.9 µs. Attached only while agents
/// past the gate are denied.
#[lsm(hook = "bprm_creds_for_exec")]
pub fn deny_exec(ctx: LsmContext) -> i32 {
    let earlier: i32 = ctx.arg(1);
    if earlier != 0 {
        return earlier_refusal(earlier);
    }
    let leader = Task::current().leader();
    if namespace::excludes(leader.tgid()) {
        return 0;
    }
    let bprm = ctx.arg::<*const c_void>(0);
    if !denial::is_denied(bprm, name_hash::last_component(task::path_of(bprm), PATH_MAX / PATH_PART)) {
        return 0;
    }
    if denial::is_gated(leader) {
        return 0;
    }
    emit::exec_denied(leader, bprm, false);
    -EPERM
}
