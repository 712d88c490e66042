use std::path::PathBuf;
use std::process::Command;

use rstest::rstest;

use super::*;
use crate::limits::CgroupTree;
use crate::testing::{TestHierarchy, TestProcess, eventually};

const OURS: &str = "/user.slice/agent-watchdog-12-345";

fn pids(pids: &[u32]) -> BTreeSet<Pid> {
    pids.iter().copied().map(Pid).collect()
}

/// A hierarchy with a session's cgroup, and these files in there.
fn with(files: &[(&str, &str)]) -> TestHierarchy {
    let hierarchy = TestHierarchy::new("memory pids");
    files.iter().for_each(|(file, text)| hierarchy.file(&format!("{OURS}/{file}"), text));
    hierarchy
}

#[rstest]
#[case::those("10\n20\n", &[10, 20], true)]
#[case::one_more_is_in_there("10\n20\n30\n", &[10, 20], false)]
#[case::one_is_elsewhere("10\n", &[10, 20], false)]
#[case::one_is_in_a_namespace_of_its_own("10\n20\n0\n", &[10, 20], false)]
#[case::empty("", &[10], false)]
fn cgroup_must_hold_exact_processes(#[case] procs: &str, #[case] meant: &[u32], #[case] exactly: bool) {
    let hierarchy = with(&[("cgroup.procs", procs)]);
    assert_eq!(hierarchy.cgroups().holds(OURS, &pids(meant)).unwrap(), exactly);
}

#[test]
fn child_cgroups_count() {
    let hierarchy = with(&[("cgroup.procs", "10\n"), ("below/cgroup.procs", "20\n")]);
    assert!(!hierarchy.cgroups().holds(OURS, &pids(&[10])).unwrap());
    assert!(hierarchy.cgroups().holds(OURS, &pids(&[10, 20])).unwrap());
}

#[test]
fn dead_process_is_not_a_member() {
    let mut subject = sleeper();
    let pinned = pinned(&subject);
    let hierarchy = with(&[("cgroup.procs", &pinned.pid().to_string()), ("cgroup.kill", ""), ("cgroup.freeze", "0")]);
    let cgroups = hierarchy.cgroups();
    assert!(cgroups.freeze_exactly(OURS, std::slice::from_ref(&pinned)).unwrap());
    assert_eq!(hierarchy.text(&format!("{OURS}/cgroup.freeze")), "1");
    subject.child().kill().unwrap();
    subject.child().wait().unwrap();
    assert!(!cgroups.kill_exactly(OURS, &[pinned]).unwrap());
    assert_eq!(hierarchy.text(&format!("{OURS}/cgroup.kill")), "");
}

#[rstest]
#[case::a_users("/user.slice")]
#[case::the_root("/")]
#[case::upwards("/user.slice/../agent-watchdog-12-345")]
#[case::below_one_of_ours("/user.slice/agent-watchdog-12-345/below")]
fn foreign_cgroup_is_left_alone(#[case] path: &str) {
    let hierarchy = TestHierarchy::new("memory");
    let subject = sleeper();
    let (meant, pid) = ([pinned(&subject)], subject.process.pid.to_string());
    let files = [
        ("cgroup.procs", pid.as_str()),
        ("cgroup.kill", ""),
        ("cgroup.freeze", "?"),
        ("memory.high", "max"),
        ("memory.max", "max"),
        ("memory.current", "1"),
    ];
    files.iter().for_each(|(file, text)| hierarchy.file(&format!("{path}/{file}"), text));
    let cgroups = hierarchy.cgroups();
    assert!(!cgroups.kill_exactly(path, &meant).unwrap());
    assert!(!cgroups.freeze_exactly(path, &meant).unwrap());
    assert!(!cgroups.thaw(path).unwrap());
    assert_eq!(cgroups.throttle(path).unwrap(), None);
    assert!(!cgroups.unthrottle(path).unwrap());
    for (file, text) in files {
        assert_eq!(hierarchy.text(&format!("{path}/{file}")), text, "{file}");
    }
}

#[test]
fn missing_kernel_file_is_not_created() {
    let subject = sleeper();
    let meant = [pinned(&subject)];
    let hierarchy = with(&[("cgroup.procs", &subject.process.pid.to_string())]);
    let cgroups = hierarchy.cgroups();
    assert!(!cgroups.kill_exactly(OURS, &meant).unwrap());
    assert!(!cgroups.freeze_exactly(OURS, &meant).unwrap());
    assert!(!cgroups.thaw(OURS).unwrap());
    assert_eq!(cgroups.throttle(OURS).unwrap(), None);
    assert!(!cgroups.unthrottle(OURS).unwrap());
    assert_eq!(std::fs::read_dir(hierarchy.path(OURS)).unwrap().count(), 1);
    let nowhere = SessionCgroups::new(CgroupTree::default());
    assert!(!nowhere.kill_exactly(OURS, &meant).unwrap() && !nowhere.thaw(OURS).unwrap());
}

#[rstest]
// 500 MiB are held, 100 of which can be dropped.
#[case::to_what_it_holds("max", "max", 524_288_000, 419_430_400)]
#[case::not_below_a_floor("max", "max", 110_000_000, 64 << 20)]
#[case::not_above_what_it_was_made_with("400000000", "320000000", 524_288_000, 320_000_000)]
#[case::not_above_what_somebody_else_has_set("max", "300000000", 524_288_000, 300_000_000)]
fn throttle_sets_memory_high(#[case] max: &str, #[case] high: &str, #[case] current: u64, #[case] expected: u64) {
    let stat = "anon 9\nfile 104857600\nshmem 0\n";
    let current = current.to_string();
    let files = [("memory.max", max), ("memory.high", high), ("memory.current", &current), ("memory.stat", stat)];
    let hierarchy = with(&files);
    assert_eq!(hierarchy.cgroups().throttle(OURS).unwrap(), Some(Bytes(expected)));
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), expected.to_string());
}

#[rstest]
#[case("1000000", "800000")]
#[case("max", "max")]
fn unthrottle_restores_original_limit(#[case] max: &str, #[case] high: &str) {
    let hierarchy = with(&[("memory.max", max), ("memory.high", "5")]);
    assert!(hierarchy.cgroups().unthrottle(OURS).unwrap());
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), high);
}

/// A cgroup of the kernel's own hierarchy, for the session of a process that lives; removed when dropped.
struct Made {
    path: String,
    dir: PathBuf,
}

impl Made {
    /// `None` where this test may not make one.
    fn new(root: &TestProcess) -> Option<Self> {
        let path = format!("/agent-watchdog-{}-{}", root.process.pid.0, root.process.start_time.0);
        let dir = CgroupTree::of_host().dir(&path)?;
        match std::fs::create_dir(&dir) {
            Ok(()) => Some(Self { path, dir }),
            Err(error) => {
                // A guest is booted with its hierarchy mounted, and its tests are root's.
                assert!(std::env::var_os("WATCHDOG_GUEST").is_none(), "{error}");
                eprintln!("skipped: this test may not make cgroups here: {error}");
                None
            }
        }
    }

    fn takes(&self, subject: &TestProcess) {
        std::fs::write(self.dir.join("cgroup.procs"), subject.process.pid.to_string()).unwrap();
    }

    fn frozen(&self) -> bool {
        std::fs::read_to_string(self.dir.join("cgroup.events")).unwrap().contains("frozen 1")
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // A daemon, or a test of its, may have found it empty and taken it away.
        eventually("it is empty", || std::fs::remove_dir(&self.dir).is_ok() || !self.dir.exists());
    }
}

fn sleeper() -> TestProcess {
    TestProcess::spawn(Command::new("sleep").arg("1000"))
}

fn pinned(subject: &TestProcess) -> PidFd {
    PidFd::of(subject.process).unwrap().unwrap()
}

#[test]
fn kernel_kills_exact_cgroup_only() {
    let mut one = sleeper();
    let Some(made) = Made::new(&one) else { return };
    let cgroups = SessionCgroups::new(CgroupTree::of_host());
    let (mut other, mut stranger) = (sleeper(), sleeper());
    [&one, &other, &stranger].into_iter().for_each(|subject| made.takes(subject));
    let meant = [pinned(&one), pinned(&other)];
    assert!(!cgroups.kill_exactly(&made.path, &meant).unwrap());
    stranger.child().kill().unwrap();
    stranger.child().wait().unwrap();
    assert!(one.child().try_wait().unwrap().is_none(), "no other process was killed");
    if made.dir.join("cgroup.kill").exists() {
        assert!(cgroups.kill_exactly(&made.path, &meant).unwrap());
    } else {
        eprintln!("skipped: the kernel has no cgroup.kill");
        meant.iter().for_each(|process| assert!(process.kill().unwrap()));
    }
    one.child().wait().unwrap();
    other.child().wait().unwrap();
}

#[test]
fn kernel_freezes_and_thaws_cgroup() {
    let mut subject = sleeper();
    let Some(made) = Made::new(&subject) else { return };
    made.takes(&subject);
    if made.dir.join("cgroup.freeze").exists() {
        let cgroups = SessionCgroups::new(CgroupTree::of_host());
        assert!(cgroups.freeze_exactly(&made.path, &[pinned(&subject)]).unwrap());
        eventually("it is frozen", || made.frozen());
        assert!(cgroups.thaw(&made.path).unwrap());
        eventually("it is resumed", || !made.frozen());
    } else {
        eprintln!("skipped: the kernel has no cgroup.freeze");
    }
    subject.child().kill().unwrap();
    subject.child().wait().unwrap();
}
