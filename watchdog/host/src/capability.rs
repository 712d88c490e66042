//! The capabilities of this host: the rows of `watchdogctl doctor`, with the impact of each and how to fix it.

use jiff::Timestamp;

use super::capability_row::CapabilityRow;
use super::namespaces::PidNamespace;
use super::pins::PinnedLayout;
pub use super::probe::{BtfNames, HostProbe, PageOutCall, Psi};
use super::reclaim_capability::{CAP_SYS_NICE, page_out, swap, swap_space};
use watchdog_api::Capability;

/// Numbers of capabilities(7).
const CAP_KILL: u32 = 5;
const CAP_SYS_PTRACE: u32 = 19;
/// Capabilities that the daemon uses. It does without CAP_SYS_ADMIN, which grants as much as all of these together and would
/// only add the peer of a socket that was created in a container.
const PRIVILEGES: [(u32, &str); 7] = [
    (CAP_KILL, "CAP_KILL"),
    (1, "CAP_DAC_OVERRIDE"),
    (2, "CAP_DAC_READ_SEARCH"),
    (CAP_SYS_PTRACE, "CAP_SYS_PTRACE"),
    (CAP_SYS_NICE, "CAP_SYS_NICE"),
    (38, "CAP_PERFMON"),
    (39, "CAP_BPF"),
];
const ROOT: &str = "run watchdogd as root (`sudo watchdogd`)";

/// Probes this host; 5 ms.
#[must_use]
pub fn probe() -> Vec<Capability> {
    of(&HostProbe::read())
}

/// Why this host prevents every signal, with the fix; `None` when it does not.
#[must_use]
pub fn cannot_act(facts: &HostProbe) -> Option<String> {
    if !facts.has(CAP_KILL) {
        return Some(format!("CAP_KILL is not in effect: {ROOT}, or give its service CAP_KILL"));
    }
    let CapabilityRow { on, why, remedy, .. } = pidfd(facts);
    (!on).then(|| format!("{why}: {}", remedy.unwrap_or_default()))
}

/// The rows for this host, most important first.
#[must_use]
pub fn of(facts: &HostProbe) -> Vec<Capability> {
    let rows = [
        privileges(facts),
        pid_namespace(facts),
        initial_pid_namespace(facts),
        visibility(facts),
        CapabilityRow {
            name: "btf",
            on: facts.btf.is_some(),
            why: if facts.btf.is_some() {
                "/sys/kernel/btf/vmlinux is readable".to_owned()
            } else {
                "/sys/kernel/btf/vmlinux is missing or unreadable".to_owned()
            },
            with: "15 ms at start",
            without: "no kernel programs: /proc is polled once a second, and shorter-lived processes are missed",
            remedy: Some("boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (every current distribution kernel is)"),
        },
        from_btf(
            facts,
            "tp_btf",
            |names| names.tracepoints,
            "btf_trace_sched_process_fork, _exec and _exit",
            "1 to 2 % of a fork or exec",
            "no kernel events: /proc is polled once a second",
            "boot Linux 5.8 or newer, built with CONFIG_BPF_EVENTS=y",
        ),
        from_btf(
            facts,
            "ring_buffer",
            |names| names.ring_buffer,
            "struct bpf_ringbuf_map",
            "a few MiB of kernel memory",
            "no ordered kernel events: /proc is polled once a second",
            "boot Linux 5.8 or newer",
        ),
        from_btf(
            facts,
            "bpf_atomics",
            |names| names.atomics,
            "BPF_FUNC_check_mtu, which came with them (Linux 5.12)",
            "nothing",
            "the kernel rejects the programs: /proc is polled once a second",
            "boot Linux 5.12 or newer",
        ),
        from_btf(
            facts,
            "task_iterator",
            |names| names.task_iterator,
            "struct bpf_iter__task",
            "0.5 µs per tracked process and memory sample",
            "memory is sampled from /proc/PID/statm: 1.4 µs and one open file per process",
            "boot Linux 5.8 or newer",
        ),
        lockdown(facts),
        bpffs(facts),
        pidfd(facts),
        psi(facts),
        CapabilityRow {
            name: "smaps_rollup",
            on: facts.smaps_rollup,
            why: format!("/proc/self/smaps_rollup {}", if facts.smaps_rollup { "exists" } else { "does not exist" }),
            with: "25 ms per GiB measured, at most 1 % of a CPU",
            without: "memory shared by processes of a tree is counted once per process",
            remedy: Some("boot a kernel built with CONFIG_PROC_PAGE_MONITOR=y"),
        },
        cgroup(facts),
        lsm(facts),
        CapabilityRow {
            name: "tracefs",
            on: facts.tracefs,
            why: mounted(facts.tracefs, "/sys/kernel/tracing", "tracefs"),
            with: "nothing",
            without: "nothing while BTF is available: programs are attached by type, not through tracefs",
            remedy: Some("mount -t tracefs tracefs /sys/kernel/tracing"),
        },
        page_out(facts),
        swap(facts),
    ];
    rows.into_iter().chain(swap_space(facts)).map(Capability::from).collect()
}

fn privileges(facts: &HostProbe) -> CapabilityRow {
    let missing: Vec<(u32, &str)> = PRIVILEGES.into_iter().filter(|(bit, _)| !facts.has(*bit)).collect();
    let names: Vec<&str> = missing.iter().map(|(_, name)| *name).collect();
    CapabilityRow {
        name: "privileges",
        on: missing.is_empty(),
        why: if missing.is_empty() {
            "every required capability is in effect".to_owned()
        } else {
            format!("not in effect: {}", names.join(", "))
        },
        with: "nothing",
        without: match (facts.has(CAP_KILL), missing.len()) {
            (true, 1) if !facts.has(CAP_SYS_NICE) => "idle sessions keep their memory until they exit",
            (true, _) => "no kernel programs, and other users' processes are mostly hidden",
            (false, 1) => "no process can be signalled: `enforce` has no effect, and `reap` and `end` are refused",
            (false, _) => {
                "no kernel programs, other users' processes are mostly hidden, and none can be signalled: `enforce` has no \
                 effect, and `reap` and `end` are refused"
            }
        },
        remedy: Some(ROOT),
    }
}

/// Kernel events carry the pids of the daemon's namespace, so /proc must show the same.
fn pid_namespace(facts: &HostProbe) -> CapabilityRow {
    CapabilityRow {
        name: "pid_namespace",
        on: facts.pid_namespace.is_some(),
        why: match facts.pid_namespace {
            Some(namespace) => format!("/proc shows {namespace}, the namespace of this process"),
            None => "/proc is not mounted, or shows another pid namespace than that of this process".to_owned(),
        },
        with: "nothing",
        without: "pids in /proc belong to other processes: none can be tracked",
        remedy: Some("mount -t proc proc /proc, in the pid namespace of watchdogd"),
    }
}

fn initial_pid_namespace(facts: &HostProbe) -> CapabilityRow {
    let on = facts.pid_namespace.is_some_and(PidNamespace::is_initial);
    CapabilityRow {
        name: "initial_pid_namespace",
        on,
        why: match facts.pid_namespace {
            Some(_) if on => "/proc/self/ns/pid is the initial namespace".to_owned(),
            Some(namespace) => {
                format!("/proc/self/ns/pid is {namespace}: this process runs in a container, or under WSL 2")
            }
            None => "unknown without /proc".to_owned(),
        },
        with: "nothing",
        without: "only processes in this pid namespace are tracked, and a signal from outside has no pid",
        remedy: Some(
            "to watch the whole host, run watchdogd on the host, or the container with `--pid=host` (Kubernetes: \
             `hostPID: true`)",
        ),
    }
}

fn pidfd(facts: &HostProbe) -> CapabilityRow {
    CapabilityRow {
        name: "pidfd",
        on: facts.pidfd,
        why: format!("pidfd_open {}", if facts.pidfd { "works" } else { "fails" }),
        with: "nothing",
        without: "no process is signalled: without a pidfd, a signal could reach another process",
        remedy: Some("boot Linux 5.3 or newer, and let seccomp allow pidfd_open"),
    }
}

fn visibility(facts: &HostProbe) -> CapabilityRow {
    let exempt = facts.has(CAP_SYS_PTRACE);
    CapabilityRow {
        name: "proc_visibility",
        on: facts.hidepid.is_none() || exempt,
        why: match (&facts.hidepid, exempt) {
            (None, _) => "/proc is mounted without hidepid".to_owned(),
            (Some(value), true) => format!("/proc is mounted with hidepid={value}; CAP_SYS_PTRACE overrides it"),
            (Some(value), false) => format!("/proc is mounted with hidepid={value}"),
        },
        with: "nothing",
        without: "processes of other users are hidden",
        remedy: Some("run watchdogd as root, or `mount -o remount,hidepid=0 /proc`"),
    }
}

/// A feature that the kernel's BTF shows.
fn from_btf(
    facts: &HostProbe,
    name: &'static str,
    has: impl Fn(&BtfNames) -> bool,
    what: &str,
    with: &'static str,
    without: &'static str,
    remedy: &'static str,
) -> CapabilityRow {
    let (on, why) = match &facts.btf {
        Some(names) if has(names) => (true, format!("the kernel's BTF has {what}")),
        Some(_) => (false, format!("the BTF of Linux {} lacks {what}", facts.release)),
        None => (false, "unknown without BTF".to_owned()),
    };
    CapabilityRow { name, on, why, with, without, remedy: Some(remedy) }
}

fn lockdown(facts: &HostProbe) -> CapabilityRow {
    let confidential = facts.lockdown.as_deref() == Some("confidentiality");
    CapabilityRow {
        name: "kernel_reads",
        on: !confidential,
        why: match &facts.lockdown {
            Some(level) => format!("kernel lockdown level: `{level}`"),
            None => "no kernel lockdown reported".to_owned(),
        },
        with: "nothing",
        without: "kernel programs may not read kernel memory: /proc is polled once a second",
        remedy: Some("boot with `lockdown=integrity`"),
    }
}

fn psi(facts: &HostProbe) -> CapabilityRow {
    CapabilityRow {
        name: "psi",
        on: facts.psi == Psi::On,
        why: match facts.psi {
            Psi::On => "/proc/pressure/memory is readable",
            Psi::SwitchedOff => "/proc/pressure/memory exists, but the kernel was booted without it",
            Psi::Absent => "/proc/pressure/memory does not exist: the kernel was built without CONFIG_PSI",
        }
        .to_owned(),
        with: "nothing",
        without: "memory shortage is detected by MemAvailable alone, so later",
        remedy: Some(match facts.psi {
            Psi::Absent => "boot a kernel built with CONFIG_PSI=y",
            Psi::On | Psi::SwitchedOff => "boot with `psi=1`",
        }),
    }
}

fn cgroup(facts: &HostProbe) -> CapabilityRow {
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
                (false, format!("{root} lacks the controllers: {}", missing.join(", ")))
            }
        }
    };
    CapabilityRow {
        name: "cgroup_v2",
        on,
        why,
        with: "nothing until a session has a limit",
        without: "the kernel cannot limit the memory or the number of processes of a session",
        remedy: Some("boot with `systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all`"),
    }
}

/// A trial is better evidence than securityfs.
fn lsm(facts: &HostProbe) -> CapabilityRow {
    let hooks = facts.btf.is_some_and(|names| names.lsm_hooks);
    let listed = facts.lsms.as_deref().map(|lsms| lsms.split(',').any(|lsm| lsm == "bpf"));
    let modules = facts.lsms.as_deref().unwrap_or_default();
    let (on, why, remedy) = match (&facts.lsm_trial, hooks, listed) {
        (Some(Ok(())), ..) => (true, "a trial LSM program was called".to_owned(), ""),
        (_, false, _) => (
            false,
            "the kernel's BTF has no bpf_lsm_task_alloc".to_owned(),
            "boot a kernel built with CONFIG_BPF_LSM=y, with `lsm=…,bpf`",
        ),
        (Some(Err(reason)), true, Some(false)) => (
            false,
            format!("{reason} (active: {modules})"),
            "boot with `lsm=` and the current list with `,bpf` appended",
        ),
        (Some(Err(reason)), true, None | Some(true)) => {
            (false, reason.clone(), "boot a kernel that lets root load LSM programs, with `bpf` at the end of `lsm=`")
        }
        (None, true, None) => (
            false,
            "/sys/kernel/security/lsm is missing, so it is unknown whether `bpf` is active".to_owned(),
            "mount -t securityfs securityfs /sys/kernel/security",
        ),
        (None, true, Some(false)) => (
            false,
            format!("`bpf` is not among the active modules: {modules}"),
            "boot with `lsm=` and the current list with `,bpf` appended",
        ),
        (None, true, Some(true)) => (true, "`bpf` is among the modules of /sys/kernel/security/lsm".to_owned(), ""),
    };
    CapabilityRow {
        name: "lsm",
        on,
        why,
        with: "nothing until a session has `max_helpers` or `ungated` is \"deny\"",
        without: "the kernel programs cannot refuse a fork or an exec: `max_helpers` is enforced by pids.max of the session's \
                  cgroup, which counts threads, so it is 32 per helper; an ungated agent is killed right after its exec, and \
                  a script is denied by its name alone",
        remedy: Some(remedy),
    }
}

/// The file system on which the kernel programs stay while no daemon runs.
fn bpffs(facts: &HostProbe) -> CapabilityRow {
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
    CapabilityRow {
        name: "bpffs",
        on: facts.bpffs && refused.is_none(),
        why,
        with: "while no daemon runs, 1 to 2 µs per fork, exec and exit of a tracked process, until `watchdogd --unpin`",
        without: "processes are not tracked while no daemon runs: the next daemon does not know the exit codes of agents, nor \
                  the lineage of helpers that double-forked",
        remedy: Some("mount -t bpf bpf /sys/fs/bpf, in the mount namespace of the host, and restart watchdogd"),
    }
}

fn mounted(on: bool, path: &str, kind: &str) -> String {
    format!("{path} is {} {kind} file system", if on { "a" } else { "not a" })
}

#[cfg(test)]
#[path = "capability_tests.rs"]
mod tests;
