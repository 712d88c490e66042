//! Limits of gated sessions, with and without LSM programs.

use watchdog_kernel::TrackOutcome;
use watchdog_types::{Attempt, KernelEvent, Lineage, ProcessId};

use super::denied_script::{DeniedScript, denied};
use super::scene::{KernelScene, TestAgent, eventually, identity, root};

/// Forks children until a fork fails or there are enough. They live until they are killed, or until their parent exits, which
/// closes the pipe that they read.
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
def kill(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
def say(text):
    sys.stdout.write(text + '\\n')
    sys.stdout.flush()
";

#[test]
fn fork_beyond_limit_fails_until_exit() {
    let mut scene = KernelScene::new();
    let mut agent = TestAgent::python_with_output(&format!(
        "{FORKER}\
         pids = forks(8); say(str(len(pids))); sys.stdin.readline()\n\
         kill(pids[0]); more = forks(8); say(str(len(more))); sys.stdin.readline()\n\
         [kill(pid) for pid in pids[1:] + more]; say('killed'); sys.stdin.readline()\n"
    ));
    scene.track(agent.process);
    scene.tracer.limit_session(agent.process, Some(4)).expect("limit");
    let refuses = scene.tracer.features().lsm.is_ok();
    assert_eq!(scene.tracer.attached_refusals().0, refuses);

    // With the root, four live.
    agent.go();
    assert_eq!(agent.read_line(), if refuses { "3" } else { "8" });
    assert_eq!(scene.live(agent.process), if refuses { 4 } else { 9 });
    agent.go();
    assert_eq!(agent.read_line(), if refuses { "1" } else { "8" });
    assert_eq!(scene.live(agent.process), if refuses { 4 } else { 16 });
    if refuses {
        let denied = scene.wait_for("a refused fork", denied);
        assert_eq!((denied.process, denied.comm.as_str()), (agent.process, "python3"));
        assert_eq!(denied.what, Attempt::Fork { root: agent.process, live: 4, bound: 4, refused: 1 });
        // Repeated attempts are not all reported.
        assert_eq!(scene.tracer.session_count(agent.process).expect("counted").expect("limit").refused, 2);
    }
    agent.go();
    assert_eq!(agent.read_line(), "killed");
    assert_eq!(scene.live(agent.process), 1);

    scene.tracer.unlimit_session(agent.process).expect("no limit");
    assert_eq!(scene.tracer.attached_refusals(), (false, false));
    assert_eq!(scene.tracer.session_count(agent.process).expect("counted"), None);
    scene.tracer.unlimit_session(agent.process).expect("a second call");
}

#[test]
fn concurrent_forks_barely_exceed_limit() {
    const FORKERS: i64 = 4;
    let mut scene = KernelScene::new();
    let mut agent = TestAgent::python_with_output(&format!(
        "{FORKER}\
         start, done = os.pipe(), os.pipe()\n\
         for _ in range({FORKERS}):\n\
         \x20   ours, theirs = os.pipe()\n\
         \x20   if os.fork() == 0:\n\
         \x20       os.close(theirs); os.read(start[0], 1); forks(20); os.write(done[1], b'x'); os.read(ours, 1); os._exit(0)\n\
         \x20   held.append(theirs)\n\
         os.write(start[1], b'x' * {FORKERS})\n\
         for _ in range({FORKERS}): os.read(done[0], 1)\n\
         say('forked'); sys.stdin.readline()\n"
    ));
    scene.track(agent.process);
    scene.tracer.limit_session(agent.process, Some(30)).expect("limit");
    agent.go();
    assert_eq!(agent.read_line(), "forked");
    let live = scene.live(agent.process);
    let expected = if scene.tracer.features().lsm.is_ok() { 30..=30 + FORKERS - 1 } else { 85..=85 };
    assert!(expected.contains(&live), "{live} is not in {expected:?}");
    let entries = scene.tracer.entries().expect("entries");
    assert_eq!(entries.len() as i64, live);
}

#[test]
fn fork_bomb_reported_once_a_second() {
    let mut scene = KernelScene::new();
    let mut agent = TestAgent::python_with_output(&format!(
        "{FORKER}[forks(1) for _ in range(200)]; say('done'); sys.stdin.readline()\n"
    ));
    scene.track(agent.process);
    scene.tracer.limit_session(agent.process, Some(1)).expect("limit");
    let began = std::time::Instant::now();
    agent.go();
    assert_eq!(agent.read_line(), "done");
    if scene.tracer.features().lsm.is_ok() {
        assert_eq!(scene.tracer.session_count(agent.process).expect("counted").expect("limit").refused, 200);
        scene.wait_for("a refused fork", denied);
        // A race between processors may add one record.
        let reported = scene.events.iter().filter(|event| denied(event).is_some()).count() as u64;
        let seconds = began.elapsed().as_secs();
        assert!(reported <= seconds + 2, "{reported} of 200 in {seconds} s");
    } else {
        assert_eq!(scene.live(agent.process), 201);
    }
}

#[test]
fn count_exact_after_fork_storm() {
    let mut scene = KernelScene::new();
    // Four children fork 250 grandchildren each, at once.
    let mut agent = TestAgent::python_with_output(
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
    scene.tracer.limit_session(agent.process, None).expect("limit");
    assert_eq!(scene.live(agent.process), 1);
    agent.go();
    assert_eq!(agent.read_line(), "done");
    assert_eq!(scene.live(agent.process), 1);
    assert!(scene.tracer.lost().expect("lost").untracked() == 0);
}

#[test]
fn threads_not_counted() {
    let mut scene = KernelScene::new();
    let mut agent = TestAgent::python_with_output(
        "import threading\n\
         stay = threading.Event()\n\
         threads = [threading.Thread(target=stay.wait) for _ in range(20)]\n\
         [t.start() for t in threads]\n\
         sys.stdout.write('started\\n'); sys.stdout.flush(); sys.stdin.readline(); stay.set()\n",
    );
    scene.track(agent.process);
    scene.tracer.limit_session(agent.process, Some(1)).expect("limit");
    agent.go();
    assert_eq!(agent.read_line(), "started");
    assert_eq!(scene.live(agent.process), 1);
}

#[test]
fn zombies_not_counted() {
    let mut scene = KernelScene::new();
    let mut agent = TestAgent::python_with_output(
        "import os, sys\n\
         if os.fork() == 0: os._exit(0)\n\
         sys.stdout.write('forked\\n'); sys.stdout.flush(); sys.stdin.readline(); os.wait(); sys.stdin.readline()\n",
    );
    scene.track(agent.process);
    scene.tracer.limit_session(agent.process, None).expect("limit");
    agent.go();
    assert_eq!(agent.read_line(), "forked");
    eventually("the child is a zombie", || scene.live(agent.process) == 1);
    agent.go();
    // Reaping it must not decrement the count again.
    eventually("it is freed", || scene.tracer.zombies().expect("zombies").is_empty());
    assert_eq!(scene.live(agent.process), 1);
}

#[test]
fn limit_counts_existing_processes() {
    let mut scene = KernelScene::new();
    let mut agent = TestAgent::python_with_output(&format!(
        "{FORKER}\
         pids = forks(5); say('forked'); sys.stdin.readline()\n\
         say(str(len(forks(9)))); sys.stdin.readline()\n"
    ));
    scene.track(agent.process);
    agent.go();
    assert_eq!(agent.read_line(), "forked");
    scene.tracer.limit_session(agent.process, Some(4)).expect("limit");
    assert_eq!(scene.live(agent.process), 6);
    scene.tracer.limit_session(agent.process, Some(4)).expect("the same again");
    assert_eq!(scene.live(agent.process), 6);
    scene.tracer.limit_session(agent.process, Some(8)).expect("another limit");
    assert_eq!(scene.live(agent.process), 6);
    agent.go();
    assert_eq!(agent.read_line(), if scene.tracer.features().lsm.is_ok() { "2" } else { "9" });
}

/// An agent whose child prints its pid, forks twice when it reads a line, and prints the number of forks.
fn nested_agents() -> (TestAgent, ProcessId) {
    let mut outer = TestAgent::python_with_output(&format!(
        "{FORKER}\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   say(str(os.getpid())); sys.stdin.readline(); say(str(len(forks(2)))); sys.stdin.readline(); os._exit(0)\n\
         os.waitpid(pid, 0)\n"
    ));
    outer.go();
    let inner = identity(outer.read_line().parse().expect("a pid"));
    (outer, inner)
}

#[test]
fn inner_session_counted_until_limited_itself() {
    let mut scene = KernelScene::new();
    let mut outer = TestAgent::python_with_output(&format!(
        "{FORKER}\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   say(str(os.getpid())); sys.stdin.readline(); forks(2); say('forked'); sys.stdin.readline(); os._exit(0)\n\
         os.waitpid(pid, 0)\n"
    ));
    scene.track(outer.process);
    scene.tracer.limit_session(outer.process, None).expect("limit");
    outer.go();
    let inner = identity(outer.read_line().parse().expect("a pid"));
    eventually("both are counted", || scene.live(outer.process) == 2);

    let lineage = Lineage { parent: Some(outer.process), ..root(inner) };
    assert_eq!(scene.tracer.track(inner, &lineage).expect("track"), TrackOutcome::Alive);
    assert_eq!(scene.live(outer.process), 2);
    outer.go();
    assert_eq!(outer.read_line(), "forked");
    assert_eq!(scene.live(outer.process), 4, "its forks count in the outer session");
    scene.tracer.limit_session(outer.process, Some(9)).expect("another limit");
    assert_eq!(scene.live(outer.process), 4);

    scene.tracer.limit_session(inner, None).expect("limit");
    assert_eq!((scene.live(outer.process), scene.live(inner)), (1, 3));

    // An untracked process is no longer counted.
    let child = scene.forks().into_iter().find(|fork| fork.lineage.root == inner).map(|fork| fork.process);
    let child = child.unwrap_or_else(|| scene.wait_for("a fork", |event| fork_of(event, inner)));
    scene.tracer.untrack(child).expect("untrack");
    assert_eq!(scene.live(inner), 2);
}

#[test]
fn inner_forks_obey_outer_limit() {
    let mut scene = KernelScene::new();
    let (mut outer, inner) = nested_agents();
    // As a daemon that starts later finds them: the inner session first.
    let lineage = Lineage { parent: Some(outer.process), ..root(inner) };
    assert_eq!(scene.tracer.track(inner, &lineage).expect("track"), TrackOutcome::Alive);
    scene.track(outer.process);
    scene.tracer.limit_session(outer.process, Some(3)).expect("limit");
    assert_eq!(scene.live(outer.process), 2);
    outer.go();
    let refuses = scene.tracer.features().lsm.is_ok();
    assert_eq!(outer.read_line(), if refuses { "1" } else { "2" });
    assert_eq!(scene.live(outer.process), if refuses { 3 } else { 4 });
}

#[test]
fn deep_inner_sessions_counted() {
    for bound_itself in [false, true] {
        let mut scene = KernelScene::new();
        let (mut outer, inner) = nested_agents();
        outer.go();
        assert_eq!(outer.read_line(), "2");
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", inner.pid)).expect("children");
        let children: Vec<ProcessId> =
            children.split_whitespace().map(|child| identity(child.parse().expect("a pid"))).collect();
        let [member, innermost] = children[..] else { panic!("{children:?}") };
        for (process, lineage) in [
            (innermost, Lineage { parent: Some(inner), ..root(innermost) }),
            (member, Lineage { root: inner, parent: Some(inner), depth: 1, ..root(inner) }),
            (inner, Lineage { parent: Some(outer.process), ..root(inner) }),
        ] {
            assert_eq!(scene.tracer.track(process, &lineage).expect("track"), TrackOutcome::Alive);
        }
        if bound_itself {
            scene.tracer.limit_session(innermost, Some(5)).expect("limit");
        }
        scene.track(outer.process);
        scene.tracer.limit_session(outer.process, Some(9)).expect("limit");
        assert_eq!(scene.live(outer.process), if bound_itself { 3 } else { 4 });
        if bound_itself {
            assert_eq!(scene.live(innermost), 1);
        }
    }
}

#[test]
fn late_inner_session_counted_with_members() {
    let mut scene = KernelScene::new();
    let (mut outer, inner) = nested_agents();
    scene.track(outer.process);
    scene.tracer.limit_session(outer.process, None).expect("limit");
    assert_eq!(scene.live(outer.process), 1);
    outer.go();
    assert_eq!(outer.read_line(), "2");
    let lineage = Lineage { parent: Some(outer.process), ..root(inner) };
    assert_eq!(scene.tracer.track(inner, &lineage).expect("track"), TrackOutcome::Alive);
    assert_eq!(scene.live(outer.process), 2);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", inner.pid)).expect("children");
    for child in children.split_whitespace() {
        let child = identity(child.parse().expect("a pid"));
        let lineage = Lineage { root: inner, parent: Some(inner), depth: 1, ..root(inner) };
        assert_eq!(scene.tracer.track(child, &lineage).expect("track"), TrackOutcome::Alive);
    }
    assert_eq!(scene.live(outer.process), 4);
}

#[test]
fn inner_agent_allowed_while_becoming_root() {
    let denied_agent = DeniedScript::named("denied");
    let mut scene = KernelScene::new();
    scene.tracer.set_denied(&denied_agent.names(), true).expect("deny");
    let mut outer = TestAgent::python_with_output(&format!(
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
    scene.tracer.limit_session(outer.process, Some(100)).expect("limit");
    outer.go();
    let inner = identity(outer.read_line().parse().expect("a pid"));
    outer.go();
    // Each change rewrites its entry while it executes the agent.
    for round in 0..200 {
        let parent = (round % 2 == 0).then_some(outer.process);
        let placed = scene.tracer.track(inner, &Lineage { parent, ..root(inner) }).expect("track");
        if placed != TrackOutcome::Alive {
            break;
        }
        scene.tracer.limit_session(outer.process, Some(100 + round)).expect("another limit");
    }
    assert_eq!(outer.read_line(), "0");
    assert_eq!(denied_agent.starts(), 50);
}

impl KernelScene {
    fn live(&self, root: ProcessId) -> i64 {
        self.tracer.session_count(root).expect("counted").expect("a limited session").live
    }

    pub(super) fn agent_bound(&mut self, script: &str) -> TestAgent {
        let agent = TestAgent::waiting(script);
        self.track(agent.process);
        self.tracer.limit_session(agent.process, None).expect("limit");
        agent.go();
        agent
    }
}

fn fork_of(event: &KernelEvent, root: ProcessId) -> Option<ProcessId> {
    match event {
        KernelEvent::Fork(fork) if fork.lineage.root == root => Some(fork.process),
        _ => None,
    }
}
