//! Parsers of argument values.

use std::path::PathBuf;
use std::time::Duration;

use crate::target::TargetArg;
use watchdog_config::Size;
use watchdog_host::meminfo;

const SOCKET: &str = "/run/agent-watchdog/control.sock";

/// The given socket, or that of the environment, or the default.
pub(crate) fn socket(given: Option<PathBuf>) -> PathBuf {
    let from_environment = || std::env::var_os("WATCHDOG_SOCKET").filter(|path| !path.is_empty());
    given.or_else(|| from_environment().map(PathBuf::from)).unwrap_or_else(|| SOCKET.into())
}

pub(crate) fn session(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(TargetArg::Session(id)) => Ok(id),
        Ok(TargetArg::Number(id)) => Ok(u64::from(id)),
        Ok(TargetArg::Pid(_)) | Err(_) => Err("expected a session, such as 3 or session:3".into()),
    }
}

/// The id of a finding or an action.
pub(crate) fn id(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected an id: a whole number such as 12".into())
}

/// A size such as `800MiB` or `10%`, in bytes. A percentage is of this host's memory.
pub(crate) fn memory(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) => Ok(bytes.0),
        share @ Size::PercentOfHost(_) => {
            let host = meminfo::host_memory().map_err(|error| error.to_string())?;
            Ok(share.on_host(host.total).0)
        }
    }
}

/// A duration such as `30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a whole number and a unit: 30s, 5m, 2h or 1d".to_owned();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("30s", Some(30))]
    #[case("5m", Some(300))]
    #[case("2h", Some(7_200))]
    #[case("1d", Some(86_400))]
    #[case("30", None)]
    #[case("s", None)]
    #[case("-3s", None)]
    #[case("1w", None)]
    #[case("99999999999999999999s", None)]
    #[case("9999999999999999999d", None)]
    fn duration_needs_a_unit(#[case] text: &str, #[case] seconds: Option<u64>) {
        assert_eq!(duration(text).ok(), seconds.map(Duration::from_secs));
    }
}
