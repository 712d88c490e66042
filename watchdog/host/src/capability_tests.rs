//! Hosts of several kinds, and what is said of them.

use super::*;
use watchdog_types::{Bytes, SwapStatus};

/// A current server: root, everything there.
fn server() -> HostProbe {
    HostProbe {
        release: "6.12.1".to_owned(),
        privileges: (1 << 41) - 1,
        pid_namespace: Some(PidNamespace::INITIAL),
        hidepid: None,
        btf: Some(BtfNames {
            ring_buffer: true,
            atomics: true,
            tracepoints: true,
            task_iterator: true,
            lsm_hooks: true,
        }),
        lsms: Some("lockdown,capability,yama,apparmor,bpf".to_owned()),
        lsm_trial: Some(Ok(())),
        lockdown: Some("none".to_owned()),
        cgroup_v2: Some(("/sys/fs/cgroup".to_owned(), vec!["cpu".to_owned(), "memory".to_owned(), "pids".to_owned()])),
        psi: Psi::On,
        smaps_rollup: true,
        pidfd: true,
        tracefs: true,
        bpffs: true,
        pins: Some(Ok(())),
        pinned: Vec::new(),
        swap: SwapStatus {
            total: Bytes::from_mib(2048),
            free: Bytes::from_mib(2000),
            zram: true,
            zswap: false,
            compressed: Some(Bytes::from_mib(12)),
        },
        process_madvise: PageOutCall::Works,
    }
}

/// Names of what is off.
fn off(facts: &HostProbe) -> Vec<String> {
    of(facts).into_iter().filter(|capability| !capability.on).map(|capability| capability.name).collect()
}

fn row(facts: &HostProbe, name: &str) -> Capability {
    of(facts).into_iter().find(|capability| capability.name == name).unwrap()
}

#[test]
fn current_server_lacks_nothing() {
    assert_eq!(off(&server()), Vec::<String>::new());
    assert!(of(&server()).iter().all(|capability| capability.remedy.is_none()));
}

#[test]
fn rows_are_complete_and_unique() {
    let bare = HostProbe {
        release: "4.19.0".to_owned(),
        privileges: 0,
        pid_namespace: None,
        hidepid: Some("2".to_owned()),
        btf: None,
        lsms: None,
        lsm_trial: None,
        lockdown: Some("confidentiality".to_owned()),
        cgroup_v2: None,
        psi: Psi::Absent,
        smaps_rollup: false,
        pidfd: false,
        tracefs: false,
        bpffs: false,
        pins: None,
        pinned: Vec::new(),
        swap: SwapStatus::default(),
        process_madvise: PageOutCall::Absent,
    };
    let rows = of(&bare);
    assert!(rows.iter().all(|row| !row.on && !row.why.is_empty() && !row.cost.is_empty()), "{rows:#?}");
    assert!(rows.iter().all(|row| row.remedy.is_some()), "{rows:#?}");
    let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len());
}

#[test]
fn missing_capabilities_are_named() {
    let facts = HostProbe { privileges: 1 << 5, hidepid: Some("invisible".to_owned()), ..server() };
    assert_eq!(off(&facts), ["privileges", "proc_visibility", "page_out"]);
    let why = row(&facts, "privileges").why;
    assert_eq!(
        why,
        "not in effect: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SYS_NICE, CAP_PERFMON, CAP_BPF"
    );
}

#[test]
fn missing_kill_permission_names_fix() {
    assert_eq!(cannot_act(&server()), None);
    let facts = HostProbe { privileges: server().privileges & !(1 << 5), ..server() };
    let problem = cannot_act(&facts).unwrap();
    assert!(problem.contains("CAP_KILL") && problem.contains("sudo watchdogd"), "{problem}");
    let shown = row(&facts, "privileges");
    assert_eq!(shown.why, "not in effect: CAP_KILL");
    assert!(shown.cost.starts_with("no process can be signalled: `enforce` has no effect"), "{}", shown.cost);
    let problem = cannot_act(&HostProbe { pidfd: false, ..server() }).unwrap();
    assert!(problem.contains("pidfd_open fails") && problem.contains("Linux 5.3"), "{problem}");
}

#[test]
fn page_out_needs_call_and_capability() {
    let row_of = |process_madvise, privileges| {
        let row = row(&HostProbe { process_madvise, privileges, ..server() }, "page_out");
        (row.on, row.remedy.unwrap_or_default())
    };
    let (all, without) = (server().privileges, server().privileges & !(1 << 23));
    assert!(row_of(PageOutCall::Works, all).0);
    let (on, remedy) = row_of(PageOutCall::Works, without);
    assert!(!on && remedy.contains("CAP_SYS_NICE"), "{remedy}");
    assert!(row_of(PageOutCall::Absent, all).1.contains("5.10"));
    assert!(row_of(PageOutCall::Refused, all).1.contains("seccomp"));
    let shown = row(&HostProbe { privileges: without, ..server() }, "privileges");
    assert_eq!((shown.on, shown.why.as_str()), (false, "not in effect: CAP_SYS_NICE"));
    assert_eq!(shown.cost, "idle sessions keep their memory until they exit");
}

#[test]
fn swap_row_names_compression() {
    let why = row(&server(), "swap").why;
    assert_eq!(why, "SwapTotal is 2048 MiB, of which 2000 MiB are free, zram that uses 12 MiB of memory now");
    let bare = row(&HostProbe { swap: SwapStatus::default(), ..server() }, "swap");
    assert!(!bare.on && bare.remedy.unwrap().contains("zram-generator"), "{}", bare.why);
}

#[test]
fn missing_swap_is_one_row() {
    assert_eq!(off(&HostProbe { swap: SwapStatus::default(), ..server() }), ["swap"]);
    let full = SwapStatus { free: Bytes(0), ..server().swap };
    assert_eq!(off(&HostProbe { swap: full, ..server() }), ["swap_space"]);
}

#[test]
fn full_swap_is_reported() {
    let row_of = |free| {
        let swap = SwapStatus { free: Bytes::from_mib(free), ..server().swap };
        row(&HostProbe { swap, ..server() }, "swap_space")
    };
    assert!(row_of(300).on);
    let full = row_of(200);
    assert_eq!((full.on, full.why.as_str()), (false, "200 of 2048 MiB of swap are free; 10 % stay free"));
    assert!(full.cost.contains("nothing can be paged out") && full.remedy.unwrap().contains("add swap"));
}

#[test]
fn root_sees_through_hidepid() {
    assert!(row(&HostProbe { hidepid: Some("2".to_owned()), ..server() }, "proc_visibility").on);
}

#[test]
fn other_pid_namespace_is_named() {
    let facts = HostProbe { pid_namespace: Some(PidNamespace::of(4_026_532_345)), ..server() };
    assert_eq!(off(&facts), ["initial_pid_namespace"]);
    assert_eq!(row(&facts, "pid_namespace").why, "/proc shows pid:[4026532345], the namespace of this process");
    let facts = HostProbe { pid_namespace: None, ..server() };
    assert_eq!(off(&facts), ["pid_namespace", "initial_pid_namespace"]);
}

#[test]
fn missing_btf_disables_kernel_programs() {
    let facts = HostProbe { btf: None, lsm_trial: None, ..server() };
    assert_eq!(off(&facts), ["btf", "tp_btf", "ring_buffer", "bpf_atomics", "task_iterator", "lsm"]);
}

#[test]
fn disabled_psi_names_boot_parameter() {
    let off = row(&HostProbe { psi: Psi::SwitchedOff, ..server() }, "psi");
    assert_eq!((off.on, off.remedy.as_deref()), (false, Some("boot with `psi=1`")));
    let absent = row(&HostProbe { psi: Psi::Absent, ..server() }, "psi");
    assert_eq!(absent.remedy.as_deref(), Some("boot a kernel built with CONFIG_PSI=y"));
}

#[test]
fn hybrid_hierarchy_needs_controllers() {
    let facts =
        HostProbe { cgroup_v2: Some(("/sys/fs/cgroup/unified".to_owned(), vec!["pids".to_owned()])), ..server() };
    let cgroup = row(&facts, "cgroup_v2");
    assert_eq!((cgroup.on, cgroup.why.as_str()), (false, "/sys/fs/cgroup/unified lacks the controllers: memory"));
}

#[test]
fn lsm_trial_beats_securityfs() {
    let lsm = |lsm_trial, lsms: Option<&str>| {
        let row = row(&HostProbe { lsm_trial, lsms: lsms.map(str::to_owned), ..server() }, "lsm");
        (row.on, row.why, row.remedy.unwrap_or_default())
    };
    let (listed, not_listed) = (Some("capability,bpf"), Some("capability,yama"));
    let failed = || Some(Err("they are not called".to_owned()));
    for lsms in [listed, not_listed, None] {
        assert!(lsm(Some(Ok(())), lsms).0);
        assert!(!lsm(failed(), lsms).0);
    }
    let append = "boot with `lsm=` and the current list with `,bpf` appended";
    let (_, why, remedy) = lsm(failed(), not_listed);
    assert_eq!((why.as_str(), remedy.as_str()), ("they are not called (active: capability,yama)", append));

    // Not tried yet: a client without privileges, or a daemon that could not load anything.
    assert!(lsm(None, listed).0);
    let (on, why, remedy) = lsm(None, not_listed);
    assert_eq!((on, why.as_str()), (false, "`bpf` is not among the active modules: capability,yama"));
    assert_eq!(remedy, append);
    let (on, _, remedy) = lsm(None, None);
    assert_eq!((on, remedy.as_str()), (false, "mount -t securityfs securityfs /sys/kernel/security"));
}

#[test]
fn missing_lsm_names_fallback() {
    let cost = row(&HostProbe { lsm_trial: Some(Err("no".to_owned())), ..server() }, "lsm").cost;
    assert!(cost.contains("pids.max") && cost.contains("32 per helper") && cost.contains("killed"), "{cost}");
}

#[test]
fn only_confidentiality_lockdown_matters() {
    assert!(row(&HostProbe { lockdown: Some("integrity".to_owned()), ..server() }, "kernel_reads").on);
    assert!(!row(&HostProbe { lockdown: Some("confidentiality".to_owned()), ..server() }, "kernel_reads").on);
}

#[test]
fn this_host_has_consistent_rows() {
    let rows = probe();
    let on = |name: &str| rows.iter().find(|row| row.name == name).unwrap().on;
    assert_eq!(on("psi"), std::fs::read("/proc/pressure/memory").is_ok());
    assert_eq!(on("btf"), std::fs::read("/sys/kernel/btf/vmlinux").is_ok());
    assert!(rows.iter().all(|row| !row.on || row.remedy.is_none()));
}
