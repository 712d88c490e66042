//! Limits that hosts of a fleet share.
//!
//! A launch that nothing on this host blocks gets a local reservation, and the store is asked for a slot in each limited pool.
//! A refused launch returns to the queue. While the store is lost, `[fleet] when_lost` decides. Running sessions are never
//! touched.

use std::collections::BTreeMap;
use std::time::Duration;

use super::admission::BlockScope;
use super::gate_state::ActiveLease;
use super::launch::{Blocker, LaunchLease};
use super::profiles::LimitingProfiles;
use super::queue::{QueuedLaunch, among_users};
use crate::effect::Effect;
use crate::{Engine, Step};
use serde::{Deserialize, Serialize};
use watchdog_api::RefusalReason;
use watchdog_config::WhenLost;
use watchdog_types::{
    AskNumber, Bytes, FleetAnswer, FleetAsk, FleetName, FleetShares, PoolName, ProcessId, Uid, units,
};

/// The workers report a lost store sooner. This timeout covers a defect in them.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);
/// Time after which a request without a result is repeated.
const REPEAT: Duration = Duration::from_millis(500);
/// Time between two requests to a lost store. The workers report sooner that it is back.
const LOST_RETRY: Duration = Duration::from_secs(5);
/// Time between two requests while two hosts have one identity, which an administrator must correct.
const DUPLICATE_RETRY: Duration = Duration::from_secs(30);

/// A response of the store, from the daemon's workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnsweredAsk {
    pub number: AskNumber,
    pub answer: FleetAnswer,
    /// As the store last stated them; only with [`FleetAnswer::StoreLost`].
    #[serde(default)]
    pub shares: FleetShares,
}

impl Step<'_> {
    /// Why the fleet has no slot for a launch that nothing on this host blocks, by the last responses of the store.
    pub(super) fn fleet_blocker(&self, waiter: &QueuedLaunch) -> Option<(Blocker, BlockScope)> {
        let fleet = &self.engine.gate.fleet;
        if !fleet.on {
            return None;
        }
        let pools = self.engine.limited_pools(waiter.launch.uid, &waiter.profiles);
        if pools.is_empty() {
            return None;
        }
        if !fleet.may_ask() {
            let blocker = Blocker::new(
                RefusalReason::Fleet,
                "waits for the fleet's store: too many requests are pending",
                "[fleet] store",
                REPEAT,
            );
            return Some((blocker, BlockScope::All));
        }
        let closed = |pool: &PoolName| fleet.closed(pool, self.now).map(|blocker| (blocker.clone(), scope(pool)));
        pools.keys().find_map(closed)
    }

    /// Reserves locally and asks the store. `false` if no limit of the fleet applies: the launch can be granted.
    pub(super) fn ask_fleet(&mut self, number: u64) -> bool {
        let (now, engine) = (self.now, &mut *self.engine);
        let Some(waiter) = engine.gate.queue.get(number).filter(|_| engine.gate.fleet.on) else { return false };
        let pools = engine.limited_pools(waiter.launch.uid, &waiter.profiles);
        if pools.is_empty() {
            return false;
        }
        let launch = &waiter.launch;
        let LimitingProfiles { own, matched } = waiter.profiles.clone();
        let lease = LaunchLease {
            process: launch.process,
            profile: own,
            uid: launch.uid,
            granted: now,
            expected: engine.expected(launch, &waiter.profiles),
            cgroups: launch.cgroups.iter().map(|limit| limit.path.clone()).collect(),
        };
        let ask = FleetAsk {
            number: engine.gate.fleet.begin(launch.process, now),
            pools,
            priority: among_users(launch.uid, launch.priority),
            since: waiter.queued,
            ticket: launch.ticket.clone(),
        };
        let reserved = ActiveLease { lease, matched, session: None, shown: Bytes(0) };
        engine.gate.reserved.insert(reserved.lease.process, reserved);
        self.effect(Effect::AskFleet(Box::new(ask)));
        true
    }

    pub(crate) fn fleet_answer(&mut self, answered: AnsweredAsk) {
        let AnsweredAsk { number, answer, shares } = answered;
        let Some(request) = self.engine.gate.fleet.end(number) else { return };
        let process = request.process;
        // Without it the launch has left the queue, or has sent another request. The next restatement releases its slot.
        let reserved = self.engine.gate.reserved.get(&process);
        if reserved.is_none_or(|reserved| reserved.lease.granted != request.asked) {
            return;
        }
        self.engine.gate.reserved.remove(&process);
        match answer {
            FleetAnswer::Granted { deadline, .. } if self.now <= deadline => self.fleet_granted(process),
            FleetAnswer::Granted { .. } | FleetAnswer::Void => {
                self.wait_for_fleet(
                    process,
                    PoolName::All,
                    "waits for the fleet's store: its response came too late",
                    REPEAT,
                );
            }
            FleetAnswer::Refused { pool, limit, held, by_host, ahead, retry_after } => {
                let detail = refusal(&pool, limit, held, &by_host, ahead);
                self.wait_for_fleet(process, pool, &detail, retry_after);
            }
            FleetAnswer::StoreLost { .. } => self.store_lost(process, &shares),
            FleetAnswer::Paused { until } => {
                let wait = until.since(self.now);
                let detail = format!(
                    "grants are paused: the fleet's store is new or has lost data; they resume within {}",
                    units::span(wait)
                );
                self.wait_for_fleet(process, PoolName::All, &detail, wait);
            }
            FleetAnswer::DuplicateMachine { host } => {
                let detail = format!("the fleet refuses this host: {host} has the same name or machine id");
                self.wait_for_fleet(process, PoolName::All, &detail, DUPLICATE_RETRY);
            }
        }
        self.grant_ready();
    }

    /// The store has free slots again, or is back.
    pub(crate) fn fleet_wake(&mut self) {
        self.engine.gate.fleet.reopen();
        if !self.engine.gate.queue.is_empty() {
            self.grant_ready();
        }
    }

    /// The host may have changed since the request: its limits are checked again.
    fn fleet_granted(&mut self, process: ProcessId) {
        let Some(number) = self.engine.gate.queue.of(process) else { return };
        let slots = self.engine.occupied_slots();
        let Some(waiter) = self.engine.gate.queue.get(number) else { return };
        if let Some((blocker, _)) = self.local_blocker(waiter, &slots) {
            self.return_to_queue(number, blocker);
            return;
        }
        if let Some(waiter) = self.engine.gate.queue.remove(number) {
            self.grant(waiter);
            self.notify_first_positions();
        }
    }

    fn wait_for_fleet(&mut self, process: ProcessId, pool: PoolName, detail: &str, retry_after: Duration) {
        let blocker = Blocker::new(RefusalReason::Fleet, detail, &bound(&pool), retry_after);
        self.engine.gate.fleet.close(pool, self.now.plus(retry_after), blocker.clone());
        if let Some(number) = self.engine.gate.queue.of(process) {
            self.return_to_queue(number, blocker);
        }
    }

    fn store_lost(&mut self, process: ProcessId, shares: &FleetShares) {
        let Some(waiter) = self.engine.gate.queue.of(process).and_then(|number| self.engine.gate.queue.get(number))
        else {
            return;
        };
        match self.engine.config.fleet.when_lost {
            WhenLost::Allow => self.fleet_granted(process),
            WhenLost::Deny => {
                let detail = "the fleet's store is unreachable, and [fleet] when_lost is \"deny\"";
                self.wait_for_fleet(process, PoolName::All, detail, LOST_RETRY);
            }
            WhenLost::Share => {
                let pools = self.engine.limited_pools(waiter.launch.uid, &waiter.profiles);
                let held = self.engine.fleet_held();
                // A host that holds more than its share keeps it, and starts nothing.
                let full = pools.into_iter().find_map(|(pool, limit)| {
                    let (held, share) = (held.get(&pool).copied().unwrap_or(0), shares.of(&pool, limit));
                    (held >= share).then_some((pool, limit, held, share))
                });
                match full {
                    None => self.fleet_granted(process),
                    Some((pool, limit, held, share)) => {
                        let detail = share_refusal(&pool, limit, held, share, shares.hosts);
                        self.wait_for_fleet(process, pool, &detail, LOST_RETRY);
                    }
                }
            }
        }
    }

    /// Reports the blocker to the client, or the refusal if it does not wait.
    fn return_to_queue(&mut self, number: u64, blocker: Blocker) {
        let Some(waiter) = self.engine.gate.queue.get_mut(number) else { return };
        waiter.blocker = Some(blocker);
        self.announce(number);
    }

    pub(super) fn tick_fleet(&mut self) {
        let now = self.now;
        let late = self.engine.gate.fleet.asks().filter(|(_, request)| now.since(request.asked) >= ASK_TIMEOUT);
        let late: Vec<AskNumber> = late.map(|(number, _)| number).collect();
        for number in late {
            let answer = FleetAnswer::StoreLost { error: "no answer from the daemon's own thread".to_owned() };
            self.fleet_answer(AnsweredAsk { number, answer, shares: FleetShares::default() });
        }
        self.engine.gate.fleet.expire(now);
        self.engine.gate.fleet.changed = true;
    }
}

impl Engine {
    /// The pools that a session of this user and these profiles counts in, with their limits.
    fn limited_pools(&self, uid: Uid, profiles: &LimitingProfiles) -> BTreeMap<PoolName, u32> {
        let limits = self.fleet_limits();
        let limit = |pool: PoolName| {
            let limit = match &pool {
                PoolName::User(_) => self.config.fleet.max_sessions_per_user?,
                other => *limits.get(other)?,
            };
            Some((pool, limit))
        };
        self.pools(uid, profiles.names()).into_iter().filter_map(limit).take(FleetAsk::MAX_POOLS).collect()
    }

    /// All pools that such a session counts in. The first is that of all sessions.
    fn pools<'a>(&self, uid: Uid, profiles: impl Iterator<Item = &'a str>) -> Vec<PoolName> {
        let named = |name: &str| FleetName::new(name).ok();
        let user = named(&uid.0.to_string()).map(PoolName::User);
        let labels = self.config.fleet.labels.iter().filter_map(|label| named(label)).map(PoolName::Label);
        let profiles = profiles.filter_map(named).map(PoolName::Profile);
        std::iter::once(PoolName::All).chain(user).chain(labels).chain(profiles).collect()
    }

    /// The configured limits, without those of single users.
    pub(super) fn fleet_limits(&self) -> BTreeMap<PoolName, u32> {
        let fleet = &self.config.fleet;
        let all = fleet.max_sessions.map(|limit| (PoolName::All, limit));
        let labels = fleet.max_sessions_per_label.iter().filter(|(label, _)| fleet.labels.contains(label));
        let labels = labels.filter_map(|(label, limit)| Some((PoolName::Label(FleetName::new(label).ok()?), *limit)));
        let profiles = self.config.profiles.iter().filter_map(|profile| {
            Some((PoolName::Profile(FleetName::new(&profile.name).ok()?), profile.limits.fleet_max_sessions?))
        });
        all.into_iter().chain(labels).chain(profiles).collect()
    }

    /// The slots of granted sessions, by pool. Sessions that were started without the gate use none.
    pub(super) fn fleet_held(&self) -> BTreeMap<PoolName, u32> {
        let mut held = BTreeMap::new();
        for ActiveLease { lease, matched, .. } in self.gate.leases.values() {
            let profiles = std::iter::once(&lease.profile).chain(matched).map(String::as_str);
            for pool in self.pools(lease.uid, profiles) {
                *held.entry(pool).or_default() += 1;
            }
        }
        held
    }
}

/// Whether a full pool also blocks launches of other users and profiles.
fn scope(pool: &PoolName) -> BlockScope {
    match pool {
        PoolName::All | PoolName::Label(_) => BlockScope::All,
        PoolName::User(_) | PoolName::Profile(_) => BlockScope::Own,
    }
}

fn of(pool: &PoolName) -> String {
    match pool {
        PoolName::All => String::new(),
        PoolName::User(_) => " of this user".to_owned(),
        PoolName::Profile(profile) => format!(" of profile {profile}"),
        PoolName::Label(label) => format!(" with label {label}"),
    }
}

fn bound(pool: &PoolName) -> String {
    match pool {
        PoolName::All => "[fleet] max_sessions".to_owned(),
        PoolName::User(_) => "[fleet] max_sessions_per_user".to_owned(),
        PoolName::Profile(profile) => format!("[[profile]] {profile} fleet_max_sessions"),
        PoolName::Label(label) => format!("[fleet] max_sessions_per_label {label}"),
    }
}

/// As in "waits for a fleet slot: 100 of 100 in use (host-a 40, host-b 12)".
fn refusal(pool: &PoolName, limit: u32, held: u32, by_host: &[(FleetName, u32)], ahead: u32) -> String {
    let holders: Vec<String> = by_host.iter().map(|(host, held)| format!("{host} {held}")).collect();
    let holders = if holders.is_empty() { String::new() } else { format!(" ({})", holders.join(", ")) };
    let first = match ahead {
        0 => String::new(),
        1 => "; 1 host is served before this one".to_owned(),
        hosts => format!("; {hosts} hosts are served before this one"),
    };
    format!("waits for a fleet slot: {held} of {limit}{} in use{holders}{first}", of(pool))
}

fn share_refusal(pool: &PoolName, limit: u32, held: u32, share: u32, hosts: u32) -> String {
    let lost = "waits for the fleet's store, which is lost";
    if hosts == 0 {
        return format!("{lost}: how many sessions this host may run without it is unknown");
    }
    format!("{lost}: {held} held here, this host's share{} is {share} ({limit} for {hosts} hosts)", of(pool))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_names_holders_and_hosts_ahead() {
        let name = |name: &str| FleetName::new(name).unwrap();
        let by_host = [(name("host-a"), 40), (name("host-b"), 12)];
        assert_eq!(
            refusal(&PoolName::All, 100, 100, &by_host, 0),
            "waits for a fleet slot: 100 of 100 in use (host-a 40, host-b 12)"
        );
        assert_eq!(
            refusal(&PoolName::Profile(name("codex")), 8, 7, &[], 2),
            "waits for a fleet slot: 7 of 8 of profile codex in use; 2 hosts are served before this one"
        );
    }
}
