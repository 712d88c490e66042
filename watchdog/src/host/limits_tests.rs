//! A hierarchy of cgroups made of plain files, and processes of our own.

use std::path::Path;
use std::process::Command;

use super::super::testing::{Subject, eventually};
use super::*;
use crate::engine::id::Ticks;

const MIB: u64 = 1 << 20;

fn hierarchy(cgroups: &[(&str, &str, u64)]) -> (tempfile::TempDir, Cgroups) {
    let dir = tempfile::tempdir().unwrap();
    for (path, max, current) in cgroups {
        let cgroup = dir.path().join(path);
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(cgroup.join("memory.max"), format!("{max}\n")).unwrap();
        fs::write(cgroup.join("memory.current"), format!("{current}\n")).unwrap();
    }
    let cgroups = Cgroups::at(dir.path());
    (dir, cgroups)
}

fn limit(path: &str, max: u64, current: u64) -> Option<CgroupLimit> {
    Some(CgroupLimit { path: path.into(), max: Bytes(max), current: Bytes(current), ..CgroupLimit::default() })
}

#[test]
fn the_lowest_limit_above_a_process_is_the_one_that_holds() {
    let (_dir, cgroups) = hierarchy(&[
        ("user.slice", "max", 900),
        ("user.slice/u.slice", "500", 300),
        ("user.slice/u.slice/run.scope", "800", 200),
    ]);
    assert_eq!(cgroups.tightest("/user.slice/u.slice/run.scope").unwrap(), limit("/user.slice/u.slice", 500, 300));
    assert_eq!(cgroups.tightest("/user.slice").unwrap(), None);
    assert_eq!(cgroups.tightest("/").unwrap(), None);
}

#[test]
fn of_equal_limits_the_outermost_is_hit_first() {
    let (_dir, cgroups) = hierarchy(&[("a", "500", 450), ("a/b", "500", 100)]);
    assert_eq!(cgroups.tightest("/a/b").unwrap(), limit("/a", 500, 450));
}

#[test]
fn a_cgroup_that_is_gone_leaves_those_above_it() {
    let (_dir, cgroups) = hierarchy(&[("a", "500", 450)]);
    assert_eq!(cgroups.tightest("/a/gone/deeper").unwrap(), limit("/a", 500, 450));
}

#[test]
fn without_a_hierarchy_there_is_no_limit() {
    assert_eq!(Cgroups { root: None, memory: false }.tightest("/a").unwrap(), None);
}

#[test]
fn what_is_no_number_is_no_limit_but_an_error() {
    let (_dir, cgroups) = hierarchy(&[("a", "much", 0)]);
    assert!(matches!(cgroups.tightest("/a"), Err(HostError::Malformed { .. })));
}

#[test]
fn only_the_line_of_version_2_is_read() {
    assert_eq!(unified("4:memory:/m\n0::/user.slice/a:b\n"), "/user.slice/a:b");
    assert_eq!(unified("4:memory:/m\n"), "/");
    assert_eq!(unified("0::/x.scope (deleted)\n"), "/x.scope");
    assert_eq!(unified("0::/../other\n"), "/");
}

#[test]
fn a_process_that_is_gone_has_no_limits() {
    let mut subject = Subject::spawn(Command::new("sleep").arg("60"));
    let cgroups = Cgroups::of_host();
    assert!(cgroups.limits(subject.process, &mut Seen::new()).unwrap().is_some());
    let reused = ProcessId { start_time: Ticks(subject.process.start_time.0 + 1), ..subject.process };
    assert_eq!(cgroups.limits(reused, &mut Seen::new()).unwrap(), None);
    subject.child().kill().unwrap();
    subject.child().wait().unwrap();
    assert_eq!(cgroups.limits(subject.process, &mut Seen::new()).unwrap(), None);
}

/// A program of this name, whatever it is, with this environment.
fn heap_limit_of(name: &str, options: &str) -> Option<Bytes> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(name);
    fs::copy("/bin/sleep", &program).unwrap();
    let mut command = Command::new(&program);
    let subject = Subject::spawn(command.arg("60").env("NODE_OPTIONS", options).env("SECRET", "x"));
    let proc = format!("/proc/{}", subject.process.pid);
    // The new program is there before its environment is.
    eventually("the end of the exec", || {
        fs::read_link(format!("{proc}/exe")).is_ok_and(|exe| same_file(&exe, &program))
            && fs::read(format!("{proc}/environ")).is_ok_and(|environment| !environment.is_empty())
    });
    Cgroups::of_host().limits(subject.process, &mut Seen::new()).unwrap().unwrap().v8_heap
}

fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok() == other.canonicalize().ok()
}

#[test]
fn the_environment_of_a_node_program_states_its_heap_limit() {
    assert_eq!(heap_limit_of("node", "--no-warnings --max-old-space-size=300"), Some(Bytes(300 * MIB)));
    assert_eq!(heap_limit_of("node", "--no-warnings"), None);
}

#[test]
fn another_programs_environment_is_not_looked_at() {
    assert_eq!(heap_limit_of("bun", "--max-old-space-size=300"), None);
}
