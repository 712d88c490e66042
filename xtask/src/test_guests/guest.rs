//! One guest: boots it, follows its console, and believes only its verdict.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::debian::Kernel;
use crate::totals::Totals;

/// `psi=1` switches on what Debian's kernels have but leave off; `panic=-1` ends a guest that panics.
const KERNEL_COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 psi=1";

/// How much of the console is shown again after a failure.
const LAST_LINES: usize = 50;

/// How a kernel is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Boot {
    /// With BPF among its security modules, and all tests.
    WithLsm,
    /// Without, as most kernels are; and those tests only for which that makes a difference.
    WithoutLsm,
    /// With systemd as PID 1, and the daemon as its unit runs it.
    Systemd,
}

impl Boot {
    fn command_line(self, plan: &str) -> String {
        let modules = match self {
            Self::WithLsm | Self::Systemd => "capability,bpf",
            Self::WithoutLsm => "capability",
        };
        // What the kernel does not know goes into the environment of init. That of systemd tells the audit log of every system
        // call that a sandbox refuses.
        let init = match self {
            Self::WithLsm | Self::WithoutLsm => format!("guest_plan={plan}"),
            Self::Systemd => format!("systemd.unit={plan} systemd.show_status=false SYSTEMD_LOG_SECCOMP=1"),
        };
        format!("{KERNEL_COMMAND_LINE} lsm={modules} {init}")
    }
}

/// A kernel and what it boots.
pub(crate) struct Guest {
    /// How it is called in what is printed.
    pub(crate) name: String,
    /// Its series of kernels.
    pub(crate) kernel: Kernel,
    /// How it is booted.
    pub(crate) boot: Boot,
    /// What it runs: the name of a plan, which is a file in its `/guest`, or a target of systemd.
    pub(crate) plan: String,
    /// Its image.
    pub(crate) image: PathBuf,
    /// The root file system.
    pub(crate) initramfs: PathBuf,
    /// Where the console is written to.
    pub(crate) log: PathBuf,
    /// How long it may take.
    pub(crate) timeout: Duration,
}

/// How a guest ended.
pub(crate) struct Outcome {
    totals: Totals,
    /// What init said after `guest verdict: `, if it came so far.
    verdict: Option<String>,
    timed_out: bool,
    last_lines: VecDeque<String>,
    time: Duration,
}

impl Guest {
    /// How the guest of this kernel is called that runs the tests.
    pub(crate) fn name_of(kernel: Kernel, boot: Boot) -> String {
        match boot {
            Boot::WithLsm => kernel.series().to_owned(),
            Boot::WithoutLsm => format!("{}-without-lsm", kernel.series()),
            Boot::Systemd => format!("{}-systemd", kernel.series()),
        }
    }

    /// The command that boots it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("qemu-system-x86_64");
        // A thread for each processor is quicker, but then one of them may execute an instruction while another patches it:
        // a kernel paniced with "Oops: int3" at a tracepoint that was being switched on. Two processors that take turns
        // still interleave anywhere.
        //
        // All the emulator can do but five-level page tables, which cost every page walk a step.
        command.args(["-accel", "tcg,thread=single", "-cpu", "max,la57=off", "-m", "2048", "-smp", "2"]);
        command.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
        command.arg("-kernel").arg(&self.image).arg("-initrd").arg(&self.initramfs);
        command.arg("-append").arg(self.boot.command_line(&self.plan));
        command
    }

    /// Boots the guest and follows it to its end, line by line.
    ///
    /// # Errors
    /// When QEMU cannot be started, or the log cannot be written.
    pub(crate) fn run(&self, mut each: impl FnMut(&str)) -> Result<Outcome> {
        let started = Instant::now();
        let mut log = File::create(&self.log).with_context(|| format!("creating {}", self.log.display()))?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut qemu =
            command.spawn().context("running qemu-system-x86_64: on Debian, apt-get install qemu-system-x86")?;
        let console = lines_of(&mut qemu)?;

        let deadline = started + self.timeout;
        let mut outcome = Outcome {
            totals: Totals::default(),
            verdict: None,
            timed_out: false,
            last_lines: VecDeque::new(),
            time: Duration::ZERO,
        };
        loop {
            match console.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    println!("[{}] {line}", self.name);
                    writeln!(log, "{line}").with_context(|| format!("writing {}", self.log.display()))?;
                    each(&line);
                    outcome.read(line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    outcome.timed_out = true;
                    break;
                }
            }
        }
        // After a regular end there is nothing left to kill, and that is no error.
        qemu.kill().context("ending qemu")?;
        qemu.wait().context("waiting for qemu")?;
        outcome.time = started.elapsed();
        Ok(outcome)
    }
}

/// The lines of the guest's console. The channel closes when the guest is gone.
fn lines_of(qemu: &mut Child) -> Result<Receiver<String>> {
    let console = qemu.stdout.take().context("qemu's output was not piped")?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(console).split(b'\n');
        // A test may print any bytes, and a panic may cut a line anywhere.
        while let Some(Ok(line)) = lines.next() {
            let line = String::from_utf8_lossy(&line).trim_end().replace(|letter: char| letter.is_control(), "");
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

impl Outcome {
    fn read(&mut self, line: String) {
        if let Some(totals) = Totals::parse(&line) {
            self.totals += totals;
        }
        if let Some(verdict) = line.strip_prefix("guest verdict: ") {
            self.verdict = Some(verdict.to_owned());
        }
        if self.last_lines.len() == LAST_LINES {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(line);
    }

    /// Why the guest did not run its plan to the end, or what of it failed.
    pub(crate) fn unfinished(&self) -> Option<String> {
        match &self.verdict {
            _ if self.timed_out => Some(format!("timed out after {:.0?}", self.time)),
            None => Some("ended without a verdict".to_owned()),
            Some(verdict) if !verdict.starts_with("ok") => Some(verdict.clone()),
            Some(_) => None,
        }
    }

    /// Why the guest failed, if it did: one that ran no test has, too.
    fn failure(&self) -> Option<String> {
        self.unfinished().or_else(|| (self.totals.passed == 0).then(|| "ran no test".to_owned()))
    }

    /// Prints how the guest ended, and returns its totals: a guest that failed has at least one failure.
    pub(crate) fn report(&self, guest: &Guest) -> Totals {
        let mut totals = Totals { time: self.time, ..self.totals };
        match self.failure() {
            None => println!("\nguest {}: ok", guest.name),
            Some(reason) => {
                totals.failed = totals.failed.max(1);
                println!("\nguest {}: {reason}; the end of {}:", guest.name, guest.log.display());
                self.last_lines.iter().for_each(|line| println!("    {line}"));
            }
        }
        println!("{totals}");
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lines: &[&str]) -> Outcome {
        let mut outcome = Outcome {
            totals: Totals::default(),
            verdict: None,
            timed_out: false,
            last_lines: VecDeque::new(),
            time: Duration::ZERO,
        };
        lines.iter().for_each(|line| outcome.read((*line).to_owned()));
        outcome
    }

    const RESULT: &str =
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s";

    #[test]
    fn a_guest_passes_by_its_verdict_and_its_tests() {
        assert_eq!(outcome(&[RESULT, "guest verdict: ok, 1 test binaries"]).failure(), None);
    }

    #[test]
    fn a_panic_after_good_tests_is_a_failure() {
        let panicked = outcome(&[RESULT, "Kernel panic - not syncing"]);
        assert_eq!(panicked.failure().as_deref(), Some("ended without a verdict"));
    }

    #[test]
    fn a_guest_that_ran_nothing_is_a_failure() {
        assert_eq!(outcome(&["guest verdict: ok, 1 test binaries"]).failure().as_deref(), Some("ran no test"));
    }

    #[test]
    fn a_bad_verdict_names_the_binary() {
        let failed = outcome(&[RESULT, "guest verdict: FAILED: tests-lineage (exit status: 101)"]);
        assert_eq!(failed.failure().as_deref(), Some("FAILED: tests-lineage (exit status: 101)"));
    }

    #[test]
    fn only_the_end_of_the_console_is_kept() {
        let lines: Vec<String> = (0..80).map(|number| number.to_string()).collect();
        let outcome = outcome(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(outcome.last_lines.len(), LAST_LINES);
        assert_eq!(outcome.last_lines.back().map(String::as_str), Some("79"));
    }
}
