//! A loaded tracer, and child processes that tests control.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use watchdog_config::Candidates;
use watchdog_host::testing::spawn;
use watchdog_kernel::{EventRing, LoadOptions, Tracer, TrackOutcome};
use watchdog_types::{Exec, Exit, Fork, KernelEvent, Lineage, Pid, ProcessId, Ticks};

/// Time limit for an event on a host that is busy with other tests; longer in a guest, whose processor is emulated.
pub(crate) fn soon() -> Duration {
    Duration::from_secs(if std::env::var_os("WATCHDOG_GUEST").is_some() { 300 } else { 60 })
}

/// Loaded programs, and all their events so far.
pub(crate) struct KernelScene {
    pub(crate) tracer: Tracer,
    pub(crate) lifecycle: EventRing,
    pub(crate) memory: EventRing,
    pub(crate) events: Vec<KernelEvent>,
}

impl KernelScene {
    pub(crate) fn new() -> Self {
        Self::with(&LoadOptions::new(4_096, &Candidates::default()))
    }

    pub(crate) fn with(options: &LoadOptions<'_>) -> Self {
        let (tracer, streams) = Tracer::load(options).expect("these tests need root and a kernel with BTF");
        Self { tracer, lifecycle: streams.lifecycle, memory: streams.memory, events: Vec::new() }
    }

    /// Tracks a process as the root of a session.
    pub(crate) fn track(&mut self, process: ProcessId) {
        assert_eq!(self.tracer.track(process, &root(process)).expect("track"), TrackOutcome::Alive);
    }

    /// Starts a shell that is tracked as a root before it runs `script`.
    pub(crate) fn agent(&mut self, script: &str) -> TestAgent {
        let agent = TestAgent::waiting(script);
        self.track(agent.process);
        agent.go();
        agent
    }

    /// Reads events until `wanted` returns a value for one.
    pub(crate) fn wait_for<T>(&mut self, what: &str, wanted: impl Fn(&KernelEvent) -> Option<T>) -> T {
        let deadline = Instant::now() + soon();
        loop {
            self.lifecycle.drain(&mut self.events);
            self.memory.drain(&mut self.events);
            if let Some(found) = self.events.iter().find_map(&wanted) {
                return found;
            }
            assert!(Instant::now() < deadline, "no {what} among {:#?}; {}", self.events, self.skipped_runs());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn wait_for_exit(&mut self, process: ProcessId) -> Exit {
        self.wait_for(&format!("exit of {process}"), |event| match event {
            KernelEvent::Exit(exit) if exit.process == process => Some(exit.clone()),
            _ => None,
        })
    }

    pub(crate) fn wait_for_exec(&mut self, what: &str, wanted: impl Fn(&Exec) -> bool) -> Exec {
        self.wait_for(what, |event| match event {
            KernelEvent::Exec(exec) if wanted(exec) => Some(exec.clone()),
            _ => None,
        })
    }

    /// How often the kernel skipped each program.
    pub(crate) fn skipped_runs(&self) -> String {
        let skipped: Vec<_> = self.tracer.program_stats().into_iter().map(|stats| (stats.name, stats.missed)).collect();
        format!("skipped runs: {skipped:?}")
    }

    /// All forks so far.
    pub(crate) fn forks(&self) -> Vec<&Fork> {
        self.events
            .iter()
            .filter_map(|event| match event {
                KernelEvent::Fork(fork) => Some(fork),
                _ => None,
            })
            .collect()
    }
}

/// A process that this test started. Dropping it kills it.
pub(crate) struct TestAgent {
    pub(crate) child: Child,
    pub(crate) process: ProcessId,
}

impl TestAgent {
    /// A shell that runs `script` once it has read a line.
    pub(crate) fn waiting(script: &str) -> Self {
        Self::of(Command::new("/bin/sh").args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped()))
    }

    /// The Python program `script`, which runs once it has read a line.
    pub(crate) fn python(script: &str) -> Self {
        let script = format!("import sys; sys.stdin.readline()\n{script}");
        Self::of(Command::new("/usr/bin/python3").args(["-c", &script]).stdin(Stdio::piped()))
    }

    /// As [`python`](Self::python), with its output read by [`read_line`](Self::read_line).
    pub(crate) fn python_with_output(script: &str) -> Self {
        let script = format!("import sys; sys.stdin.readline()\n{script}");
        let mut command = Command::new("/usr/bin/python3");
        Self::of(command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let child = spawn(command).expect("spawn");
        let process = identity(child.id());
        Self { child, process }
    }

    /// Writes the line that it waits for.
    pub(crate) fn go(&self) {
        use std::io::Write;
        let mut stdin = self.child.stdin.as_ref().expect("stdin is a pipe");
        writeln!(stdin, "go").expect("it reads a line");
    }

    pub(crate) fn read_line(&mut self) -> String {
        use std::io::Read;
        let stdout = self.child.stdout.as_mut().expect("stdout is a pipe");
        // A byte at a time, so that nothing of the next line is consumed.
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).expect("read") == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).expect("it writes text")
    }
}

impl Drop for TestAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The process with this pid; its start is field 22 of /proc/PID/stat.
pub(crate) fn identity(pid: u32) -> ProcessId {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let behind_comm = stat.rsplit_once(')').expect("comm ends with a parenthesis").1;
    let start = behind_comm.split_whitespace().nth(19).expect("22 fields").parse().expect("a number");
    ProcessId { pid: Pid(pid), start_time: Ticks(start) }
}

pub(crate) fn root(process: ProcessId) -> Lineage {
    Lineage { root: process, parent: None, depth: 0, provisional: false, forked: false, witness: false }
}

/// Waits until `holds` returns `true`.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + soon();
    while !holds() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
