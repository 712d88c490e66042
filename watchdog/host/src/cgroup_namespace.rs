//! Paths in /proc/PID/cgroup are relative to the root of the reader's cgroup namespace. A pod has one of its own: other pods
//! read as `/../../kubepods/…`, while the hierarchy is mounted from the host's root.

use std::fs;
use std::path::Path;

/// Levels of the hierarchy that are walked.
pub(super) const DEPTH: usize = 32;
/// Cgroups that are looked through for this process.
const SEARCHED: usize = 100_000;

/// The root of this process's cgroup namespace, as a path below the root of the mounted hierarchy: `/kubepods/pod1`. Empty when both
/// are the same, or when it cannot be found. Costs 20 µs for each cgroup of the host, but only in a namespace.
pub(super) fn root(hierarchy: &Path) -> String {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if !is_above_namespace(&mountinfo, hierarchy) {
        return String::new();
    }
    let shown = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let shown = shown.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_end_matches('/').to_owned();
    let own = find(hierarchy, &std::process::id().to_string());
    own.and_then(|own| Some(own.strip_suffix(&shown)?.to_owned())).unwrap_or_default()
}

/// Whether the mounted root lies outside the cgroup namespace.
fn is_above_namespace(mountinfo: &str, hierarchy: &Path) -> bool {
    let fields = mountinfo.lines().rev().map(|line| line.split(' ').collect::<Vec<_>>());
    let visible = fields.filter(|fields| fields.len() > 4).find(|fields| Path::new(fields[4]) == hierarchy);
    visible.is_some_and(|fields| fields[3].starts_with("/.."))
}

/// The cgroup of the process with this pid.
fn find(hierarchy: &Path, pid: &str) -> Option<String> {
    let mut left = vec![(String::new(), 0)];
    for _ in 0..SEARCHED {
        let (path, depth) = left.pop()?;
        let dir = hierarchy.join(path.trim_start_matches('/'));
        if fs::read_to_string(dir.join("cgroup.procs")).is_ok_and(|pids| pids.lines().any(|found| found == pid)) {
            return Some(path);
        }
        if depth == DEPTH {
            continue;
        }
        let below = fs::read_dir(&dir).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        left.extend(below.map(|entry| (format!("{path}/{}", entry.file_name().to_string_lossy()), depth + 1)));
    }
    None
}

/// A path of /proc/PID/cgroup below the root of the mounted hierarchy; `/` when it leads out of that.
pub(super) fn resolve(root: &str, shown: &str) -> String {
    let mut names: Vec<&str> = root.split('/').filter(|name| !name.is_empty()).collect();
    for name in shown.split('/').filter(|name| !name.is_empty()) {
        if name != ".." {
            names.push(name);
        } else if names.pop().is_none() {
            return "/".to_owned();
        }
    }
    format!("/{}", names.join("/"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use rstest::rstest;
    use rustix::thread::{UnshareFlags, unshare_unsafe};

    use super::super::limits::CgroupTree;
    use super::*;
    use watchdog_types::Pid;

    #[rstest]
    #[case::initial("", "/user.slice/a", "/user.slice/a")]
    #[case::sibling("/kubepods/pod1/c1", "/../../pod2/c2", "/kubepods/pod2/c2")]
    #[case::node("/kubepods/pod1/c1", "/../../../system.slice/kubelet", "/system.slice/kubelet")]
    #[case::own("/kubepods/pod1/c1", "/", "/kubepods/pod1/c1")]
    #[case::below("/kubepods/pod1/c1", "/inner", "/kubepods/pod1/c1/inner")]
    #[case::out_of_hierarchy("", "/../x", "/")]
    fn shown_path_is_resolved(#[case] root: &str, #[case] shown: &str, #[case] resolved: &str) {
        assert_eq!(resolve(root, shown), resolved);
    }

    #[test]
    fn last_mount_decides() {
        let of = |roots: [&str; 2]| {
            let lines = roots.map(|root| format!("30 23 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup rw\n"));
            is_above_namespace(&lines.concat(), Path::new("/sys/fs/cgroup"))
        };
        assert!(of(["/", "/../../.."]));
        assert!(!of(["/../../..", "/"]));
    }

    /// The test once more, in a cgroup and a cgroup namespace of its own: the first run is then outside it.
    #[test]
    fn cgroups_outside_namespace_are_known() {
        const NAME: &str = "cgroup_namespace::tests::cgroups_outside_namespace_are_known";
        const OUTSIDE: &str = "WATCHDOG_OUTSIDE";
        let tree = CgroupTree::of_host();
        let (Some(top), pid) = (tree.dir("/"), std::process::id()) else { return };
        let path_of = |pid| tree.path_of(Pid(pid)).unwrap().unwrap();
        if let Ok(outside) = std::env::var(OUTSIDE) {
            let shown = fs::read_to_string("/proc/self/cgroup").unwrap();
            assert!(shown.contains("0::/\n"), "{shown}");
            assert_eq!(path_of(std::os::unix::process::parent_id()), outside);
            assert_eq!(path_of(pid), format!("/watchdog-namespace-{}/inner", std::os::unix::process::parent_id()));
            return;
        }
        let around = top.join(format!("watchdog-namespace-{pid}"));
        let inner = around.join("inner");
        fs::create_dir_all(&inner).unwrap();
        let mut procs = fs::File::options().write(true).open(inner.join("cgroup.procs")).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([NAME, "--exact"]).env(OUTSIDE, path_of(pid));
        let enter = move || {
            procs.write_all(b"0")?;
            // SAFETY: the process has one thread.
            Ok(unsafe { unshare_unsafe(UnshareFlags::NEWCGROUP) }?)
        };
        // SAFETY: only system calls between the fork and the exec.
        let output = unsafe { command.pre_exec(enter) }.output().unwrap();
        fs::remove_dir(&inner).unwrap();
        fs::remove_dir(&around).unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    #[test]
    fn process_is_found_by_pid() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        fs::write(dir.path().join("cgroup.procs"), "1\n").unwrap();
        fs::write(dir.path().join("a/b/cgroup.procs"), "12\n7\n").unwrap();
        assert_eq!(find(dir.path(), "7").as_deref(), Some("/a/b"));
        assert_eq!(find(dir.path(), "1").as_deref(), Some(""));
        assert_eq!(find(dir.path(), "2"), None);
    }
}
