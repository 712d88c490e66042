//! The hosts of the fleet, and the holders of its slots.

use std::cmp::Reverse;

use super::block::{PageView, StatTile, ViewBlock};
use super::table::{ViewCell, ViewColumn, ViewRow, ViewTable};
use super::tone::ViewTone;
use super::words::share;
use crate::context::WebContext;
use crate::request::WebRequest;
use watchdog_api::client::ClientError;
use watchdog_api::{Fleet, FleetHost, FleetPool, HostState, StoreState};
use watchdog_types::units::{seconds, size};

pub(super) fn page(_: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    let fleet = context.client.get::<Fleet>("/v1/fleet")?.document;
    let mut blocks = vec![ViewBlock::Tiles { tiles: tiles(&fleet) }];
    if fleet.store == StoreState::Lost || fleet.problem.is_some() {
        blocks.push(ViewBlock::Text { title: String::new(), lines: vec![(context.prose.fleet_store)(&fleet)] });
    }
    blocks.extend([ViewBlock::Table(host_table(&fleet)), ViewBlock::Table(pool_table(&fleet.pools))]);
    Ok(PageView { title: "Fleet".into(), act: context.guard.may_act(), blocks })
}

fn tiles(fleet: &Fleet) -> Vec<StatTile> {
    let (up, unreachable): (Vec<&FleetHost>, Vec<&FleetHost>) =
        fleet.hosts.iter().partition(|host| host.state == HostState::Up);
    let sum = |number: fn(&FleetHost) -> u64| up.iter().map(|host| number(host)).sum::<u64>();
    let (available, total) = (sum(|host| host.memory_available_bytes), sum(|host| host.memory_total_bytes));
    let plain = |label, value: String, detail: String| StatTile { label, value, detail, share: None, tone: None };
    let (store, tone) = match (fleet.store, &fleet.problem) {
        (StoreState::Up, None) => ("up", ViewTone::Good),
        (StoreState::Up, Some(_)) => ("up", ViewTone::Warn),
        (StoreState::Lost, _) => ("lost", ViewTone::Bad),
    };
    let findings = sum(|host| host.findings);
    vec![
        StatTile { tone: Some(tone), ..plain("Store", store.into(), fleet.address.clone()) },
        StatTile {
            tone: (!unreachable.is_empty()).then_some(ViewTone::Bad),
            ..plain("Hosts", fleet.hosts.len().to_string(), format!("{} unreachable", unreachable.len()))
        },
        plain("Agents", sum(|host| host.agents).to_string(), format!("{} launches waiting", sum(|host| host.waiting))),
        StatTile {
            share: Some(share(available, total)),
            ..plain("Memory available", size(available), format!("of {}", size(total)))
        },
        StatTile {
            tone: (findings > 0).then_some(ViewTone::Warn),
            ..plain("Findings", findings.to_string(), "on reachable hosts".into())
        },
    ]
}

fn host_table(fleet: &Fleet) -> ViewTable {
    let rows = fleet.hosts.iter().map(|host| {
        let (state, tone) = match host.state {
            HostState::Unreachable => ("unreachable", ViewTone::Bad),
            HostState::Up if host.breaker_open => ("breaker open", ViewTone::Warn),
            HostState::Up => ("up", ViewTone::Good),
        };
        let own = if host.host == fleet.this_host { " (this host)" } else { "" };
        ViewRow {
            key: host.host.clone(),
            cells: vec![
                ViewCell::new(format!("{}{own}", host.host)),
                ViewCell::new(state).tone(Some(tone)),
                ViewCell::new(format!("{} ago", seconds(host.last_seen_seconds.round()))),
                ViewCell::new(host.agents.to_string()),
                ViewCell::new(host.waiting.to_string()),
                ViewCell::new(size(host.memory_available_bytes))
                    .share(share(host.memory_available_bytes, host.memory_total_bytes)),
                ViewCell::new(host.pressure_some_avg10.map_or_else(|| "-".into(), |some| format!("{some:.1} %"))),
                ViewCell::new(host.findings.to_string()),
                ViewCell::new(host.labels.join(", ")),
                ViewCell::new(&host.version),
            ],
        }
    });
    let columns = vec![
        ViewColumn::text("Host"),
        ViewColumn::text("State"),
        ViewColumn::number("Last seen"),
        ViewColumn::number("Agents"),
        ViewColumn::number("Waiting"),
        ViewColumn::number("Memory available"),
        ViewColumn::number("Pressure"),
        ViewColumn::number("Findings"),
        ViewColumn::text("Labels").low(),
        ViewColumn::text("Version").low(),
    ];
    ViewTable { title: "Hosts".into(), columns, rows: rows.collect(), empty: "No host has reported yet." }
}

fn pool_table(pools: &[FleetPool]) -> ViewTable {
    let rows = pools.iter().map(|pool| {
        let full = pool.limit.is_some_and(|limit| pool.held >= limit);
        let held = ViewCell::new(pool.held.to_string()).tone(full.then_some(ViewTone::Warn));
        let mut hosts: Vec<(&String, &u64)> = pool.by_host.iter().collect();
        hosts.sort_by_key(|(_, held)| Reverse(**held));
        let hosts: Vec<String> = hosts.into_iter().map(|(host, held)| format!("{host} {held}")).collect();
        ViewRow {
            key: pool.name.clone(),
            cells: vec![
                ViewCell::new(&pool.name),
                match pool.limit {
                    Some(limit) => held.share(share(pool.held, limit)),
                    None => held,
                },
                ViewCell::new(pool.limit.map_or_else(|| "-".into(), |limit| limit.to_string())),
                ViewCell::new(hosts.join(", ")),
            ],
        }
    });
    let columns = vec![
        ViewColumn::text("Pool"),
        ViewColumn::number("Held"),
        ViewColumn::number("Limit"),
        ViewColumn::text("Held by host"),
    ];
    ViewTable { title: "Pools".into(), columns, rows: rows.collect(), empty: "No limit is shared." }
}
