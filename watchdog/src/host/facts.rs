//! The bare facts that the list of capabilities is made of, read from this host.

use std::fs;

use rustix::fs::statfs;
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::meminfo;
use super::pins::{self, PinnedLayout};
use super::stat::Fields;
use crate::engine::id::Bytes;

/// `PROC_PID_INIT_INO` of include/linux/proc_ns.h: the inode of the initial pid namespace.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
/// `TRACEFS_MAGIC` and `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const TRACEFS: u64 = 0x7472_6163;
const BPFFS: u64 = 0xcafe_4a11;

/// What was found. What could not be read counts as not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// uname's release.
    pub release: String,
    /// Capabilities in effect (`CapEff`).
    pub privileges: u64,
    /// We are in the initial pid namespace: our pids are the kernel's.
    pub initial_pid_namespace: bool,
    /// The `hidepid` option that /proc is mounted with, if any.
    pub hidepid: Option<String>,
    /// What the kernel's BTF names; `None` without BTF.
    pub btf: Option<BtfNames>,
    /// Active security modules; `None` where securityfs is not mounted.
    pub lsms: Option<String>,
    /// Whether an LSM program was called when that was tried, or why not; `None` where nobody has tried.
    pub lsm_trial: Option<Result<(), String>>,
    /// The level that kernel lockdown is at, where that is told.
    pub lockdown: Option<String>,
    /// Where the cgroup v2 hierarchy is mounted, and the controllers that it has.
    pub cgroup_v2: Option<(String, Vec<String>)>,
    /// The kernel has pressure information.
    pub psi: Psi,
    /// /proc/PID/smaps_rollup exists.
    pub smaps_rollup: bool,
    /// pidfd_open works.
    pub pidfd: bool,
    /// /sys/kernel/tracing is mounted.
    pub tracefs: bool,
    /// /sys/fs/bpf is mounted.
    pub bpffs: bool,
    /// Whether a daemon could pin programs and maps there, or why not; `None` where none has tried.
    pub pins: Option<Result<(), String>>,
    /// What is pinned there.
    pub pinned: Vec<PinnedLayout>,
    /// SwapTotal.
    pub swap: Bytes,
}

/// Whether there is /proc/pressure/memory, and it can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Psi {
    /// It can be read.
    On,
    /// The kernel knows it, but was booted without it.
    SwitchedOff,
    /// The kernel was built without it.
    Absent,
}

/// Names in the kernel's BTF, each of which comes with a facility.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BtfNames {
    /// `bpf_ringbuf_map`: ring buffers.
    pub ring_buffer: bool,
    /// `btf_trace_sched_process_fork`, `_exec` and `_exit`: tracepoints with typed arguments.
    pub tracepoints: bool,
    /// `bpf_iter__task`: the task iterator.
    pub task_iterator: bool,
    /// `bpf_lsm_task_alloc`: hooks for LSM programs.
    pub lsm_hooks: bool,
}

impl Facts {
    /// Whether this capability is in effect.
    #[must_use]
    pub fn has(&self, capability: u32) -> bool {
        self.privileges >> capability & 1 == 1
    }

    /// Reads them: 5 ms, nearly all of it for the kernel's BTF.
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
            initial_pid_namespace: fs::read_link("/proc/self/ns/pid")
                .is_ok_and(|link| link.as_os_str() == INITIAL_PID_NAMESPACE),
            hidepid: text("/proc/self/mountinfo").as_deref().and_then(hidepid),
            btf: fs::read("/sys/kernel/btf/vmlinux").ok().as_deref().and_then(btf_names),
            lsms: text("/sys/kernel/security/lsm").map(|lsms| lsms.trim().to_owned()),
            lsm_trial: None,
            lockdown: text("/sys/kernel/security/lockdown").as_deref().and_then(chosen),
            cgroup_v2: ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().find_map(|root| {
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
            swap: meminfo::host_memory().map(|host| host.swap_total).unwrap_or_default(),
        }
    }
}

/// The hidepid option of the mount at /proc. The last line of a mount point is the mount that is seen.
fn hidepid(mountinfo: &str) -> Option<String> {
    let line = mountinfo.lines().rev().find(|line| line.split(' ').nth(4) == Some("/proc"))?;
    let options = line.rsplit(' ').next()?;
    let value = options.split(',').find_map(|option| option.strip_prefix("hidepid="))?;
    (!matches!(value, "0" | "off")).then(|| value.to_owned())
}

/// The word in brackets, of a file that offers a choice.
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
    fn hidepid_is_that_of_the_mount_that_is_seen(#[case] mountinfo: &str, #[case] expected: Option<&str>) {
        assert_eq!(hidepid(mountinfo).as_deref(), expected);
    }

    #[test]
    fn the_level_in_brackets_is_the_one_in_force() {
        assert_eq!(chosen("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!(chosen("none"), None);
    }

    #[test]
    fn btf_is_searched_by_whole_names_and_garbage_is_none() {
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
    fn this_host_is_read() {
        let facts = Facts::read();
        assert!(facts.release.contains('.'), "{facts:?}");
        assert!(facts.smaps_rollup && facts.pidfd, "{facts:?}");
        assert_eq!(facts.btf.is_some(), fs::exists("/sys/kernel/btf/vmlinux").unwrap());
    }
}
