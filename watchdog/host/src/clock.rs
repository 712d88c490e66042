//! CLOCK_BOOTTIME, which kernel records, /proc and the engine share, and its offset to wall-clock time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use watchdog_types::BootTime;

/// CLOCK_BOOTTIME now.
#[must_use]
pub fn now() -> BootTime {
    BootTime(nanos(ClockId::Boottime))
}

/// CPU time of the calling thread: the cost of work, independent of the load of the host.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(ClockId::ThreadCPUTime))
}

/// Wall-clock time, since the Unix epoch, at which CLOCK_BOOTTIME was 0. It changes when the clock is set, so read it
/// whenever times are shown.
#[must_use]
pub fn boot_wall_time() -> Duration {
    // The clocks cannot be read at once: the try with the least time between the two reads of CLOCK_BOOTTIME is best.
    let tries = (0..3).map(|_| {
        let before = nanos(ClockId::Boottime);
        let wall = nanos(ClockId::Realtime);
        let after = nanos(ClockId::Boottime);
        (after.saturating_sub(before), wall.saturating_sub(before.midpoint(after)))
    });
    tries.min().map_or(Duration::ZERO, |(_, boot)| Duration::from_nanos(boot))
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn boot_time_agrees_with_wall_clock() {
        let wall = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let slack = Duration::from_millis(50);
        let before = wall();
        let by_boot = boot_wall_time() + Duration::from_nanos(now().0);
        let after = wall();
        assert!(before - slack < by_boot && by_boot < after + slack, "{before:?}, {by_boot:?}, {after:?}");
    }

    #[test]
    fn boot_time_advances() {
        let first = now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(now().since(first) >= Duration::from_millis(5));
    }
}
