//! The service manager's watchdog (`WatchdogSec=`), which restarts a daemon that does not report in time.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;

use super::log_throttle::ThrottledWarning;
use super::worker::Ping;
use super::workers::Workers;

/// The time between two checks of a worker that does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// When the service manager must be notified again. The event loop notifies it after a complete iteration, if each worker
/// that executes its commands has answered the last ping: a daemon whose commands are not executed is not alive.
pub(super) struct Heartbeat {
    /// Half of what the service manager allows (sd_watchdog_enabled(3)); `None` without a watchdog.
    interval: Option<Duration>,
    due: Option<Instant>,
    bpf: Pulse,
    confinement: Pulse,
    signaller: Pulse,
    warning: ThrottledWarning,
}

/// The ping of a worker, until it is answered.
#[derive(Debug, Default)]
struct Pulse(Option<(Instant, oneshot::Receiver<()>)>);

impl Pulse {
    /// Sends a ping, unless one is unanswered. Returns whether the worker has answered, or still has time to.
    fn beats(&mut self, now: Instant, longest: Duration, send: impl FnOnce(Ping)) -> bool {
        if let Some((since, answer)) = &mut self.0
            && let Err(TryRecvError::Empty) = answer.try_recv()
        {
            return now.saturating_duration_since(*since) < longest;
        }
        let (ping, answer) = oneshot::channel();
        send(ping);
        self.0 = Some((now, answer));
        true
    }
}

impl Heartbeat {
    /// The interval is that of the environment. The first beat is due at once.
    pub(super) fn from_environment() -> Self {
        Self::every(sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()).map(|limit| limit / 2))
    }

    fn every(interval: Option<Duration>) -> Self {
        let (bpf, confinement, signaller) = Default::default();
        let due = interval.map(|_| Instant::now());
        Self { interval, due, bpf, confinement, signaller, warning: ThrottledWarning::default() }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Notifies the service manager if that is due.
    pub(super) fn iteration_completed(&mut self, workers: &Workers) {
        let now = Instant::now();
        if !self.take(now) {
            return;
        }
        if let Some(worker) = self.hung(now, workers) {
            self.warning.warn(format_args!("the worker thread `{worker}` hangs: not notifying the service manager"));
            self.due = Some(now + RETRY);
        } else if let Err(error) = sd_notify::notify(&[NotifyState::Watchdog]) {
            tracing::warn!("cannot notify the service manager: {error}");
        }
    }

    /// A worker that has not answered for an interval.
    fn hung(&mut self, now: Instant, workers: &Workers) -> Option<&'static str> {
        let longest = self.interval?;
        let alive = [
            ("bpf", self.bpf.beats(now, longest, |ping| workers.bpf.ping(ping))),
            ("confinement", self.confinement.beats(now, longest, |ping| workers.confinement.ping(ping))),
            ("signaller", self.signaller.beats(now, longest, |ping| workers.signaller.ping(ping))),
        ];
        alive.into_iter().find(|(_, beats)| !beats).map(|(worker, _)| worker)
    }

    /// Whether a beat is due; the next is due an interval later.
    fn take(&mut self, now: Instant) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            self.due = self.interval.map(|interval| now + interval);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beat_is_due_once_per_interval() {
        let mut heartbeat = Heartbeat::every(Some(Duration::from_secs(15)));
        let start = Instant::now();
        let taken = [0, 1, 14, 15, 40, 41].map(|seconds| heartbeat.take(start + Duration::from_secs(seconds)));
        assert_eq!(taken, [true, false, false, true, true, false]);
        assert_eq!(heartbeat.due(), Some(start + Duration::from_secs(55)));
    }

    #[test]
    fn silent_worker_stops_the_beat() {
        let (workers, queues) = Workers::for_test();
        let mut heartbeat = Heartbeat::every(Some(Duration::from_secs(15)));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(heartbeat.hung(at(0), &workers), None);
        queues.bpf.try_ping().unwrap().send(()).unwrap();
        queues.confinement.try_ping().unwrap().send(()).unwrap();
        // The signaller has not answered yet.
        assert_eq!(heartbeat.hung(at(14), &workers), None);
        assert_eq!(heartbeat.hung(at(15), &workers), Some("signaller"));
        let ping = queues.signaller.try_ping().unwrap();
        assert!(queues.signaller.try_ping().is_none(), "one ping at a time");
        ping.send(()).unwrap();
        assert_eq!(heartbeat.hung(at(16), &workers), None);
    }

    #[test]
    fn unwatched_daemon_never_beats() {
        let mut heartbeat = Heartbeat::every(None);
        assert_eq!((heartbeat.take(Instant::now()), heartbeat.due()), (false, None));
    }
}
