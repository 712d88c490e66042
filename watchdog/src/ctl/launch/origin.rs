//! The process as it was before Rust's runtime began: what it changes is put back before CMD is executed.
//!
//! The runtime ignores SIGPIPE, and opens /dev/null for each of the descriptors 0 to 2 that is closed. Both would be
//! inherited, and neither can be told afterwards from what the caller wanted.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use libc::c_int;

static SIGPIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);
/// One bit for each of the descriptors 0 to 2.
static WERE_CLOSED: AtomicU8 = AtomicU8::new(0);

/// What the C library calls before `main`, and so before the runtime.
#[used]
// SAFETY: .init_array holds pointers to functions of this kind; the arguments that glibc passes may be ignored.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: asks for a disposition, which is written to a local of the right type, and for flags of descriptors.
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

/// Puts SIGPIPE and the descriptors 0 to 2 back as they were. Nothing may be read or printed through those afterwards
/// that were closed.
pub(super) fn restore() {
    if !SIGPIPE_WAS_IGNORED.load(Ordering::Relaxed) {
        // SAFETY: the default disposition is valid for every signal.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }
    let closed = WERE_CLOSED.load(Ordering::Relaxed);
    for descriptor in (0..3 as c_int).filter(|descriptor| closed & (1 << descriptor) != 0) {
        // SAFETY: the runtime opened it on /dev/null, and nobody owns it.
        unsafe { libc::close(descriptor) };
    }
}
