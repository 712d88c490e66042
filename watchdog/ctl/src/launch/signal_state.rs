//! Restores the process state that Rust's runtime changes before `main`.
//!
//! The runtime ignores SIGPIPE, and opens /dev/null for each closed descriptor from 0 to 2. CMD would inherit both.
//! Only code that runs earlier can see the caller's state.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use libc::c_int;

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
/// One bit for each descriptor from 0 to 2.
static WERE_CLOSED: AtomicU8 = AtomicU8::new(0);

/// The C library calls it before `main`, and so before the runtime.
#[used]
// SAFETY: .init_array holds pointers to functions of this type; the arguments that glibc passes can be ignored.
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

extern "C" fn record() {
    // SAFETY: reads a disposition into a local of the right type, and the flags of descriptors.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        if libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) == 0 {
            SIGPIPE_WAS_IGNORED.store(action.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
        }
        for descriptor in 0..3 {
            if libc::fcntl(descriptor, libc::F_GETFD) == -1 {
                WERE_CLOSED.fetch_or(1 << descriptor, Ordering::Relaxed);
            }
        }
    }
}

/// Restores SIGPIPE and the descriptors 0 to 2. Descriptors that were closed must not be used afterwards.
pub(super) fn restore() {
    if !SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the default disposition is valid for every signal.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let closed = WERE_CLOSED.load(Ordering::Relaxed);
    for descriptor in (0..3 as c_int).filter(|descriptor| closed & (1 << descriptor) != 0) {
        // SAFETY: the runtime opened it on /dev/null, and no value owns it.
        unsafe { libc::close(descriptor) };
    }
}
