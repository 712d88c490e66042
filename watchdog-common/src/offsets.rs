//! The globals that userspace sets at load time, since aya has no CO-RE for programs written in Rust.

/// The value of an [`Offsets`] field that this kernel's BTF does not have.
pub const ABSENT: u32 = u32::MAX;

/// Byte offsets of the kernel structures' members that the programs read, from the running kernel's BTF.
///
/// A nested member's offset is from the start of the outer structure. [`ABSENT`] means that this kernel has no such
/// member; it then reads as zero.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct Offsets {
    /// `task_struct.pid`: the thread's id.
    pub task_pid: u32,
    /// `task_struct.tgid`: the process's id.
    pub task_tgid: u32,
    /// `task_struct.group_leader`, a pointer.
    pub task_group_leader: u32,
    /// `task_struct.real_parent`, a pointer.
    pub task_real_parent: u32,
    /// `task_struct.start_boottime`, nanoseconds (Linux 5.5; `real_start_time` before).
    pub task_start_boottime: u32,
    /// `task_struct.comm`, 16 bytes.
    pub task_comm: u32,
    /// `task_struct.cred`, a pointer.
    pub task_cred: u32,
    /// `task_struct.mm`, a pointer.
    pub task_mm: u32,
    /// `task_struct.signal`, a pointer.
    pub task_signal: u32,
    /// `task_struct.exit_code`, a wait status.
    pub task_exit_code: u32,
    /// `task_struct.exit_state`: not 0 for a thread that is a zombie, or was.
    pub task_exit_state: u32,
    /// `task_struct.flags`.
    pub task_flags: u32,
    /// `cred.uid`.
    pub cred_uid: u32,
    /// `signal_struct.live`, the number of live threads.
    pub signal_live: u32,
    /// `signal_struct.nr_threads`, the number of threads that are not reaped.
    pub signal_nr_threads: u32,
    /// `signal_struct.flags`.
    pub signal_flags: u32,
    /// `signal_struct.group_exit_code`.
    pub signal_group_exit_code: u32,
    /// `signal_struct.maxrss`, pages.
    pub signal_maxrss: u32,
    /// `signal_struct.tty`, a pointer.
    pub signal_tty: u32,
    /// `mm_struct.arg_start`.
    pub mm_arg_start: u32,
    /// `mm_struct.arg_end`.
    pub mm_arg_end: u32,
    /// `mm_struct.hiwater_rss`, pages.
    pub mm_hiwater_rss: u32,
    /// `mm_struct.owner`, a pointer (CONFIG_MEMCG).
    pub mm_owner: u32,
    /// The first counter in `mm_struct.rss_stat`.
    pub mm_rss_stat: u32,
    /// Bytes from one counter in `mm_struct.rss_stat` to the next.
    pub mm_rss_stride: u32,
    /// `linux_binprm.filename`, a pointer.
    pub bprm_filename: u32,
    /// `linux_binprm.file`, a pointer: what is executed, the script, until its interpreter replaces it.
    pub bprm_file: u32,
    /// `file.f_path.dentry`, a pointer.
    pub file_dentry: u32,
    /// `file.f_inode`, a pointer.
    pub file_inode: u32,
    /// `dentry.d_name.name`, a pointer.
    pub dentry_name: u32,
    /// `inode.i_ino`.
    pub inode_ino: u32,
    /// `inode.i_generation`.
    pub inode_generation: u32,
    /// `inode.i_nlink`.
    pub inode_nlink: u32,
    /// `inode.i_sb`, a pointer.
    pub inode_sb: u32,
    /// `super_block.s_dev`.
    pub super_dev: u32,
    /// `kernel_siginfo.si_code`.
    pub siginfo_code: u32,
    /// `task_struct.thread_pid`, a pointer; null once the process is reaped.
    pub task_thread_pid: u32,
    /// `pid.level`: how many pid namespaces lie around the innermost one that the thread is in.
    pub pid_level: u32,
    /// `pid.numbers`, an array with an element for each level.
    pub pid_numbers: u32,
    /// Bytes from one element of `pid.numbers` to the next.
    pub pid_numbers_stride: u32,
    /// `upid.nr`.
    pub upid_nr: u32,
    /// `upid.ns`, a pointer to a `pid_namespace`.
    pub upid_ns: u32,
    /// `pid_namespace.ns.inum`.
    pub namespace_inum: u32,
}

impl Offsets {
    /// The object's initial value, before userspace overrides it.
    pub const NONE: Self = Self {
        task_pid: ABSENT,
        task_tgid: ABSENT,
        task_group_leader: ABSENT,
        task_real_parent: ABSENT,
        task_start_boottime: ABSENT,
        task_comm: ABSENT,
        task_cred: ABSENT,
        task_mm: ABSENT,
        task_signal: ABSENT,
        task_exit_code: ABSENT,
        task_exit_state: ABSENT,
        task_flags: ABSENT,
        cred_uid: ABSENT,
        signal_live: ABSENT,
        signal_nr_threads: ABSENT,
        signal_flags: ABSENT,
        signal_group_exit_code: ABSENT,
        signal_maxrss: ABSENT,
        signal_tty: ABSENT,
        mm_arg_start: ABSENT,
        mm_arg_end: ABSENT,
        mm_hiwater_rss: ABSENT,
        mm_owner: ABSENT,
        mm_rss_stat: ABSENT,
        mm_rss_stride: ABSENT,
        bprm_filename: ABSENT,
        bprm_file: ABSENT,
        file_dentry: ABSENT,
        file_inode: ABSENT,
        dentry_name: ABSENT,
        inode_ino: ABSENT,
        inode_generation: ABSENT,
        inode_nlink: ABSENT,
        inode_sb: ABSENT,
        super_dev: ABSENT,
        siginfo_code: ABSENT,
        task_thread_pid: ABSENT,
        pid_level: ABSENT,
        pid_numbers: ABSENT,
        pid_numbers_stride: ABSENT,
        upid_nr: ABSENT,
        upid_ns: ABSENT,
        namespace_inum: ABSENT,
    };
}

/// What userspace configures at load time.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "user", derive(zerocopy::IntoBytes, zerocopy::Immutable))]
pub struct LoadSettings {
    /// Close watch: a memory record is sent when the process's counters have moved by this many pages since the last one.
    pub memory_step_pages: u32,
    /// Entries of `TRACKED`.
    pub max_processes: u32,
    /// The inode of the pid namespace whose pids all records and maps have; 0 for the initial one.
    pub pid_namespace: u32,
    /// Keeps the size a multiple of eight.
    pub reserved: u32,
    /// What the daemon's time namespace adds to CLOCK_BOOTTIME, in nanoseconds. All records and maps have it.
    pub boottime_offset: i64,
}

const _: () = assert!(size_of::<Offsets>() == 172);
const _: () = assert!(size_of::<LoadSettings>() == 24);
