//! A signal ends the benchmark at its next step, so that it removes what it has started.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// Interval of the checks during a pause.
const CHECK: Duration = Duration::from_millis(100);
const SIGNALS: [libc::c_int; 3] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM];
static ARRIVED: AtomicBool = AtomicBool::new(false);

/// While it exists, the first signal is only noted. A second one ends the process at once.
pub(super) struct Interrupt(());

extern "C" fn note(signal: libc::c_int) {
    ARRIVED.store(true, Ordering::Relaxed);
    // SAFETY: signal(2) may be called in a handler, and the default disposition is valid for each of `SIGNALS`.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

impl Interrupt {
    pub(super) fn new() -> Self {
        ARRIVED.store(false, Ordering::Relaxed);
        for signal in SIGNALS {
            // SAFETY: `note` only stores a flag and calls signal(2), which a handler may do.
            unsafe { libc::signal(signal, note as *const () as libc::sighandler_t) };
        }
        Self(())
    }

    /// # Errors
    /// After a signal.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(!ARRIVED.load(Ordering::Relaxed), "interrupted by a signal");
        Ok(())
    }

    /// Sleeps.
    ///
    /// # Errors
    /// As [`Self::check`], without waiting for the end.
    pub(super) fn pause(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check()?;
            std::thread::sleep(CHECK.min(end.saturating_duration_since(Instant::now())));
        }
        self.check()
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for signal in SIGNALS {
            // SAFETY: the default disposition is valid for each of these signals.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
