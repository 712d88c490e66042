//! The only reader of kernel structures.
//!
//! aya has no CO-RE for programs written in Rust, so userspace looks the offsets up in the running kernel's BTF and puts
//! them into [`OFFSETS`] before the object is loaded. The global lies in a frozen read-only map: the verifier knows each
//! value as a constant, checks every access against the kernel's types, and drops the branches of what is absent. So a
//! read costs one load instead of a call of `bpf_probe_read_kernel` (12 ns), and a wrong offset is refused at load time.
//!
//! A stale or null pointer reads as zeros: exception tables guard the loads through BTF pointers.

use core::ffi::c_void;

use aya_ebpf::helpers::{bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_probe_read_kernel_buf};
use watchdog_common::{ABSENT, COMM_LEN, FileId, Offsets};

use crate::namespace;

#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets::NONE;

/// The offset of one member. Volatile, because the compiler would otherwise use the value in the object.
macro_rules! offset {
    ($member:ident) => {
        // SAFETY: a read of an initialised static.
        unsafe { core::ptr::read_volatile(&raw const OFFSETS.$member) }
    };
}

/// The value of the member at `offset` in the kernel structure at `base`; zeros where there is no such member, or where `base` is null.
///
/// Null is not checked: the exception tables make it read as zeros, and each check doubles the states that the verifier
/// visits behind it (the program on exec took 582,000 instructions of its limit of a million on Linux 6.1, and takes 85,000).
#[inline(always)]
fn read<T: Copy + Default>(base: *const c_void, offset: u32) -> T {
    if offset == ABSENT {
        return T::default();
    }
    // SAFETY: the verifier proves that `base` is a kernel structure with a member of this size at `offset`.
    unsafe { base.byte_add(offset as usize).cast::<T>().read_volatile() }
}

/// A pointer member; null where there is no such member.
#[inline(always)]
fn read_pointer(base: *const c_void, offset: u32) -> *const c_void {
    if offset == ABSENT {
        return core::ptr::null();
    }
    // SAFETY: as in `read`.
    unsafe { base.byte_add(offset as usize).cast::<*const c_void>().read_volatile() }
}

/// `struct task_struct`: one thread.
#[derive(Clone, Copy)]
pub struct Task(*const c_void);

impl Task {
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

    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The thread's id in the initial pid namespace, for maps that only the programs use.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        read(self.0, offset!(task_pid))
    }

    /// The process's id in the daemon's pid namespace; 0 for a process outside it, or one that is reaped.
    ///
    /// Cost: one load in the initial namespace, else four loads and three helper calls.
    #[inline(always)]
    pub fn tgid(self) -> u32 {
        if namespace::inode() == 0 { self.host_tgid() } else { self.leader().pid().number() }
    }

    /// The process's id in the initial pid namespace.
    #[inline(always)]
    pub fn host_tgid(self) -> u32 {
        read(self.0, offset!(task_tgid))
    }

    #[inline(always)]
    pub fn is_leader(self) -> bool {
        self.tid() == self.host_tgid()
    }

    #[inline(always)]
    pub fn pid(self) -> PidNumbers {
        PidNumbers(read_pointer(self.0, offset!(task_thread_pid)))
    }

    /// The first thread of the process, whose start identifies the process.
    #[inline(always)]
    pub fn leader(self) -> Self {
        Self(read_pointer(self.0, offset!(task_group_leader)))
    }

    /// The present parent, which need not be the process that forked this one.
    #[inline(always)]
    pub fn parent(self) -> Self {
        Self(read_pointer(self.0, offset!(task_real_parent)))
    }

    /// `start_boottime`, nanoseconds, as the daemon's /proc shows it. That of the [`leader`](Self::leader) identifies a process.
    #[inline(always)]
    pub fn start(self) -> u64 {
        namespace::boot_time(read(self.0, offset!(task_start_boottime)))
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
        // SAFETY: the helper reads only mapped memory.
        unsafe { bpf_probe_read_kernel(at) }.unwrap_or_default()
    }

    /// Null for a kernel thread, and for an exiting thread that has released it.
    #[inline(always)]
    pub fn mm(self) -> Mm {
        Mm(read_pointer(self.0, offset!(task_mm)))
    }

    #[inline(always)]
    pub fn thread_group(self) -> ThreadGroup {
        ThreadGroup(read_pointer(self.0, offset!(task_signal)))
    }

    /// The wait status of this thread alone.
    #[inline(always)]
    pub fn exit_code(self) -> u32 {
        read(self.0, offset!(task_exit_code))
    }

    /// Whether the thread is in do_exit (include/linux/sched.h).
    #[inline(always)]
    pub fn is_exiting(self) -> bool {
        const PF_EXITING: u32 = 1 << 2;
        read::<u32>(self.0, offset!(task_flags)) & PF_EXITING != 0
    }

    /// Whether the thread is a zombie, or was one.
    #[inline(always)]
    pub fn has_exited(self) -> bool {
        read::<u32>(self.0, offset!(task_exit_state)) != 0
    }
}

/// `struct pid`: a thread's id in each pid namespace that it is in.
#[derive(Clone, Copy)]
pub struct PidNumbers(*const c_void);

impl PidNumbers {
    /// How many pid namespaces lie around the innermost one.
    #[inline(always)]
    pub fn level(self) -> u32 {
        read(self.0, offset!(pid_level))
    }

    /// The number in the daemon's namespace; 0 when the thread is not in it. By helper: before Linux 6.6 the verifier takes the
    /// array for one of a single element. Not inlined: it would double the object.
    #[inline(never)]
    fn number(self) -> u32 {
        let level = namespace::level();
        if self.level() < level {
            return 0;
        }
        /// The bytes of 64 levels. The verifier of Linux 6.1 does not bound a product.
        const WITHIN: usize = 1_023;
        let within = level as usize * offset!(pid_numbers_stride) as usize & WITHIN;
        let element = self.0.wrapping_byte_add(offset!(pid_numbers) as usize).wrapping_byte_add(within);
        let in_namespace = probe::<*const c_void>(element, offset!(upid_ns))
            .and_then(|namespace| probe::<u32>(namespace, offset!(namespace_inum)))
            .is_some_and(|inode| inode == namespace::inode());
        if in_namespace { probe(element, offset!(upid_nr)).unwrap_or(0) } else { 0 }
    }
}

/// A value in kernel memory whose type the verifier does not know.
#[inline(always)]
fn probe<T>(base: *const c_void, offset: u32) -> Option<T> {
    // SAFETY: the helper reads only mapped memory.
    unsafe { bpf_probe_read_kernel(base.wrapping_byte_add(offset as usize).cast::<T>()) }.ok()
}

/// `struct signal_struct`: what the threads of a process share.
#[derive(Clone, Copy)]
pub struct ThreadGroup(*const c_void);

impl ThreadGroup {
    /// `SIGNAL_GROUP_EXIT` (include/linux/sched/signal.h): a thread called exit_group, or a signal killed the process.
    const GROUP_EXIT: u32 = 1 << 2;

    /// Whether no thread is alive.
    #[inline(always)]
    pub fn is_dead(self) -> bool {
        read::<i32>(self.0, offset!(signal_live)) == 0
    }

    /// Whether all threads but the leader are reaped.
    #[inline(always)]
    pub fn is_alone(self) -> bool {
        read::<i32>(self.0, offset!(signal_nr_threads)) <= 1
    }

    /// The wait status that the parent receives: the group's, or the leader's where no group exit took place
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

    #[inline(always)]
    pub fn has_tty(self) -> bool {
        !read_pointer(self.0, offset!(signal_tty)).is_null()
    }
}

/// `struct mm_struct`: an address space.
#[derive(Clone, Copy)]
pub struct Mm(*const c_void);

impl Mm {
    #[inline(always)]
    pub fn from_argument(mm: *const c_void) -> Self {
        Self(mm)
    }

    #[inline(always)]
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The arguments' address, and their length in bytes.
    #[inline(always)]
    pub fn arguments(self) -> (u64, u64) {
        let start: u64 = read(self.0, offset!(mm_arg_start));
        let end: u64 = read(self.0, offset!(mm_arg_end));
        (start, end.wrapping_sub(start))
    }

    /// A thread of the process that owns it; null without CONFIG_MEMCG.
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
        // Before 6.2 they are an array of `atomic_long_t`, and the verifier does not resolve a typedef there ("Type
        // 'atomic_long_t' is not a struct").
        let counter: *const i64 = self.0.wrapping_byte_add(offset as usize).cast();
        // SAFETY: the helper reads only mapped memory.
        unsafe { bpf_probe_read_kernel(counter) }.unwrap_or(0)
    }

    /// The highest resident set, in pages. The kernel updates it only when memory shrinks.
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

/// Copies the path of a `struct linux_binprm`, with a NUL. Returns its length without the NUL; 0 if it cannot be read.
#[inline(always)]
pub fn read_path(bprm: *const c_void, to: &mut [u8]) -> usize {
    let path = read_pointer(bprm, offset!(bprm_filename));
    // SAFETY: the helper writes at most `to.len()` bytes, and reads only mapped memory.
    let read = unsafe {
        aya_ebpf::helpers::generated::bpf_probe_read_kernel_str(to.as_mut_ptr().cast(), to.len() as u32, path)
    };
    if read > 0 { read as usize - 1 } else { 0 }
}

/// The path in a `struct linux_binprm`, as the caller passed it to exec.
#[inline(always)]
pub fn path_of(bprm: *const c_void) -> *const c_void {
    read_pointer(bprm, offset!(bprm_filename))
}

/// The name of the file itself in a `struct linux_binprm`, behind symbolic links and descriptors; null where the kernel's types
/// lack a member.
#[inline(always)]
pub fn file_name_of(bprm: *const c_void) -> *const c_void {
    let dentry = read_pointer(read_pointer(bprm, offset!(bprm_file)), offset!(file_dentry));
    read_pointer(dentry, offset!(dentry_name))
}

/// Which file a `struct linux_binprm` executes, and its number of links; zeros where the kernel's types lack a member.
#[inline(always)]
pub fn file_of(bprm: *const c_void) -> (FileId, u32) {
    let inode = read_pointer(read_pointer(bprm, offset!(bprm_file)), offset!(file_inode));
    let device = read(read_pointer(inode, offset!(inode_sb)), offset!(super_dev));
    let generation = read(inode, offset!(inode_generation));
    (FileId { inode: read(inode, offset!(inode_ino)), device, generation }, read(inode, offset!(inode_nlink)))
}

/// Bytes of a string that [`read_part`] copies at once.
pub const PATH_PART: usize = 128;

/// Copies one part of a string in kernel memory, with a NUL. Returns whether more may follow.
#[inline(always)]
pub fn read_part(text: *const c_void, number: usize, to: &mut [u8; PATH_PART + 1]) -> bool {
    let part = text.wrapping_byte_add(number * PATH_PART);
    // SAFETY: the helper writes at most `to.len()` bytes, and reads only mapped memory.
    let read = unsafe {
        aya_ebpf::helpers::generated::bpf_probe_read_kernel_str(to.as_mut_ptr().cast(), to.len() as u32, part)
    };
    if read <= 0 {
        to[0] = 0;
    }
    read > PATH_PART as i64
}

/// `si_code` of a `struct kernel_siginfo`, whose address may also be one of two special values.
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
            // SAFETY: the helper reads only mapped memory.
            unsafe { bpf_probe_read_kernel(code) }.unwrap_or(0)
        }
    }
}

/// Argument `n` of a BTF tracepoint as a number. As a pointer to a structure, the verifier would assume that it is never null.
#[inline(always)]
pub fn raw_argument(context: *const c_void, n: usize) -> u64 {
    let mut raw = [0u8; 8];
    // SAFETY: the context is an array of 64-bit arguments; the helper reads only mapped memory.
    let read = unsafe { bpf_probe_read_kernel_buf(context.cast::<u64>().wrapping_add(n).cast(), &mut raw) };
    if read.is_ok() { u64::from_ne_bytes(raw) } else { 0 }
}
