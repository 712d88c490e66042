//! Amounts, spans and moments, as people read them.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// An amount of memory in binary units, with one decimal below ten: `9.5 MiB`, `812 MiB`.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are shown of what an f64 holds to fifteen")]
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return if bytes == 0 { "0".into() } else { format!("{bytes} B") };
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.6 would be shown as 1024, which is one of the next unit.
    while amount >= 1023.5 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(amount < 9.95);
    format!("{amount:.decimals$} {}", UNITS[unit])
}

/// A span in its one or two largest units: `45s`, `3m`, `2h 5m`, `3d 4h`.
#[must_use]
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    let two = |large: u64, large_unit, small: u64, small_unit| match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit} {small}{small_unit}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m"),
        (0, _, _) => two(hours, 'h', minutes, 'm'),
        _ => two(days, 'd', hours, 'h'),
    }
}

/// A measured span: as [`span`], with what is below ten seconds in more detail: `0.42s`, `3.5s`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(long) if long >= Duration::from_secs(10) => span(long),
        Ok(short) => {
            let digits = format!("{:.3}", short.as_secs_f64());
            format!("{}s", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        Err(_) => "no number of seconds".into(),
    }
}

/// The time from the RFC 3339 moment `then` to `now`; `None` when `then` is no moment. A moment to come is no time ago.
#[must_use]
pub fn age(then: &str, now: Timestamp) -> Option<Duration> {
    let then: Timestamp = then.parse().ok()?;
    Some(Duration::try_from(now.duration_since(then)).unwrap_or_default())
}

/// The RFC 3339 moment on a clock of this time zone, with milliseconds; `None` when it is no moment.
#[must_use]
pub fn clock(moment: &str, zone: TimeZone) -> Option<String> {
    let moment: Timestamp = moment.parse().ok()?;
    Some(moment.to_zoned_datetime(zone).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string())
}

/// `1 process`, `2 processes`.
#[must_use]
pub fn count(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(0, "0")]
    #[case(1, "1 B")]
    #[case(1023, "1023 B")]
    #[case(1024, "1.0 KiB")]
    #[case(4096, "4.0 KiB")]
    #[case(10_188, "9.9 KiB")]
    #[case(10_235, "10 KiB")]
    #[case(851_443_712, "812 MiB")]
    #[case(1_073_741_823, "1.0 GiB")]
    #[case(3_328_599_654, "3.1 GiB")]
    #[case(u64::MAX, "16 EiB")]
    fn sizes(#[case] bytes: u64, #[case] shown: &str) {
        assert_eq!(size(bytes), shown);
    }

    #[rstest]
    #[case(0, "0s")]
    #[case(59, "59s")]
    #[case(60, "1m")]
    #[case(3_599, "59m")]
    #[case(3_600, "1h")]
    #[case(7_500, "2h 5m")]
    #[case(86_400, "1d")]
    #[case(273_600, "3d 4h")]
    fn spans(#[case] seconds: u64, #[case] shown: &str) {
        assert_eq!(span(Duration::from_secs(seconds)), shown);
    }

    #[rstest]
    #[case(0.0, "0s")]
    #[case(0.4204, "0.42s")]
    #[case(3.5, "3.5s")]
    #[case(7500.2, "2h 5m")]
    #[case(-1.0, "no number of seconds")]
    #[case(f64::NAN, "no number of seconds")]
    fn measured_spans(#[case] given: f64, #[case] shown: &str) {
        assert_eq!(seconds(given), shown);
    }

    #[test]
    fn age_is_never_negative() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(age("2026-01-02T03:03:05.000Z", now), Some(Duration::from_secs(60)));
        assert_eq!(age("2026-01-02T03:05:05Z", now), Some(Duration::ZERO));
        assert_eq!(age("yesterday", now), None);
    }

    #[test]
    fn clock_uses_readers_time_zone() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(clock("2026-01-02T23:04:05.25Z", zone.clone()).as_deref(), Some("2026-01-03 01:04:05.250"));
        assert_eq!(clock("\x1b[2J", zone), None);
    }
}
