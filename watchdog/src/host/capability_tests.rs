//! Hosts of several kinds, and what is said of them.

use super::*;

/// A current server: root, everything there.
fn server() -> Facts {
    Facts {
        release: "6.12.1".to_owned(),
        privileges: (1 << 41) - 1,
        initial_pid_namespace: true,
        hidepid: None,
        btf: Some(BtfNames { ring_buffer: true, tracepoints: true, task_iterator: true, lsm_hooks: true }),
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
        swap: Bytes::from_mib(2048),
    }
}

/// Names of what is off.
fn off(facts: &Facts) -> Vec<String> {
    of(facts).into_iter().filter(|capability| !capability.on).map(|capability| capability.name).collect()
}

fn row(facts: &Facts, name: &str) -> Capability {
    of(facts).into_iter().find(|capability| capability.name == name).unwrap()
}

#[test]
fn a_current_server_lacks_nothing_and_needs_nothing_done() {
    assert_eq!(off(&server()), Vec::<String>::new());
    assert!(of(&server()).iter().all(|capability| capability.remedy.is_none()));
}

#[test]
fn every_row_says_why_and_what_it_costs_and_no_two_have_one_name() {
    let bare = Facts {
        release: "4.19.0".to_owned(),
        privileges: 0,
        initial_pid_namespace: false,
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
        swap: Bytes(0),
    };
    let rows = of(&bare);
    assert!(rows.iter().all(|row| !row.on && !row.why.is_empty() && !row.cost.is_empty()), "{rows:#?}");
    assert!(rows.iter().all(|row| row.remedy.is_some() || row.name == "swap"), "{rows:#?}");
    let mut names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len());
}

#[test]
fn without_root_the_missing_capabilities_are_named() {
    let facts = Facts { privileges: 1 << 5, hidepid: Some("invisible".to_owned()), ..server() };
    assert_eq!(off(&facts), ["privileges", "proc_visibility"]);
    let why = row(&facts, "privileges").why;
    assert_eq!(why, "not in effect: CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF");
}

#[test]
fn without_the_capability_or_the_call_nobody_is_signalled_and_it_is_said_what_to_do() {
    assert_eq!(cannot_act(&server()), None);
    let facts = Facts { privileges: server().privileges & !(1 << 5), ..server() };
    let told = cannot_act(&facts).unwrap();
    assert!(told.contains("CAP_KILL") && told.contains("sudo watchdogd"), "{told}");
    let shown = row(&facts, "privileges");
    assert_eq!(shown.why, "not in effect: CAP_KILL");
    assert!(shown.cost.starts_with("nobody is signalled: `enforce` has no effect"), "{}", shown.cost);
    let told = cannot_act(&Facts { pidfd: false, ..server() }).unwrap();
    assert!(told.contains("pidfd_open fails") && told.contains("Linux 5.3"), "{told}");
}

#[test]
fn root_sees_through_hidepid() {
    assert!(row(&Facts { hidepid: Some("2".to_owned()), ..server() }, "proc_visibility").on);
}

#[test]
fn a_kernel_without_btf_says_what_else_that_takes_away() {
    let facts = Facts { btf: None, lsm_trial: None, ..server() };
    assert_eq!(off(&facts), ["btf", "tp_btf", "ring_buffer", "task_iterator", "lsm"]);
}

#[test]
fn psi_that_is_switched_off_is_a_boot_parameter_away() {
    let off = row(&Facts { psi: Psi::SwitchedOff, ..server() }, "psi");
    assert_eq!((off.on, off.remedy.as_deref()), (false, Some("boot with `psi=1`")));
    let absent = row(&Facts { psi: Psi::Absent, ..server() }, "psi");
    assert_eq!(absent.remedy.as_deref(), Some("boot a kernel built with CONFIG_PSI=y"));
}

#[test]
fn a_hybrid_hierarchy_without_controllers_does_not_count() {
    let facts = Facts { cgroup_v2: Some(("/sys/fs/cgroup/unified".to_owned(), vec!["pids".to_owned()])), ..server() };
    let cgroup = row(&facts, "cgroup_v2");
    assert_eq!((cgroup.on, cgroup.why.as_str()), (false, "/sys/fs/cgroup/unified is without the controllers: memory"));
}

#[test]
fn that_lsm_programs_work_is_known_best_by_having_tried() {
    let lsm = |lsm_trial, lsms: Option<&str>| {
        let row = row(&Facts { lsm_trial, lsms: lsms.map(str::to_owned), ..server() }, "lsm");
        (row.on, row.why, row.remedy.unwrap_or_default())
    };
    let (listed, not_listed) = (Some("capability,bpf"), Some("capability,yama"));
    let failed = || Some(Err("they are not called".to_owned()));
    for lsms in [listed, not_listed, None] {
        assert!(lsm(Some(Ok(())), lsms).0);
        assert!(!lsm(failed(), lsms).0);
    }
    let append = "boot with `lsm=` and today's list with `,bpf` appended";
    let (_, why, remedy) = lsm(failed(), not_listed);
    assert_eq!((why.as_str(), remedy.as_str()), ("they are not called (active: capability,yama)", append));

    // Nobody has tried: a client without privileges, or a daemon that could not load anything.
    assert!(lsm(None, listed).0);
    let (on, why, remedy) = lsm(None, not_listed);
    assert_eq!((on, why.as_str()), (false, "`bpf` is not among the active modules: capability,yama"));
    assert_eq!(remedy, append);
    let (on, _, remedy) = lsm(None, None);
    assert_eq!((on, remedy.as_str()), (false, "mount -t securityfs securityfs /sys/kernel/security"));
}

#[test]
fn without_lsm_programs_the_fallback_is_named() {
    let cost = row(&Facts { lsm_trial: Some(Err("no".to_owned())), ..server() }, "lsm").cost;
    assert!(cost.contains("pids.max") && cost.contains("32 for each helper") && cost.contains("killed"), "{cost}");
}

#[test]
fn lockdown_matters_only_at_its_higher_level() {
    assert!(row(&Facts { lockdown: Some("integrity".to_owned()), ..server() }, "kernel_reads").on);
    assert!(!row(&Facts { lockdown: Some("confidentiality".to_owned()), ..server() }, "kernel_reads").on);
}

#[test]
fn this_host_is_probed_without_a_contradiction() {
    let rows = probe();
    let on = |name: &str| rows.iter().find(|row| row.name == name).unwrap().on;
    assert_eq!(on("psi"), std::fs::read("/proc/pressure/memory").is_ok());
    assert_eq!(on("btf"), std::fs::read("/sys/kernel/btf/vmlinux").is_ok());
    assert!(rows.iter().all(|row| !row.on || row.remedy.is_none()));
}
