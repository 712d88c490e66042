use std::path::PathBuf;
use std::process::Command;

use rstest::rstest;

use super::*;
use crate::host::limits::Cgroups;
use crate::host::testing::{Hierarchy, Subject, eventually};

const OURS: &str = "/user.slice/agent-watchdog-12-345";

fn pids(pids: &[u32]) -> BTreeSet<Pid> {
    pids.iter().copied().map(Pid).collect()
}

/// A hierarchy with a session's cgroup, and these files in there.
fn with(files: &[(&str, &str)]) -> Hierarchy {
    let hierarchy = Hierarchy::new("memory pids");
    files.iter().for_each(|(file, text)| hierarchy.file(&format!("{OURS}/{file}"), text));
    hierarchy
}

#[rstest]
#[case::those("10\n20\n", &[10, 20], true)]
#[case::one_more_is_in_there("10\n20\n30\n", &[10, 20], false)]
#[case::one_is_elsewhere("10\n", &[10, 20], false)]
#[case::one_is_in_a_namespace_of_its_own("10\n20\n0\n", &[10, 20], false)]
#[case::nobody("", &[10], false)]
fn it_holds_exactly_those_who_are_meant_or_not(#[case] procs: &str, #[case] meant: &[u32], #[case] exactly: bool) {
    let hierarchy = with(&[("cgroup.procs", procs)]);
    assert_eq!(hierarchy.cgroups().holds(OURS, &pids(meant)).unwrap(), exactly);
}

#[test]
fn those_below_it_count_too() {
    let hierarchy = with(&[("cgroup.procs", "10\n"), ("below/cgroup.procs", "20\n")]);
    assert!(!hierarchy.cgroups().holds(OURS, &pids(&[10])).unwrap());
    assert!(hierarchy.cgroups().holds(OURS, &pids(&[10, 20])).unwrap());
}

#[test]
fn whoever_is_dead_is_not_in_there_though_its_pid_is() {
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
fn nothing_is_done_to_a_cgroup_that_is_not_a_sessions(#[case] path: &str) {
    let hierarchy = Hierarchy::new("memory");
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
    assert!(!cgroups.loosen(path).unwrap());
    for (file, text) in files {
        assert_eq!(hierarchy.text(&format!("{path}/{file}")), text, "{file}");
    }
}

#[test]
fn an_older_kernel_cannot_and_no_file_is_made_in_place_of_its_own() {
    let subject = sleeper();
    let meant = [pinned(&subject)];
    let hierarchy = with(&[("cgroup.procs", &subject.process.pid.to_string())]);
    let cgroups = hierarchy.cgroups();
    assert!(!cgroups.kill_exactly(OURS, &meant).unwrap());
    assert!(!cgroups.freeze_exactly(OURS, &meant).unwrap());
    assert!(!cgroups.thaw(OURS).unwrap());
    assert_eq!(cgroups.throttle(OURS).unwrap(), None);
    assert!(!cgroups.loosen(OURS).unwrap());
    assert_eq!(std::fs::read_dir(hierarchy.path(OURS)).unwrap().count(), 1);
    let nowhere = SessionCgroups::new(Cgroups::default());
    assert!(!nowhere.kill_exactly(OURS, &meant).unwrap() && !nowhere.thaw(OURS).unwrap());
}

#[rstest]
// 500 MiB are held, 100 of which can be dropped.
#[case::to_what_it_holds("max", "max", 524_288_000, 419_430_400)]
#[case::not_below_a_floor("max", "max", 110_000_000, 64 << 20)]
#[case::not_above_what_it_was_made_with("400000000", "320000000", 524_288_000, 320_000_000)]
#[case::not_above_what_somebody_else_has_set("max", "300000000", 524_288_000, 300_000_000)]
fn a_session_is_throttled(#[case] max: &str, #[case] high: &str, #[case] current: u64, #[case] expected: u64) {
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
fn a_session_gets_back_the_bound_that_it_was_made_with(#[case] max: &str, #[case] high: &str) {
    let hierarchy = with(&[("memory.max", max), ("memory.high", "5")]);
    assert!(hierarchy.cgroups().loosen(OURS).unwrap());
    assert_eq!(hierarchy.text(&format!("{OURS}/memory.high")), high);
}

/// A cgroup of the kernel's own hierarchy, for the session of a process that lives; gone when dropped.
struct Made {
    path: String,
    dir: PathBuf,
}

impl Made {
    /// `None` where this test may not make one.
    fn new(root: &Subject) -> Option<Self> {
        let path = format!("/agent-watchdog-{}-{}", root.process.pid.0, root.process.start_time.0);
        let dir = Cgroups::of_host().dir(&path)?;
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

    fn takes(&self, subject: &Subject) {
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

fn sleeper() -> Subject {
    Subject::spawn(Command::new("sleep").arg("1000"))
}

fn pinned(subject: &Subject) -> Pinned {
    Pinned::of(subject.process).unwrap().unwrap()
}

#[test]
fn in_the_kernels_own_hierarchy_a_group_is_killed_and_one_with_a_stranger_is_not() {
    let mut one = sleeper();
    let Some(made) = Made::new(&one) else { return };
    let cgroups = SessionCgroups::new(Cgroups::of_host());
    let (mut other, mut stranger) = (sleeper(), sleeper());
    [&one, &other, &stranger].into_iter().for_each(|subject| made.takes(subject));
    let meant = [pinned(&one), pinned(&other)];
    assert!(!cgroups.kill_exactly(&made.path, &meant).unwrap());
    stranger.child().kill().unwrap();
    stranger.child().wait().unwrap();
    assert!(one.child().try_wait().unwrap().is_none(), "nobody else was hit");
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
fn in_the_kernels_own_hierarchy_a_group_is_frozen_and_goes_on() {
    let mut subject = sleeper();
    let Some(made) = Made::new(&subject) else { return };
    made.takes(&subject);
    if made.dir.join("cgroup.freeze").exists() {
        let cgroups = SessionCgroups::new(Cgroups::of_host());
        assert!(cgroups.freeze_exactly(&made.path, &[pinned(&subject)]).unwrap());
        eventually("it is frozen", || made.frozen());
        assert!(cgroups.thaw(&made.path).unwrap());
        eventually("it goes on", || !made.frozen());
    } else {
        eprintln!("skipped: the kernel has no cgroup.freeze");
    }
    subject.child().kill().unwrap();
    subject.child().wait().unwrap();
}
