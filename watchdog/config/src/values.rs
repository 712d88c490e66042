//! Values with units: "30s", "1h30m", "800MiB", "10%".

use std::str::FromStr;
use std::time::Duration;

use watchdog_types::Bytes;

/// An amount of memory: "800MiB" or "10%".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Bytes(Bytes),
    /// 1 to 100.
    PercentOfHost(u8),
}

/// The messages state what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("not a duration: whole numbers with ms, s, m, h or d are allowed, as in \"30s\", \"5m\" or \"1h30m\"")]
    Duration,
    #[error(
        "not a size: a whole number with B, KiB, MiB, GiB, TiB, or % of the host's memory (1% to 100%) is allowed, as in \"800MiB\" or \"10%\""
    )]
    Size,
}

impl Size {
    #[must_use]
    pub fn on_host(self, total: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::PercentOfHost(percent) => {
                let share = u128::from(total.0) * u128::from(percent) / 100;
                Bytes(u64::try_from(share).unwrap_or(u64::MAX))
            }
        }
    }
}

impl FromStr for Size {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (number, unit) = split_number(text).ok_or(ValueError::Size)?;
        let shift = match unit {
            "%" => {
                let percent = u8::try_from(number).ok().filter(|percent| (1..=100).contains(percent));
                return percent.map(Self::PercentOfHost).ok_or(ValueError::Size);
            }
            "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            "TiB" => 40,
            _ => return Err(ValueError::Size),
        };
        number.checked_mul(1 << shift).map(|bytes| Self::Bytes(Bytes(bytes))).ok_or(ValueError::Size)
    }
}

/// Parses "1h30m": units in descending order, each at most once.
pub fn duration(text: &str) -> Result<Duration, ValueError> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let (number, after) = split_number(rest).ok_or(ValueError::Duration)?;
        let end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let millis = match &after[..end] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(ValueError::Duration),
        };
        if millis >= smallest {
            return Err(ValueError::Duration);
        }
        smallest = millis;
        let part = number.checked_mul(millis).map(Duration::from_millis);
        total = part.and_then(|part| total.checked_add(part)).ok_or(ValueError::Duration)?;
        rest = &after[end..];
    }
    if text.is_empty() { Err(ValueError::Duration) } else { Ok(total) }
}

/// The inverse of [`duration`].
pub(super) fn format_duration(duration: Duration) -> String {
    let mut millis = duration.as_millis();
    let mut text = String::new();
    for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        if millis >= length {
            text += &format!("{}{unit}", millis / length);
            millis %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// The leading digits and the rest.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("30s", 30_000)]
    #[case("5m", 300_000)]
    #[case("1h30m", 5_400_000)]
    #[case("1s500ms", 1_500)]
    #[case("0s", 0)]
    #[case("2d", 172_800_000)]
    fn durations_round_trip(#[case] text: &str, #[case] millis: u64) {
        assert_eq!(duration(text), Ok(Duration::from_millis(millis)));
        assert_eq!(format_duration(Duration::from_millis(millis)), text);
    }

    #[rstest]
    fn invalid_durations_rejected(
        #[values(
            "",
            "30",
            "s",
            "30 s",
            "-1s",
            "1.5s",
            "30m1h",
            "1s1s",
            "99999999999999999999s",
            "9999999999999999d",
            "5M"
        )]
        text: &str,
    ) {
        assert_eq!(duration(text), Err(ValueError::Duration));
    }

    #[rstest]
    #[case("800MiB", Size::Bytes(Bytes(800 << 20)))]
    #[case("10%", Size::PercentOfHost(10))]
    #[case("1TiB", Size::Bytes(Bytes(1 << 40)))]
    #[case("0B", Size::Bytes(Bytes(0)))]
    fn sizes_parse(#[case] text: &str, #[case] size: Size) {
        assert_eq!(text.parse(), Ok(size));
    }

    #[rstest]
    fn invalid_sizes_rejected(
        #[values("", "800", "MiB", "1.5GiB", "10 %", "0%", "101%", "-1MiB", "99999999TiB", "5MB")] text: &str,
    ) {
        assert_eq!(text.parse::<Size>(), Err(ValueError::Size));
    }

    #[test]
    fn percentage_is_of_host_memory() {
        assert_eq!(Size::PercentOfHost(10).on_host(Bytes(1_000)), Bytes(100));
        assert_eq!(Size::Bytes(Bytes(5)).on_host(Bytes(1_000)), Bytes(5));
        assert_eq!(Size::PercentOfHost(100).on_host(Bytes(u64::MAX)), Bytes(u64::MAX));
    }
}
