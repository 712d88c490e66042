//! A hierarchy of cgroups made of plain files, and processes of our own.

use std::path::Path;
use std::process::Command;

use super::super::testing::{TestProcess, eventually};
use super::*;
use watchdog_types::Ticks;

const MIB: u64 = 1 << 20;

fn hierarchy(cgroups: &[(&str, &str, u64)]) -> (tempfile::TempDir, CgroupTree) {
    let dir = tempfile::tempdir().unwrap();
    for (path, max, current) in cgroups {
        let cgroup = dir.path().join(path);
        fs::create_dir_all(&cgroup).unwrap();
        fs::write(cgroup.join("memory.max"), format!("{max}\n")).unwrap();
        fs::write(cgroup.join("memory.current"), format!("{current}\n")).unwrap();
    }
    let cgroups = CgroupTree::at(dir.path());
    (dir, cgroups)
}

fn limit(path: &str, max: u64, current: u64) -> Option<CgroupLimit> {
    Some(CgroupLimit { path: path.into(), max: Bytes(max), current: Bytes(current), ..CgroupLimit::default() })
}

#[test]
fn lowest_limit_applies() {
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
fn outermost_of_equal_limits_applies() {
    let (_dir, cgroups) = hierarchy(&[("a", "500", 450), ("a/b", "500", 100)]);
    assert_eq!(cgroups.tightest("/a/b").unwrap(), limit("/a", 500, 450));
}

#[test]
fn removed_cgroup_keeps_ancestors_limits() {
    let (_dir, cgroups) = hierarchy(&[("a", "500", 450)]);
    assert_eq!(cgroups.tightest("/a/gone/deeper").unwrap(), limit("/a", 500, 450));
}

#[test]
fn no_hierarchy_means_no_limit() {
    assert_eq!(CgroupTree::default().tightest("/a").unwrap(), None);
}

#[test]
fn malformed_limit_is_error() {
    let (_dir, cgroups) = hierarchy(&[("a", "much", 0)]);
    assert!(matches!(cgroups.tightest("/a"), Err(HostError::Malformed { .. })));
}

#[test]
fn only_v2_line_is_read() {
    assert_eq!(unified("4:memory:/m\n0::/user.slice/a:b\n"), "/user.slice/a:b");
    assert_eq!(unified("4:memory:/m\n"), "/");
    assert_eq!(unified("0::/x.scope (deleted)\n"), "/x.scope");
    assert_eq!(unified("0::/../other\n"), "/../other");
}

#[test]
fn exited_process_has_no_limits() {
    let mut subject = TestProcess::spawn(Command::new("sleep").arg("60"));
    let cgroups = CgroupTree::of_host();
    assert!(cgroups.limits(subject.process, &mut SeenCgroups::new()).unwrap().is_some());
    let reused = ProcessId { start_time: Ticks(subject.process.start_time.0 + 1), ..subject.process };
    assert_eq!(cgroups.limits(reused, &mut SeenCgroups::new()).unwrap(), None);
    subject.child().kill().unwrap();
    subject.child().wait().unwrap();
    assert_eq!(cgroups.limits(subject.process, &mut SeenCgroups::new()).unwrap(), None);
}

/// A program of this name, whatever it is, with this environment.
fn heap_limit_of(name: &str, variable: &str, options: &str) -> Option<Bytes> {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(name);
    fs::copy("/bin/sleep", &program).unwrap();
    let mut command = Command::new(&program);
    let subject = TestProcess::spawn(command.arg("60").env(variable, options).env("SECRET", "x"));
    let proc = format!("/proc/{}", subject.process.pid);
    // The new program is there before its environment is.
    eventually("the end of the exec", || {
        fs::read_link(format!("{proc}/exe")).is_ok_and(|exe| same_file(&exe, &program))
            && fs::read(format!("{proc}/environ")).is_ok_and(|environment| !environment.is_empty())
    });
    CgroupTree::of_host().limits(subject.process, &mut SeenCgroups::new()).unwrap().unwrap().v8_heap
}

fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().ok() == other.canonicalize().ok()
}

#[test]
fn node_options_state_heap_limit() {
    assert_eq!(heap_limit_of("node", "NODE_OPTIONS", "--no-warnings --max-old-space-size=300"), Some(Bytes(300 * MIB)));
    assert_eq!(heap_limit_of("node", "NODE_OPTIONS", "--no-warnings"), None);
}

#[test]
fn deno_flags_state_heap_limit() {
    let of_deno = |variable| heap_limit_of("deno", variable, "--expose-gc,--max-old-space-size=300");
    assert_eq!(of_deno("DENO_V8_FLAGS"), Some(Bytes(300 * MIB)));
    assert_eq!(of_deno("NODE_OPTIONS"), None);
}

#[test]
fn other_programs_environment_is_ignored() {
    assert_eq!(heap_limit_of("bun", "NODE_OPTIONS", "--max-old-space-size=300"), None);
}
