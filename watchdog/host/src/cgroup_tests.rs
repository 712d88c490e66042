use std::path::Path;
use std::process::Command;

use rstest::rstest;

use super::*;
use crate::testing::{TestHierarchy, TestProcess, eventually};
use crate::this_process;

const MEMORY: Bounds =
    Bounds { max_memory: Some(Bytes(1_000_000)), max_helpers: Some(3), max_depth: None, cgroup: true };

fn unused_id() -> ProcessId {
    ProcessId { pid: Pid(u32::MAX), start_time: Ticks(7) }
}

#[rstest]
#[case::of_a_scope("/user.slice/session-1.scope", "/user.slice")]
#[case::of_a_service("/agents", "/")]
#[case::of_the_root("/", "/")]
#[case::of_another_session("/a/agent-watchdog-5-6", "/a")]
fn session_cgroup_is_launchers_sibling(#[case] own: &str, #[case] parent: &str) {
    assert_eq!(beside(own), parent);
}

#[test]
fn cgroup_name_round_trips() {
    let root = ProcessId { pid: Pid(12), start_time: Ticks(345) };
    assert_eq!(name(root), "agent-watchdog-12-345");
    assert_eq!(root_of(&name(root)), Some(root));
    for other in ["agent-watchdog-12", "agent-watchdog-12-x", "agent-watchdog.service", "12-345"] {
        assert_eq!(root_of(other), None, "{other}");
    }
}

#[test]
fn session_limits_become_cgroup_limits() {
    let limits = CgroupLimits::of(&MEMORY, None);
    assert_eq!(limits, CgroupLimits { high: Some(800_000), max: Some(1_000_000), pids: Some(128) });
    let huge = Bounds { max_memory: Some(Bytes(u64::MAX)), ..MEMORY };
    assert!(CgroupLimits::of(&huge, None).high.unwrap() > u64::MAX / 100 * 79);
}

#[test]
fn launchers_task_limit_is_kept() {
    assert_eq!(CgroupLimits::of(&MEMORY, Some(5)).pids, Some(5));
    assert_eq!(CgroupLimits::of(&MEMORY, Some(500)).pids, Some(128));
    assert_eq!(CgroupLimits::of(&Bounds::default(), Some(5)), CgroupLimits { high: None, max: None, pids: Some(5) });
}

#[rstest]
#[case("memory.max", "1000000")]
#[case("memory.high", "1000000")]
#[case("memory.swap.max", "0")]
fn launcher_with_memory_limit_stays(#[case] file: &str, #[case] limit: &str) {
    let hierarchy = TestHierarchy::new("memory pids");
    let cgroups = hierarchy.cgroups();
    let subject = TestProcess::spawn(Command::new("sleep").arg("1000"));
    let own = cgroups.cgroups.path_of(subject.process.pid).unwrap().unwrap();
    let parent = beside(&own).trim_end_matches('/').to_owned();
    for (of, text) in [("cgroup.controllers", "memory pids"), ("cgroup.subtree_control", "memory pids")] {
        hierarchy.file(&format!("{parent}/{of}"), text);
    }
    hierarchy.file(&format!("{own}/{file}"), limit);
    let confined = cgroups.confine(subject.process, &MEMORY);
    assert_eq!((confined.confinement.cgroup, confined.leftover), (None, None));
    let problem = confined.confinement.problem.unwrap();
    assert!(problem.contains(file) && problem.contains(&own), "{problem}");
    let path = below(&parent, &name(subject.process));
    assert!(!hierarchy.path(&path).exists());

    hierarchy.file(&format!("{own}/{file}"), "max");
    assert_eq!(cgroups.confine(subject.process, &MEMORY).confinement.cgroup, Some(path));
}

#[test]
fn root_moves_into_limited_cgroup() {
    let hierarchy = TestHierarchy::new("cpu memory pids");
    let (own, path) = (this_process().unwrap(), format!("/{}", name(this_process().unwrap())));
    // A directory of the kernel's would have these from the start.
    for file in ["memory.max", "memory.high", "memory.oom.group", "pids.max"] {
        hierarchy.file(&format!("{path}/{file}"), "max");
    }
    // That the root of this host's own hierarchy is where this process is does not matter to the files: see `beside`.
    let made = hierarchy.cgroups().fill(&path, own, CgroupLimits::of(&MEMORY, None)).unwrap();
    assert!(made);
    let limits = ["memory.max", "memory.high", "memory.oom.group", "pids.max", "cgroup.procs"]
        .map(|file| hierarchy.text(&format!("{path}/{file}")));
    assert_eq!(limits, ["1000000", "800000", "1", "128", &own.pid.to_string()]);
}

#[test]
fn exited_root_is_not_moved() {
    let hierarchy = TestHierarchy::new("memory pids");
    let another = ProcessId { start_time: Ticks(0), ..this_process().unwrap() };
    let zombie = TestProcess::spawn(&mut Command::new("true"));
    eventually("it is a zombie", || !is_there(zombie.process).unwrap());
    for root in [unused_id(), another, zombie.process] {
        let path = format!("/{}", name(root));
        assert!(!hierarchy.cgroups().fill(&path, root, CgroupLimits::default()).unwrap());
        assert!(!hierarchy.path(&format!("{path}/cgroup.procs")).exists());
    }
    let confined = hierarchy.cgroups().confine(unused_id(), &MEMORY).confinement;
    assert_eq!(confined.cgroup, None);
    assert!(confined.problem.unwrap().contains("exited before"));
}

#[test]
fn missing_controllers_are_enabled() {
    let hierarchy = TestHierarchy::new("memory pids");
    let cgroups = hierarchy.cgroups();
    let offered = ["memory".to_owned(), "pids".to_owned()];
    hierarchy.file("/cgroup.subtree_control", "memory");
    cgroups.enable_controllers("/", &offered).unwrap();
    assert_eq!(hierarchy.text("/cgroup.subtree_control"), "+pids");
    hierarchy.file("/cgroup.subtree_control", "cpu pids memory");
    cgroups.enable_controllers("/", &offered).unwrap();
    assert_eq!(hierarchy.text("/cgroup.subtree_control"), "cpu pids memory", "nothing was to be done");
}

#[test]
fn missing_controllers_are_named() {
    let hierarchy = TestHierarchy::new("");
    let confined = hierarchy.cgroups().confine(this_process().unwrap(), &MEMORY).confinement;
    assert_eq!(confined.cgroup, None);
    let problem = confined.problem.unwrap();
    assert!(problem.contains("cgroup.controllers") && problem.contains("memory and pids"), "{problem}");
}

#[test]
fn host_without_cgroup_v2_explains() {
    let nowhere = SessionCgroups::new(CgroupTree::default());
    let confined = nowhere.confine(this_process().unwrap(), &MEMORY).confinement;
    assert!(confined.cgroup.is_none() && confined.problem.unwrap().contains("cgroup v2"));
    assert_eq!(nowhere.remove("/x").unwrap(), Removal::Gone);
    assert_eq!(nowhere.find().unwrap(), []);
}

#[test]
fn members_include_child_cgroups() {
    let hierarchy = TestHierarchy::new("memory");
    hierarchy.file("/a/cgroup.procs", "30\n10\n0\n");
    hierarchy.file("/a/b/c/cgroup.procs", "20\n10\n");
    hierarchy.file("/other/cgroup.procs", "99\n");
    let cgroups = hierarchy.cgroups();
    assert_eq!(cgroups.members("/a").unwrap(), Some(vec![Pid(10), Pid(20), Pid(30)]));
    assert_eq!(cgroups.members("/none").unwrap(), None);
}

#[test]
fn session_cgroups_found_and_removed() {
    let hierarchy = TestHierarchy::new("memory");
    let mine = "/user.slice/agent-watchdog-12-345";
    fs::create_dir_all(hierarchy.path(mine)).unwrap();
    fs::create_dir_all(hierarchy.path("/user.slice/other")).unwrap();
    let cgroups = hierarchy.cgroups();
    let root = ProcessId { pid: Pid(12), start_time: Ticks(345) };
    assert_eq!(cgroups.find().unwrap(), [(root, mine.to_owned())]);
    fs::create_dir(hierarchy.path(mine).join("below")).unwrap();
    assert_eq!(cgroups.remove(mine).unwrap(), Removal::Busy);
    fs::remove_dir(hierarchy.path(mine).join("below")).unwrap();
    assert_eq!(cgroups.remove(mine).unwrap(), Removal::Gone);
    assert_eq!(cgroups.remove(mine).unwrap(), Removal::Gone, "once more is no error");
    assert!(Path::new(&hierarchy.path("/user.slice/other")).exists());
}

#[test]
fn kernel_moves_process_and_removes_cgroup() {
    let cgroups = SessionCgroups::new(CgroupTree::of_host());
    let mut subject = TestProcess::spawn(Command::new("sleep").arg("1000"));
    let root = subject.process;
    let Some(own) = cgroups.cgroups.path_of(root.pid).unwrap() else { panic!("it lives") };
    let path = below(beside(&own), &name(root));
    match cgroups.fill(&path, root, CgroupLimits::default()) {
        Ok(moved) => assert!(moved),
        Err(error) => {
            // A guest is booted with its hierarchy mounted, and its tests are root's.
            assert!(std::env::var_os("WATCHDOG_GUEST").is_none(), "{error}");
            eprintln!("skipped: this test may not make cgroups here: {error}");
            let _ = cgroups.remove(&path);
            return;
        }
    }
    assert_eq!(cgroups.cgroups.path_of(root.pid).unwrap().as_deref(), Some(path.as_str()));
    assert_eq!(cgroups.members(&path).unwrap(), Some(vec![root.pid]));
    assert!(cgroups.find().unwrap().contains(&(root, path.clone())));
    let again = cgroups.confine(root, &MEMORY).confinement;
    assert_eq!(again.cgroup.as_deref(), Some(path.as_str()), "a session with a cgroup keeps it");
    assert_eq!(cgroups.remove(&path).unwrap(), Removal::Busy);
    subject.child().kill().unwrap();
    subject.child().wait().unwrap();
    eventually("it is empty", || cgroups.remove(&path).unwrap() == Removal::Gone);
    assert_eq!(cgroups.members(&path).unwrap(), None);
}
