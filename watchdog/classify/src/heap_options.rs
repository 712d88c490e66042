//! The heap limits of Java and Go, if an option or variable sets one, and Java's default.

use watchdog_types::Bytes;

/// Java's limit from its options in the order in which it takes them; else its default: a quarter of the memory, or half where
/// that is little. Measured on OpenJDK 17 in cgroups of 250 MiB to 8 GiB and on a host of 24 GiB. The flag says that it is stated.
#[must_use]
pub fn java_heap<'a>(options: impl Iterator<Item = &'a str>, memory: Bytes) -> Option<(Bytes, bool)> {
    let (mut size, mut share, mut counted) = (None, None, memory);
    for option in options {
        if let Some(value) = option.strip_prefix("-Xmx").or_else(|| option.strip_prefix("-XX:MaxHeapSize=")) {
            size = amount(value);
        } else if let Some(value) = option.strip_prefix("-XX:MaxRAMPercentage=") {
            share = value.parse::<f64>().ok().filter(|share| (0.0..=100.0).contains(share));
        } else if let Some(value) = option.strip_prefix("-XX:MaxRAM=") {
            counted = amount(value).unwrap_or(counted);
        }
    }
    if let Some(size) = size {
        return Some((size, true));
    }
    let little = Bytes::from_mib(250);
    let usual = if counted <= little { 50 } else { 25 };
    let heap = match share {
        // Hundredths of a per cent: the option takes fractions.
        Some(share) => Bytes(counted.0 / 10_000 * hundredths(share)),
        None => counted.percent(usual),
    };
    (counted.0 > 0).then_some((heap, share.is_some()))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 10,000")]
fn hundredths(share: f64) -> u64 {
    (share * 100.0) as u64
}

/// `512m`, `4G`, `1073741824`.
fn amount(value: &str) -> Option<Bytes> {
    let digits = value.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let shift = match value.get(digits.len()..)? {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0).map(Bytes)
}

/// A value of GOMEMLIMIT: bytes, or with one of its units. `None` for `off`.
#[must_use]
pub fn go_memory_limit(value: &str) -> Option<Bytes> {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0), ("", 0)];
    let (digits, shift) = units.into_iter().find_map(|(unit, shift)| Some((value.strip_suffix(unit)?, shift)))?;
    let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    // The largest number is the default: no limit.
    (bytes > 0 && bytes < i64::MAX.unsigned_abs()).then_some(Bytes(bytes))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::stated("-Xms1g -Xmx512m", 8_000, Some((512, true)))]
    #[case::last_counts("-Xmx512m -XX:MaxHeapSize=1g", 8_000, Some((1_024, true)))]
    #[case::size_before_share("-Xmx512m -XX:MaxRAMPercentage=75", 8_000, Some((512, true)))]
    #[case::share("-XX:MaxRAMPercentage=75.0", 8_000, Some((6_000, true)))]
    #[case::of_less("-XX:MaxRAM=4g", 8_000, Some((1_024, false)))]
    #[case::measured_250("", 250, Some((125, false)))]
    #[case::measured_3000("", 3_000, Some((750, false)))]
    #[case::unknown("-server", 0, None)]
    fn java_heap_is_stated_or_default(
        #[case] options: &str,
        #[case] memory: u64,
        #[case] expected: Option<(u64, bool)>,
    ) {
        let found = java_heap(options.split_ascii_whitespace(), Bytes::from_mib(memory));
        let mib = found.map(|(heap, stated)| ((heap.0 + (1 << 19)) >> 20, stated));
        assert_eq!(mib, expected);
    }

    #[rstest]
    #[case("512MiB", Some(512 << 20))]
    #[case("2GiB", Some(2 << 30))]
    #[case("1000B", Some(1_000))]
    #[case("1000", Some(1_000))]
    #[case("off", None)]
    #[case("9223372036854775807", None)]
    #[case("512MB", None)]
    fn go_limit_is_parsed(#[case] value: &str, #[case] bytes: Option<u64>) {
        assert_eq!(go_memory_limit(value), bytes.map(Bytes));
    }
}
