//! Signals of the supervisor: blocked, and taken one at a time with sigtimedwait(2). Without handlers no call is
//! interrupted.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::{Duration, Instant};

use libc::c_int;

/// Passed on to CMD.
const FORWARDED: [c_int; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

/// The blocked signals, and the state to restore.
pub(super) struct BlockedSignals {
    blocked: libc::sigset_t,
    previous_mask: libc::sigset_t,
    previous_sigchld: libc::sigaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceivedSignal {
    pub(super) signal: c_int,
    /// Sent by the kernel, as for Ctrl-C: to the whole foreground group.
    pub(super) by_kernel: bool,
}

impl BlockedSignals {
    /// Blocks the signals. Ignored ones stay ignored.
    pub(super) fn block() -> io::Result<Self> {
        let mut blocked = empty_set();
        for signal in FORWARDED {
            if disposition(signal)?.sa_sigaction != libc::SIG_IGN {
                add(&mut blocked, signal);
            }
        }
        add(&mut blocked, libc::SIGCHLD);
        // If it is ignored, children leave no exit status.
        let previous_sigchld = disposition(libc::SIGCHLD)?;
        // SAFETY: the default disposition is valid for every signal.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let mut previous_mask = empty_set();
        // SAFETY: both sets are initialised, and live until the call returns.
        check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const blocked, &raw mut previous_mask) })?;
        Ok(Self { blocked, previous_mask, previous_sigchld })
    }

    /// Restores the state before [`Self::block`], in the child that will execute CMD.
    pub(super) fn restore(&self) {
        // SAFETY: both were filled in by the kernel; SIGCHLD comes first, so that it is not delivered under the new mask.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.previous_sigchld, ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.previous_mask, ptr::null_mut());
        }
    }

    pub(super) fn next(&self) -> io::Result<ReceivedSignal> {
        loop {
            if let Some(received) = self.wait(None)? {
                return Ok(received);
            }
        }
    }

    pub(super) fn next_before(&self, end: Instant) -> io::Result<Option<ReceivedSignal>> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let received = self.wait(Some(left))?;
            if received.is_some() || left.is_zero() {
                return Ok(received);
            }
        }
    }

    /// `None` after the time limit, or if the process was stopped and continued.
    fn wait(&self, limit: Option<Duration>) -> io::Result<Option<ReceivedSignal>> {
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut information = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: the set is initialised, the limit is null or valid, and the information is written only.
        let signal = unsafe { libc::sigtimedwait(&raw const self.blocked, information.as_mut_ptr(), limit) };
        if signal == -1 {
            let error = io::Error::last_os_error();
            let nothing = matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN));
            return if nothing { Ok(None) } else { Err(error) };
        }
        // SAFETY: the call succeeded, and filled it in.
        let code = unsafe { information.assume_init() }.si_code;
        Ok(Some(ReceivedSignal { signal, by_kernel: code == libc::SI_KERNEL }))
    }
}

/// Terminates this process by a signal, so that its parent sees the same wait status as of CMD.
pub(super) fn die_of(signal: c_int) {
    let mut only = empty_set();
    add(&mut only, signal);
    // SAFETY: the default disposition is valid for every signal, and the set is initialised.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const only, ptr::null_mut());
        libc::raise(signal);
    }
}

fn disposition(signal: c_int) -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: reads the disposition into a local.
    check(unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, and filled it in.
    Ok(unsafe { action.assume_init() })
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: it initialises the whole set, and cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn add(set: &mut libc::sigset_t, signal: c_int) {
    // SAFETY: the set is initialised.
    unsafe { libc::sigaddset(set, signal) };
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
