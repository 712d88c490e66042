use std::path::Path;
use std::process::Command;

use rstest::rstest;

use super::*;
use crate::host::testing::{Hierarchy, Subject, eventually};
use crate::host::this_process;

const MEMORY: Bounds =
    Bounds { max_memory: Some(Bytes(1_000_000)), max_helpers: Some(3), max_depth: None, cgroup: true };

fn nobody() -> ProcessId {
    ProcessId { pid: Pid(u32::MAX), start_time: Ticks(7) }
}

#[rstest]
#[case::of_a_scope("/user.slice/session-1.scope", "/user.slice")]
#[case::of_a_service("/agents", "/")]
#[case::of_the_root("/", "/")]
#[case::of_another_session("/a/agent-watchdog-5-6", "/a")]
fn a_sessions_cgroup_is_beside_its_launchers(#[case] own: &str, #[case] parent: &str) {
    assert_eq!(beside(own), parent);
}

#[test]
fn a_name_says_whose_it_is_and_no_other_name_does() {
    let root = ProcessId { pid: Pid(12), start_time: Ticks(345) };
    assert_eq!(name(root), "agent-watchdog-12-345");
    assert_eq!(root_of(&name(root)), Some(root));
    for other in ["agent-watchdog-12", "agent-watchdog-12-x", "agent-watchdog.service", "12-345"] {
        assert_eq!(root_of(other), None, "{other}");
    }
}

#[test]
fn the_bounds_become_limits() {
    let limits = Limits::of(&MEMORY, None);
    assert_eq!(limits, Limits { high: Some(800_000), max: Some(1_000_000), pids: Some(128) });
    let huge = Bounds { max_memory: Some(Bytes(u64::MAX)), ..MEMORY };
    assert!(Limits::of(&huge, None).high.unwrap() > u64::MAX / 100 * 79);
}

#[test]
fn as_many_tasks_as_the_launchers_own_cgroup_may_have_are_the_most() {
    assert_eq!(Limits::of(&MEMORY, Some(5)).pids, Some(5));
    assert_eq!(Limits::of(&MEMORY, Some(500)).pids, Some(128));
    assert_eq!(Limits::of(&Bounds::default(), Some(5)), Limits { high: None, max: None, pids: Some(5) });
}

#[rstest]
#[case("memory.max", "1000000")]
#[case("memory.high", "1000000")]
#[case("memory.swap.max", "0")]
fn a_launcher_whose_own_cgroup_limits_memory_stays_there_and_is_told_so(#[case] file: &str, #[case] limit: &str) {
    let hierarchy = Hierarchy::new("memory pids");
    let cgroups = hierarchy.cgroups();
    let subject = Subject::spawn(Command::new("sleep").arg("1000"));
    let own = cgroups.cgroups.path_of(subject.process.pid).unwrap().unwrap();
    let parent = beside(&own).trim_end_matches('/').to_owned();
    for (of, text) in [("cgroup.controllers", "memory pids"), ("cgroup.subtree_control", "memory pids")] {
        hierarchy.file(&format!("{parent}/{of}"), text);
    }
    hierarchy.file(&format!("{own}/{file}"), limit);
    let told = cgroups.confine(subject.process, &MEMORY);
    assert_eq!((told.confinement.cgroup, told.leftover), (None, None));
    let problem = told.confinement.problem.unwrap();
    assert!(problem.contains(file) && problem.contains(&own), "{problem}");
    let path = below(&parent, &name(subject.process));
    assert!(!hierarchy.path(&path).exists());

    hierarchy.file(&format!("{own}/{file}"), "max");
    assert_eq!(cgroups.confine(subject.process, &MEMORY).confinement.cgroup, Some(path));
}

#[test]
fn the_root_is_moved_into_a_cgroup_that_has_its_limits() {
    let hierarchy = Hierarchy::new("cpu memory pids");
    let (own, path) = (this_process().unwrap(), format!("/{}", name(this_process().unwrap())));
    // A directory of the kernel's would have these from the start.
    for file in ["memory.max", "memory.high", "memory.oom.group", "pids.max"] {
        hierarchy.file(&format!("{path}/{file}"), "max");
    }
    // That the root of this host's own hierarchy is where this process is does not matter to the files: see `beside`.
    let made = hierarchy.cgroups().fill(&path, own, Limits::of(&MEMORY, None)).unwrap();
    assert!(made);
    let told = ["memory.max", "memory.high", "memory.oom.group", "pids.max", "cgroup.procs"]
        .map(|file| hierarchy.text(&format!("{path}/{file}")));
    assert_eq!(told, ["1000000", "800000", "1", "128", &own.pid.to_string()]);
}

#[test]
fn nobody_is_moved_in_place_of_a_root_that_is_gone() {
    let hierarchy = Hierarchy::new("memory pids");
    let another = ProcessId { start_time: Ticks(0), ..this_process().unwrap() };
    let zombie = Subject::spawn(&mut Command::new("true"));
    eventually("it is a zombie", || !is_there(zombie.process).unwrap());
    for root in [nobody(), another, zombie.process] {
        let path = format!("/{}", name(root));
        assert!(!hierarchy.cgroups().fill(&path, root, Limits::default()).unwrap());
        assert!(!hierarchy.path(&format!("{path}/cgroup.procs")).exists());
    }
    let told = hierarchy.cgroups().confine(nobody(), &MEMORY).confinement;
    assert_eq!(told.cgroup, None);
    assert!(told.problem.unwrap().contains("gone"));
}

#[test]
fn controllers_are_handed_on_where_they_are_not_yet() {
    let hierarchy = Hierarchy::new("memory pids");
    let cgroups = hierarchy.cgroups();
    let offered = ["memory".to_owned(), "pids".to_owned()];
    hierarchy.file("/cgroup.subtree_control", "memory");
    cgroups.hand_on("/", &offered).unwrap();
    assert_eq!(hierarchy.text("/cgroup.subtree_control"), "+pids");
    hierarchy.file("/cgroup.subtree_control", "cpu pids memory");
    cgroups.hand_on("/", &offered).unwrap();
    assert_eq!(hierarchy.text("/cgroup.subtree_control"), "cpu pids memory", "nothing was to be done");
}

#[test]
fn a_hierarchy_without_controllers_says_what_is_missing_and_where() {
    let hierarchy = Hierarchy::new("");
    let told = hierarchy.cgroups().confine(this_process().unwrap(), &MEMORY).confinement;
    assert_eq!(told.cgroup, None);
    let problem = told.problem.unwrap();
    assert!(problem.contains("cgroup.controllers") && problem.contains("memory and pids"), "{problem}");
}

#[test]
fn a_host_without_version_2_says_so() {
    let nowhere = SessionCgroups::new(Cgroups::default());
    let told = nowhere.confine(this_process().unwrap(), &MEMORY).confinement;
    assert!(told.cgroup.is_none() && told.problem.unwrap().contains("version 2"));
    assert_eq!(nowhere.remove("/x").unwrap(), Removal::Gone);
    assert_eq!(nowhere.find().unwrap(), []);
}

#[test]
fn members_are_those_of_a_cgroup_and_all_below_it() {
    let hierarchy = Hierarchy::new("memory");
    hierarchy.file("/a/cgroup.procs", "30\n10\n0\n");
    hierarchy.file("/a/b/c/cgroup.procs", "20\n10\n");
    hierarchy.file("/other/cgroup.procs", "99\n");
    let cgroups = hierarchy.cgroups();
    assert_eq!(cgroups.members("/a").unwrap(), Some(vec![Pid(10), Pid(20), Pid(30)]));
    assert_eq!(cgroups.members("/none").unwrap(), None);
}

#[test]
fn cgroups_of_sessions_are_found_wherever_they_are_and_removed_when_empty() {
    let hierarchy = Hierarchy::new("memory");
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
fn in_the_kernels_own_hierarchy_a_process_is_moved_and_seen_and_its_cgroup_goes_after_it() {
    let cgroups = SessionCgroups::new(Cgroups::of_host());
    let mut subject = Subject::spawn(Command::new("sleep").arg("1000"));
    let root = subject.process;
    let Some(own) = cgroups.cgroups.path_of(root.pid).unwrap() else { panic!("it lives") };
    let path = below(beside(&own), &name(root));
    match cgroups.fill(&path, root, Limits::default()) {
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
    assert_eq!(again.cgroup.as_deref(), Some(path.as_str()), "who has one keeps it");
    assert_eq!(cgroups.remove(&path).unwrap(), Removal::Busy);
    subject.child().kill().unwrap();
    subject.child().wait().unwrap();
    eventually("it is empty", || cgroups.remove(&path).unwrap() == Removal::Gone);
    assert_eq!(cgroups.members(&path).unwrap(), None);
}
