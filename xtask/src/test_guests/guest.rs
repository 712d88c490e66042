//! Boots one guest and reads its verdict from the console.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::debian::Kernel;
use crate::dist::Architecture;
use crate::test_totals::Totals;

/// `psi=1` and `secretmem.enable=1` enable what Debian's kernels disable by default, the latter up to 6.4; `panic=-1` ends a
/// guest that panics; `mitigations=off` saves a sixth of the time that the emulator takes.
const KERNEL_COMMAND_LINE: &str = "quiet panic=-1 psi=1 secretmem.enable=1 mitigations=off";

/// Lines of the console that are printed again after a failure.
const LAST_LINES: usize = 50;

/// How a kernel is booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Boot {
    /// With BPF among the security modules: all tests.
    WithLsm,
    /// Without, as most kernels: only the tests that depend on it.
    WithoutLsm,
    /// With systemd as PID 1, and the daemon in its unit.
    Systemd,
    /// With systemd as PID 1, dpkg, and the packages of two versions.
    Package,
}

impl Boot {
    fn command_line(self, plan: &str) -> String {
        let modules = match self {
            Self::WithLsm | Self::Systemd | Self::Package => "capability,bpf",
            Self::WithoutLsm => "capability",
        };
        // Unknown parameters become the environment of init. SYSTEMD_LOG_SECCOMP logs every system call that a sandbox
        // refuses to the audit log.
        let init = match self {
            Self::WithLsm | Self::WithoutLsm => format!("guest_plan={plan}"),
            Self::Systemd | Self::Package => {
                format!("systemd.unit={plan} systemd.show_status=false SYSTEMD_LOG_SECCOMP=1")
            }
        };
        format!("{KERNEL_COMMAND_LINE} lsm={modules} {init}")
    }
}

pub(crate) struct Guest {
    /// In the output.
    pub(crate) name: String,
    pub(crate) kernel: Kernel,
    pub(crate) boot: Boot,
    /// The name of a plan in its `/guest`, or a target of systemd.
    pub(crate) plan: String,
    /// The kernel's image.
    pub(crate) image: PathBuf,
    pub(crate) initramfs: PathBuf,
    /// File for the console.
    pub(crate) log: PathBuf,
    pub(crate) timeout: Duration,
}

pub(crate) struct GuestOutcome {
    totals: Totals,
    /// The text after `guest verdict: `, if it was printed.
    verdict: Option<String>,
    timed_out: bool,
    last_lines: VecDeque<String>,
    time: Duration,
}

impl Guest {
    pub(crate) fn name_of(kernel: Kernel, boot: Boot) -> String {
        match boot {
            Boot::WithLsm => kernel.series().to_owned(),
            Boot::WithoutLsm => format!("{}-without-lsm", kernel.series()),
            Boot::Systemd => format!("{}-systemd", kernel.series()),
            Boot::Package => format!("{}-package", kernel.series()),
        }
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.emulator());
        // One thread per processor would be faster, but one may then execute an instruction while another patches it:
        // a kernel panicked with "Oops: int3" at a tracepoint that was being enabled. Two processors that take turns
        // still interleave anywhere.
        command.args(["-accel", "tcg,thread=single", "-m", "2048", "-smp", "2"]);
        let console = match self.kernel.architecture() {
            // An old processor. With the features of later ones, programs spend a fifth more of the host's time: wide vectors
            // in functions on strings, permission checks at each access to user memory, and longer page walks.
            Architecture::Amd64 => {
                command.args(["-cpu", "Nehalem"]);
                // On a busy host, old kernels find the emulated timer too slow at boot, and panic.
                "ttyS0 no_timer_check"
            }
            // A processor without pointer authentication, which is slow to emulate.
            Architecture::Arm64 => {
                command.args(["-machine", "virt", "-cpu", "cortex-a72"]);
                "ttyAMA0"
            }
        };
        command.args(["-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot"]);
        command.arg("-kernel").arg(&self.image).arg("-initrd").arg(&self.initramfs);
        command.arg("-append").arg(format!("console={console} {}", self.boot.command_line(&self.plan)));
        command
    }

    fn emulator(&self) -> &'static str {
        match self.kernel.architecture() {
            Architecture::Amd64 => "qemu-system-x86_64",
            Architecture::Arm64 => "qemu-system-aarch64",
        }
    }

    /// Boots the guest and reads its console to the end.
    ///
    /// # Errors
    /// When QEMU cannot be started, or the log cannot be written.
    pub(crate) fn run(&self, mut each: impl FnMut(&str)) -> Result<GuestOutcome> {
        let started = Instant::now();
        let mut log = File::create(&self.log).with_context(|| format!("creating {}", self.log.display()))?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut qemu = command.spawn().with_context(|| {
            format!("running {}: on Debian, apt-get install qemu-system-x86 qemu-system-arm", self.emulator())
        })?;
        let console = lines_of(&mut qemu)?;

        let deadline = started + self.timeout;
        let mut outcome = GuestOutcome {
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
        // Fails after a regular end.
        qemu.kill().context("ending qemu")?;
        qemu.wait().context("waiting for qemu")?;
        outcome.time = started.elapsed();
        Ok(outcome)
    }
}

/// The lines of the guest's console. The channel closes when the guest ends.
fn lines_of(qemu: &mut Child) -> Result<Receiver<String>> {
    let console = qemu.stdout.take().context("qemu's output was not piped")?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(console).split(b'\n');
        // A test may print any bytes, and a panic may truncate a line.
        while let Some(Ok(line)) = lines.next() {
            let line = String::from_utf8_lossy(&line).trim_end().replace(|letter: char| letter.is_control(), "");
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

impl GuestOutcome {
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

    /// Why the guest did not finish its plan, or which binary failed.
    pub(crate) fn unfinished(&self) -> Option<String> {
        match &self.verdict {
            _ if self.timed_out => Some(format!("timed out after {:.0?}", self.time)),
            None => Some("ended without a verdict".to_owned()),
            Some(verdict) if !verdict.starts_with("ok") => Some(verdict.clone()),
            Some(_) => None,
        }
    }

    /// Why the guest failed; a guest that ran no test fails.
    fn failure(&self) -> Option<String> {
        self.unfinished().or_else(|| (self.totals.passed == 0).then(|| "ran no test".to_owned()))
    }

    /// Prints the result, and returns the totals: a failed guest has at least one failure.
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

    fn outcome(lines: &[&str]) -> GuestOutcome {
        let mut outcome = GuestOutcome {
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
    fn guest_passes_by_verdict_and_tests() {
        assert_eq!(outcome(&[RESULT, "guest verdict: ok, 1 test binaries"]).failure(), None);
    }

    #[test]
    fn kernel_panic_fails_guest() {
        let panicked = outcome(&[RESULT, "Kernel panic - not syncing"]);
        assert_eq!(panicked.failure().as_deref(), Some("ended without a verdict"));
    }

    #[test]
    fn guest_without_tests_fails() {
        assert_eq!(outcome(&["guest verdict: ok, 1 test binaries"]).failure().as_deref(), Some("ran no test"));
    }

    #[test]
    fn bad_verdict_names_binary() {
        let failed = outcome(&[RESULT, "guest verdict: FAILED: tests-lineage (exit status: 101)"]);
        assert_eq!(failed.failure().as_deref(), Some("FAILED: tests-lineage (exit status: 101)"));
    }

    #[test]
    fn console_keeps_its_end() {
        let lines: Vec<String> = (0..80).map(|number| number.to_string()).collect();
        let outcome = outcome(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(outcome.last_lines.len(), LAST_LINES);
        assert_eq!(outcome.last_lines.back().map(String::as_str), Some("79"));
    }
}
