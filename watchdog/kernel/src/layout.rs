//! The running kernel's offsets of members and forms of tracepoints.

use watchdog_common::{ABSENT, Offsets};

use super::btf::{Btf, BtfError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub offsets: Offsets,
    pub variants: Variants,
}

/// Names of the programs for tracepoints whose arguments differ between kernels; `None` where the kernel lacks the
/// tracepoint, or has it in an unknown form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variants {
    /// On `sched_process_exit`.
    pub exit: Option<&'static str>,
    /// On `mark_victim`.
    pub victim: Option<&'static str>,
    /// Second programs on `sched_process_fork` and `sched_process_exit`; `None` where programs on tracepoints cannot be preempted.
    pub spares: Option<Spares>,
}

/// Programs that handle the events for which the kernel skipped the first program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spares {
    /// Beside `fork`.
    pub fork: &'static str,
    /// Beside the one on exit.
    pub exit: &'static str,
}

impl Layout {
    /// Fails on the first missing structure or member, except for these. Without `mm_struct.owner` (a kernel without
    /// CONFIG_MEMCG), close watch is off. Without those of the executed file, files are not identified. Without those of a
    /// pid's numbers, pid namespaces are not supported.
    pub(super) fn of(btf: &Btf) -> Result<Self, BtfError> {
        Ok(Self { offsets: offsets(btf)?, variants: Variants::of(btf) })
    }
}

impl Variants {
    fn of(btf: &Btf) -> Self {
        let (exit, exit_spare) = match btf.tracepoint_arity("sched_process_exit") {
            Some(1) => (Some("exit_count"), None),
            Some(2) => (Some("exit_flag"), Some("exit_flag_spare")),
            _ => (None, None),
        };
        let spares =
            exit_spare.filter(|_| tracepoints_are_preempted(btf)).map(|exit| Spares { fork: "fork_spare", exit });
        Self {
            exit,
            victim: match btf.tracepoint_arity("mark_victim") {
                Some(1) => Some("victim_pid"),
                Some(2) => Some("victim_task"),
                _ => None,
            },
            spares,
        }
    }
}

/// Since Linux 7.0 tracepoints call their programs under SRCU-fast, with preemption on (kernel/tracepoint.c, `tracepoint_srcu`).
/// Up to 6.12 there was an SRCU of that name for other tracepoints, with readers of one flavor.
fn tracepoints_are_preempted(btf: &Btf) -> bool {
    let has_flavors = btf.structure("srcu_data").and_then(|data| btf.member(data, "srcu_reader_flavor")).is_ok();
    has_flavors && btf.has_variable("tracepoint_srcu_srcu_data")
}

fn offsets(btf: &Btf) -> Result<Offsets, BtfError> {
    let task = btf.structure("task_struct")?;
    let signal = btf.structure("signal_struct")?;
    let mm = btf.structure("mm_struct")?;
    let cred = btf.structure("cred")?;
    let bprm = btf.structure("linux_binprm")?;
    let siginfo = btf.structure("kernel_siginfo")?;
    let offset = |structure, member| btf.member(structure, member).map(|member| member.offset);
    let (mm_rss_stat, mm_rss_stride) = rss_counters(btf)?;
    // Without these, an executed file is matched by its path only.
    let file = executed_file(btf).unwrap_or(Offsets::NONE);
    // Without these, only the initial pid namespace is supported.
    let pid = pid_numbers(btf).unwrap_or(Offsets::NONE);

    Ok(Offsets {
        task_pid: offset(task, "pid")?,
        task_tgid: offset(task, "tgid")?,
        task_group_leader: offset(task, "group_leader")?,
        task_real_parent: offset(task, "real_parent")?,
        task_start_boottime: offset(task, "start_boottime")?,
        task_comm: offset(task, "comm")?,
        task_cred: offset(task, "cred")?,
        task_mm: offset(task, "mm")?,
        task_signal: offset(task, "signal")?,
        task_exit_code: offset(task, "exit_code")?,
        task_exit_state: offset(task, "exit_state")?,
        task_flags: offset(task, "flags")?,
        cred_uid: offset(cred, "uid")?,
        signal_live: offset(signal, "live")?,
        signal_nr_threads: offset(signal, "nr_threads")?,
        signal_flags: offset(signal, "flags")?,
        signal_group_exit_code: offset(signal, "group_exit_code")?,
        signal_maxrss: offset(signal, "maxrss")?,
        signal_tty: offset(signal, "tty")?,
        mm_arg_start: offset(mm, "arg_start")?,
        mm_arg_end: offset(mm, "arg_end")?,
        mm_hiwater_rss: offset(mm, "hiwater_rss")?,
        mm_owner: offset(mm, "owner").unwrap_or(ABSENT),
        mm_rss_stat,
        mm_rss_stride,
        bprm_filename: offset(bprm, "filename")?,
        bprm_file: file.bprm_file,
        file_dentry: file.file_dentry,
        file_inode: file.file_inode,
        dentry_name: file.dentry_name,
        inode_ino: file.inode_ino,
        inode_generation: file.inode_generation,
        inode_nlink: file.inode_nlink,
        inode_sb: file.inode_sb,
        super_dev: file.super_dev,
        siginfo_code: offset(siginfo, "si_code")?,
        task_thread_pid: pid.task_thread_pid,
        pid_level: pid.pid_level,
        pid_numbers: pid.pid_numbers,
        pid_numbers_stride: pid.pid_numbers_stride,
        upid_nr: pid.upid_nr,
        upid_ns: pid.upid_ns,
        namespace_inum: pid.namespace_inum,
    })
}

/// The offsets that identify the executed file; all others are absent.
fn executed_file(btf: &Btf) -> Result<Offsets, BtfError> {
    let [bprm, file, path, dentry, qstr, inode, super_block] =
        ["linux_binprm", "file", "path", "dentry", "qstr", "inode", "super_block"].map(|name| btf.structure(name));
    let (file, dentry, inode) = (file?, dentry?, inode?);
    let offset = |structure, member| btf.member(structure, member).map(|member| member.offset);
    Ok(Offsets {
        bprm_file: offset(bprm?, "file")?,
        file_dentry: offset(file, "f_path")? + offset(path?, "dentry")?,
        file_inode: offset(file, "f_inode")?,
        dentry_name: offset(dentry, "d_name")? + offset(qstr?, "name")?,
        inode_ino: offset(inode, "i_ino")?,
        inode_generation: offset(inode, "i_generation")?,
        inode_nlink: offset(inode, "i_nlink")?,
        inode_sb: offset(inode, "i_sb")?,
        super_dev: offset(super_block?, "s_dev")?,
        ..Offsets::NONE
    })
}

/// The offsets by which a thread's pid in a pid namespace is found; all others are absent.
fn pid_numbers(btf: &Btf) -> Result<Offsets, BtfError> {
    let [task, pid, upid, namespace, common] =
        ["task_struct", "pid", "upid", "pid_namespace", "ns_common"].map(|name| btf.structure(name));
    let (pid, upid) = (pid?, upid?);
    let offset = |structure, member| btf.member(structure, member).map(|member| member.offset);
    let numbers = btf.member(pid, "numbers")?;
    let (_, stride) = btf.array_element(numbers.type_id).ok_or_else(|| BtfError::NoType("array of upid".to_owned()))?;
    Ok(Offsets {
        task_thread_pid: offset(task?, "thread_pid")?,
        pid_level: offset(pid, "level")?,
        pid_numbers: numbers.offset,
        pid_numbers_stride: stride,
        upid_nr: offset(upid, "nr")?,
        upid_ns: offset(upid, "ns")?,
        namespace_inum: offset(namespace?, "ns")? + offset(common?, "inum")?,
        ..Offsets::NONE
    })
}

/// The offset of the first counter of `mm_struct.rss_stat`, and the bytes from one to the next.
fn rss_counters(btf: &Btf) -> Result<(u32, u32), BtfError> {
    let rss_stat = btf.member(btf.structure("mm_struct")?, "rss_stat")?;
    match btf.array_element(rss_stat.type_id) {
        // Since Linux 6.2: an array of per-CPU counters, of which the shared part is read.
        Some((counter, stride)) => Ok((rss_stat.offset + btf.member(counter, "count")?.offset, stride)),
        // Before: a structure with an array of atomic longs.
        None => {
            let counts = btf.member(rss_stat.type_id, "count")?;
            let stride = btf.array_element(counts.type_id).map_or(8, |(_, size)| size);
            Ok((rss_stat.offset + counts.offset, stride))
        }
    }
}
