//! Whether a launch may start: every bound, one after the other, and what is in its way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::backfill::{Pool, behind_head};
use super::line::{Order, Waiter};
use super::profiles::Profiles;
use super::{Gate, Launch, MEMORY_MOVES, Obstacle, Recent, SOME_TIME, TOLD_AT_ONCE, UNPROFILED, Waits};
use crate::api::{ProcessKind, RefusalReason};
use crate::config::{Profile, Rate};
use crate::engine::effect::Effect;
use crate::engine::id::{BootTime, Bytes, ProcessId, SessionId, Uid};
use crate::engine::session::Session;
use crate::engine::{Engine, Step};
use crate::units;

/// A session that holds a place: its agent lives, or a grant is too young for the table to have it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) session: Option<SessionId>,
    pub(super) profiles: Profiles,
    pub(super) uid: Uid,
}

/// Whom an obstacle stops besides.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reach {
    /// Everybody: what is short is everybody's.
    All,
    /// Those that need the same memory, for as long as the first of them holds the others back.
    Pool(Pool),
    /// This launch, and others like it: who does not need the same may pass.
    Own,
}

/// Memory for launches, at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Available, with its share of free swap.
    pub(super) available: Bytes,
    /// That share.
    pub(super) swap: Bytes,
    pub(super) reserve: Bytes,
    pub(super) promised: Bytes,
}

impl Memory {
    pub(super) fn free(&self) -> Bytes {
        Bytes(self.available.0.saturating_sub(self.reserve.0).saturating_sub(self.promised.0))
    }
}

impl Step<'_> {
    /// Grants whatever may be granted now, in the order of the line, and notes for the rest what they wait for.
    pub(super) fn decide(&mut self) {
        self.engine.gate.shut = false;
        self.forget_heads();
        if self.engine.gate.line.is_empty() {
            return;
        }
        let mut places = self.engine.places();
        let mut order = self.engine.gate.line.order(self.now, &places);
        let mut granted = false;
        let mut shut: Option<Obstacle> = None;
        let mut full: BTreeMap<String, Obstacle> = BTreeMap::new();
        // Heads that others may pass now, and what stands in the way of others once they may not.
        let mut passing: BTreeMap<Pool, Obstacle> = BTreeMap::new();
        while let Some((user, number)) = order.next() {
            let Some(waiter) = self.engine.gate.line.get(number) else { return };
            let in_full = || waiter.launch.cgroups.iter().find_map(|limit| full.get(&limit.path));
            let obstacle = match (&shut, in_full()) {
                (Some(obstacle), _) => Some((obstacle.clone(), Reach::All)),
                (None, Some(obstacle)) => Some((obstacle.clone(), Reach::Own)),
                (None, None) => self.obstacle(waiter, &places),
            };
            let Some((obstacle, reach)) = obstacle else {
                let Some(waiter) = self.engine.gate.line.remove(number) else { return };
                order.granted(user);
                places.push(Place { session: None, profiles: waiter.profiles.clone(), uid: waiter.launch.uid });
                let process = waiter.launch.process;
                let cgroups: Vec<String> = waiter.launch.cgroups.iter().map(|limit| limit.path.clone()).collect();
                self.grant(waiter);
                if let (Some(place), Some(known)) = (places.last_mut(), self.engine.table.get(process)) {
                    place.session = Some(known.session);
                }
                granted = true;
                for (pool, ahead) in &passing {
                    let passes = match pool {
                        Pool::Host => true,
                        Pool::Cgroup(path) => cgroups.contains(path),
                    };
                    if passes && let Some(blocks) = self.passes_head(pool, &places) {
                        let behind = behind_head(ahead, blocks);
                        match pool {
                            Pool::Host => drop(shut.get_or_insert(behind)),
                            Pool::Cgroup(path) => drop(full.insert(path.clone(), behind)),
                        }
                    }
                }
                continue;
            };
            let (process, stays) = (waiter.launch.process, waiter.stays);
            match reach {
                Reach::All => drop(shut.get_or_insert_with(|| obstacle.clone())),
                Reach::Pool(pool) if stays && !passing.contains_key(&pool) => {
                    let blocks = self.is_head(pool.clone(), process);
                    match (blocks, &pool) {
                        (None, _) => {}
                        (Some(left), Pool::Host) => drop(shut.get_or_insert_with(|| behind_head(&obstacle, left))),
                        (Some(left), Pool::Cgroup(path)) => {
                            full.insert(path.clone(), behind_head(&obstacle, left));
                        }
                    }
                    passing.insert(pool, obstacle.clone());
                }
                Reach::Pool(_) | Reach::Own => {}
            }
            if let Some(waiter) = self.engine.gate.line.get_mut(number) {
                waiter.obstacle = Some(obstacle);
            }
            order.passed_over(user);
        }
        self.engine.gate.shut = shut.is_some();
        if granted {
            self.tell_places(TOLD_AT_ONCE);
        }
    }

    /// What is in the way of a launch.
    fn obstacle(&self, waiter: &Waiter, places: &[Place]) -> Option<(Obstacle, Reach)> {
        if waiter.away {
            let detail = "the client of the launch ahead has not come back since the daemon was started again";
            return Some((obstacle(RefusalReason::Quota, detail, "the order of the queue", SOME_TIME), Reach::All));
        }
        if let Some((since, why)) = self.engine.gate.breaker.open() {
            let lasted = units::span(self.now.since(since));
            let detail = format!("the breaker has been open for {lasted}: {why}");
            return Some((obstacle(RefusalReason::Breaker, detail, "[gate] breaker_open", MEMORY_MOVES), Reach::All));
        }
        self.over_quota(waiter, places).or_else(|| self.over_rate(waiter)).or_else(|| self.no_memory(waiter, places))
    }

    fn over_quota(&self, waiter: &Waiter, places: &[Place]) -> Option<(Obstacle, Reach)> {
        let gate = &self.engine.config.gate;
        let Waiter { profiles, launch, .. } = waiter;
        let full = |max: Option<u32>, holds: &dyn Fn(&Place) -> bool, whose: String, bound: String| {
            let max = max?;
            let holders: Vec<&Place> = places.iter().filter(|place| holds(place)).collect();
            (holders.len() >= max as usize).then(|| Obstacle {
                reason: RefusalReason::Quota,
                detail: format!("{} of {max} sessions{whose} run", holders.len()),
                bound,
                holders: holders.iter().filter_map(|place| place.session).collect(),
                retry_after: Some(self.pace().unwrap_or(SOME_TIME)),
            })
        };
        let in_all = full(gate.max_sessions, &|_| true, String::new(), "[gate] max_sessions".to_owned());
        if let Some(obstacle) = in_all {
            return Some((obstacle, Reach::All));
        }
        let of_user = |place: &Place| place.uid == launch.uid;
        let user = full(
            gate.max_sessions_per_user,
            &of_user,
            " of this user".to_owned(),
            "[gate] max_sessions_per_user".to_owned(),
        );
        let of_profile = || {
            profiles.of(&self.engine.config).find_map(|Profile { name, bounds, .. }| {
                let same = |place: &Place| place.profiles.contains(name);
                full(bounds.max_sessions, &same, format!(" of {name}"), format!("[[profile]] {name} max_sessions"))
            })
        };
        user.or_else(of_profile).map(|obstacle| (obstacle, Reach::Own))
    }

    fn over_rate(&self, waiter: &Waiter) -> Option<(Obstacle, Reach)> {
        let over = |rate: Option<Rate>, profile: Option<&str>, bound: String| {
            let rate = rate?;
            let counts = |recent: &&Recent| {
                self.now.since(recent.lease.granted) < rate.period
                    && profile.is_none_or(|profile| {
                        recent.lease.profile == profile || recent.matched.iter().any(|matched| matched == profile)
                    })
            };
            let recent: Vec<BootTime> =
                self.engine.gate.recent.iter().filter(counts).map(|recent| recent.lease.granted).collect();
            let first = recent.len().checked_sub(rate.count as usize)?;
            let wait = recent[first].plus(rate.period).since(self.now);
            let detail = format!("{} were granted in the last {}", recent.len(), units::span(rate.period));
            Some(obstacle(RefusalReason::Rate, detail, &bound, wait))
        };
        let in_all = over(self.engine.config.gate.rate, None, "[gate] rate".to_owned());
        if let Some(obstacle) = in_all {
            return Some((obstacle, Reach::All));
        }
        let of_profile = waiter
            .profiles
            .of(&self.engine.config)
            .find_map(|Profile { name, bounds, .. }| over(bounds.rate, Some(name), format!("[[profile]] {name} rate")));
        of_profile.map(|obstacle| (obstacle, Reach::Own))
    }

    fn no_memory(&self, waiter: &Waiter, places: &[Place]) -> Option<(Obstacle, Reach)> {
        let needed = self.engine.expected(&waiter.launch, &waiter.profiles);
        for limit in &waiter.launch.cgroups {
            let hold = self.engine.config.gate.hold;
            let leases = self.engine.gate.leases.values();
            let inside = leases.filter(|held| held.lease.cgroups.contains(&limit.path));
            let promised: Bytes = inside.map(|held| held.promised(self.now, hold)).sum();
            let free = limit.room().0.saturating_sub(promised.0);
            if needed.0 > free {
                let detail = format!(
                    "{} needed, {} free below memory.max of {}: {}",
                    units::size(needed.0),
                    units::size(free),
                    limit.path,
                    units::size(limit.max.0)
                );
                let found = obstacle(RefusalReason::Memory, detail, "memory.max", MEMORY_MOVES);
                return Some((found, Reach::Pool(Pool::Cgroup(limit.path.clone()))));
            }
        }
        let Some(memory) = self.engine.gate_memory(self.now) else {
            let detail = "the host's memory has not been read yet";
            return Some((
                obstacle(RefusalReason::Memory, detail, "[gate] reserve", Duration::from_secs(1)),
                Reach::All,
            ));
        };
        if needed <= memory.free() {
            let obstacle = self.over_share(waiter, needed, memory.free(), places)?;
            // Without its user's promises it would need more free memory all the same: it waits for memory as others do.
            let alone = self.exceeds_share(waiter.launch.uid, needed, memory.free(), places);
            return Some((obstacle, if alone { Reach::Pool(Pool::Host) } else { Reach::Own }));
        }
        let swap = match memory.swap {
            Bytes(0) => String::new(),
            swap => format!(" ({} of it swap)", units::size(swap.0)),
        };
        let most = self.engine.free_without_sessions(&memory);
        let share = match self.exceeds_share(waiter.launch.uid, needed, most, places) {
            true => "; it is also more than the share of one user, which is 90% of what can be promised",
            false => "",
        };
        let detail = format!(
            "{} needed, {} free: {} available{swap}, less {} kept in reserve and {} promised to sessions that have just \
             started{share}",
            units::size(needed.0),
            units::size(memory.free().0),
            units::size(memory.available.0),
            units::size(memory.reserve.0),
            units::size(memory.promised.0),
        );
        let found = obstacle(RefusalReason::Memory, detail, "[gate] reserve", MEMORY_MOVES);
        Some((found, Reach::Pool(Pool::Host)))
    }

    /// Why this launch can never be granted here.
    pub(super) fn never(&self, launch: &Launch, profiles: &Profiles) -> Option<Obstacle> {
        self.too_deep(launch).or_else(|| self.too_large(launch, profiles))
    }

    fn too_deep(&self, launch: &Launch) -> Option<Obstacle> {
        let engine = &*self.engine;
        let mut outer = engine.table.alive(launch.process).map(|known| known.session);
        // An agent that asks for itself is no deeper than it is.
        if let Some(own) = outer.and_then(|session| engine.sessions.get(session))
            && own.root == launch.process
        {
            outer = own.parent;
        }
        let above: Vec<&Session> =
            std::iter::successors(outer.and_then(|session| engine.sessions.get(session)), |session| {
                engine.sessions.get(session.parent?)
            })
            .collect();
        let deep = |depth: usize, max: u32, bound: String, holder: SessionId| Obstacle {
            reason: RefusalReason::Depth,
            detail: format!("this agent would be {depth} deep below another, and {max} is allowed"),
            bound,
            holders: vec![holder],
            retry_after: None,
        };
        for (depth, session) in (1..).zip(&above) {
            let own = session.limited_by(&engine.config);
            let own = own.filter_map(|profile| Some((profile.bounds.max_depth?, &profile.name))).min();
            if let Some((max, name)) = own.filter(|(max, _)| depth > *max as usize) {
                return Some(deep(depth, max, format!("[[profile]] {name} max_depth"), session.id));
            }
        }
        let max = engine.config.gate.max_depth?;
        let outermost = above.last()?;
        (above.len() > max as usize).then(|| deep(above.len(), max, "[gate] max_depth".to_owned(), outermost.id))
    }

    fn too_large(&self, launch: &Launch, profiles: &Profiles) -> Option<Obstacle> {
        let needed = self.engine.expected(launch, profiles);
        let (most, bound) = self.engine.most_for(launch)?;
        (needed > most).then(|| Obstacle {
            reason: RefusalReason::Memory,
            detail: format!(
                "{} needed, and there are never more than {} for launches here",
                units::size(needed.0),
                units::size(most.0)
            ),
            bound: bound.to_owned(),
            holders: Vec::new(),
            retry_after: None,
        })
    }

    pub(super) fn behind_others(&self) -> Obstacle {
        let detail = format!("{} launches wait ahead of it", self.engine.gate.line.len());
        obstacle(RefusalReason::Quota, detail, "the order of the queue", SOME_TIME)
    }

    /// How long it takes on average until one more is granted, by the last grants.
    fn pace(&self) -> Option<Duration> {
        self.engine.gate.pace(self.now)
    }

    /// Tells those up to this position whose place or reason has changed.
    pub(super) fn tell_places(&mut self, up_to: u64) {
        let order = self.engine.order(self.now);
        for (position, number) in (1..=up_to).zip(order) {
            self.tell_place(number, position);
        }
    }

    pub(super) fn tell_place_of(&mut self, process: ProcessId) {
        let Some(number) = self.engine.gate.line.of(process) else { return };
        let position = self.engine.order(self.now).position(|one| one == number);
        if let Some(position) = position {
            self.tell_place(number, position as u64 + 1);
        }
    }

    fn tell_place(&mut self, number: u64, position: u64) {
        let pace = self.pace();
        let behind = self.behind_others();
        let Some(waiter) = self.engine.gate.line.get_mut(number).filter(|waiter| !waiter.away) else { return };
        let obstacle = waiter.obstacle.clone().unwrap_or(behind);
        let same = waiter.told.as_ref().is_some_and(|(told, reason)| {
            *told == position && (reason.reason, &reason.bound) == (obstacle.reason, &obstacle.bound)
        });
        if same {
            return;
        }
        waiter.told = Some((position, obstacle.clone()));
        let process = waiter.launch.process;
        let estimate = pace.map(|pace| pace * u32::try_from(position).unwrap_or(u32::MAX));
        self.effect(Effect::Waits(Box::new(Waits { process, position, obstacle, estimate })));
    }
}

impl Gate {
    /// How long it takes on average until one more of those who wait is granted.
    pub(super) fn pace(&self, now: BootTime) -> Option<Duration> {
        let (first, last) = (*self.served.front()?, *self.served.back()?);
        let gaps = u32::try_from(self.served.len()).ok()?.checked_sub(1).filter(|gaps| *gaps > 0)?;
        // While nothing is granted the pace slackens.
        Some((last.since(first) / gaps).max(now.since(first) / (gaps + 1)))
    }

    /// What was granted and has not shown.
    pub(super) fn promised(&self, now: BootTime, hold: Duration) -> Bytes {
        self.leases.values().map(|held| held.promised(now, hold)).sum()
    }
}

impl Engine {
    /// The numbers of those who wait, in the order in which they will be served.
    pub(super) fn order(&self, now: BootTime) -> Order {
        self.gate.line.order(now, &self.places())
    }

    /// The sessions that hold a place.
    pub(super) fn places(&self) -> Vec<Place> {
        let open: Vec<&Session> = self.sessions.iter().filter(|session| session.members > 0).collect();
        let headless: BTreeSet<SessionId> =
            open.iter().filter(|session| self.table.alive(session.root).is_none()).map(|session| session.id).collect();
        // A launcher may be gone while the agent behind it lives.
        let behind: BTreeSet<SessionId> = if headless.is_empty() {
            headless.clone()
        } else {
            let agents = self.table.living().filter(|process| process.kind == ProcessKind::Agent);
            agents.map(|process| process.session).filter(|session| headless.contains(session)).collect()
        };
        let living: Vec<&&Session> = open
            .iter()
            .filter(|session| !headless.contains(&session.id) || behind.contains(&session.id))
            // One that asks in an agent's name, and will be that agent, does not wait for itself.
            .filter(|session| self.gate.line.of(session.root).is_none())
            .collect();
        // A wrapper and the agent that it starts are one: what runs inside counts.
        let inside: BTreeSet<ProcessId> =
            living.iter().filter_map(|session| session.granted.filter(|root| *root != session.root)).collect();
        let wraps = |session: &Session| session.profile == UNPROFILED && inside.contains(&session.root);
        let mut places: Vec<Place> = living
            .into_iter()
            .filter(|session| !wraps(session))
            .map(|session| Place { session: Some(session.id), profiles: session.profiles(), uid: session.uid })
            .collect();
        let young = self.gate.leases.values().filter(|held| held.session.is_none());
        places.extend(young.map(|held| Place {
            session: None,
            profiles: Profiles { own: held.lease.profile.clone(), matched: held.matched.clone() },
            uid: held.lease.uid,
        }));
        places
    }

    /// Memory for launches; `None` before the host's has been read.
    pub(super) fn gate_memory(&self, now: BootTime) -> Option<Memory> {
        let (host, gate) = (&self.close_watch.host, &self.config.gate);
        (host.total > Bytes(0)).then(|| Memory {
            available: host.available + host.swap_free.percent(gate.swap_share.into()),
            swap: host.swap_free.percent(gate.swap_share.into()),
            reserve: gate.reserve.on_host(host.total),
            promised: self.gate.promised(now, gate.hold),
        })
    }

    /// What would be free for launches if all sessions ended.
    pub(super) fn free_without_sessions(&self, memory: &Memory) -> Bytes {
        Bytes((memory.available + self.gate.held).0.saturating_sub(memory.reserve.0))
    }

    /// What a launch is expected to take: as it says itself, else as past sessions did, else as configured.
    pub(super) fn expected(&self, launch: &Launch, profiles: &Profiles) -> Bytes {
        if let Some(said) = launch.memory {
            return said;
        }
        let of_one = |profile: &str| match self.expected_of(profile) {
            (configured, 0) => configured,
            // One runaway must not be what keeps all others out for ever.
            (learned, _) => self.most_for(launch).map_or(learned, |(most, _)| learned.min(Bytes(most.0 / 2))),
        };
        profiles.names().map(of_one).max().unwrap_or_default()
    }

    /// The most that a launch can ever get here, and what bounds it; `None` before the host's memory has been read.
    fn most_for(&self, launch: &Launch) -> Option<(Bytes, &'static str)> {
        let (host, gate) = (&self.close_watch.host, &self.config.gate);
        if host.total == Bytes(0) {
            return None;
        }
        let swap = host.swap_total.percent(gate.swap_share.into());
        let most = Bytes((host.total + swap).0.saturating_sub(gate.reserve.on_host(host.total).0));
        let tightest = launch.cgroups.iter().map(|limit| limit.max).min().filter(|max| *max < most);
        Some(tightest.map_or((most, "[gate] reserve"), |max| (max, "memory.max")))
    }

    /// What a session of this profile is expected to take, and from how many past ones that is known.
    pub(super) fn expected_of(&self, profile: &str) -> (Bytes, u64) {
        if let Some(learned) = super::learned::expected(&self.gate.peaks, profile) {
            return learned;
        }
        let size = self
            .config
            .profile(profile)
            .and_then(|known| known.bounds.expected_memory)
            .unwrap_or(self.config.gate.expected_memory);
        (size.on_host(self.close_watch.host.total), 0)
    }
}

fn obstacle(reason: RefusalReason, detail: impl Into<String>, bound: &str, retry_after: Duration) -> Obstacle {
    Obstacle {
        reason,
        detail: detail.into(),
        bound: bound.to_owned(),
        holders: Vec::new(),
        retry_after: Some(retry_after),
    }
}
