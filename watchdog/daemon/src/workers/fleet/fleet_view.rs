//! The fleet as the API shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fleet_facts::FleetFacts;
use super::fleet_snapshot::FleetSnapshot;
use watchdog_api::{Fleet, FleetHost, FleetPool, HostState, StoreState};
use watchdog_config::FleetConfig;
use watchdog_host::clock;
use watchdog_types::{FleetHostView, FleetPoolView, FleetView, HostRow, HostSummary, PoolName, Viewer};

/// A view that was read `age` ago, with the current state of this host. Only root sees the pools of other users.
pub(super) fn to_api(
    facts: &FleetFacts,
    config: &FleetConfig,
    viewer: Viewer,
    view: FleetView,
    age: Duration,
    own: Option<HostRow>,
) -> Fleet {
    let FleetSnapshot { lost, problem, .. } = facts.snapshot();
    let FleetView { hosts, pools, paused: _ } = view;
    let mut hosts: BTreeMap<String, FleetHost> =
        hosts.into_iter().map(|host| (host.host.to_string(), to_api_host(host, age, config.ttl))).collect();
    let mut pools: BTreeMap<String, FleetPool> = pools
        .into_iter()
        .filter(|pool| is_shown(&pool.name, viewer))
        .map(|pool| (pool.name.to_string(), to_api_pool(pool)))
        .collect();
    if let Some(own) = own {
        for (pool, limit) in &own.limits {
            let name = pool.to_string();
            let empty = FleetPool { name: name.clone(), limit: None, held: 0, by_host: BTreeMap::new() };
            pools.entry(name).or_insert(empty).limit = Some(u64::from(*limit));
        }
        let row = to_api_summary(facts.host.clone(), HostState::Up, Duration::ZERO, own.summary);
        hosts.insert(facts.host.clone(), row);
    }
    let since_epoch = |at: watchdog_types::BootTime| {
        let millis =
            i64::try_from((clock::boot_wall_time() + Duration::from_nanos(at.0)).as_millis()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX).to_string()
    };
    Fleet {
        store: if lost.is_some() { StoreState::Lost } else { StoreState::Up },
        address: facts.address.clone(),
        lost_at: lost.as_ref().map(|(since, _)| since_epoch(*since)),
        problem: lost.map(|(_, why)| why).or(problem),
        when_lost: config.when_lost.name().to_owned(),
        this_host: facts.host.clone(),
        hosts: hosts.into_values().collect(),
        pools: pools.into_values().collect(),
    }
}

fn is_shown(pool: &PoolName, viewer: Viewer) -> bool {
    match (pool, viewer) {
        (PoolName::User(user), Viewer::User(uid)) => user.as_str() == uid.0.to_string(),
        _ => true,
    }
}

fn to_api_host(host: FleetHostView, age: Duration, ttl: Duration) -> FleetHost {
    let FleetHostView { host, up, duplicate: _, last_seen, held: _, summary } = host;
    let last_seen = last_seen + age;
    let state = if up && last_seen <= ttl { HostState::Up } else { HostState::Unreachable };
    to_api_summary(host.to_string(), state, last_seen, summary)
}

fn to_api_summary(host: String, state: HostState, last_seen: Duration, summary: HostSummary) -> FleetHost {
    let HostSummary {
        agents,
        waiting,
        findings,
        memory_available,
        memory_total,
        memory_pressure,
        host_available,
        breaker_open,
        labels,
        version,
    } = summary;
    FleetHost {
        host,
        state,
        last_seen_seconds: last_seen.as_secs_f64(),
        agents: agents.into(),
        waiting: waiting.into(),
        findings: findings.into(),
        memory_available_bytes: host_available.0,
        memory_total_bytes: memory_total.0,
        memory_free_bytes: memory_available.0,
        pressure_some_avg10: Some(f64::from(memory_pressure)).filter(|pressure| pressure.is_finite()),
        breaker_open,
        labels: labels.iter().map(ToString::to_string).collect(),
        version,
    }
}

fn to_api_pool(pool: FleetPoolView) -> FleetPool {
    let FleetPoolView { name, limit, held, by_host } = pool;
    let by_host = by_host.into_iter().filter(|(_, held)| *held > 0);
    FleetPool {
        name: name.to_string(),
        limit: limit.map(u64::from),
        held: held.into(),
        by_host: by_host.map(|(host, held)| (host.to_string(), u64::from(held))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use watchdog_types::{Bytes, FleetName, FleetShares, Uid};

    fn name(text: &str) -> FleetName {
        FleetName::new(text).unwrap()
    }

    fn view() -> FleetView {
        let host = |host: &str, up, seconds| FleetHostView {
            host: name(host),
            up,
            duplicate: false,
            last_seen: Duration::from_secs(seconds),
            held: BTreeMap::new(),
            summary: HostSummary {
                agents: 3,
                memory_available: Bytes(5),
                host_available: Bytes(9),
                ..HostSummary::default()
            },
        };
        let pool = |name: PoolName| FleetPoolView { name, limit: Some(4), held: 3, by_host: [(name_of_b(), 3)].into() };
        FleetView {
            hosts: vec![host("a", true, 2), host("b", false, 40), host("c", true, 3)],
            pools: vec![pool(PoolName::All), pool(PoolName::User(name("1000")))],
            paused: None,
        }
    }

    fn name_of_b() -> FleetName {
        name("b")
    }

    #[test]
    fn silent_host_is_unreachable() {
        let config = FleetConfig::default();
        let facts = FleetFacts::new(Arc::default(), "redis://s", "a", FleetShares::default());
        let fleet = to_api(&facts, &config, Viewer::Root, view(), Duration::from_secs(1), None);
        let states: Vec<_> =
            fleet.hosts.iter().map(|host| (host.host.as_str(), host.state, host.last_seen_seconds)).collect();
        let expected = [("a", HostState::Up, 3.0), ("b", HostState::Unreachable, 41.0), ("c", HostState::Up, 4.0)];
        assert_eq!(states, expected);
        assert_eq!((fleet.store, fleet.hosts[0].memory_available_bytes), (StoreState::Up, 9));
        // In an old view, the state of a host is unknown.
        let old = to_api(&facts, &config, Viewer::Root, view(), Duration::from_secs(60), None);
        assert!(old.hosts.iter().all(|host| host.state == HostState::Unreachable));
    }

    #[test]
    fn users_see_no_pools_of_others() {
        let config = FleetConfig::default();
        let facts = FleetFacts::new(Arc::default(), "redis://s", "a", FleetShares::default());
        let names = |viewer| {
            let fleet = to_api(&facts, &config, viewer, view(), Duration::ZERO, None);
            fleet.pools.into_iter().map(|pool| pool.name).collect::<Vec<_>>()
        };
        assert_eq!(names(Viewer::User(Uid(1000))), ["all", "user:1000"]);
        assert_eq!(names(Viewer::User(Uid(1001))), ["all"]);
        assert_eq!(names(Viewer::Root), ["all", "user:1000"]);
    }
}
