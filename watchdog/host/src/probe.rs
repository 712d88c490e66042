//! The probes of this host's features from which [`capability`](super::capability) makes its rows.

use std::fs;

use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::namespaces::PidNamespace;
use super::page_out::try_advice;
use super::pins::{self, PinnedLayout};
use super::stat::Fields;
use super::swap;
use watchdog_types::SwapStatus;

/// `TRACEFS_MAGIC` and `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const TRACEFS: u64 = 0x7472_6163;
const BPFFS: u64 = 0xcafe_4a11;
/// Mount points of the cgroup v2 hierarchy.
const CGROUP_ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The capabilities of this host. One that cannot be read counts as missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostProbe {
    /// uname's release.
    pub release: String,
    /// `CapEff`.
    pub privileges: u64,
    /// `None` when /proc shows another one than ours.
    pub pid_namespace: Option<PidNamespace>,
    /// Mount option of /proc.
    pub hidepid: Option<String>,
    /// `None` without BTF.
    pub btf: Option<BtfNames>,
    /// Active security modules; `None` where securityfs is not mounted.
    pub lsms: Option<String>,
    /// Whether a trial LSM program was called, or why not; `None` without a trial.
    pub lsm_trial: Option<Result<(), String>>,
    /// Level of kernel lockdown; `None` where it is not reported.
    pub lockdown: Option<String>,
    /// Mount point and controllers of the cgroup v2 hierarchy.
    pub cgroup_v2: Option<(String, Vec<String>)>,
    pub psi: Psi,
    /// /proc/PID/smaps_rollup exists.
    pub smaps_rollup: bool,
    /// pidfd_open works.
    pub pidfd: bool,
    /// /sys/kernel/tracing is mounted.
    pub tracefs: bool,
    /// /sys/fs/bpf is mounted.
    pub bpffs: bool,
    /// Whether a daemon could pin programs and maps there, or why not; `None` without a trial.
    pub pins: Option<Result<(), String>>,
    pub pinned: Vec<PinnedLayout>,
    pub swap: SwapStatus,
    pub process_madvise: PageOutCall,
}

/// Whether process_madvise(2) with MADV_PAGEOUT works, CAP_SYS_NICE aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageOutCall {
    Works,
    /// The kernel has no such call or advice.
    Absent,
    /// A seccomp filter refuses it.
    Refused,
}

/// Whether /proc/pressure/memory can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Psi {
    On,
    /// Built in, but booted with `psi=0`.
    SwitchedOff,
    /// Not built in.
    Absent,
}

/// Features by the names in the kernel's BTF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BtfNames {
    /// `bpf_ringbuf_map`: ring buffers.
    pub ring_buffer: bool,
    /// `BPF_FUNC_check_mtu`, which came with the atomic instructions of BPF that return a value (Linux 5.12).
    pub atomics: bool,
    /// `btf_trace_sched_process_fork`, `_exec` and `_exit`: tracepoints with typed arguments.
    pub tracepoints: bool,
    /// `bpf_iter__task`: the task iterator.
    pub task_iterator: bool,
    /// `bpf_lsm_task_alloc`: hooks for LSM programs.
    pub lsm_hooks: bool,
}

impl HostProbe {
    /// `capability`: its number in capabilities(7).
    #[must_use]
    pub fn has(&self, capability: u32) -> bool {
        self.privileges >> capability & 1 == 1
    }

    /// 5 ms, nearly all of it for the kernel's BTF.
    #[must_use]
    pub fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let status = fs::read("/proc/self/status").unwrap_or_default();
        let mounts = |path: &str, magic| statfs(path).is_ok_and(|fs| u64::try_from(fs.f_type) == Ok(magic));
        Self {
            release: rustix::system::uname().release().to_string_lossy().into_owned(),
            privileges: Fields(&status)
                .words("CapEff")
                .and_then(|mut words| u64::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 16).ok())
                .unwrap_or(0),
            pid_namespace: PidNamespace::own(),
            hidepid: text("/proc/self/mountinfo").as_deref().and_then(hidepid),
            btf: fs::read("/sys/kernel/btf/vmlinux").ok().as_deref().and_then(btf_names),
            lsms: text("/sys/kernel/security/lsm").map(|lsms| lsms.trim().to_owned()),
            lsm_trial: None,
            lockdown: text("/sys/kernel/security/lockdown").as_deref().and_then(chosen),
            cgroup_v2: CGROUP_ROOTS.into_iter().find_map(|root| {
                let controllers = text(&format!("{root}/cgroup.controllers"))?;
                Some((root.to_owned(), controllers.split_whitespace().map(str::to_owned).collect()))
            }),
            psi: match fs::read("/proc/pressure/memory") {
                Ok(_) => Psi::On,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Psi::Absent,
                Err(_) => Psi::SwitchedOff,
            },
            smaps_rollup: fs::exists("/proc/self/smaps_rollup").unwrap_or(false),
            pidfd: pidfd_open(getpid(), PidfdFlags::empty()).is_ok(),
            tracefs: mounts("/sys/kernel/tracing", TRACEFS),
            bpffs: mounts("/sys/fs/bpf", BPFFS),
            pins: None,
            pinned: pins::pinned(),
            swap: swap::swap_status(),
            process_madvise: match try_advice() {
                Ok(()) => PageOutCall::Works,
                Err(Errno::PERM | Errno::ACCESS) => PageOutCall::Refused,
                Err(_) => PageOutCall::Absent,
            },
        }
    }
}

/// The hidepid option of the mount at /proc. The last line of a mount point is the visible mount.
fn hidepid(mountinfo: &str) -> Option<String> {
    let line = mountinfo.lines().rev().find(|line| line.split(' ').nth(4) == Some("/proc"))?;
    let options = line.rsplit(' ').next()?;
    let value = options.split(',').find_map(|option| option.strip_prefix("hidepid="))?;
    (!matches!(value, "0" | "off")).then(|| value.to_owned())
}

/// The selected word, in brackets, of a list of choices.
fn chosen(choice: &str) -> Option<String> {
    choice.split_whitespace().find_map(|word| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned()))
}

/// Looks for the names in BTF's string section (Documentation/bpf/btf.rst: magic, version, flags, hdr_len, type_off,
/// type_len, str_off, str_len; both offsets count from the end of the header).
fn btf_names(btf: &[u8]) -> Option<BtfNames> {
    let word = |at: usize| -> Option<usize> {
        let bytes = btf.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_ne_bytes(bytes)).ok()
    };
    if btf.get(..2)? != 0xeb9f_u16.to_ne_bytes() {
        return None;
    }
    let start = word(4)?.checked_add(word(16)?)?;
    let strings = btf.get(start..start.checked_add(word(20)?)?)?;
    let mut names = BtfNames::default();
    let mut tracepoints = 0;
    for name in strings.split(|byte| *byte == 0) {
        match name {
            b"bpf_ringbuf_map" => names.ring_buffer = true,
            b"BPF_FUNC_check_mtu" => names.atomics = true,
            b"btf_trace_sched_process_fork" | b"btf_trace_sched_process_exec" | b"btf_trace_sched_process_exit" => {
                tracepoints += 1;
            }
            b"bpf_iter__task" => names.task_iterator = true,
            b"bpf_lsm_task_alloc" => names.lsm_hooks = true,
            _ => {}
        }
    }
    names.tracepoints = tracepoints == 3;
    Some(names)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("22 27 0:21 / /proc rw,relatime - proc proc rw\n", None)]
    #[case::hidden("22 27 0:21 / /proc rw,relatime - proc proc rw,gid=5,hidepid=invisible\n", Some("invisible"))]
    #[case::off("22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=0\n", None)]
    #[case::mounted_over(
        "22 27 0:21 / /proc rw - proc proc rw,hidepid=2\n40 27 0:21 / /proc rw - proc proc rw\n",
        None
    )]
    fn hidepid_of_visible_mount(#[case] mountinfo: &str, #[case] expected: Option<&str>) {
        assert_eq!(hidepid(mountinfo).as_deref(), expected);
    }

    #[test]
    fn bracketed_level_is_selected() {
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn btf_matches_whole_names() {
        let strings = b"\0bpf_ringbuf_map\0bpf_iter__task_file\0btf_trace_sched_process_fork\0";
        let mut btf = Vec::new();
        btf.extend(0xeb9f_u16.to_ne_bytes());
        btf.extend([1, 0]);
        for word in [24, 0, 0, 0, u32::try_from(strings.len()).unwrap()] {
            btf.extend(u32::to_ne_bytes(word));
        }
        btf.extend(strings);
        assert_eq!(btf_names(&btf), Some(BtfNames { ring_buffer: true, ..BtfNames::default() }));
        assert_eq!(btf_names(&btf[..btf.len() - 1]), None);
        assert_eq!(btf_names(b"not btf"), None);
    }

    #[test]
    fn this_host_is_probed() {
        let facts = HostProbe::read();
        assert!(facts.release.contains('.'), "{facts:?}");
        assert!(facts.smaps_rollup && facts.pidfd, "{facts:?}");
        assert_eq!(facts.btf.is_some(), fs::exists("/sys/kernel/btf/vmlinux").unwrap());
    }
}
