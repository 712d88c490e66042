//! Harness of the end-to-end tests: a daemon per test, processes per test, and an independent view of /proc.
//!
//! A test starts programs on a [`Stage`]: the `fixture` under a unique name, so that tests can run in parallel on one
//! kernel. A [`Daemon`] has a profile for that name. The test states what the daemon must show, and by when. The stage
//! kills all descendants of the test, never processes by name.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `WATCHDOG_BIN_DIR` | directory of `watchdogd`, `watchdogctl` and `fixture`; default: built by cargo |
//! | `WATCHDOG_GUEST` | set in a guest: longer time limits for emulated processors, and tests that may exhaust the machine run |
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a harness reports failures by panics, as tests do")]

mod act;
mod binaries;
mod cgroup;
mod daemon;
mod daemon_client;
mod http;
pub mod installed;
mod mcp;
mod namespace;
pub mod npm;
mod proc;
mod pty;
mod redis_link;
mod redis_server;
mod set_clock;
mod snapshot;
mod stage;
mod tmux;
mod web_page;

pub use act::{living, sent, target};
pub use binaries::{Binaries, binaries};
pub use cgroup::TestCgroup;
pub use daemon::{CHART_CAPABILITIES, Daemon, DaemonOptions, GrantedCapabilities};
pub use daemon_client::CtlOutput;
pub use http::{HttpResponse, get, post, raw, raw_tcp};
pub use mcp::McpServer;
pub use namespace::{InnerRun, Isolation, inside};
pub use proc::{
    ProcessKey, anonymous_bytes, descendants, is_alive, is_stopped, proportional_bytes, resident_bytes, swapped_bytes,
};
pub use pty::PtyProgram;
pub use redis_link::RedisLink;
pub use redis_server::RedisServer;
pub use set_clock::SetClock;
pub use snapshot::{Snapshot, evidence};
pub use stage::{Stage, copy};
pub use tmux::Tmux;
pub use web_page::WebPage;

use std::num::NonZero;
use std::time::{Duration, Instant};

pub const MIB: u64 = 1 << 20;

/// A user without files or processes.
pub const NOBODY: u32 = 65_534;

/// Whether the test has an emulated machine of its own.
#[must_use]
pub fn in_guest() -> bool {
    std::env::var_os("WATCHDOG_GUEST").is_some()
}

/// Says that a test is skipped because this program is missing, and which packages bring it.
///
/// # Panics
/// In CI, which must install it.
pub fn skip_without(program: &str, packages: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI must install {program}");
    eprintln!("SKIPPED: {program} is missing. apt-get install --no-install-recommends {packages}");
}

/// A time limit: unchanged on an idle machine, multiplied by the tasks per processor on a busy one, and by ten on emulated
/// processors.
#[must_use]
pub fn limit(on_idle_machine: Duration) -> Duration {
    if in_guest() { on_idle_machine * 10 } else { on_idle_machine.mul_f64(slowdown()) }
}

/// Slowdown by the load. The tests themselves are two tasks per processor.
fn slowdown() -> f64 {
    // The average of the last minute, and tasks that can run now: "0.20 0.18 0.12 1/80 11206".
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let fields: Vec<&str> = text.split([' ', '/']).collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    let share = number(0).max(number(3)) / processors;
    if share > 2.0 { share.min(20.0) } else { 1.0 }
}

/// Seconds as a time limit, see [`limit`].
#[must_use]
pub fn seconds(seconds: f64) -> Duration {
    limit(Duration::from_secs_f64(seconds))
}

/// Retries `attempt` every 10 ms until it returns a value; `None` after `within`. An attempt and the pause after it count as 25 ms
/// at most, so that a slow machine gets as many attempts as another. The whole takes four times `within` at most.
pub fn poll<T>(within: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    const COUNTED: Duration = Duration::from_millis(25);
    let (mut left, end) = (within, Instant::now() + within * 4);
    loop {
        let began = Instant::now();
        if let Some(found) = attempt() {
            return Some(found);
        }
        if left.is_zero() || began > end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
        left = left.saturating_sub(began.elapsed().min(COUNTED));
    }
}

/// Forks and exits that fill the lifecycle ring, which grows with the processors: each is two records of 88 bytes.
#[must_use]
pub fn forks_that_fill_ring() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    1_600 * processors.next_power_of_two().clamp(2, 16)
}

/// Runs `act` as another user, on its own thread: raw system calls change the credentials of one thread.
///
/// # Panics
/// When this process is not root, or `act` panics.
pub fn as_user<T: Send + 'static>(uid: u32, act: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(move || {
        // SAFETY: system calls that access no memory; the thread ends with `act`.
        let done = unsafe {
            libc::syscall(libc::SYS_setresgid, uid, uid, uid) + libc::syscall(libc::SYS_setresuid, uid, uid, uid)
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        act()
    });
    thread.join().expect("the thread of the other user")
}

/// Raises the descriptor limit to its maximum.
///
/// # Panics
/// When the limit cannot be read.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .expect("the soft limit may be raised to the hard one");
}
