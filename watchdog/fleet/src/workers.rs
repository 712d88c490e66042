//! The threads of one host: renewal of its row, requests, and notifications.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use watchdog_types::{AskNumber, FleetAnswer, FleetAsk, HostRow};

use crate::store::{FleetStore, FleetStoreError, Restated, StoreCall};

/// Time between two attempts to reach the store.
const RETRY: Duration = Duration::from_secs(1);
/// After a notification, so that a flood of them does not occupy the engine.
const CALL_PAUSE: Duration = Duration::from_millis(2);

/// What the workers report.
#[derive(Clone, Debug, PartialEq)]
pub enum FleetEvent {
    /// The response to a request.
    Answered(AskNumber, FleetAnswer),
    /// The result of a restatement, at least every third of the TTL.
    Restated(Result<Restated, FleetStoreError>),
    /// A slot may be free: retry now.
    Called,
}

/// The threads of one host. They end when this is dropped, or after a pending call.
pub struct FleetWorkers {
    row: Arc<LatestRow>,
    asks: Sender<FleetAsk>,
    stop: Arc<AtomicBool>,
}

/// Set by a failed call, cleared by the next renewal. While set, requests fail at once, because each attempt may take seconds.
type LostFlag = Arc<AtomicBool>;

/// The row to restate, and whether that is due.
#[derive(Default)]
struct LatestRow {
    row: Mutex<(Option<HostRow>, bool)>,
    changed: Condvar,
}

impl FleetWorkers {
    /// Starts the threads. The renewal has its own, so that no other call delays it.
    pub fn start<S: FleetStore>(
        store: &S,
        ttl: Duration,
        report: impl Fn(FleetEvent) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let report = Arc::new(report);
        let (row, stop, lost) = (Arc::<LatestRow>::default(), Arc::<AtomicBool>::default(), LostFlag::default());
        let (asks, asked) = mpsc::channel::<FleetAsk>();
        let workers = Self { row: row.clone(), asks, stop: stop.clone() };
        let (mut renewing, renewed, stopped) = (store.duplicate(), report.clone(), stop.clone());
        let (asked_for, was_lost) = (row.clone(), lost.clone());
        spawn("fleet-renewal", move || {
            let mut due = Instant::now();
            while let Some(row) = row.next(due, &stopped) {
                let result = renewing.restate(&row);
                lost.store(result.is_err(), Ordering::Relaxed);
                due = Instant::now() + if result.is_ok() { ttl / 3 } else { RETRY.min(ttl / 3) };
                renewed(FleetEvent::Restated(result));
            }
        })?;
        let (mut asking, answered) = (store.duplicate(), report.clone());
        spawn("fleet-asks", move || {
            for ask in asked {
                let answer = if was_lost.load(Ordering::Relaxed) {
                    FleetAnswer::StoreLost { error: "the fleet's store is unreachable".to_owned() }
                } else {
                    asking.ask(&ask)
                };
                match &answer {
                    FleetAnswer::StoreLost { .. } if !was_lost.swap(true, Ordering::Relaxed) => asked_for.renew_now(),
                    // A host without a row gets no grant.
                    FleetAnswer::Void => asked_for.renew_now(),
                    _ => {}
                }
                answered(FleetEvent::Answered(ask.number, answer));
            }
        })?;
        let mut listening = store.duplicate();
        spawn("fleet-calls", move || {
            while !stop.load(Ordering::Relaxed) {
                // The renewal reports the error, because it fails too.
                let _ = listening.watch(&mut |call| {
                    if matches!(call, StoreCall::Listening | StoreCall::Place) {
                        report(FleetEvent::Called);
                        thread::sleep(CALL_PAUSE);
                    }
                    if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                thread::sleep(RETRY.mul_f64(fastrand::f64() + 0.5));
            }
        })?;
        Ok(workers)
    }

    /// Restates this row at once, and at each renewal until the next row.
    pub fn restate(&self, row: HostRow) {
        self.row.set(Some(row), true);
    }

    /// Restates this row at the next renewal, because no other host waits for the change.
    pub fn update(&self, row: HostRow) {
        self.row.set(Some(row), false);
    }

    /// Sends a request. Responses are reported in the order of the requests.
    pub fn ask(&self, ask: FleetAsk) {
        // The receiver lives as long as this.
        let _ = self.asks.send(ask);
    }
}

impl Drop for FleetWorkers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.row.changed.notify_all();
    }
}

impl LatestRow {
    fn set(&self, row: Option<HostRow>, at_once: bool) {
        let mut latest = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (row, latest.1 || at_once);
        if at_once {
            self.changed.notify_all();
        }
    }

    fn renew_now(&self) {
        self.row.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }

    /// Waits for a new row, or until the last one is due again. `None` when the workers stop.
    fn next(&self, due: Instant, stop: &AtomicBool) -> Option<HostRow> {
        let mut latest = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            match &mut *latest {
                _ if stop.load(Ordering::Relaxed) => return None,
                (Some(row), changed) if *changed || left.is_zero() => {
                    *changed = false;
                    return Some(row.clone());
                }
                (row, _) => {
                    // A stop between the check and the wait is noticed within a second.
                    let wait = if row.is_none() { RETRY } else { left.min(RETRY) };
                    latest = self.changed.wait_timeout(latest, wait).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).stack_size(256 * 1024).spawn(work).map(drop)
}
