//! Chooses a host for a launch: the better of two that are chosen at random, so that many choices at once do not all take
//! the same host (Mitzenmacher, "The power of two choices", 2001).

use std::cmp::Reverse;
use std::time::Duration;

use watchdog_api::HostChoice;
use watchdog_config::Config;
use watchdog_fleet::{FleetStore, FleetStoreError, Placement, PlacementAnswer};
use watchdog_types::{Bytes, FleetHostView, FleetName, FleetView, PoolName, Uid, units};

/// How long a place stays reserved: ssh connects in that time.
const LIFETIME: Duration = Duration::from_secs(20);
/// Hosts that are tried after a host has filled up meanwhile.
const ATTEMPTS: usize = 6;
const FULL_RETRY: Duration = Duration::from_secs(10);

/// What a launch needs of its host.
#[derive(Clone, Debug)]
pub(crate) struct PlaceQuery {
    pub(crate) uid: Uid,
    /// `None` for the configured one.
    pub(crate) memory: Option<Bytes>,
    pub(crate) labels: Vec<FleetName>,
    pub(crate) profile: Option<FleetName>,
    pub(crate) host: Option<FleetName>,
}

/// Random numbers.
pub(super) trait Dice {
    /// Less than `count`, which is not zero.
    fn below(&mut self, count: usize) -> usize;

    /// A text that cannot be guessed.
    fn ticket(&mut self) -> String;
}

pub(super) fn place<S: FleetStore>(
    store: &mut S,
    view: &FleetView,
    config: &Config,
    own_host: &str,
    query: &PlaceQuery,
    dice: &mut impl Dice,
) -> Result<HostChoice, FleetStoreError> {
    let needed = |host: &FleetHostView| {
        query.memory.unwrap_or_else(|| config.gate.expected_memory.on_host(host.summary.memory_total))
    };
    let mut fitting: Vec<&FleetHostView> = view.hosts.iter().filter(|host| fits(host, query, needed(host))).collect();
    if fitting.is_empty() {
        return Ok(nowhere(why_none(view, query), None));
    }
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        if fitting.is_empty() {
            break;
        }
        let first = dice.below(fitting.len());
        let second = dice.below(fitting.len());
        let rank = |index: &usize| {
            let summary = &fitting[*index].summary;
            (Reverse(summary.memory_available), summary.agents)
        };
        let best = [first, second].into_iter().min_by_key(rank).unwrap_or(first);
        let host = fitting.swap_remove(best);
        let ticket = dice.ticket();
        let Ok(name) = FleetName::new(ticket.as_str()) else { continue };
        let placement = Placement {
            host: host.host.clone(),
            ticket: name,
            pools: pools(config, query, host),
            memory: needed(host),
            lifetime: LIFETIME,
        };
        match store.reserve(&placement)? {
            PlacementAnswer::Reserved => {
                let summary = &host.summary;
                let free = units::size(summary.memory_available.0);
                return Ok(HostChoice {
                    placed: true,
                    host: Some(host.host.to_string()),
                    ticket: Some(ticket),
                    expires_in_seconds: Some(LIFETIME.as_secs_f64()),
                    detail: format!("{free} free, {} agents", summary.agents),
                    retry_after_seconds: None,
                    is_this_host: host.host.as_str() == own_host,
                });
            }
            PlacementAnswer::Full { pool, limit, held } => {
                let detail = format!("the fleet is full: {held} of {limit} slots in use ({pool})");
                if !matches!(pool, PoolName::Label(_)) {
                    return Ok(nowhere(detail, Some(FULL_RETRY)));
                }
                last = detail;
            }
            PlacementAnswer::NoMemory { available } => {
                last = format!("{} has only {} free", host.host, units::size(available.0));
            }
            PlacementAnswer::HostUnreachable => last = format!("{} is unreachable", host.host),
            PlacementAnswer::Paused(left) => {
                let detail = format!(
                    "grants are paused: the fleet's store is new or has lost data; they resume within {}",
                    units::span(left)
                );
                return Ok(nowhere(detail, Some(left)));
            }
        }
    }
    Ok(nowhere(last, Some(FULL_RETRY)))
}

fn fits(host: &FleetHostView, query: &PlaceQuery, needed: Bytes) -> bool {
    let offers = |label: &FleetName| host.summary.labels.contains(label);
    host.up
        && !host.duplicate
        && !host.summary.breaker_open
        && host.summary.memory_available >= needed
        && query.host.as_ref().is_none_or(|named| *named == host.host)
        && query.labels.iter().all(offers)
}

fn why_none(view: &FleetView, query: &PlaceQuery) -> String {
    let up = view.hosts.iter().filter(|host| host.up && !host.duplicate);
    if let Some(named) = &query.host {
        let known = view.hosts.iter().find(|host| host.host == *named);
        return match known {
            None => format!("the fleet has no host {named}: `watchdogctl fleet` lists the hosts"),
            Some(host) if !host.up => format!("{named} is unreachable: last seen {} ago", units::span(host.last_seen)),
            Some(host) if host.summary.breaker_open => format!("{named} refuses all launches: it is short of memory"),
            Some(host) => {
                let free = units::size(host.summary.memory_available.0);
                format!("{named} has only {free} free, or lacks a label")
            }
        };
    }
    let offers = |host: &&FleetHostView| query.labels.iter().all(|label| host.summary.labels.contains(label));
    let labelled: Vec<&FleetHostView> = up.filter(offers).collect();
    let most = labelled.iter().map(|host| host.summary.memory_available).max();
    match most {
        None => "no reachable host has these labels: `watchdogctl fleet` lists the hosts".to_owned(),
        Some(most) => {
            let hosts = labelled.len();
            format!("none of {hosts} hosts has the memory: at most {} is free on one of them", units::size(most.0))
        }
    }
}

pub(super) fn nowhere(detail: String, retry_after: Option<Duration>) -> HostChoice {
    HostChoice {
        placed: false,
        host: None,
        ticket: None,
        expires_in_seconds: None,
        detail,
        retry_after_seconds: retry_after.map(|after| after.as_secs_f64()),
        is_this_host: false,
    }
}

/// The limited pools that the launch will count in.
fn pools(config: &Config, query: &PlaceQuery, host: &FleetHostView) -> Vec<(PoolName, u32)> {
    let fleet = &config.fleet;
    let all = fleet.max_sessions.map(|limit| (PoolName::All, limit));
    let user = FleetName::new(query.uid.0.to_string()).ok().map(PoolName::User).zip(fleet.max_sessions_per_user);
    let profile = query.profile.as_ref().and_then(|name| {
        let limit = config.profile(name.as_str())?.limits.fleet_max_sessions?;
        Some((PoolName::Profile(name.clone()), limit))
    });
    let labels =
        host.summary.labels.iter().filter_map(|label| {
            Some((PoolName::Label(label.clone()), *fleet.max_sessions_per_label.get(label.as_str())?))
        });
    all.into_iter().chain(user).chain(profile).chain(labels).collect()
}
