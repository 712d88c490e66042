//! Launches that wait or run, and what is heard of them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::super::daemon::Daemon;
use super::super::stage::{As, Stage};
use super::super::worker::monotonic;

/// A launch that is silent for longer is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is heard of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It is about to ask, when its stdin ends.
    Ready,
    /// It was granted, and its command began.
    Began(u32),
    /// It was told that it waits.
    Waits,
}

/// The launches. Dropping this ends them.
pub(super) struct Launches<'a> {
    stage: &'a Stage,
    daemon: &'a Daemon,
    /// By pid, which is the launched command's too.
    children: BTreeMap<u32, Child>,
    out: PipeWriter,
    lines: Receiver<(Duration, String)>,
}

impl<'a> Launches<'a> {
    /// None yet.
    pub(super) fn new(stage: &'a Stage, daemon: &'a Daemon) -> Result<Self> {
        let (reader, out) = std::io::pipe().context("making a pipe")?;
        Ok(Self { stage, daemon, children: BTreeMap::new(), out, lines: read(reader) })
    }

    /// One more, of a command that stays. It asks when this stdin ends.
    pub(super) fn start(&mut self, stdin: Stdio) -> Result<()> {
        let launcher = self.daemon.launcher()?;
        let mut command = self.stage.worker(As::Stranger, &["released"]);
        command.arg(launcher.get_program()).args(launcher.get_args());
        command.arg(self.stage.program(As::Stranger)).args(["bench-worker", "moment", "--stay"]);
        let out = || self.out.try_clone().context("sharing a pipe");
        let child = command.stdin(stdin).stdout(out()?).stderr(out()?).spawn().context("starting a launch")?;
        self.children.insert(child.id(), child);
        Ok(())
    }

    /// What is heard next, and when that was so.
    pub(super) fn next(&self) -> Result<(Duration, Said)> {
        let (heard, line) = self.lines.recv_timeout(PATIENCE).context("nothing is heard of a launch")?;
        if let Some((pid, at)) = began(&line) {
            return Ok((at, Said::Began(pid)));
        }
        if line == "ready" {
            return Ok((heard, Said::Ready));
        }
        if line.starts_with("watchdogctl: waiting") {
            return Ok((heard, Said::Waits));
        }
        bail!("a launch said: {line}");
    }

    /// Kills one that runs. The moment before.
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
        // Those that have ended by themselves need no killing.
        for child in self.children.values_mut() {
            let _ = child.kill();
        }
        for child in self.children.values_mut() {
            let _ = child.wait();
        }
    }
}

fn read(reader: PipeReader) -> Receiver<(Duration, String)> {
    let (tell, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            if tell.send((monotonic(), line)).is_err() {
                return;
            }
        }
    });
    lines
}

/// The pid and the moment of `began PID NANOSECONDS`.
pub(super) fn began(line: &str) -> Option<(u32, Duration)> {
    let (pid, nanos) = line.strip_prefix("began ")?.split_once(' ')?;
    Some((pid.parse().ok()?, Duration::from_nanos(nanos.parse().ok()?)))
}
