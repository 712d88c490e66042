//! Launches that wait or run, and their output.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::super::daemon::BenchDaemon;
use super::super::stage::{As, BenchStage};
use super::super::worker::monotonic;

/// Timeout for the next line of a launch.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A line of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It sends its request when its stdin ends.
    Ready,
    /// It was granted, and its command has started.
    Began(u32),
    /// It was queued.
    Waits,
}

/// The launches, killed when dropped.
pub(super) struct Launches<'a> {
    stage: &'a BenchStage,
    daemon: &'a BenchDaemon,
    /// By pid, which is also that of the launched command.
    children: BTreeMap<u32, Child>,
    out: PipeWriter,
    lines: Receiver<(Duration, String)>,
}

impl<'a> Launches<'a> {
    pub(super) fn new(stage: &'a BenchStage, daemon: &'a BenchDaemon) -> Result<Self> {
        let (reader, out) = std::io::pipe().context("making a pipe")?;
        Ok(Self { stage, daemon, children: BTreeMap::new(), out, lines: read(reader) })
    }

    /// Starts a launch of a command that keeps running. It sends its request when this stdin ends.
    pub(super) fn start(&mut self, stdin: Stdio) -> Result<()> {
        let launcher = self.daemon.launcher()?;
        let mut command = self.stage.worker(As::Stranger, &["released"]);
        command.arg(launcher.get_program()).args(launcher.get_args());
        command.arg(self.stage.program(As::Stranger)).args(["worker", "moment", "--stay"]);
        let out = || self.out.try_clone().context("sharing a pipe");
        let child = command.stdin(stdin).stdout(out()?).stderr(out()?).spawn().context("starting a launch")?;
        self.children.insert(child.id(), child);
        Ok(())
    }

    /// The next line, and its time.
    pub(super) fn next(&self) -> Result<(Duration, Said)> {
        let (heard, line) = self.lines.recv_timeout(TIMEOUT).context("timeout: no output of a launch")?;
        if let Some((pid, at)) = began(&line) {
            return Ok((at, Said::Began(pid)));
        }
        if line == "ready" {
            return Ok((heard, Said::Ready));
        }
        if line.starts_with("watchdogctl: waiting") {
            return Ok((heard, Said::Waits));
        }
        bail!("unexpected output of a launch: {line}");
    }

    /// Kills a running launch. Returns the time before the kill.
    pub(super) fn kill(&mut self, pid: u32) -> Result<Duration> {
        let mut child = self.children.remove(&pid).with_context(|| format!("no launch has pid {pid}"))?;
        let before = monotonic();
        child.kill().context("killing what was launched")?;
        child.wait().context("waiting for what was launched")?;
        Ok(before)
    }
}

impl Drop for Launches<'_> {
    fn drop(&mut self) {
        // Fails if it has exited.
        for child in self.children.values_mut() {
            let _ = child.kill();
        }
        for child in self.children.values_mut() {
            let _ = child.wait();
        }
    }
}

fn read(reader: PipeReader) -> Receiver<(Duration, String)> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if sender.send((monotonic(), line)).is_err() {
                return;
            }
        }
    });
    lines
}

/// Parses `began PID NANOSECONDS`.
pub(super) fn began(line: &str) -> Option<(u32, Duration)> {
    let (pid, nanos) = line.strip_prefix("began ")?.split_once(' ')?;
    Some((pid.parse().ok()?, Duration::from_nanos(nanos.parse().ok()?)))
}
