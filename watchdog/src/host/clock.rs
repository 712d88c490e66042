//! The clock that kernel records, /proc and the engine share, and how it stands to the wall.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::engine::id::BootTime;

/// CLOCK_BOOTTIME now.
#[must_use]
pub fn now() -> BootTime {
    BootTime(nanos(ClockId::Boottime))
}

/// CPU time that the calling thread has used so far: what a piece of work costs, however busy the machine is.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(ClockId::ThreadCPUTime))
}

/// The wall-clock time, as time since the Unix epoch, of the moment that CLOCK_BOOTTIME was 0. It moves when somebody
/// sets the clock, so it is to be asked for anew when times are shown, not once.
#[must_use]
pub fn boot_wall_time() -> Duration {
    // The two clocks cannot be read at once: of some tries, the one in which the least time passed in between is right.
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
    fn boot_time_and_wall_clock_agree() {
        let by_boot = boot_wall_time() + Duration::from_nanos(now().0);
        let by_wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let apart = by_wall.abs_diff(by_boot);
        assert!(apart < Duration::from_millis(50), "{apart:?} apart");
    }

    #[test]
    fn boot_time_goes_forward() {
        let first = now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(now().since(first) >= Duration::from_millis(5));
    }
}
