//! The fleet in words: its store, its hosts and the holders of its slots.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use watchdog_api::{Fleet, FleetHost, HostState, StoreState};
use watchdog_types::units::{age, count, span};

use crate::escape::escape;
use crate::terminal::Style;

/// Hosts that a pool names.
const MAX_NAMED: usize = 8;

/// Whether the store answers; if not, why, since when, and what that means for launches.
pub fn fleet_store(fleet: &Fleet, now: Timestamp) -> (Style, String) {
    let address = escape(&fleet.address);
    let problem = fleet.problem.as_deref().map(|problem| format!(": {}", escape(problem))).unwrap_or_default();
    match fleet.store {
        StoreState::Up if problem.is_empty() => (Style::Good, format!("store: up at {address}")),
        StoreState::Up => (Style::Warn, format!("store: up at {address}{problem}")),
        StoreState::Lost => {
            let since = fleet.lost_at.as_deref().and_then(|at| age(at, now));
            let since = since.map_or_else(String::new, |lost| format!(" for {}", span(lost)));
            let then = match fleet.when_lost.as_str() {
                "share" => "launches: up to this host's share",
                "allow" => "launches: local limits only",
                _ => "launches: none",
            };
            (Style::Bad, format!("store: lost{since} at {address}{problem}; {then}"))
        }
    }
}

/// The number of hosts, and of unreachable ones.
pub fn fleet_size(fleet: &Fleet) -> String {
    let hosts = count(fleet.hosts.len() as u64, "host", "hosts");
    match fleet.hosts.iter().filter(|host| host.state == HostState::Unreachable).count() {
        0 => hosts,
        unreachable => format!("{hosts}, {unreachable} unreachable"),
    }
}

/// The state of a host in one or two words.
pub const fn host_state(host: &FleetHost) -> (Style, &'static str) {
    match host.state {
        HostState::Unreachable => (Style::Bad, "unreachable"),
        HostState::Up if host.breaker_open => (Style::Warn, "breaker open"),
        HostState::Up => (Style::Good, "up"),
    }
}

/// How long ago a host reported.
pub fn last_seen(host: &FleetHost) -> String {
    let seen = Duration::try_from_secs_f64(host.last_seen_seconds.max(0.0)).unwrap_or(Duration::MAX);
    span(seen)
}

/// How many places each host holds, the largest first.
pub fn pool_holders(by_host: &BTreeMap<String, u64>) -> String {
    let mut hosts: Vec<(&String, &u64)> = by_host.iter().collect();
    hosts.sort_by_key(|(_, held)| Reverse(**held));
    let named: Vec<String> = hosts.iter().take(MAX_NAMED).map(|(host, held)| format!("{host} {held}")).collect();
    match hosts.len().saturating_sub(MAX_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_holders_are_counted() {
        let by_host = (1..=10).map(|number| (format!("h{number:02}"), number)).collect();
        assert_eq!(pool_holders(&by_host), "h10 10, h09 9, h08 8, h07 7, h06 6, h05 5, h04 4, h03 3 and 2 more");
    }
}
