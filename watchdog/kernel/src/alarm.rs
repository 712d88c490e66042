//! An asynchronous timer on CLOCK_BOOTTIME.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use watchdog_types::BootTime;

/// A timerfd. Cost: one system call when it is set to another moment. A timer of tokio that becomes the earliest one makes the
/// runtime write to its eventfd and poll again.
pub(super) struct Alarm {
    timer: AsyncFd<OwnedFd>,
    set_to: Option<BootTime>,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // SAFETY: an OwnedFd's descriptor is open, and the same, as long as it lives, and it goes into the AsyncFd.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) };
        Ok(Self { timer: timer.map_err(|error| error.into_parts().1)?, set_to: None })
    }

    /// Sets the timer, or stops it with `None`. A moment in the past expires at once.
    pub(super) fn set(&mut self, moment: Option<BootTime>) -> io::Result<()> {
        if self.set_to == moment {
            return Ok(());
        }
        let nanos = moment.map_or(0, |moment| moment.0.max(1));
        let seconds = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
        #[expect(clippy::cast_possible_wrap, reason = "less than 10^9")]
        let it_value = Timespec { tv_sec: seconds, tv_nsec: (nanos % 1_000_000_000) as _ };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        self.set_to = moment;
        Ok(())
    }

    /// Waits until the timer expires. Returns early if it had been set to an earlier moment. Fails when the runtime shuts down.
    pub(super) async fn rings(&mut self) -> io::Result<()> {
        self.timer.readable_mut().await?.clear_ready();
        self.set_to = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use watchdog_host::clock;

    #[tokio::test]
    async fn alarm_rings_each_time() {
        let mut alarm = Alarm::new().unwrap();
        for _ in 0..3 {
            let moment = clock::now().plus(Duration::from_millis(20));
            alarm.set(Some(moment)).unwrap();
            alarm.rings().await.unwrap();
            assert!(clock::now() >= moment);
        }
        alarm.set(Some(clock::now().plus(Duration::from_millis(20)))).unwrap();
        alarm.set(None).unwrap();
        assert!(timeout(Duration::from_millis(100), alarm.rings()).await.is_err());
    }
}
