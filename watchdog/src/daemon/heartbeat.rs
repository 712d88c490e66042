//! The service manager's watchdog (`WatchdogSec=`): it restarts a daemon that stops telling it that it is alive.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;

/// When the service manager must hear from the engine's loop again. Only the loop itself beats, after a turn that is complete:
/// an engine that is blocked is not alive.
pub(super) struct Heartbeat {
    /// Half of what the service manager allows (sd_watchdog_enabled(3)); `None` when it does not ask.
    interval: Option<Duration>,
    due: Option<Instant>,
}

impl Heartbeat {
    /// What the environment asks for; the first beat is due at once.
    pub(super) fn wanted() -> Self {
        Self::every(sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()).map(|limit| limit / 2))
    }

    fn every(interval: Option<Duration>) -> Self {
        Self { interval, due: interval.map(|_| Instant::now()) }
    }

    /// When the next beat is due, if ever.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Beats if that is due. To be called after each complete turn of the loop.
    pub(super) fn turn_completed(&mut self) {
        if self.take(Instant::now())
            && let Err(error) = sd_notify::notify(&[NotifyState::Watchdog])
        {
            tracing::warn!("cannot notify the service manager: {error}");
        }
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
    fn unwatched_daemon_never_beats() {
        let mut heartbeat = Heartbeat::every(None);
        assert_eq!((heartbeat.take(Instant::now()), heartbeat.due()), (false, None));
    }
}
