//! What the end-to-end tests stand on: a daemon of their own, a stage of their own, and a look at /proc of their own.
//!
//! A test puts programs on a [`Stage`] (they run the `fixture` under a name that no other test has, so that tests can
//! run at the same time on one kernel), starts a [`Daemon`] whose profile takes that name for an agent, and says what
//! the daemon has to show by when. The stage ends whatever the test started, by kinship, never by name.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `WATCHDOG_BIN_DIR` | where `watchdogd`, `watchdogctl` and `fixture` are; without it cargo builds them |
//! | `WATCHDOG_GUEST` | set in a guest: time limits are longer (emulated processors), and tests that need a machine of their own run |
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a harness reports what went wrong by a panic with a message, as tests do"
)]

mod act;
mod binaries;
mod cgroup;
mod daemon;
mod http;
mod look;
mod proc;
mod stage;

pub use act::{living, sent, target};
pub use binaries::{Binaries, binaries};
pub use cgroup::Cgroup;
pub use daemon::{Answer, Daemon, Options};
pub use http::{Response, get, post, raw, raw_tcp};
pub use look::{Look, evidence};
pub use proc::{ProcessId, anonymous_bytes, descendants, is_alive, is_stopped, proportional_bytes};
pub use stage::Stage;

use std::time::{Duration, Instant};

/// As bytes.
pub const MIB: u64 = 1 << 20;

/// A user who owns nothing on this machine.
pub const NOBODY: u32 = 65_534;

/// Whether this is a guest: a machine that is the test's own, with emulated processors.
#[must_use]
pub fn in_guest() -> bool {
    std::env::var_os("WATCHDOG_GUEST").is_some()
}

/// A time limit: exact on a machine that has a processor to spare, longer on a busy one by the number of tasks that share a
/// processor, and ten times as long on emulated processors.
#[must_use]
pub fn limit(on_idle_machine: Duration) -> Duration {
    if in_guest() { on_idle_machine * 10 } else { on_idle_machine.mul_f64(slowdown()) }
}

/// How many times as long everything takes on this machine now. Two tasks for each processor are the tests themselves.
fn slowdown() -> f64 {
    // The average of the last minute, and tasks that can run now: "0.20 0.18 0.12 1/80 11206".
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let fields: Vec<&str> = text.split([' ', '/']).collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    let share = number(0).max(number(3)) / processors;
    if share > 2.0 { share.min(20.0) } else { 1.0 }
}

/// Seconds, as a time limit (see [`limit`]).
#[must_use]
pub fn seconds(seconds: f64) -> Duration {
    limit(Duration::from_secs_f64(seconds))
}

/// Tries `attempt` every few milliseconds until it gives something; `None` when `within` is over.
pub fn poll<T>(within: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + within;
    loop {
        // One more attempt is made after the end, so that a busy machine does not make the limit shorter.
        let last = Instant::now() >= end;
        if let Some(found) = attempt() {
            return Some(found);
        }
        if last {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Does `act` as another user, on a thread of its own: raw system calls change the credentials of one thread only.
///
/// # Panics
/// When this process is not root, or `act` panics.
pub fn as_user<T: Send + 'static>(uid: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        // SAFETY: plain system calls that touch no memory; the thread ends with `act`.
        let done = unsafe {
            libc::syscall(libc::SYS_setresgid, uid, uid, uid) + libc::syscall(libc::SYS_setresuid, uid, uid, uid)
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        act()
    });
    thread.join().expect("what was done as another user")
}

/// Uses as many descriptors as the system allows, for a test that opens more than is usual.
///
/// # Panics
/// When the limit cannot be read.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .expect("the soft limit may be raised to the hard one");
}
