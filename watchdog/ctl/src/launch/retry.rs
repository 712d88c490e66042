//! `--retries`: a supervisor launches CMD through the gate, forwards signals, relaunches it after a failure, and exits with
//! its status.

use std::io::{self, Read, Write, pipe};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use rustix::process::{getpgid, getpgrp, kill_process, setrlimit, waitpid};

use super::signals::{BlockedSignals, ReceivedSignal, die_of};
use crate::error::CtlError;
use crate::output::print_error;
use crate::render::{count, span};
use watchdog_types::signals::name;

const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Agents use Ctrl-C for other purposes too: it counts as a request to exit only if CMD exits within this time.
const CTRL_C_WINDOW: Duration = Duration::from_secs(10);

pub(super) struct Supervisor<'a> {
    /// CMD, escaped.
    pub(super) name: &'a str,
    /// Launches after the first.
    pub(super) retries: u32,
    /// Pause before the first retry.
    pub(super) backoff: Duration,
    /// Print nothing.
    pub(super) quiet: bool,
}

struct AttemptOutcome {
    status: WaitStatus,
    /// CMD was not started: the launcher's exit code.
    not_started: Option<u8>,
    /// A signal asked for it.
    requested: bool,
}

impl Supervisor<'_> {
    /// Launches CMD until it succeeds or no retries are left. Calls `attempt` in a child with the number of retries left;
    /// it returns an exit code only if CMD was not started.
    pub(super) fn run(&self, attempt: impl Fn(u32) -> u8) -> Result<ExitCode, CtlError> {
        let failed = |error: io::Error| CtlError::Failed(format!("cannot supervise {}: {error}", self.name));
        let retries = |left: u32| count(left.into(), "retry", "retries");
        self.say(&format!("supervising {}, {} left", self.name, retries(self.retries)));
        let signals = BlockedSignals::block().map_err(failed)?;
        let mut left = self.retries;
        let mut pause = self.backoff;
        loop {
            let outcome = run_once(&signals, || attempt(left)).map_err(failed)?;
            if left == 0 || !outcome.is_retried() {
                return Ok(outcome.exit());
            }
            let after = span(pause);
            self.say(&format!(
                "{} {}; retrying in {after}, then {} left",
                self.name,
                outcome.description(),
                retries(left - 1)
            ));
            if let Some(signal) = wait(&signals, pause).map_err(failed)? {
                return Ok(die_like(signal));
            }
            left -= 1;
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            print_error(&format!("watchdogctl: {text}\n"));
        }
    }
}

fn run_once(signals: &BlockedSignals, attempt: impl FnOnce() -> u8) -> io::Result<AttemptOutcome> {
    // Both ends close on exec, so data means that CMD was not started.
    let (mut reader, mut writer) = pipe()?;
    // SAFETY: this process has one thread: neither it nor an attempt starts another.
    let child = match unsafe { libc::fork() } {
        0 => {
            signals.restore();
            let code = attempt();
            // If the write fails, the code counts as CMD's own.
            let _ = writer.write_all(&[code]);
            // SAFETY: exits without the exit handlers, which belong to the parent.
            unsafe { libc::_exit(code.into()) }
        }
        pid => Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error)?,
    };
    drop(writer);
    let (status, requested) = supervise(signals, child)?;
    let mut code = [0];
    let not_started = (reader.read(&mut code)? == 1).then_some(code[0]);
    Ok(AttemptOutcome { status, not_started, requested })
}

/// Forwards signals until the child exits. Returns its status, and whether a signal asked for it.
fn supervise(signals: &BlockedSignals, child: Pid) -> io::Result<(WaitStatus, bool)> {
    let mut exit_requested = false;
    let mut interrupted: Option<Instant> = None;
    loop {
        let received = signals.next()?;
        if received.signal == libc::SIGCHLD {
            if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG)? {
                let interrupted = interrupted.is_some_and(|at| at.elapsed() < CTRL_C_WINDOW);
                return Ok((status, exit_requested || interrupted));
            }
            continue;
        }
        match received.signal {
            libc::SIGINT => interrupted = Some(Instant::now()),
            libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => exit_requested = true,
            _ => {}
        }
        if !is_delivered_to(received, child)
            && let Some(signal) = Signal::from_named_raw(received.signal)
        {
            // The child was not waited for, so its pid is not reused. It may be dead.
            let _ = kill_process(child, signal);
        }
    }
}

/// The kernel sends the signals of a terminal to all processes of the foreground group.
fn is_delivered_to(received: ReceivedSignal, child: Pid) -> bool {
    let of_terminal = matches!(received.signal, libc::SIGINT | libc::SIGQUIT | libc::SIGWINCH);
    of_terminal && received.by_kernel && getpgid(Some(child)).is_ok_and(|group| group == getpgrp())
}

/// Waits, or returns the signal that asks to exit.
fn wait(signals: &BlockedSignals, pause: Duration) -> io::Result<Option<i32>> {
    let end = Instant::now() + pause;
    while let Some(received) = signals.next_before(end)? {
        if matches!(received.signal, libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT) {
            return Ok(Some(received.signal));
        }
    }
    Ok(None)
}

/// Refused for now, or no daemon. Other errors of the launcher are permanent.
pub(super) fn is_temporary(code: u8) -> bool {
    matches!(code, 69 | 75)
}

impl AttemptOutcome {
    fn is_retried(&self) -> bool {
        match self.not_started {
            _ if self.requested => false,
            Some(code) => is_temporary(code),
            None => self.status.exit_status() != Some(0),
        }
    }

    fn description(&self) -> String {
        match (self.not_started, self.status.exit_status(), self.status.terminating_signal()) {
            (Some(_), ..) => "was not started".into(),
            (None, Some(code), _) => format!("exited with {code}"),
            (None, None, Some(signal)) => format!("was killed by {}", name(u64::from(signal.unsigned_abs()))),
            (None, None, None) => "exited".into(),
        }
    }

    fn exit(&self) -> ExitCode {
        match (self.status.exit_status(), self.status.terminating_signal()) {
            (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
            (None, Some(signal)) => die_like(signal),
            (None, None) => ExitCode::FAILURE,
        }
    }
}

/// Terminates this process by the signal. Returns only if that fails.
fn die_like(signal: i32) -> ExitCode {
    // A core dump of this process is useless; CMD has written its own.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    die_of(signal);
    ExitCode::from(u8::try_from(signal.saturating_add(128)).unwrap_or(1))
}
