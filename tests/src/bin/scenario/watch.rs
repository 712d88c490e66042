//! Observes deaths and the lowest available memory, independently of the guard.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use watchdog_tests::{ProcessKey, is_alive};

use crate::machine::MachineMemory;

/// Poll interval for deaths.
const INTERVAL: Duration = Duration::from_millis(10);
/// Poll interval for memory.
const MEMORY: Duration = Duration::from_millis(200);
/// Per cent of available memory at which the machine counts as low: slightly above the thresholds of all guards, so that
/// memory is read once before any of them acts.
const LOW: f64 = 12.0;

#[derive(Clone, Debug)]
pub(crate) struct ObservedDeath {
    /// Its role in the scenario.
    pub(crate) part: &'static str,
    pub(crate) at: Instant,
    /// Last known memory, in bytes.
    pub(crate) held: u64,
}

struct Followed {
    part: &'static str,
    process: ProcessKey,
    handle: OwnedFd,
    held: u64,
}

#[derive(Default)]
struct WatchState {
    alive: Vec<Followed>,
    deaths: Vec<ObservedDeath>,
    low: Option<Instant>,
    least_left: Option<f64>,
    over: bool,
}

/// Polls processes on its own thread.
pub(crate) struct DeathWatch {
    seen: Arc<Mutex<WatchState>>,
    thread: Option<JoinHandle<()>>,
}

impl DeathWatch {
    pub(crate) fn new() -> Self {
        let seen = Arc::new(Mutex::new(WatchState::default()));
        let shared = Arc::clone(&seen);
        let thread = std::thread::spawn(move || {
            let mut read = Instant::now();
            loop {
                let mut seen = shared.lock().unwrap();
                if seen.over {
                    return;
                }
                seen.update();
                if read.elapsed() >= MEMORY {
                    read = Instant::now();
                    seen.read_memory();
                }
                drop(seen);
                std::thread::sleep(INTERVAL);
            }
        });
        Self { seen, thread: Some(thread) }
    }

    fn seen(&self) -> MutexGuard<'_, WatchState> {
        self.seen.lock().unwrap()
    }

    /// Follows this process too.
    pub(crate) fn follow(&self, part: &'static str, process: ProcessKey) {
        let pid = Pid::from_raw(i32::try_from(process.pid).unwrap()).expect("a pid");
        let handle = pidfd_open(pid, PidfdFlags::empty()).unwrap_or_else(|error| panic!("{part} {process}: {error}"));
        // The handle pins the process that has this pid now.
        assert!(is_alive(process), "{part} {process} is dead before the scenario begins");
        self.seen().alive.push(Followed { part, process, handle, held: resident(process.pid) });
    }

    /// Who has died so far, in the order in which they did.
    pub(crate) fn deaths(&self) -> Vec<ObservedDeath> {
        self.seen().deaths.clone()
    }

    /// How many of those that play this part have died.
    pub(crate) fn dead(&self, part: &str) -> usize {
        self.seen().deaths.iter().filter(|death| death.part == part).count()
    }

    /// When memory was short first.
    pub(crate) fn low(&self) -> Option<Instant> {
        self.seen().low
    }

    /// The least share of memory that was left, in per cent.
    pub(crate) fn least_left(&self) -> f64 {
        self.seen().least_left.unwrap_or(100.0)
    }
}

impl Drop for DeathWatch {
    fn drop(&mut self) {
        self.seen().over = true;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl WatchState {
    fn update(&mut self) {
        if self.alive.is_empty() {
            return;
        }
        let mut handles: Vec<PollFd<'_>> =
            self.alive.iter().map(|followed| PollFd::new(&followed.handle, PollFlags::IN)).collect();
        poll(&mut handles, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("descriptors that are open");
        let dead: Vec<bool> = handles.iter().map(|handle| !handle.revents().is_empty()).collect();
        let at = Instant::now();
        let mut dead = dead.into_iter();
        let deaths = &mut self.deaths;
        self.alive.retain(|followed| {
            let dead = dead.next().unwrap_or(false);
            if dead {
                deaths.push(ObservedDeath { part: followed.part, at, held: followed.held });
            }
            !dead
        });
    }

    fn read_memory(&mut self) {
        for followed in &mut self.alive {
            // A process that is being taken apart has less and less; what it had is of interest.
            followed.held = followed.held.max(resident(followed.process.pid));
        }
        let left = MachineMemory::now().left_percent();
        self.least_left = Some(self.least_left.map_or(left, |least| least.min(left)));
        if left < LOW && self.low.is_none() {
            self.low = Some(Instant::now());
        }
    }
}

/// Resident memory, in bytes.
fn resident(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|field| field.parse().ok());
    pages.unwrap_or(0) * 4096
}
