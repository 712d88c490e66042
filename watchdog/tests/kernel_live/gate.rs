//! What was granted is counted and held to its bound, and what comes past the gate does not start: by LSM programs where
//! the kernel calls them, else as far as it goes without.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use watchdog::engine::id::{Pid, ProcessId};
use watchdog::engine::input::{Attempt, Denied, KernelEvent, Lineage};
use watchdog::kernel::Placed;

use super::scene::{Agent, Scene, eventually, identity, root};

/// Forks children, until a fork fails or there are enough. They live until they are ended, or until their parent is dead and
/// the pipe that they read from with it.
const FORKER: &str = "\
import os, sys, errno, signal
held = []
def child():
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0)
    held.append(theirs)
    os.close(ours)
    return pid
def forks(wanted):
    pids = []
    while len(pids) < wanted:
        try:
            pids.append(child())
        except OSError as error:
            assert error.errno == errno.EAGAIN, error
            break
    return pids
def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
def say(text):
    sys.stdout.write(text + '\\n')
    sys.stdout.flush()
";

#[test]
fn a_fork_beyond_the_bound_fails_with_eagain_and_works_again_after_an_exit() {
    let mut scene = Scene::new();
    let mut agent = Agent::python_that_talks(&format!(
        "{FORKER}\
         pids = forks(8); say(str(len(pids))); sys.stdin.readline()\n\
         end(pids[0]); more = forks(8); say(str(len(more))); sys.stdin.readline()\n\
         [end(pid) for pid in pids[1:] + more]; say('ended'); sys.stdin.readline()\n"
    ));
    scene.track(agent.process);
    scene.tracer.bound(agent.process, Some(4)).expect("bound");
    let refuses = scene.tracer.features().lsm.is_ok();
    assert_eq!(scene.tracer.refuses().0, refuses);

    // With the root, four live.
    agent.go();
    assert_eq!(agent.hears(), if refuses { "3" } else { "8" });
    assert_eq!(scene.live(agent.process), if refuses { 4 } else { 9 });
    agent.go();
    assert_eq!(agent.hears(), if refuses { "1" } else { "8" });
    assert_eq!(scene.live(agent.process), if refuses { 4 } else { 16 });
    if refuses {
        let denied = scene.wait_for("a refused fork", denied);
        assert_eq!((denied.process, denied.comm.as_str()), (agent.process, "python3"));
        assert_eq!(denied.what, Attempt::Fork { root: agent.process, live: 4, bound: 4, refused: 1 });
        // Whoever tries again and again does not fill the ring.
        assert_eq!(scene.tracer.counted(agent.process).expect("counted").expect("bound").refused, 2);
    }
    agent.go();
    assert_eq!(agent.hears(), "ended");
    assert_eq!(scene.live(agent.process), 1);

    scene.tracer.unbound(agent.process).expect("unbound");
    assert_eq!(scene.tracer.refuses(), (false, false));
    assert_eq!(scene.tracer.counted(agent.process).expect("counted"), None);
    scene.tracer.unbound(agent.process).expect("once more is nothing");
}

#[test]
fn forks_on_several_processors_at_once_pass_the_bound_by_no_more_than_there_are_forkers() {
    const FORKERS: i64 = 4;
    let mut scene = Scene::new();
    let mut agent = Agent::python_that_talks(&format!(
        "{FORKER}\
         done = os.pipe()\n\
         for _ in range({FORKERS}):\n\
         \x20   ours, theirs = os.pipe()\n\
         \x20   if os.fork() == 0:\n\
         \x20       os.close(theirs); forks(20); os.write(done[1], b'x'); os.read(ours, 1); os._exit(0)\n\
         \x20   held.append(theirs)\n\
         for _ in range({FORKERS}): os.read(done[0], 1)\n\
         say('forked'); sys.stdin.readline()\n"
    ));
    scene.track(agent.process);
    scene.tracer.bound(agent.process, Some(30)).expect("bound");
    agent.go();
    assert_eq!(agent.hears(), "forked");
    let live = scene.live(agent.process);
    let expected = if scene.tracer.features().lsm.is_ok() { 30..=30 + FORKERS - 1 } else { 85..=85 };
    assert!(expected.contains(&live), "{live} is not in {expected:?}");
    let entries = scene.tracer.entries().expect("entries");
    assert_eq!(entries.len() as i64, live);
}

#[test]
fn a_fork_bomb_is_told_once_a_second() {
    let mut scene = Scene::new();
    let mut agent = Agent::python_that_talks(&format!(
        "{FORKER}[forks(1) for _ in range(200)]; say('done'); sys.stdin.readline()\n"
    ));
    scene.track(agent.process);
    scene.tracer.bound(agent.process, Some(1)).expect("bound");
    let began = std::time::Instant::now();
    agent.go();
    assert_eq!(agent.hears(), "done");
    if scene.tracer.features().lsm.is_ok() {
        assert_eq!(scene.tracer.counted(agent.process).expect("counted").expect("bound").refused, 200);
        scene.wait_for("a refused fork", denied);
        // Between processors the moment of the last one may be missed once.
        let told = scene.events.iter().filter(|event| denied(event).is_some()).count() as u64;
        let seconds = began.elapsed().as_secs();
        assert!(told <= seconds + 2, "{told} of 200 were told in {seconds} s");
    } else {
        assert_eq!(scene.live(agent.process), 201);
    }
}

#[test]
fn the_count_is_right_after_a_storm_of_short_children_on_all_processors() {
    let mut scene = Scene::new();
    // Four children fork 250 grandchildren each, at once.
    let mut agent = Agent::python_that_talks(
        "import os, sys\n\
         for _ in range(4):\n\
         \x20   if os.fork() == 0:\n\
         \x20       for _ in range(250):\n\
         \x20           if os.fork() == 0: os._exit(0)\n\
         \x20           os.wait()\n\
         \x20       os._exit(0)\n\
         for _ in range(4): os.wait()\n\
         sys.stdout.write('done\\n'); sys.stdout.flush(); sys.stdin.readline()\n",
    );
    scene.track(agent.process);
    scene.tracer.bound(agent.process, None).expect("bound");
    assert_eq!(scene.live(agent.process), 1);
    agent.go();
    assert_eq!(agent.hears(), "done");
    assert_eq!(scene.live(agent.process), 1);
    assert!(scene.tracer.lost().expect("lost").untracked() == 0);
}

#[test]
fn a_thread_takes_no_place() {
    let mut scene = Scene::new();
    let mut agent = Agent::python_that_talks(
        "import threading\n\
         stay = threading.Event()\n\
         threads = [threading.Thread(target=stay.wait) for _ in range(20)]\n\
         [t.start() for t in threads]\n\
         sys.stdout.write('started\\n'); sys.stdout.flush(); sys.stdin.readline(); stay.set()\n",
    );
    scene.track(agent.process);
    scene.tracer.bound(agent.process, Some(1)).expect("bound");
    agent.go();
    assert_eq!(agent.hears(), "started");
    assert_eq!(scene.live(agent.process), 1);
}

#[test]
fn a_zombie_has_given_its_place_back() {
    let mut scene = Scene::new();
    let mut agent = Agent::python_that_talks(
        "import os, sys\n\
         if os.fork() == 0: os._exit(0)\n\
         sys.stdout.write('forked\\n'); sys.stdout.flush(); sys.stdin.readline(); os.wait(); sys.stdin.readline()\n",
    );
    scene.track(agent.process);
    scene.tracer.bound(agent.process, None).expect("bound");
    agent.go();
    assert_eq!(agent.hears(), "forked");
    eventually("the child is a zombie", || scene.live(agent.process) == 1);
    agent.go();
    // When it is waited for, and freed, nothing is taken off once more.
    eventually("it is freed", || scene.tracer.dead().expect("dead").is_empty());
    assert_eq!(scene.live(agent.process), 1);
}

#[test]
fn what_a_session_has_started_before_is_counted_when_it_is_bound_and_when_the_bound_changes() {
    let mut scene = Scene::new();
    let mut agent = Agent::python_that_talks(&format!(
        "{FORKER}\
         pids = forks(5); say('forked'); sys.stdin.readline()\n\
         say(str(len(forks(9)))); sys.stdin.readline()\n"
    ));
    scene.track(agent.process);
    agent.go();
    assert_eq!(agent.hears(), "forked");
    scene.tracer.bound(agent.process, Some(4)).expect("bound");
    assert_eq!(scene.live(agent.process), 6);
    scene.tracer.bound(agent.process, Some(4)).expect("the same again");
    assert_eq!(scene.live(agent.process), 6);
    scene.tracer.bound(agent.process, Some(8)).expect("another bound");
    assert_eq!(scene.live(agent.process), 6);
    agent.go();
    assert_eq!(agent.hears(), if scene.tracer.features().lsm.is_ok() { "2" } else { "9" });
}

/// An agent whose child says its pid, then forks twice, and then says how many forks there were.
fn agent_with_an_inner_one() -> (Agent, ProcessId) {
    let mut outer = Agent::python_that_talks(&format!(
        "{FORKER}\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   say(str(os.getpid())); sys.stdin.readline(); say(str(len(forks(2)))); sys.stdin.readline(); os._exit(0)\n\
         os.waitpid(pid, 0)\n"
    ));
    outer.go();
    let inner = identity(outer.hears().parse().expect("a pid"));
    (outer, inner)
}

#[test]
fn a_session_inside_a_bound_one_is_counted_with_it_until_it_is_bound_itself() {
    let mut scene = Scene::new();
    let mut outer = Agent::python_that_talks(&format!(
        "{FORKER}\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   say(str(os.getpid())); sys.stdin.readline(); forks(2); say('forked'); sys.stdin.readline(); os._exit(0)\n\
         os.waitpid(pid, 0)\n"
    ));
    scene.track(outer.process);
    scene.tracer.bound(outer.process, None).expect("bound");
    outer.go();
    let inner = identity(outer.hears().parse().expect("a pid"));
    eventually("both are counted", || scene.live(outer.process) == 2);

    let lineage = Lineage { parent: Some(outer.process), ..root(inner) };
    assert_eq!(scene.tracer.track(inner, &lineage).expect("track"), Placed::Alive);
    assert_eq!(scene.live(outer.process), 2);
    outer.go();
    assert_eq!(outer.hears(), "forked");
    assert_eq!(scene.live(outer.process), 4, "what it forks is the outer session's too");
    scene.tracer.bound(outer.process, Some(9)).expect("another bound");
    assert_eq!(scene.live(outer.process), 4);

    scene.tracer.bound(inner, None).expect("bound");
    assert_eq!((scene.live(outer.process), scene.live(inner)), (1, 3));

    // Whom nobody tracks any more takes no place either.
    let child = scene.forks().into_iter().find(|fork| fork.lineage.root == inner).map(|fork| fork.process);
    let child = child.unwrap_or_else(|| scene.wait_for("a fork", |event| fork_of(event, inner)));
    scene.tracer.untrack(child).expect("untrack");
    assert_eq!(scene.live(inner), 2);
}

#[test]
fn forks_of_an_inner_session_are_held_to_the_outer_ones_bound() {
    let mut scene = Scene::new();
    let (mut outer, inner) = agent_with_an_inner_one();
    // As a daemon that was started later finds them: the inner one is known first.
    let lineage = Lineage { parent: Some(outer.process), ..root(inner) };
    assert_eq!(scene.tracer.track(inner, &lineage).expect("track"), Placed::Alive);
    scene.track(outer.process);
    scene.tracer.bound(outer.process, Some(3)).expect("bound");
    assert_eq!(scene.live(outer.process), 2);
    outer.go();
    let refuses = scene.tracer.features().lsm.is_ok();
    assert_eq!(outer.hears(), if refuses { "1" } else { "2" });
    assert_eq!(scene.live(outer.process), if refuses { 3 } else { 4 });
}

#[test]
fn a_session_takes_in_those_inside_it_however_deep_but_for_one_that_is_bound_itself() {
    for bound_itself in [false, true] {
        let mut scene = Scene::new();
        let (mut outer, inner) = agent_with_an_inner_one();
        outer.go();
        assert_eq!(outer.hears(), "2");
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", inner.pid)).expect("children");
        let children: Vec<ProcessId> =
            children.split_whitespace().map(|child| identity(child.parse().expect("a pid"))).collect();
        let [member, innermost] = children[..] else { panic!("{children:?}") };
        for (process, lineage) in [
            (innermost, Lineage { parent: Some(inner), ..root(innermost) }),
            (member, Lineage { root: inner, parent: Some(inner), depth: 1, ..root(inner) }),
            (inner, Lineage { parent: Some(outer.process), ..root(inner) }),
        ] {
            assert_eq!(scene.tracer.track(process, &lineage).expect("track"), Placed::Alive);
        }
        if bound_itself {
            scene.tracer.bound(innermost, Some(5)).expect("bound");
        }
        scene.track(outer.process);
        scene.tracer.bound(outer.process, Some(9)).expect("bound");
        assert_eq!(scene.live(outer.process), if bound_itself { 3 } else { 4 });
        if bound_itself {
            assert_eq!(scene.live(innermost), 1);
        }
    }
}

#[test]
fn an_inner_session_that_is_found_late_is_counted_with_its_members() {
    let mut scene = Scene::new();
    let (mut outer, inner) = agent_with_an_inner_one();
    scene.track(outer.process);
    scene.tracer.bound(outer.process, None).expect("bound");
    assert_eq!(scene.live(outer.process), 1);
    outer.go();
    assert_eq!(outer.hears(), "2");
    let lineage = Lineage { parent: Some(outer.process), ..root(inner) };
    assert_eq!(scene.tracer.track(inner, &lineage).expect("track"), Placed::Alive);
    assert_eq!(scene.live(outer.process), 2);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", inner.pid)).expect("children");
    for child in children.split_whitespace() {
        let child = identity(child.parse().expect("a pid"));
        let lineage = Lineage { root: inner, parent: Some(inner), depth: 1, ..root(inner) };
        assert_eq!(scene.tracer.track(child, &lineage).expect("track"), Placed::Alive);
    }
    assert_eq!(scene.live(outer.process), 4);
}

#[test]
fn an_agent_inside_a_bound_session_that_executes_itself_again_is_let_through_while_it_becomes_a_root() {
    let denied_agent = Program::named("denied");
    let mut scene = Scene::new();
    scene.tracer.set_denied(&denied_agent.names(), true).expect("deny");
    let mut outer = Agent::python_that_talks(&format!(
        "import os, subprocess, sys\n\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   sys.stdout.write(str(os.getpid()) + '\\n'); sys.stdout.flush()\n\
         \x20   sys.stdin.readline()\n\
         \x20   os._exit(0 if all(subprocess.call(['{0}']) == 0 for _ in range(50)) else 1)\n\
         sys.stdout.write(str(os.waitpid(pid, 0)[1]) + '\\n'); sys.stdout.flush()\n",
        denied_agent.path.display()
    ));
    scene.track(outer.process);
    scene.tracer.bound(outer.process, Some(100)).expect("bound");
    outer.go();
    let inner = identity(outer.hears().parse().expect("a pid"));
    outer.go();
    // Each change writes its entry anew, while it executes the agent.
    for round in 0..200 {
        let parent = (round % 2 == 0).then_some(outer.process);
        let placed = scene.tracer.track(inner, &Lineage { parent, ..root(inner) }).expect("track");
        if placed != Placed::Alive {
            break;
        }
        scene.tracer.bound(outer.process, Some(100 + round)).expect("another bound");
    }
    assert_eq!(outer.hears(), "0");
    assert_eq!(denied_agent.starts(), 50);
}

#[test]
fn an_agent_past_the_gate_does_not_start_and_one_behind_it_does() {
    let denied_agent = Program::named("denied");
    let mut scene = Scene::new();
    scene.tracer.set_denied(&denied_agent.names(), true).expect("deny");

    denied_agent.assert_does_not_start(&mut scene);

    // The root of a gated session executes it, and so does what it started.
    let gated = scene.agent_bound(&format!("{0}; exec {0}", denied_agent.path.display()));
    scene.wait_for_exit(gated.process);
    assert_eq!(denied_agent.starts(), 2);

    // A tracked process whose session is not gated is none of them.
    let ungated = scene.agent(&format!("{}; exit 0", denied_agent.path.display()));
    scene.wait_for_exit(ungated.process);
    assert_eq!(denied_agent.starts(), 2);

    scene.tracer.set_denied(&denied_agent.names(), false).expect("allow");
    assert!(denied_agent.run().success());
    assert_eq!(denied_agent.starts(), 3);
    assert_eq!(scene.tracer.refuses(), (false, false));
}

#[test]
fn what_only_shares_a_directory_or_a_part_of_the_name_with_a_denied_agent_starts() {
    let denied_agent = Program::named("denied");
    let mut scene = Scene::new();
    scene.tracer.set_denied(&denied_agent.names(), true).expect("deny");

    let inside = Program::at(&denied_agent.dir.path().join(format!("{}-files", denied_agent.name)).join("tool"));
    assert!(inside.run().success());
    let below = Program::at(&denied_agent.dir.path().join("x").join(&denied_agent.name).join("tool"));
    assert!(below.run().success());
    let longer = Program::at(&denied_agent.dir.path().join(format!("{}.js", denied_agent.name)));
    assert!(longer.run().success());
    // A link is the file where LSM programs work; elsewhere a script is known by the path alone.
    let link = denied_agent.dir.path().join("another-name");
    std::os::unix::fs::symlink(&denied_agent.path, &link).expect("link");
    let starts = Command::new(&link).status().is_ok_and(|status| status.success());
    let refused = scene.tracer.features().lsm.is_ok();
    assert_eq!(starts, !refused);
    if refused {
        scene.wait_for("a refused link", denied);
        scene.events.clear();
    }
    assert!(scene.tracer.refuses().1 == scene.tracer.features().lsm.is_ok());
    denied_agent.assert_does_not_start(&mut scene);
}

#[test]
fn a_name_behind_a_long_path_is_denied_too() {
    let dir = tempfile::tempdir().expect("tempdir");
    // Parts of the path are read apart: names on either side of every seam.
    let mut scene = Scene::new();
    for padding in [90, 120, 127, 128, 129, 200, 250] {
        let part = "p".repeat(padding);
        let program = Program::at(&dir.path().join(&part).join(unique("long")));
        scene.tracer.set_denied(&program.names(), true).expect("deny");
        program.assert_does_not_start(&mut scene);
        scene.events.clear();
    }
}

/// A script that notes each of its starts.
struct Program {
    dir: TempDir,
    path: PathBuf,
    name: String,
    log: PathBuf,
}

impl Program {
    /// One with a name that no other program of this host has.
    fn named(stem: &str) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join(unique(stem));
        Self::in_dir(dir, path)
    }

    fn at(path: &Path) -> Self {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        Self::in_dir(tempfile::tempdir().expect("tempdir"), path.to_owned())
    }

    fn in_dir(dir: TempDir, path: PathBuf) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let log = dir.path().join("log");
        std::fs::write(&path, format!("#!/bin/sh\necho >> {}\n", log.display())).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        Self { dir, path, name, log }
    }

    fn names(&self) -> Vec<Vec<u8>> {
        vec![self.name.clone().into_bytes()]
    }

    fn run(&self) -> std::process::ExitStatus {
        Command::new(&self.path).stdin(Stdio::null()).status().expect("it starts")
    }

    /// How often its first line was reached.
    fn starts(&self) -> usize {
        std::fs::read_to_string(&self.log).map_or(0, |log| log.lines().count())
    }

    /// Its exec fails, or it is killed before its first instruction; either way that is told.
    fn assert_does_not_start(&self, scene: &mut Scene) {
        let before = self.starts();
        let refuses = scene.tracer.features().lsm.is_ok();
        assert_eq!(scene.tracer.refuses().1, refuses);
        match Command::new(&self.path).stdin(Stdio::null()).status() {
            Err(error) => {
                assert!(refuses, "{error}");
                assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            }
            Ok(status) => {
                assert!(!refuses, "{status}");
                assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
            }
        }
        assert_eq!(self.starts(), before);
        let denied = scene.wait_for("a refused exec", denied);
        let path = self.path.to_string_lossy().into_owned();
        assert_eq!(denied.what, Attempt::Exec { ppid: Pid(std::process::id()), path, killed: !refuses });
        // Nothing was taken for an agent.
        assert!(
            !scene
                .events
                .iter()
                .any(|event| matches!(event, KernelEvent::Exec(exec) if exec.process == denied.process))
        );
    }
}

impl Scene {
    fn live(&self, root: ProcessId) -> i64 {
        self.tracer.counted(root).expect("counted").expect("it is bound").live
    }

    fn agent_bound(&mut self, script: &str) -> Agent {
        let agent = Agent::waiting(script);
        self.track(agent.process);
        self.tracer.bound(agent.process, None).expect("bound");
        agent.go();
        agent
    }
}

fn unique(stem: &str) -> String {
    let dir = tempfile::tempdir().expect("tempdir");
    let random = dir.path().file_name().expect("a name").to_string_lossy().into_owned();
    format!("{stem}-{}", random.trim_start_matches('.'))
}

fn denied(event: &KernelEvent) -> Option<Denied> {
    match event {
        KernelEvent::Denied(denied) => Some(denied.clone()),
        _ => None,
    }
}

fn fork_of(event: &KernelEvent, root: ProcessId) -> Option<ProcessId> {
    match event {
        KernelEvent::Fork(fork) if fork.lineage.root == root => Some(fork.process),
        _ => None,
    }
}
