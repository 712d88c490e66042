//! The published state of hosts, and the view of the fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watchdog_types::{FleetHostView, FleetName, FleetPoolView, FleetView, HostSummary, PoolName};

use crate::reply::{Expected, ScriptReply};

/// Maximum published bytes per host.
const MAX_PUBLISHED: usize = 1024;
const MAX_VERSION: usize = 32;

/// The published state of a host, as stored.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct PublishedRow {
    #[serde(flatten)]
    summary: HostSummary,
    limits: BTreeMap<PoolName, u32>,
}

impl PublishedRow {
    /// As JSON. If it is too long, cuts the version and omits the last limits.
    pub(crate) fn bounded(summary: &HostSummary, limits: &BTreeMap<PoolName, u32>) -> serde_json::Result<String> {
        let mut row = Self { summary: summary.clone(), limits: limits.clone() };
        row.summary.version.truncate(row.summary.version.floor_char_boundary(MAX_VERSION));
        let mut text = serde_json::to_string(&row)?;
        while text.len() > MAX_PUBLISHED && row.limits.pop_last().is_some() {
            text = serde_json::to_string(&row)?;
        }
        Ok(text)
    }
}

/// A host with its configured limits.
pub(crate) type ListedHost = (FleetHostView, BTreeMap<PoolName, u32>);

/// Reads the hosts of a page. Invalid states and pools are ignored, but their hosts are listed.
pub(crate) fn read_hosts(reply: &mut ScriptReply, most: usize, hosts: &mut Vec<ListedHost>) -> Result<(), Expected> {
    for _ in 0..most {
        if reply.is_empty() {
            break;
        }
        let host: FleetName = reply.name()?;
        let (last_seen, state) = (Duration::from_millis(reply.number()?), reply.number()?);
        let PublishedRow { mut summary, limits } = serde_json::from_str(&reply.text()?).unwrap_or_default();
        summary.version.retain(|letter| letter.is_ascii_graphic());
        let held = read_held(&reply.text()?);
        hosts.push((FleetHostView { host, up: state > 0, duplicate: state == 2, last_seen, held, summary }, limits));
    }
    Ok(())
}

fn read_held(text: &str) -> BTreeMap<PoolName, u32> {
    let held: BTreeMap<String, u32> = serde_json::from_str(text).unwrap_or_default();
    held.into_iter().filter_map(|(pool, places)| Some((pool.parse().ok()?, places))).collect()
}

/// Sums the slots by pool.
pub(crate) fn fleet_view(mut listed: Vec<ListedHost>, paused: Option<Duration>) -> FleetView {
    let mut pools: BTreeMap<PoolName, FleetPoolView> = BTreeMap::new();
    let empty = |name: &PoolName| FleetPoolView { name: name.clone(), limit: None, held: 0, by_host: BTreeMap::new() };
    listed.sort_by(|(one, _), (other, _)| one.host.cmp(&other.host));
    for (host, limits) in listed.iter().filter(|(host, _)| host.up) {
        for (name, limit) in limits {
            let pool = pools.entry(name.clone()).or_insert_with(|| empty(name));
            pool.limit = Some(pool.limit.map_or(*limit, |other| other.min(*limit)));
        }
        for (name, places) in &host.held {
            let pool = pools.entry(name.clone()).or_insert_with(|| empty(name));
            pool.held = pool.held.saturating_add(*places);
            pool.by_host.insert(host.host.clone(), *places);
        }
    }
    let hosts = listed.into_iter().map(|(host, _)| host).collect();
    FleetView { hosts, pools: pools.into_values().collect(), paused }
}
