//! Times as users give them: a span before now, or a date.

use jiff::{SignedDuration, Timestamp};

use watchdog_host::clock;
use watchdog_types::BootTime;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("since={0} is not a time: expected a span such as 30s, 5m or 1h30m, or a time such as 2026-01-31T12:00:00Z")]
pub(super) struct InvalidTime(String);

/// Parses a span before now, or a time of RFC 3339. A time before the boot becomes the boot.
pub(super) fn parse(text: &str) -> Result<BootTime, InvalidTime> {
    moment(text, clock::now(), clock::boot_wall_time())
}

/// Parses a span before now, or a time of RFC 3339, on the wall clock, since it may be before the boot.
pub(super) fn wall(text: &str) -> Result<Timestamp, InvalidTime> {
    let wrong = || InvalidTime(text.chars().take(64).collect());
    match text.parse::<SignedDuration>() {
        Ok(span) => Timestamp::now().checked_sub(span).map_err(|_| wrong()),
        Err(_) => text.parse().map_err(|_| wrong()),
    }
}

fn moment(text: &str, now: BootTime, boot: std::time::Duration) -> Result<BootTime, InvalidTime> {
    let nanoseconds = if let Ok(span) = text.parse::<SignedDuration>() {
        i128::from(now.0) - span.as_nanos()
    } else {
        let time: Timestamp = text.parse().map_err(|_| InvalidTime(text.chars().take(64).collect()))?;
        time.as_nanosecond() - i128::try_from(boot.as_nanos()).unwrap_or(i128::MAX)
    };
    Ok(BootTime(u64::try_from(nanoseconds.max(0)).unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: BootTime = BootTime(1_000_000_000_000);
    const BOOT: Duration = Duration::from_secs(1_700_000_000);

    #[test]
    fn spans_count_back_from_now() {
        assert_eq!(moment("30s", NOW, BOOT), Ok(BootTime(970_000_000_000)));
        assert_eq!(moment("1m", NOW, BOOT), Ok(BootTime(940_000_000_000)));
        assert_eq!(moment("500ms", NOW, BOOT), Ok(BootTime(999_500_000_000)));
        assert_eq!(moment("99h", NOW, BOOT), Ok(BootTime(0)));
    }

    #[test]
    fn times_count_from_the_boot() {
        let time = Timestamp::from_second(1_700_000_005).unwrap().to_string();
        assert_eq!(moment(&time, NOW, BOOT), Ok(BootTime(5_000_000_000)));
        assert_eq!(moment("1999-01-01T00:00:00Z", NOW, BOOT), Ok(BootTime(0)));
    }

    #[test]
    fn wall_time_may_precede_the_boot() {
        let then = wall("2400h").unwrap();
        let age = Timestamp::now().duration_since(then);
        assert!(age >= SignedDuration::from_hours(2_400) && age < SignedDuration::from_hours(2_401));
        let time = "2001-02-03T04:05:06Z";
        assert_eq!(wall(time).unwrap().to_string(), time);
        assert!(wall("yesterday").is_err());
    }

    #[test]
    fn other_text_is_refused() {
        for bad in ["", "yesterday", "30", "2026-01-01", "2026-01-01 00:00"] {
            let error = moment(bad, NOW, BOOT).unwrap_err().to_string();
            assert!(error.contains("30s"), "{error}");
        }
    }
}
