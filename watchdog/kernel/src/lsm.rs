//! LSM programs: whether the kernel calls them, and their attachment on demand.

use aya::Ebpf;
use aya::maps::Array;
use aya::programs::lsm::LsmLinkId;

use super::error::KernelError;
use super::programs::{lsm_program, while_interrupted};

#[derive(Clone, Copy)]
pub(super) struct LsmProgram {
    name: &'static str,
    hook: &'static str,
}

/// Refuses forks beyond a session's limit.
pub(super) const FORK_LIMIT: LsmProgram = LsmProgram { name: "task_alloc", hook: "task_alloc" };
/// Refuses to execute denied files.
pub(super) const EXEC_DENIAL: LsmProgram = LsmProgram { name: "deny_exec", hook: "bprm_creds_for_exec" };
/// Counts its calls.
const TRIAL: LsmProgram = LsmProgram { name: "lsm_trial", hook: "task_alloc" };

/// Attaches or detaches a program, unless that is done already.
pub(super) fn toggle(
    ebpf: &mut Ebpf,
    LsmProgram { name, hook: _ }: LsmProgram,
    link: Option<LsmLinkId>,
    on: bool,
) -> Result<Option<LsmLinkId>, KernelError> {
    match (on, link) {
        (true, None) => {
            let attached = lsm_program(ebpf, name)?.attach();
            attached.map(Some).map_err(|source| KernelError::program(name, "attach", source))
        }
        (false, Some(link)) => {
            let detached = lsm_program(ebpf, name)?.detach(link);
            detached.map(|()| None).map_err(|source| KernelError::program(name, "detach", source))
        }
        (_, link) => Ok(link),
    }
}

/// Loads the LSM programs if the kernel calls them. Hooks may exist while the module is inactive (`lsm=` without `bpf`);
/// then programs load and attach but are never called. So the trial is attached, a thread started, and the count read.
pub(super) fn load(ebpf: &mut Ebpf, btf: &aya::Btf) -> Result<(), KernelError> {
    let load = |ebpf: &mut Ebpf, LsmProgram { name, hook }: LsmProgram| {
        let program = lsm_program(ebpf, name)?;
        while_interrupted(|| program.load(hook, btf)).map_err(|source| KernelError::program(name, "load", source))
    };
    load(ebpf, TRIAL)?;
    let called = is_called(ebpf);
    lsm_program(ebpf, TRIAL.name)?.unload().map_err(|source| KernelError::program(TRIAL.name, "unload", source))?;
    if !called? {
        return Err(KernelError::Off(
            "the kernel never calls LSM programs: `bpf` is not among the active security modules".to_owned(),
        ));
    }
    load(ebpf, FORK_LIMIT)?;
    load(ebpf, EXEC_DENIAL)
}

fn is_called(ebpf: &mut Ebpf) -> Result<bool, KernelError> {
    let failed = |doing| move |source| KernelError::Map { map: "LSM_TRIAL", doing, source };
    let map = ebpf.map_mut("LSM_TRIAL").ok_or(KernelError::Missing("LSM_TRIAL"))?;
    Array::<_, u32>::try_from(map)
        .and_then(|mut trial| trial.set(0, std::process::id(), 0))
        .map_err(failed("write"))?;
    let link = toggle(ebpf, TRIAL, None, true)?;
    let started = std::thread::Builder::new().spawn(|| ()).map_err(KernelError::Trial);
    // An empty thread cannot panic.
    let ended = started.map(|thread| drop(thread.join()));
    toggle(ebpf, TRIAL, link, false)?;
    ended?;
    let map = ebpf.map("LSM_TRIAL").ok_or(KernelError::Missing("LSM_TRIAL"))?;
    let count = Array::<_, u32>::try_from(map).and_then(|trial| trial.get(&1, 0)).map_err(failed("read"))?;
    Ok(count > 0)
}
