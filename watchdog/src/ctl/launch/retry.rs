//! `--retries`: the one case in which a process of ours stays. It launches CMD through the gate, waits for it, passes
//! signals on, and launches it again when it failed; it ends as CMD ended.

use std::io::{self, Read, Write, pipe};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use rustix::process::{getpgid, getpgrp, kill_process, setrlimit, waitpid};

use super::super::failure::Failure;
use super::super::output::complain;
use super::super::show::{count, span};
use super::signals::{Heard, Signals, die_of};
use crate::signals::name;

const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Agents take Ctrl-C for other things too: only an end so soon after it is what was wanted.
const CTRL_C: Duration = Duration::from_secs(10);

/// What is supervised.
pub(super) struct Supervised<'a> {
    /// CMD, as it is shown.
    pub(super) name: &'a str,
    /// Launches after the first.
    pub(super) retries: u32,
    /// Before the first of them.
    pub(super) backoff: Duration,
    /// Nothing is said.
    pub(super) quiet: bool,
}

/// How a try ended.
struct End {
    status: WaitStatus,
    /// CMD was never started: the launcher's own code.
    not_started: Option<u8>,
    /// Somebody wanted it to end.
    wanted: bool,
}

impl Supervised<'_> {
    /// Launches it until it succeeds or the tries are used up. `attempt` is called in a child with the number of tries
    /// that are left after it, and comes back with an exit code only when CMD was not started.
    ///
    /// # Errors
    /// When no child can be made.
    pub(super) fn run(&self, attempt: impl Fn(u32) -> u8) -> Result<ExitCode, Failure> {
        let failed = |error: io::Error| Failure::No(format!("cannot supervise {}: {error}", self.name));
        let tries = |left: u32| count(left.into(), "more try", "more tries");
        self.say(&format!("stays until {} ends, to launch it again if it fails: {}", self.name, tries(self.retries)));
        let signals = Signals::take().map_err(failed)?;
        let mut left = self.retries;
        let mut pause = self.backoff;
        loop {
            let end = one_try(&signals, || attempt(left)).map_err(failed)?;
            if left == 0 || !end.is_worth_another() {
                return Ok(end.pass_on());
            }
            let after = span(pause);
            self.say(&format!("{} {}: again in {after}, then {}", self.name, end.story(), tries(left - 1)));
            if let Some(signal) = rest(&signals, pause).map_err(failed)? {
                return Ok(end_by(signal));
            }
            left -= 1;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            complain(&format!("watchdogctl: {text}\n"));
        }
    }
}

fn one_try(signals: &Signals, attempt: impl FnOnce() -> u8) -> io::Result<End> {
    // Both ends close on exec: what is read is what the launcher wrote, if CMD was not started.
    let (mut reader, mut writer) = pipe()?;
    // SAFETY: this process has one thread: neither it nor an attempt starts another.
    let child = match unsafe { libc::fork() } {
        0 => {
            signals.give_back();
            let code = attempt();
            // If it cannot be written, the code is taken for CMD's own.
            let _ = writer.write_all(&[code]);
            // SAFETY: ends the process. What the parent set up to happen at its exit is not the child's to do.
            unsafe { libc::_exit(code.into()) }
        }
        pid => Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error)?,
    };
    drop(writer);
    let (status, wanted) = attend(signals, child)?;
    let mut code = [0];
    let not_started = (reader.read(&mut code)? == 1).then_some(code[0]);
    Ok(End { status, not_started, wanted })
}

/// Passes signals on until the child has ended: how, and whether that was wanted.
fn attend(signals: &Signals, child: Pid) -> io::Result<(WaitStatus, bool)> {
    let mut told_to_end = false;
    let mut interrupted: Option<Instant> = None;
    loop {
        let heard = signals.next()?;
        if heard.signal == libc::SIGCHLD {
            if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG)? {
                let interrupted = interrupted.is_some_and(|at| at.elapsed() < CTRL_C);
                return Ok((status, told_to_end || interrupted));
            }
            continue;
        }
        match heard.signal {
            libc::SIGINT => interrupted = Some(Instant::now()),
            libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => told_to_end = true,
            _ => {}
        }
        if !has_it_already(heard, child)
            && let Some(signal) = Signal::from_named_raw(heard.signal)
        {
            // It has not been waited for, so the pid is still its own; it may be dead already.
            let _ = kill_process(child, signal);
        }
    }
}

/// The keys of a terminal, and its size, go to every process of the foreground group.
fn has_it_already(heard: Heard, child: Pid) -> bool {
    let of_terminal = matches!(heard.signal, libc::SIGINT | libc::SIGQUIT | libc::SIGWINCH);
    of_terminal && heard.by_kernel && getpgid(Some(child)).is_ok_and(|group| group == getpgrp())
}

/// Waits; a signal that asks for the end ends that.
fn rest(signals: &Signals, pause: Duration) -> io::Result<Option<i32>> {
    let end = Instant::now() + pause;
    while let Some(heard) = signals.next_before(end)? {
        if matches!(heard.signal, libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT) {
            return Ok(Some(heard.signal));
        }
    }
    Ok(None)
}

/// Refused for now, or no daemon: that may change. What else the launcher ends with does not.
pub(super) fn is_worth_another(code: u8) -> bool {
    matches!(code, 69 | 75)
}

impl End {
    fn is_worth_another(&self) -> bool {
        match self.not_started {
            _ if self.wanted => false,
            Some(code) => is_worth_another(code),
            None => self.status.exit_status() != Some(0),
        }
    }

    fn story(&self) -> String {
        match (self.not_started, self.status.exit_status(), self.status.terminating_signal()) {
            (Some(_), ..) => "was not started".into(),
            (None, Some(code), _) => format!("ended with {code}"),
            (None, None, Some(signal)) => format!("was ended by {}", name(u64::from(signal.unsigned_abs()))),
            (None, None, None) => "ended".into(),
        }
    }

    fn pass_on(&self) -> ExitCode {
        match (self.status.exit_status(), self.status.terminating_signal()) {
            (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
            (None, Some(signal)) => end_by(signal),
            (None, None) => ExitCode::FAILURE,
        }
    }
}

/// Ends as a process does that this signal ends. Comes back only if that cannot be.
fn end_by(signal: i32) -> ExitCode {
    // CMD has left its core, if it was to; one of this process tells nobody anything.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    die_of(signal);
    ExitCode::from(u8::try_from(signal.saturating_add(128)).unwrap_or(1))
}
