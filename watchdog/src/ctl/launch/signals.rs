//! What the supervisor hears: signals that are blocked, and taken one by one. There is no handler, and so nothing that
//! could be interrupted by one.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::{Duration, Instant};

use libc::c_int;

/// What is passed on to CMD.
const PASSED_ON: [c_int; 7] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH];

/// The signals that are taken, and how all of them were before.
pub(super) struct Signals {
    taken: libc::sigset_t,
    mask_before: libc::sigset_t,
    child_before: libc::sigaction,
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Heard {
    /// Its number.
    pub(super) signal: c_int,
    /// The kernel itself sent it, as it does for the keys of a terminal: to the whole foreground group.
    pub(super) by_kernel: bool,
}

impl Signals {
    /// Takes them from now on. Those that were ignored stay ignored.
    ///
    /// # Errors
    /// Never, on a kernel that knows these signals.
    pub(super) fn take() -> io::Result<Self> {
        let mut taken = empty_set();
        for signal in PASSED_ON {
            if disposition(signal)?.sa_sigaction != libc::SIG_IGN {
                add(&mut taken, signal);
            }
        }
        add(&mut taken, libc::SIGCHLD);
        // Where it is ignored, children leave no status behind.
        let child_before = disposition(libc::SIGCHLD)?;
        // SAFETY: the default disposition is valid for every signal.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        let mut mask_before = empty_set();
        // SAFETY: both sets are initialised, and live until the call comes back.
        check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const taken, &raw mut mask_before) })?;
        Ok(Self { taken, mask_before, child_before })
    }

    /// Makes all as it was, for a child that is to become CMD.
    pub(super) fn give_back(&self) {
        // SAFETY: both were filled in by the kernel; SIGCHLD comes first, so that nothing is taken under the new mask.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.child_before, ptr::null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask_before, ptr::null_mut());
        }
    }

    /// The next one.
    ///
    /// # Errors
    /// Never, for a set that is valid.
    pub(super) fn next(&self) -> io::Result<Heard> {
        loop {
            if let Some(heard) = self.wait(None)? {
                return Ok(heard);
            }
        }
    }

    /// The next one before `end`.
    ///
    /// # Errors
    /// Never, for a set that is valid.
    pub(super) fn next_before(&self, end: Instant) -> io::Result<Option<Heard>> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let heard = self.wait(Some(left))?;
            if heard.is_some() || left.is_zero() {
                return Ok(heard);
            }
        }
    }

    /// Nothing is heard when the time is over, or when the wait was interrupted by being stopped and continued.
    fn wait(&self, limit: Option<Duration>) -> io::Result<Option<Heard>> {
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut information = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: the set is initialised, the limit is null or valid, and the information is written only.
        let signal = unsafe { libc::sigtimedwait(&raw const self.taken, information.as_mut_ptr(), limit) };
        if signal == -1 {
            let error = io::Error::last_os_error();
            let nothing = matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN));
            return if nothing { Ok(None) } else { Err(error) };
        }
        // SAFETY: the call succeeded, and filled it in.
        let code = unsafe { information.assume_init() }.si_code;
        Ok(Some(Heard { signal, by_kernel: code == libc::SI_KERNEL }))
    }
}

/// Ends this process by a signal, as CMD was ended by it, so that whoever waits for this process is told the same.
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
    // SAFETY: it asks, and writes the answer.
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
