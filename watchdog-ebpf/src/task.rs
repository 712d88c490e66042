//! The only reader of kernel structures.
//!
//! aya has no CO-RE for programs written in Rust, so userspace looks the offsets up in the running kernel's BTF and puts
//! them into [`OFFSETS`] before the object is loaded. The global lies in a frozen read-only map: the verifier knows each
//! value as a constant, checks every access against the kernel's types, and drops the branches of what is absent. So a
//! read costs one load, not a call of `bpf_probe_read_kernel` (12 ns), and a wrong offset is refused at load time.
//!
//! A pointer that turns out to be stale reads as zeros: the kernel guards loads through BTF pointers by its exception
//! tables.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_probe_read_kernel_buf};
use watchdog_common::{ABSENT, COMM_LEN, FileId, Offsets};

/// The running kernel's offsets.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets::NONE;

/// The offset of one member; volatile, because the compiler would otherwise take the value that stands in the object.
macro_rules! offset {
    ($member:ident) => {
        // SAFETY: a read of an initialised static.
        unsafe { core::ptr::read_volatile(&raw const OFFSETS.$member) }
    };
}

/// The value of the member at `offset` in the kernel structure at `base`, or zeros where there is no such member.
#[inline(always)]
fn read<T: Copy + Default>(base: *const c_void, offset: u32) -> T {
    if offset == ABSENT || base.is_null() {
        return T::default();
    }
    // SAFETY: the verifier proves that `base` is a kernel structure with a member of this size at `offset`.
    unsafe { base.byte_add(offset as usize).cast::<T>().read_volatile() }
}

/// A pointer member; null where there is no such member.
#[inline(always)]
fn read_pointer(base: *const c_void, offset: u32) -> *const c_void {
    if offset == ABSENT || base.is_null() {
        return core::ptr::null();
    }
    // SAFETY: as in `read`.
    unsafe { base.byte_add(offset as usize).cast::<*const c_void>().read_volatile() }
}

/// `struct task_struct`: one thread.
#[derive(Clone, Copy)]
pub struct Task(*const c_void);

impl Task {
    /// A tracepoint's or an iterator's argument.
    #[inline(always)]
    pub fn from_argument(task: *const c_void) -> Self {
        Self(task)
    }

    /// The running thread. `bpf_get_current_task_btf` came with Linux 5.11.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no precondition.
        Self(unsafe { bpf_get_current_task_btf() }.cast_const().cast())
    }

    /// No task, as behind a null pointer.
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The thread's id.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        read(self.0, offset!(task_pid))
    }

    /// The process's id.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        read(self.0, offset!(task_tgid))
    }

    /// Whether this thread stands for its process.
    #[inline(always)]
    pub fn is_leader(self) -> bool {
        self.tid() == self.tgid()
    }

    /// The thread that stands for the process: identity is its start, whichever thread runs.
    #[inline(always)]
    pub fn leader(self) -> Self {
        Self(read_pointer(self.0, offset!(task_group_leader)))
    }

    /// The parent, as it is today.
    #[inline(always)]
    pub fn parent(self) -> Self {
        Self(read_pointer(self.0, offset!(task_real_parent)))
    }

    /// `start_boottime`, nanoseconds. For an identity ask the [`leader`](Self::leader).
    #[inline(always)]
    pub fn start(self) -> u64 {
        read(self.0, offset!(task_start_boottime))
    }

    /// The real user.
    #[inline(always)]
    pub fn uid(self) -> u32 {
        read(read_pointer(self.0, offset!(task_cred)), offset!(cred_uid))
    }

    /// comm; empty when it cannot be read. A copy by helper: the verifier lets no load reach over an array's elements.
    #[inline(always)]
    pub fn comm(self) -> [u8; COMM_LEN] {
        let at: *const [u8; COMM_LEN] = self.0.wrapping_byte_add(offset!(task_comm) as usize).cast();
        // SAFETY: the helper reads only what is mapped.
        unsafe { bpf_probe_read_kernel(at) }.unwrap_or_default()
    }

    /// The memory; null for a kernel thread, and for a thread that has let go of it while exiting.
    #[inline(always)]
    pub fn mm(self) -> Mm {
        Mm(read_pointer(self.0, offset!(task_mm)))
    }

    /// What the threads of the process share.
    #[inline(always)]
    pub fn process(self) -> Process {
        Process(read_pointer(self.0, offset!(task_signal)))
    }

    /// The thread's wait status.
    #[inline(always)]
    pub fn exit_code(self) -> u32 {
        read(self.0, offset!(task_exit_code))
    }

    /// The thread is a zombie, or was.
    #[inline(always)]
    pub fn has_exited(self) -> bool {
        read::<u32>(self.0, offset!(task_exit_state)) != 0
    }
}

/// `struct signal_struct`: what the threads of a process share.
#[derive(Clone, Copy)]
pub struct Process(*const c_void);

impl Process {
    /// `SIGNAL_GROUP_EXIT` (include/linux/sched/signal.h): the whole group was told to exit.
    const GROUP_EXIT: u32 = 1 << 2;

    /// No thread is alive any more.
    #[inline(always)]
    pub fn is_dead(self) -> bool {
        read::<i32>(self.0, offset!(signal_live)) == 0
    }

    /// No thread is left but the one that stands for the process: all others are reaped.
    #[inline(always)]
    pub fn is_alone(self) -> bool {
        read::<i32>(self.0, offset!(signal_nr_threads)) <= 1
    }

    /// The wait status that the parent will get: the group's, or the leader's where no group exit took place
    /// (`wait_task_zombie` in kernel/exit.c).
    #[inline(always)]
    pub fn wait_status(self, leader: Task) -> u32 {
        if read::<u32>(self.0, offset!(signal_flags)) & Self::GROUP_EXIT != 0 {
            read(self.0, offset!(signal_group_exit_code))
        } else {
            leader.exit_code()
        }
    }

    /// The highest resident set of all programs that the process executed, in pages. Programs still running are added
    /// when they end.
    #[inline(always)]
    pub fn maxrss(self) -> u64 {
        read(self.0, offset!(signal_maxrss))
    }

    /// Whether it has a controlling terminal.
    #[inline(always)]
    pub fn has_tty(self) -> bool {
        !read_pointer(self.0, offset!(signal_tty)).is_null()
    }
}

/// `struct mm_struct`: an address space.
#[derive(Clone, Copy)]
pub struct Mm(*const c_void);

impl Mm {
    /// A tracepoint's argument.
    #[inline(always)]
    pub fn from_argument(mm: *const c_void) -> Self {
        Self(mm)
    }

    /// No address space.
    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Where the arguments stand: address and length in bytes.
    #[inline(always)]
    pub fn arguments(self) -> (u64, u64) {
        let start: u64 = read(self.0, offset!(mm_arg_start));
        let end: u64 = read(self.0, offset!(mm_arg_end));
        (start, end.wrapping_sub(start))
    }

    /// A thread of the process that it belongs to; null without CONFIG_MEMCG.
    #[inline(always)]
    pub fn owner(self) -> Task {
        Task(read_pointer(self.0, offset!(mm_owner)))
    }

    /// `rss_stat`, in pages: file, anonymous, swap, shmem. On kernels from 6.2 these are the shared parts of per-CPU
    /// counters, so each may be off by some dozen pages per CPU, and below zero.
    #[inline(always)]
    pub fn counters(self) -> [i64; 4] {
        [self.counter(0), self.counter(1), self.counter(2), self.counter(3)]
    }

    #[inline(always)]
    fn counter(self, index: u32) -> i64 {
        let stride = offset!(mm_rss_stride);
        let offset = offset!(mm_rss_stat) + index * stride;
        if stride as usize > size_of::<i64>() {
            return read(self.0, offset);
        }
        // Before 6.2 they are an array of `atomic_long_t`, and the verifier does not look behind a typedef there ("Type
        // 'atomic_long_t' is not a struct").
        let counter: *const i64 = self.0.wrapping_byte_add(offset as usize).cast();
        // SAFETY: the helper reads only what is mapped.
        unsafe { bpf_probe_read_kernel(counter) }.unwrap_or(0)
    }

    /// The highest resident set, in pages. The kernel notes it only when memory shrinks.
    #[inline(always)]
    pub fn hiwater_rss(self) -> u64 {
        read(self.0, offset!(mm_hiwater_rss))
    }

    /// The highest resident set, the present one included, in pages; 0 without an address space.
    #[inline(always)]
    pub fn peak(self) -> u64 {
        if self.is_null() {
            return 0;
        }
        let [file, anon, _swap, shmem] = self.counters();
        self.hiwater_rss().max((file + anon + shmem).max(0) as u64)
    }
}

/// Copies the path out of a `struct linux_binprm`. Returns its length without the NUL.
#[inline(always)]
pub fn read_path(bprm: *const c_void, to: &mut [u8]) -> usize {
    let path = read_pointer(bprm, offset!(bprm_filename));
    // SAFETY: the helper writes at most `to.len()` bytes, and reads only what is mapped.
    let read = unsafe {
        aya_ebpf::helpers::generated::bpf_probe_read_kernel_str(to.as_mut_ptr().cast(), to.len() as u32, path)
    };
    if read > 0 { read as usize - 1 } else { 0 }
}

/// The path in a `struct linux_binprm`, as it was given to exec.
#[inline(always)]
pub fn path_of(bprm: *const c_void) -> *const c_void {
    read_pointer(bprm, offset!(bprm_filename))
}

/// The name of the file itself in a `struct linux_binprm`, through whichever symbolic link or descriptor it is executed; null
/// where the kernel's types do not tell.
#[inline(always)]
pub fn file_name_of(bprm: *const c_void) -> *const c_void {
    let dentry = read_pointer(read_pointer(bprm, offset!(bprm_file)), offset!(file_dentry));
    read_pointer(dentry, offset!(dentry_name))
}

/// Which file a `struct linux_binprm` executes, and how many names it has; zeros where the kernel's types do not tell.
#[inline(always)]
pub fn file_of(bprm: *const c_void) -> (FileId, u32) {
    let inode = read_pointer(read_pointer(bprm, offset!(bprm_file)), offset!(file_inode));
    let device = read(read_pointer(inode, offset!(inode_sb)), offset!(super_dev));
    let generation = read(inode, offset!(inode_generation));
    (FileId { inode: read(inode, offset!(inode_ino)), device, generation }, read(inode, offset!(inode_nlink)))
}

/// Bytes of a text that [`read_part`] gives at once.
pub const PATH_PART: usize = 128;

/// Copies one part of a text of the kernel's, with a NUL behind it. Returns whether there may be more.
#[inline(always)]
pub fn read_part(text: *const c_void, number: usize, to: &mut [u8; PATH_PART + 1]) -> bool {
    let part = text.wrapping_byte_add(number * PATH_PART);
    // SAFETY: the helper writes at most as many bytes as it is told, and reads only what is mapped.
    let read = unsafe {
        aya_ebpf::helpers::generated::bpf_probe_read_kernel_str(to.as_mut_ptr().cast(), to.len() as u32, part)
    };
    if read <= 0 {
        to[0] = 0;
    }
    read > PATH_PART as i64
}

/// `si_code` of a `struct kernel_siginfo`, which may also be one of two special addresses instead.
#[inline(always)]
pub fn signal_code(info: u64) -> i32 {
    /// `SEND_SIG_NOINFO`: from a process; `SI_USER`.
    const NO_INFO: u64 = 0;
    /// `SEND_SIG_PRIV`: from the kernel.
    const PRIVATE: u64 = 1;
    /// include/uapi/asm-generic/siginfo.h
    const SI_KERNEL: i32 = 0x80;
    match info {
        NO_INFO => 0,
        PRIVATE => SI_KERNEL,
        address => {
            let code = (address + u64::from(offset!(siginfo_code))) as *const i32;
            // SAFETY: the helper reads only what is mapped.
            unsafe { bpf_probe_read_kernel(code) }.unwrap_or(0)
        }
    }
}

/// Argument `n` of a BTF tracepoint as a number that the verifier takes for no pointer: it would reason that a pointer
/// to a structure is never null.
#[inline(always)]
pub fn raw_argument(context: *const c_void, n: usize) -> u64 {
    let mut raw = [0u8; 8];
    // SAFETY: the context is an array of 64-bit arguments; the helper reads only what is mapped.
    let read = unsafe { bpf_probe_read_kernel_buf(context.cast::<u64>().wrapping_add(n).cast(), &mut raw) };
    if read.is_ok() { u64::from_ne_bytes(raw) } else { 0 }
}
