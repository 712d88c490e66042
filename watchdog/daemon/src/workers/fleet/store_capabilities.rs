//! The rows of `watchdogctl doctor` about the store.

use std::time::Duration;

use super::fleet_snapshot::FleetSnapshot;
use watchdog_api::Capability;
use watchdog_fleet::{FleetStoreError, StoreHealth};
use watchdog_types::units;

const EVICTION: &str = "noeviction";
/// NTP keeps clocks closer than this.
const SAME_CLOCK: Duration = Duration::from_secs(1);

pub(super) fn of(address: &str, snapshot: &FleetSnapshot) -> Vec<Capability> {
    let mut rows = vec![reachable(address, snapshot)];
    if let Some(Err(FleetStoreError::Denied { error, .. })) = &snapshot.health {
        rows.push(Capability {
            name: "fleet_acl".to_owned(),
            on: false,
            why: error.clone(),
            cost: "launches are decided by [fleet] when_lost, and other hosts do not see this one".to_owned(),
            remedy: Some(
                "check the password file, and set the ACL line of docs/fleet-store.md on the store".to_owned(),
            ),
        });
    }
    if let Some(Ok(health)) = &snapshot.health {
        rows.extend(settings(health));
    }
    rows
}

fn reachable(address: &str, snapshot: &FleetSnapshot) -> Capability {
    let cost = "launches are decided by [fleet] when_lost; running sessions continue";
    let off = |why: String, remedy: &str| Capability {
        name: "fleet_store".to_owned(),
        on: false,
        why,
        cost: cost.to_owned(),
        remedy: Some(remedy.to_owned()),
    };
    match (&snapshot.lost, &snapshot.problem, &snapshot.health) {
        (Some((_, why)), _, _) => off(why.clone(), "start the store, or check [fleet] store and the network"),
        (None, Some(problem), _) => off(problem.clone(), "see docs/fleet.md"),
        (None, None, Some(Ok(StoreHealth { version, round_trip, .. }))) => Capability {
            name: "fleet_store".to_owned(),
            on: true,
            why: format!("{address} responds in {:.1} ms, version {version}", round_trip.as_secs_f64() * 1e3),
            cost: "none".to_owned(),
            remedy: None,
        },
        (None, None, _) => Capability {
            name: "fleet_store".to_owned(),
            on: true,
            why: format!("{address} accepts renewals"),
            cost: "none".to_owned(),
            remedy: None,
        },
    }
}

fn settings(health: &StoreHealth) -> [Capability; 4] {
    let StoreHealth { version: _, eviction_policy, persistent, replica, round_trip: _, clock_ahead } = health;
    let row = |name: &str, on: bool, why: String, cost: &str, remedy: &str| Capability {
        name: name.to_owned(),
        on,
        why,
        cost: if on { "none".to_owned() } else { cost.to_owned() },
        remedy: (!on).then(|| remedy.to_owned()),
    };
    [
        row(
            "fleet_eviction",
            eviction_policy == EVICTION,
            format!("maxmemory-policy is {eviction_policy}"),
            "when its memory is full, the store evicts rows, and grants pause",
            "set maxmemory-policy noeviction on the store",
        ),
        row(
            "fleet_persistence",
            *persistent,
            if *persistent { "the store writes an append-only file" } else { "the store writes no append-only file" }
                .to_owned(),
            "after a restart of the store, the last state of unreachable hosts is lost",
            "set appendonly yes on the store",
        ),
        row(
            "fleet_primary",
            !replica,
            if *replica { "the store is a replica" } else { "the store accepts writes" }.to_owned(),
            "a replica accepts no writes, so nothing is granted",
            "set [fleet] store to the primary",
        ),
        row("fleet_clock", true, clock(*clock_ahead), "", ""),
    ]
}

/// Nothing depends on it, but times of the store in logs are easier to read.
fn clock(ahead: i64) -> String {
    let apart = Duration::from_millis(ahead.unsigned_abs());
    match ahead {
        _ if apart < SAME_CLOCK => "the store's clock agrees with this host's".to_owned(),
        1.. => format!("the store's clock is {} ahead; limits do not depend on it", units::span(apart)),
        _ => format!("the store's clock is {} behind; limits do not depend on it", units::span(apart)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fleet_snapshot::FleetCounts;
    use super::*;
    use watchdog_fleet::HostCounts;
    use watchdog_types::BootTime;

    fn snapshot(health: Option<Result<StoreHealth, FleetStoreError>>) -> FleetSnapshot {
        FleetSnapshot {
            lost: None,
            problem: None,
            hosts: HostCounts { up: 2, unreachable: 0 },
            counts: FleetCounts::default(),
            health,
        }
    }

    fn off(rows: &[Capability]) -> Vec<&str> {
        rows.iter().filter(|row| !row.on).map(|row| row.name.as_str()).collect()
    }

    #[test]
    fn unsafe_settings_are_named() {
        let health = |eviction: &str, persistent, replica| StoreHealth {
            version: "7.0.15".to_owned(),
            eviction_policy: eviction.to_owned(),
            persistent,
            replica,
            round_trip: Duration::from_millis(1),
            clock_ahead: -300_000,
        };
        let rows = |health| of("redis://s", &snapshot(Some(Ok(health))));
        let good = rows(health("noeviction", true, false));
        assert_eq!(off(&good), [""; 0]);
        let clock = good.iter().find(|row| row.name == "fleet_clock").unwrap();
        assert_eq!(clock.why, "the store's clock is 5m behind; limits do not depend on it");
        let bad = rows(health("allkeys-lru", false, true));
        assert_eq!(off(&bad), ["fleet_eviction", "fleet_persistence", "fleet_primary"]);
        assert!(bad.iter().filter(|row| !row.on).all(|row| row.remedy.is_some()));
    }

    #[test]
    fn lost_store_is_off() {
        let lost = Some((BootTime(1), "refused".to_owned()));
        let rows = of("redis://s", &FleetSnapshot { lost, ..snapshot(None) });
        assert_eq!((off(&rows), rows[0].why.as_str()), (vec!["fleet_store"], "refused"));
        let denied = FleetStoreError::Denied { store: "redis://s".to_owned(), error: "NOPERM".to_owned() };
        assert_eq!(off(&of("redis://s", &snapshot(Some(Err(denied))))), ["fleet_acl"]);
    }
}
