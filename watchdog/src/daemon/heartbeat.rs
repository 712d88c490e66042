//! The service manager's watchdog (`WatchdogSec=`): it restarts a daemon that stops telling it that it is alive.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::Instant;

use super::grumble::Grumble;
use super::hands::{Act, Deed, Hands, Order};

/// While a thread does not answer, it is looked at again after this time.
const RETRY: Duration = Duration::from_secs(1);

/// An order that is carried out by answering it.
pub(super) type Ping = oneshot::Sender<()>;

/// When the service manager must hear from the engine's loop again. Only the loop itself beats, after a turn that is complete,
/// and only if each thread that carries out its orders has answered the ping of the last beat: an engine that is blocked, or
/// whose orders are not carried out, is not alive.
pub(super) struct Heartbeat {
    /// Half of what the service manager allows (sd_watchdog_enabled(3)); `None` when it does not ask.
    interval: Option<Duration>,
    due: Option<Instant>,
    tracer: Pulse,
    warden: Pulse,
    reaper: Pulse,
    failed: Grumble,
}

/// The ping of a thread, until it is answered.
#[derive(Debug, Default)]
struct Pulse(Option<(Instant, oneshot::Receiver<()>)>);

impl Pulse {
    /// Sends a ping, unless one is not answered yet. Whether the thread is alive: it has answered, or has time left for that.
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
    /// What the environment asks for; the first beat is due at once.
    pub(super) fn wanted() -> Self {
        Self::every(sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()).map(|limit| limit / 2))
    }

    fn every(interval: Option<Duration>) -> Self {
        let (tracer, warden, reaper) = Default::default();
        Self { interval, due: interval.map(|_| Instant::now()), tracer, warden, reaper, failed: Grumble::default() }
    }

    /// When the next beat is due, if ever.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Beats if that is due. To be called after each complete turn of the loop.
    pub(super) fn turn_completed(&mut self, hands: &Hands) {
        let now = Instant::now();
        if !self.take(now) {
            return;
        }
        if let Some(thread) = self.hung(now, hands) {
            self.failed.say(format_args!("the thread `{thread}` hangs: the service manager is not notified"));
            self.due = Some(now + RETRY);
        } else if let Err(error) = sd_notify::notify(&[NotifyState::Watchdog]) {
            tracing::warn!("cannot notify the service manager: {error}");
        }
    }

    /// A thread that has not answered for an interval.
    fn hung(&mut self, now: Instant, hands: &Hands) -> Option<&'static str> {
        let longest = self.interval?;
        // One that has ended ends the loop with the next order.
        let alive = [
            ("tracer", self.tracer.beats(now, longest, |ping| drop(hands.tracer.send(Order::Ping(ping))))),
            ("warden", self.warden.beats(now, longest, |ping| drop(hands.warden.send(Deed::Ping(ping))))),
            ("reaper", self.reaper.beats(now, longest, |ping| drop(hands.reaper.send(Act::Ping(ping))))),
        ];
        alive.into_iter().find(|(_, beats)| !beats).map(|(thread, _)| thread)
    }

    /// Whether a beat is due at this time; the next is due an interval later.
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
    fn silent_thread_stops_the_beat() {
        let (tracer, orders) = std::sync::mpsc::channel();
        let (warden, deeds) = std::sync::mpsc::channel();
        let (reaper, acts) = std::sync::mpsc::channel();
        let hands = Hands {
            tracer,
            warden,
            reaper,
            prober: std::sync::mpsc::channel().0,
            inspector: std::sync::mpsc::channel().0,
        };
        let mut heartbeat = Heartbeat::every(Some(Duration::from_secs(15)));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(heartbeat.hung(at(0), &hands), None);
        for ping in [
            match orders.try_recv().unwrap() {
                Order::Ping(ping) => ping,
                other => panic!("{other:?}"),
            },
            match deeds.try_recv().unwrap() {
                Deed::Ping(ping) => ping,
                other => panic!("{other:?}"),
            },
        ] {
            ping.send(()).unwrap();
        }
        // The reaper has not taken its order yet.
        assert_eq!(heartbeat.hung(at(14), &hands), None);
        assert_eq!(heartbeat.hung(at(15), &hands), Some("reaper"));
        let Act::Ping(ping) = acts.try_recv().unwrap() else { panic!("no ping") };
        assert!(acts.try_recv().is_err(), "one ping at a time");
        ping.send(()).unwrap();
        assert_eq!(heartbeat.hung(at(16), &hands), None);
    }

    #[test]
    fn unwatched_daemon_never_beats() {
        let mut heartbeat = Heartbeat::every(None);
        assert_eq!((heartbeat.take(Instant::now()), heartbeat.due()), (false, None));
    }
}
