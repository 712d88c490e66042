//! Lineage and identity of tracked processes.

use std::process::Stdio;

use watchdog_config::Candidates;
use watchdog_kernel::{LoadOptions, TrackOutcome};
use watchdog_types::{ExitStatus, KernelEvent, ProcessId};

use super::scene::{KernelScene, TestAgent, eventually, identity, root};

#[test]
fn child_events_carry_proc_identity() {
    let mut scene = KernelScene::new();
    let mut agent = scene.agent("/bin/cat -; exit 3");
    let exec = scene.wait_for_exec("exec of cat", |exec| exec.image.path == "/bin/cat");

    let shown_by_proc = identity(exec.process.pid.0);
    assert_eq!(exec.process, shown_by_proc);
    assert_eq!(exec.image.argv, ["/bin/cat", "-"]);
    assert_eq!(exec.comm, "cat");
    assert_eq!(exec.ppid, agent.process.pid);
    assert!(!exec.image.truncated);

    let fork = scene.forks().into_iter().find(|fork| fork.process == exec.process).expect("its fork").clone();
    assert_eq!(fork.lineage.root, agent.process);
    assert_eq!(fork.lineage.parent, Some(agent.process));
    assert_eq!(fork.lineage.depth, 1);
    assert!(fork.lineage.forked && !exec.lineage.forked);

    drop(agent.child.stdin.take());
    assert_eq!(scene.wait_for_exit(exec.process).status, Some(ExitStatus::Code(0)));
    assert_eq!(scene.wait_for_exit(agent.process).status, Some(ExitStatus::Code(3)));
    assert_eq!(agent.child.wait().expect("wait").code(), Some(3));
}

#[test]
fn argv_is_that_of_exec() {
    let mut scene = KernelScene::new();
    // As `process.title` in node: overwrites the memory of the arguments, whose address is field 48 of stat.
    let overwrite = "import ctypes, sys\n\
        start = int(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[45])\n\
        ctypes.memmove(start, b'overwritten', 12); sys.stdin.readline()\n";
    let agent = scene.agent(&format!("exec /usr/bin/python3 -c \"{overwrite}\" --token secret"));
    let cmdline = format!("/proc/{}/cmdline", agent.process.pid);
    eventually("its argv is overwritten", || {
        std::fs::read(&cmdline).is_ok_and(|text| text.starts_with(b"overwritten\0"))
    });
    let exec = scene.wait_for_exec("exec of python", |exec| exec.image.path == "/usr/bin/python3");
    assert_eq!(exec.process, agent.process);
    assert_eq!(exec.image.argv[0], "/usr/bin/python3");
    assert_eq!(exec.image.argv[3..], ["--token", "secret"]);
}

#[test]
fn double_fork_stays_in_session() {
    let mut scene = KernelScene::new();
    let agent = scene.agent("(setsid /bin/sh -c '/bin/sleep 30 & echo' > /dev/null &); sleep 0.1");
    let exec = scene.wait_for_exec("exec of sleep 30", |exec| exec.image.argv == ["/bin/sleep", "30"]);

    assert_eq!(exec.lineage.root, agent.process);
    assert!(exec.lineage.depth >= 2, "depth {}", exec.lineage.depth);
    let parent = exec.lineage.parent.expect("a parent");
    scene.wait_for_exit(parent);
    let entries = scene.tracer.entries().expect("entries");
    assert!(entries.iter().any(|entry| entry.process == exec.process));
    terminate(exec.process);
    scene.wait_for_exit(exec.process);
}

#[test]
fn threads_not_reported() {
    let mut scene = KernelScene::new();
    let agent = TestAgent::python(
        "import threading\n\
         for _ in range(10):\n\
         \x20   threads = [threading.Thread(target=lambda: None) for _ in range(100)]\n\
         \x20   [t.start() for t in threads]; [t.join() for t in threads]\n",
    );
    scene.track(agent.process);
    agent.go();
    scene.wait_for_exit(agent.process);
    assert!(scene.forks().is_empty(), "{:#?}", scene.events);
    let exits = scene.events.iter().filter(|event| matches!(event, KernelEvent::Exit(_))).count();
    assert_eq!(exits, 1, "{:#?}", scene.events);
}

#[test]
fn exec_from_thread_keeps_identity() {
    let mut scene = KernelScene::new();
    let mut agent = TestAgent::python(
        "import threading, os\n\
         t = threading.Thread(target=lambda: os.execv('/bin/cat', ['cat', '-']))\n\
         t.start(); t.join()\n",
    );
    scene.track(agent.process);
    agent.go();
    let exec = scene.wait_for_exec("exec from a thread", |exec| exec.image.path == "/bin/cat");
    assert_eq!(exec.process, agent.process);
    assert_eq!(exec.image.argv, ["cat", "-"]);
    let entries = scene.tracer.entries().expect("entries");
    assert!(entries.iter().any(|entry| entry.process == agent.process));
    drop(agent.child.stdin.take());
    assert_eq!(scene.wait_for_exit(agent.process).status, Some(ExitStatus::Code(0)));
    let exits = scene.events.iter().filter(|event| matches!(event, KernelEvent::Exit(_))).count();
    assert_eq!(exits, 1);
}

#[test]
fn process_outlives_its_leader() {
    let mut scene = KernelScene::new();
    // The leader exits once the memory is allocated; both are slow on an emulated processor. By the bare system
    // call: pthread_exit requires an unwinding library, which a guest lacks.
    let agent = TestAgent::python(
        "import threading, ctypes, os\n\
         libc = ctypes.CDLL(None)\n\
         sys_exit = 60 if os.uname().machine == 'x86_64' else 93\n\
         there = threading.Event()\n\
         def last():\n\
         \x20   memory = bytearray(64 << 20)\n\
         \x20   there.set()\n\
         \x20   sys.stdin.readline()\n\
         threading.Thread(target=last).start()\n\
         there.wait()\n\
         libc.syscall(sys_exit, 0)\n",
    );
    scene.track(agent.process);
    agent.go();
    let stat = format!("/proc/{}/stat", agent.process.pid);
    eventually("the first thread is a zombie", || {
        std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))
    });
    let samples = scene.tracer.sample().expect("sample");
    let of_it: Vec<_> = samples.iter().filter(|sample| sample.tgid == agent.process.pid.0).collect();
    let [sample] = of_it[..] else { panic!("not sampled once: {of_it:?}") };
    assert!(sample.pages[1] > (60 << 20) / 4096, "{sample:?}");
    assert_eq!(sample.flags & watchdog_common::SampleFlags::ZOMBIE, 0);
    scene.lifecycle.drain(&mut scene.events);
    assert!(!scene.events.iter().any(|event| matches!(event, KernelEvent::Exit(_))));
    scene.track(agent.process);
    agent.go();
    scene.wait_for_exit(agent.process);
}

#[test]
fn exiting_process_not_tracked_as_alive() {
    let mut scene = KernelScene::new();
    // To release this much takes the kernel some milliseconds, before or after it reports the exit.
    let mut agent = TestAgent::python_with_output(
        "memory = bytearray(b'x') * (96 << 20)\nsys.stdout.write('\\n'); sys.stdout.flush(); sys.stdin.readline()\n",
    );
    agent.go();
    agent.read_line();
    agent.child.kill().expect("kill");
    let stat = format!("/proc/{}/stat", agent.process.pid);
    while !is_exiting(&std::fs::read_to_string(&stat).expect("not reaped yet")) {}

    assert_eq!(scene.tracer.track(agent.process, &root(agent.process)).expect("track"), TrackOutcome::Exiting);
    eventually("it is a zombie", || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z ")));
    assert_eq!(scene.tracer.track(agent.process, &root(agent.process)).expect("track"), TrackOutcome::Exiting);
    scene.tracer.limit_session(agent.process, Some(10)).expect("limit");
    assert_eq!(scene.tracer.session_count(agent.process).expect("counted").expect("a limited session").live, 0);
    let samples = scene.tracer.sample().expect("sample");
    let sample = samples.iter().find(|sample| sample.tgid == agent.process.pid.0).expect("sampled");
    assert_ne!(sample.flags & watchdog_common::SampleFlags::ZOMBIE, 0, "though no exit may have been reported");
}

/// `PF_EXITING` in field 9 of /proc/PID/stat.
fn is_exiting(stat: &str) -> bool {
    let behind_comm = stat.rsplit_once(')').expect("comm ends with a parenthesis").1;
    let flags: u32 = behind_comm.split_whitespace().nth(6).expect("9 fields").parse().expect("a number");
    flags & 0x4 != 0
}

#[test]
fn zombie_until_reaped() {
    let mut scene = KernelScene::new();
    let mut agent = scene.agent("exit 0");
    scene.wait_for_exit(agent.process);
    assert!(scene.tracer.entries().expect("entries").is_empty(), "a zombie has no entry");
    assert_eq!(scene.tracer.zombies().expect("zombies"), [agent.process]);
    let samples = scene.tracer.sample().expect("sample");
    let sample = samples.iter().find(|sample| sample.tgid == agent.process.pid.0).expect("sampled");
    assert_ne!(sample.flags & watchdog_common::SampleFlags::ZOMBIE, 0);

    agent.child.wait().expect("wait");
    eventually("it is freed", || scene.tracer.zombies().expect("zombies").is_empty());
}

#[test]
fn untracked_process_not_reported() {
    let mut scene = KernelScene::new();
    let agent = TestAgent::waiting("/bin/true; exit 0");
    agent.go();
    let other = scene.agent("exit 0");
    scene.wait_for_exit(other.process);
    assert!(!scene.events.iter().any(|event| match event {
        KernelEvent::Exec(exec) => exec.lineage.root == agent.process,
        KernelEvent::Exit(exit) => exit.process == agent.process,
        _ => false,
    }));
}

#[test]
fn candidate_tracked_from_exec() {
    let dir = tempfile::tempdir().expect("tempdir");
    let script = dir.path().join("my-agent");
    std::fs::write(&script, "#!/bin/sh\n/bin/sleep 0.1\n").expect("write");
    make_executable(&script);
    let candidates = Candidates { names: vec![b"my-agent".to_vec()], every_exec: false };
    let mut scene = KernelScene::with(&LoadOptions::new(64, &candidates));

    let agent = TestAgent::of(std::process::Command::new(&script).arg("--flag").stdin(Stdio::null()));
    let exec = scene.wait_for_exec("exec of the agent", |exec| exec.process == agent.process);
    assert_eq!(exec.image.path, script.to_string_lossy());
    assert_eq!(exec.image.argv, ["/bin/sh", &script.to_string_lossy(), "--flag"]);
    assert!(exec.lineage.provisional);
    assert_eq!(exec.lineage.root, agent.process);
    let child = scene.wait_for_exec("exec of its child", |exec| exec.image.path == "/bin/sleep");
    assert!(child.lineage.provisional);
    assert_eq!(child.lineage.parent, Some(agent.process));
}

#[test]
fn second_last_component_is_candidate() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join("my-agent")).expect("mkdir");
    let script = dir.path().join("my-agent/cli.js");
    std::fs::write(&script, "#!/bin/sh\nexit 0\n").expect("write");
    make_executable(&script);
    let candidates = Candidates { names: vec![b"my-agent".to_vec()], every_exec: false };
    let mut scene = KernelScene::with(&LoadOptions::new(64, &candidates));

    let first = TestAgent::of(&mut std::process::Command::new(&script));
    scene.wait_for_exec("exec of cli.js", |exec| exec.process == first.process);

    scene.tracer.set_candidates(&Candidates::default()).expect("set candidates");
    let second = TestAgent::of(&mut std::process::Command::new(&script));
    let marker = scene.agent("exit 0");
    scene.wait_for_exit(marker.process);
    assert!(
        !scene.events.iter().any(|event| matches!(event, KernelEvent::Exec(exec) if exec.process == second.process))
    );

    scene.tracer.set_candidates(&Candidates { names: Vec::new(), every_exec: true }).expect("set candidates");
    let third = TestAgent::of(&mut std::process::Command::new(&script));
    scene.wait_for_exec("any exec", |exec| exec.process == third.process);
}

#[test]
fn witness_reported_without_children() {
    let mut scene = KernelScene::new();
    let witness = TestAgent::waiting("/bin/true; exit 7");
    let lineage = watchdog_types::Lineage { witness: true, ..root(witness.process) };
    assert_eq!(scene.tracer.track(witness.process, &lineage).expect("track"), TrackOutcome::Alive);
    witness.go();
    assert_eq!(scene.wait_for_exit(witness.process).status, Some(ExitStatus::Code(7)));
    // The kernel reports OOM kills of the whole host.
    let events: Vec<_> = scene.events.iter().filter(|event| !matches!(event, KernelEvent::Oom(_))).collect();
    assert_eq!(events.len(), 1, "{events:#?}");
    assert!(scene.tracer.entries().expect("entries").is_empty());
}

#[test]
fn retracking_keeps_kernels_record() {
    let mut scene = KernelScene::new();
    let agent = scene.agent("read more; exit 0");
    let before = scene.tracer.entries().expect("entries");
    scene.track(agent.process);
    assert_eq!(scene.tracer.entries().expect("entries"), before);

    let gone = ProcessId { start_time: watchdog_types::Ticks(1), ..agent.process };
    assert_eq!(scene.tracer.track(gone, &root(gone)).expect("track"), TrackOutcome::NotFound);
    scene.tracer.untrack(gone).expect("untrack");
    assert_eq!(scene.tracer.entries().expect("entries"), before);

    scene.tracer.untrack(agent.process).expect("untrack");
    assert!(scene.tracer.entries().expect("entries").is_empty());
}

fn make_executable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
}

/// Terminates a descendant of a process that this test started.
fn terminate(process: ProcessId) {
    assert_eq!(identity(process.pid.0), process);
    let pid = rustix::process::Pid::from_raw(process.pid.0.cast_signed()).expect("not zero");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
}
