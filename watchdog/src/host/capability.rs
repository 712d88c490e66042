//! What this host gives, what it lacks, what that costs, and what to do about it: the rows of `watchdogctl doctor`.

use jiff::Timestamp;

pub use super::facts::{BtfNames, Facts, Psi};
use super::pins::PinnedLayout;
use crate::api::Capability;
use crate::engine::id::Bytes;

/// Numbers of capabilities(7).
const CAP_KILL: u32 = 5;
const CAP_SYS_PTRACE: u32 = 19;
/// Capabilities that the daemon uses. CAP_SYS_ADMIN is none of them: all it would add is who holds the other end of a socket that
/// was made in a container, and it is worth all the others together.
const PRIVILEGES: [(u32, &str); 6] = [
    (CAP_KILL, "CAP_KILL"),
    (1, "CAP_DAC_OVERRIDE"),
    (2, "CAP_DAC_READ_SEARCH"),
    (CAP_SYS_PTRACE, "CAP_SYS_PTRACE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];
/// What to do where a capability is missing.
const ROOT: &str = "run watchdogd as root (`sudo watchdogd`)";

/// Looks at the host.
#[must_use]
pub fn probe() -> Vec<Capability> {
    of(&Facts::read())
}

/// Why nobody is signalled on such a host, and what to do about it; `None` when whoever is to be can be.
#[must_use]
pub fn cannot_act(facts: &Facts) -> Option<String> {
    if !facts.has(CAP_KILL) {
        return Some(format!("CAP_KILL is not in effect: {ROOT}, or give its service CAP_KILL"));
    }
    let Row { on, why, remedy, .. } = pidfd(facts);
    (!on).then(|| format!("{why}: {}", remedy.unwrap_or_default()))
}

/// One row: both costs are written down, and the one that applies is told.
struct Row {
    name: &'static str,
    on: bool,
    why: String,
    with: &'static str,
    without: &'static str,
    remedy: Option<&'static str>,
}

impl From<Row> for Capability {
    fn from(row: Row) -> Self {
        let Row { name, on, why, with, without, remedy } = row;
        Self {
            name: name.to_owned(),
            on,
            why,
            cost: if on { with } else { without }.to_owned(),
            remedy: remedy.filter(|_| !on).map(str::to_owned),
        }
    }
}

/// What these facts amount to, most important first.
#[must_use]
pub fn of(facts: &Facts) -> Vec<Capability> {
    let rows = [
        privileges(facts),
        Row {
            name: "initial_pid_namespace",
            on: facts.initial_pid_namespace,
            why: if facts.initial_pid_namespace {
                "/proc/self/ns/pid is the initial namespace".to_owned()
            } else {
                "/proc/self/ns/pid is not the initial namespace: this is a container".to_owned()
            },
            with: "nothing",
            without: "kernel events name processes by other numbers than /proc here does: processes cannot be followed by kernel events",
            remedy: Some("run watchdogd on the host, or the container with `--pid=host`"),
        },
        visibility(facts),
        Row {
            name: "btf",
            on: facts.btf.is_some(),
            why: if facts.btf.is_some() {
                "/sys/kernel/btf/vmlinux is readable".to_owned()
            } else {
                "/sys/kernel/btf/vmlinux is missing or unreadable".to_owned()
            },
            with: "15 ms at start",
            without: "no kernel programs: processes are followed by a look at /proc once a second, and what lives shorter is missed",
            remedy: Some("boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (every current distribution kernel is)"),
        },
        from_btf(
            facts,
            "tp_btf",
            |names| names.tracepoints,
            "btf_trace_sched_process_fork, _exec and _exit",
            "1 to 2 % of a fork or exec",
            "no kernel events: processes are followed by a look at /proc once a second",
            "boot Linux 5.8 or newer, built with CONFIG_BPF_EVENTS=y",
        ),
        from_btf(
            facts,
            "ring_buffer",
            |names| names.ring_buffer,
            "struct bpf_ringbuf_map",
            "a few MiB of kernel memory",
            "no way for kernel events to reach us in order: processes are followed by a look at /proc once a second",
            "boot Linux 5.8 or newer",
        ),
        from_btf(
            facts,
            "task_iterator",
            |names| names.task_iterator,
            "struct bpf_iter__task",
            "0.5 µs for each tracked process and look at its memory",
            "memory is sampled from /proc/PID/statm: 1.4 µs for each process and look, and one open file each",
            "boot Linux 5.8 or newer",
        ),
        lockdown(facts),
        bpffs(facts),
        pidfd(facts),
        psi(facts),
        Row {
            name: "smaps_rollup",
            on: facts.smaps_rollup,
            why: format!("/proc/self/smaps_rollup {}", if facts.smaps_rollup { "exists" } else { "does not exist" }),
            with: "25 ms for each GiB measured, at most 1 % of a CPU",
            without: "memory that processes of a tree share is counted once for each of them",
            remedy: Some("boot a kernel built with CONFIG_PROC_PAGE_MONITOR=y"),
        },
        cgroup(facts),
        lsm(facts),
        Row {
            name: "tracefs",
            on: facts.tracefs,
            why: mounted(facts.tracefs, "/sys/kernel/tracing", "tracefs"),
            with: "nothing",
            without: "nothing while BTF is there: programs are attached by type, not by tracefs",
            remedy: Some("mount -t tracefs tracefs /sys/kernel/tracing"),
        },
        Row {
            name: "swap",
            on: facts.swap > Bytes(0),
            why: format!("SwapTotal is {} MiB", facts.swap.0 >> 20),
            with: "memory that was swapped out is counted as well",
            without: "nothing: a host without swap comes to the OOM killer sooner",
            remedy: None,
        },
    ];
    rows.into_iter().map(Capability::from).collect()
}

fn privileges(facts: &Facts) -> Row {
    let missing: Vec<(u32, &str)> = PRIVILEGES.into_iter().filter(|(bit, _)| !facts.has(*bit)).collect();
    let names: Vec<&str> = missing.iter().map(|(_, name)| *name).collect();
    Row {
        name: "privileges",
        on: missing.is_empty(),
        why: if missing.is_empty() {
            "every capability that is used is in effect".to_owned()
        } else {
            format!("not in effect: {}", names.join(", "))
        },
        with: "nothing",
        without: match (facts.has(CAP_KILL), missing.len()) {
            (true, _) => "no kernel programs, and little is seen of other users' processes",
            (false, 1) => "nobody is signalled: `enforce` has no effect, and `reap` and `end` are refused",
            (false, _) => {
                "no kernel programs, little is seen of other users' processes, and nobody is signalled: `enforce` has no \
                 effect, and `reap` and `end` are refused"
            }
        },
        remedy: Some(ROOT),
    }
}

fn pidfd(facts: &Facts) -> Row {
    Row {
        name: "pidfd",
        on: facts.pidfd,
        why: format!("pidfd_open {}", if facts.pidfd { "works" } else { "fails" }),
        with: "nothing",
        without: "no process is ever signalled: without a pidfd a signal could reach another process",
        remedy: Some("boot Linux 5.3 or newer, and let seccomp allow pidfd_open"),
    }
}

fn visibility(facts: &Facts) -> Row {
    let exempt = facts.has(CAP_SYS_PTRACE);
    Row {
        name: "proc_visibility",
        on: facts.hidepid.is_none() || exempt,
        why: match (&facts.hidepid, exempt) {
            (None, _) => "/proc is mounted without hidepid".to_owned(),
            (Some(value), true) => format!("/proc is mounted with hidepid={value}, from which CAP_SYS_PTRACE exempts"),
            (Some(value), false) => format!("/proc is mounted with hidepid={value}"),
        },
        with: "nothing",
        without: "processes of other users are not seen at all",
        remedy: Some("run watchdogd as root, or `mount -o remount,hidepid=0 /proc`"),
    }
}

/// A facility that the kernel's BTF has a name for.
fn from_btf(
    facts: &Facts,
    name: &'static str,
    has: impl Fn(&BtfNames) -> bool,
    what: &str,
    with: &'static str,
    without: &'static str,
    remedy: &'static str,
) -> Row {
    let (on, why) = match &facts.btf {
        Some(names) if has(names) => (true, format!("the kernel's BTF has {what}")),
        Some(_) => (false, format!("the BTF of Linux {} lacks {what}", facts.release)),
        None => (false, "not to be told without BTF".to_owned()),
    };
    Row { name, on, why, with, without, remedy: Some(remedy) }
}

fn lockdown(facts: &Facts) -> Row {
    let confidential = facts.lockdown.as_deref() == Some("confidentiality");
    Row {
        name: "kernel_reads",
        on: !confidential,
        why: match &facts.lockdown {
            Some(level) => format!("kernel lockdown is at `{level}`"),
            None => "no kernel lockdown is told of".to_owned(),
        },
        with: "nothing",
        without: "kernel programs may not read kernel memory: processes are followed by a look at /proc once a second",
        remedy: Some("boot with `lockdown=integrity`"),
    }
}

fn psi(facts: &Facts) -> Row {
    Row {
        name: "psi",
        on: facts.psi == Psi::On,
        why: match facts.psi {
            Psi::On => "/proc/pressure/memory is readable",
            Psi::SwitchedOff => "/proc/pressure/memory exists, but the kernel was booted without it",
            Psi::Absent => "/proc/pressure/memory does not exist: the kernel was built without CONFIG_PSI",
        }
        .to_owned(),
        with: "nothing",
        without: "that memory is short is seen by MemAvailable alone, so later",
        remedy: Some(match facts.psi {
            Psi::Absent => "boot a kernel built with CONFIG_PSI=y",
            Psi::On | Psi::SwitchedOff => "boot with `psi=1`",
        }),
    }
}

fn cgroup(facts: &Facts) -> Row {
    const NEEDED: [&str; 2] = ["memory", "pids"];
    let (on, why) = match &facts.cgroup_v2 {
        None => (false, "no cgroup v2 hierarchy at /sys/fs/cgroup or /sys/fs/cgroup/unified".to_owned()),
        Some((root, controllers)) => {
            let missing: Vec<&str> = NEEDED
                .into_iter()
                .filter(|needed| !controllers.iter().any(|controller| controller == needed))
                .collect();
            if missing.is_empty() {
                (true, format!("{root} has the controllers memory and pids"))
            } else {
                (false, format!("{root} is without the controllers: {}", missing.join(", ")))
            }
        }
    };
    Row {
        name: "cgroup_v2",
        on,
        why,
        with: "nothing until a session is capped",
        without: "the kernel cannot cap the memory or the number of processes of a session",
        remedy: Some("boot with `systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all`"),
    }
}

/// That was tried is better evidence than what securityfs says, and that better than none.
fn lsm(facts: &Facts) -> Row {
    let hooks = facts.btf.is_some_and(|names| names.lsm_hooks);
    let listed = facts.lsms.as_deref().map(|lsms| lsms.split(',').any(|lsm| lsm == "bpf"));
    let modules = facts.lsms.as_deref().unwrap_or_default();
    let (on, why, remedy) = match (&facts.lsm_trial, hooks, listed) {
        (Some(Ok(())), ..) => (true, "an LSM program was called when that was tried".to_owned(), ""),
        (_, false, _) => (
            false,
            "the kernel's BTF has no bpf_lsm_task_alloc".to_owned(),
            "boot a kernel built with CONFIG_BPF_LSM=y, with `lsm=…,bpf`",
        ),
        (Some(Err(reason)), true, Some(false)) => {
            (false, format!("{reason} (active: {modules})"), "boot with `lsm=` and today's list with `,bpf` appended")
        }
        (Some(Err(reason)), true, None | Some(true)) => {
            (false, reason.clone(), "boot a kernel that lets root load LSM programs, with `bpf` at the end of `lsm=`")
        }
        (None, true, None) => (
            false,
            "/sys/kernel/security/lsm is not there, so it is not known whether `bpf` is active".to_owned(),
            "mount -t securityfs securityfs /sys/kernel/security",
        ),
        (None, true, Some(false)) => (
            false,
            format!("`bpf` is not among the active modules: {modules}"),
            "boot with `lsm=` and today's list with `,bpf` appended",
        ),
        (None, true, Some(true)) => (true, "`bpf` is among the modules of /sys/kernel/security/lsm".to_owned(), ""),
    };
    Row {
        name: "lsm",
        on,
        why,
        with: "nothing until a session has `max_helpers` or `ungated` is \"deny\"",
        without: "what is past a bound is not refused in the kernel: `max_helpers` is held by pids.max of the session's \
                  cgroup, which counts threads too, so it is 32 for each helper; and an agent past the gate is killed as \
                  it comes out of its exec, instead of refused the exec, and a script is denied by its name alone",
        remedy: Some(remedy),
    }
}

/// Where what the kernel programs know outlives the daemon.
fn bpffs(facts: &Facts) -> Row {
    let refused = facts.pins.as_ref().and_then(|pins| pins.as_ref().err());
    let mut why = refused.cloned().unwrap_or_else(|| mounted(facts.bpffs, "/sys/fs/bpf", "bpf"));
    for PinnedLayout { path, runtime_dir, since } in &facts.pinned {
        let since = Timestamp::try_from(*since).map_or_else(|_| "?".to_owned(), |at| format!("{at:.0}"));
        why.push_str(&format!(
            "; pinned since {since} for the runtime directory {}: {}",
            runtime_dir.display(),
            path.display()
        ));
    }
    Row {
        name: "bpffs",
        on: facts.bpffs && refused.is_none(),
        why,
        with: "while no daemon runs, 1 to 2 µs for each fork, exec and exit of a tracked process, until `watchdogd --unpin`",
        without: "processes are not tracked while no daemon runs: exit codes of agents that end then, and helpers that fork \
                  away from their parents then, are not known to the next daemon",
        remedy: Some("mount -t bpf bpf /sys/fs/bpf, in the mount namespace of the host, and restart watchdogd"),
    }
}

fn mounted(on: bool, path: &str, kind: &str) -> String {
    format!("{path} is {} {kind} file system", if on { "a" } else { "no" })
}

#[cfg(test)]
#[path = "capability_tests.rs"]
mod tests;
