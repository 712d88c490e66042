//! The gate: what grants launches. A launch is granted when every quota, the rate, the depth, the breaker and the memory allow
//! it; else it waits in the queue, or is refused with the bound that is in its way.
//!
//! A place in the queue and a lease belong to a process, never to a connection: whoever comes back finds its place, and a
//! lease ends with the agent's exit.

mod admission;
mod breaker;
mod confined;
mod learned;
mod line;
mod show;
mod subagents;
mod ungated;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::breaker::Breaker;
use self::confined::Confined;
use self::line::{Line, Waiter};
use self::subagents::Subagents;
use super::effect::{Effect, Happening};
use super::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid};
use super::input::{CgroupLimit, Image};
use super::membership::Newcomer;
use super::{Engine, Step};
use crate::api::{ProcessKind, RefusalReason, SubagentEvent};
use crate::config::Profile;
use crate::units;

/// A request for a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// The process that is to become the agent.
    pub process: ProcessId,
    /// Its parent.
    pub ppid: Pid,
    /// Its user.
    pub uid: Uid,
    /// comm now: the launcher's.
    pub comm: String,
    /// What it will execute.
    pub image: Image,
    /// The profile that was asked for; else the one that recognises the image.
    pub profile: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// How long it is willing to wait; `None` for what the configuration says.
    pub timeout: Option<Duration>,
    /// It is willing to wait at all.
    pub waits: bool,
    /// What it is expected to take, where that was said.
    pub memory: Option<Bytes>,
    /// The tightest limit of its cgroup and those above it.
    pub cgroup: Option<CgroupLimit>,
}

/// Why a waiting launch is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Withdrawal {
    /// Its client has gone, or does not want it any more.
    Gone,
    /// Somebody took it out of the queue.
    Cancelled,
}

/// A granted launch, by the process that it was granted to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    /// The root of the session.
    pub process: ProcessId,
    /// The profile whose bounds hold.
    pub profile: String,
    /// Its user.
    pub uid: Uid,
    /// When it was granted.
    pub granted: BootTime,
    /// What it was expected to take.
    pub expected: Bytes,
}

/// What is to be done about a grant, and said of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Granted {
    /// The lease.
    pub lease: Lease,
    /// Its session.
    pub session: SessionId,
    /// How long it waited.
    pub waited: Duration,
    /// Variables to be merged into its environment.
    pub environment: BTreeMap<String, String>,
    /// At least this much is to stand in its oom_score_adj.
    pub oom_score_adj: i32,
    /// What the session is held to.
    pub limits: Bounds,
}

/// What the kernel holds a session to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// What all its processes together may take.
    pub max_memory: Option<Bytes>,
    /// Helpers that may run at once, the agent not counted.
    pub max_helpers: Option<u32>,
    /// How deep agents may start agents.
    pub max_depth: Option<u32>,
    /// It is to get a cgroup of its own where it has a bound that a cgroup can hold.
    pub cgroup: bool,
}

/// Why a launch is not granted, or not yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Obstacle {
    /// In one word.
    pub reason: RefusalReason,
    /// In one sentence: the bound, its value, and what there is.
    pub detail: String,
    /// The bound, as the configuration names it.
    pub bound: String,
    /// The sessions that hold the places.
    pub holders: Vec<SessionId>,
    /// When it is worth another try; `None` when it never is.
    pub retry_after: Option<Duration>,
}

/// A launch that is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// Who asked.
    pub process: ProcessId,
    /// Its user.
    pub uid: Uid,
    /// The profile whose bounds would have held.
    pub profile: String,
    /// Why.
    pub obstacle: Obstacle,
}

/// A launch that waits: told when its place or its reason changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Who waits.
    pub process: ProcessId,
    /// 1 for the one that goes next.
    pub position: u64,
    /// What it waits for.
    pub obstacle: Obstacle,
    /// How long it will take, judged by the last grants.
    pub estimate: Option<Duration>,
}

/// What the gate has to know after the daemon was gone: written, in this order, before anybody is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateRecord {
    /// A launch began to wait.
    Queued {
        /// Since when.
        at: BootTime,
        /// It.
        launch: Box<Launch>,
    },
    /// It waits no longer.
    Left(ProcessId),
    /// A launch was granted; it waits no longer.
    Granted(Lease),
    /// Its agent is gone.
    Ended(ProcessId),
}

/// The highest memory of past sessions, by profile; the youngest last.
pub type Peaks = BTreeMap<String, Vec<Bytes>>;

/// What an earlier run of the daemon knew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Restored {
    /// In the order in which they were written.
    pub records: Vec<GateRecord>,
    /// What past sessions took.
    pub peaks: Peaks,
}

/// An agent's hook tells of a subagent inside the agent's process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subagent {
    /// The process that tells: one below the agent.
    pub caller: ProcessId,
    /// What.
    pub event: SubagentEvent,
    /// The call's own number, where the agent gives one.
    pub call: Option<String>,
}

/// The answer to [`Subagent`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubagentDecision {
    /// Why it may not start; `None` when it may.
    pub obstacle: Option<Obstacle>,
    /// The session, where the caller is in one.
    pub session: Option<SessionId>,
    /// Subagents of this session that run now.
    pub running: u64,
    /// As many may.
    pub max_subagents: Option<u32>,
}

/// What became of a session's cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    /// Its path below the root of the hierarchy.
    pub cgroup: Option<String>,
    /// Why there is none.
    pub problem: Option<String>,
}

/// The profile of a launch that no profile recognises.
pub const UNPROFILED: &str = "other";

/// Clients come back by themselves after the daemon was gone; who has not within this time has lost its place.
const COME_BACK: Duration = Duration::from_secs(10);
/// Refusals that are remembered.
const REMEMBER_REFUSED: usize = 100;
/// Grants that the estimate of a wait is made of.
const ESTIMATE_BY: usize = 8;
/// Waiters whose cgroup is looked at again in a tick, the first in the line.
const LOOKS: usize = 8;
/// Positions up to this are told at once when they change, the others with the next tick.
const TOLD_AT_ONCE: u64 = 16;
/// The agent's oom_score_adj where its profile gives none: it goes before the host's services,
const OOM_SCORE_ADJ: i32 = 300;
/// and its helpers before it.
const HELPERS_ABOVE: i32 = 200;

/// The gate's state.
#[derive(Debug, Default)]
pub(super) struct Gate {
    line: Line,
    leases: BTreeMap<ProcessId, Held>,
    /// Grants of late, the oldest first: rates and estimates are made of them.
    recent: VecDeque<Lease>,
    /// Refusals of late, the oldest first.
    refused: VecDeque<(BootTime, Refused)>,
    breaker: Breaker,
    peaks: Peaks,
    subagents: Subagents,
    confined: Confined,
    /// When the places of those who waited for an earlier run of the daemon were taken up.
    restored: Option<BootTime>,
}

/// A lease, and what has become of what it promised.
#[derive(Debug)]
struct Held {
    lease: Lease,
    /// `None` until the table has the process.
    session: Option<SessionId>,
    /// The most that its session held when the host's memory was last read.
    shown: Bytes,
    /// The cgroup whose limit it was granted under.
    cgroup: Option<String>,
}

impl Held {
    /// What was set aside for it and has not shown yet.
    fn promised(&self, now: BootTime, hold: Duration) -> Bytes {
        if now.since(self.lease.granted) >= hold {
            return Bytes(0);
        }
        Bytes(self.lease.expected.0.saturating_sub(self.shown.0))
    }
}

impl Gate {
    /// The lease whose root this is.
    pub(super) fn lease(&self, process: ProcessId) -> Option<&Lease> {
        self.leases.get(&process).map(|held| &held.lease)
    }

    /// How long until something here is due: an end of somebody's patience.
    pub(super) fn due(&self, now: BootTime) -> Option<Duration> {
        self.line.iter().map(|(_, waiter)| waiter.deadline.since(now)).min()
    }
}

impl Step<'_> {
    /// Somebody asks for a launch, or comes back to its place.
    pub(super) fn launch(&mut self, launch: Launch) {
        if let Some(waiter) = self.engine.gate.line.of_mut(launch.process) {
            (waiter.away, waiter.told) = (false, None);
            waiter.launch.cgroup = launch.cgroup;
            self.decide();
            self.tell_places(u64::MAX);
            return;
        }
        // The answer was lost with an earlier run of the daemon.
        if let Some(held) = self.engine.gate.leases.get(&launch.process) {
            let (lease, session) = (held.lease.clone(), held.session);
            if let Some(session) = session.or_else(|| self.engine.sessions.of_root(launch.process)) {
                self.tell_grant(lease, session, Duration::ZERO);
            }
            return;
        }
        let profile = self.profile_of(&launch);
        if let Some(obstacle) = self.never(&launch, &profile) {
            self.refuse(&launch, profile, obstacle);
            return;
        }
        if let Some(obstacle) = self.queue_is_full(&launch) {
            self.refuse(&launch, profile, obstacle);
            return;
        }
        let gate = &self.engine.config.gate;
        let timeout = launch.timeout.unwrap_or(gate.timeout);
        let (process, waits, expected) = (launch.process, launch.waits, self.expected(&launch, &profile));
        let waiter = Waiter {
            launch,
            profile,
            queued: self.now,
            deadline: self.now.plus(timeout),
            expected,
            away: false,
            obstacle: None,
            told: None,
        };
        let number = self.engine.gate.line.push(waiter);
        self.decide();
        let Some(waiter) = self.engine.gate.line.get(number) else { return };
        let full = self.engine.gate.line.len() > self.engine.config.gate.max_queue;
        if waits && !full {
            let launch = Box::new(waiter.launch.clone());
            self.effect(Effect::Remember(GateRecord::Queued { at: self.now, launch }));
            self.tell_place_of(process);
        } else if let Some(waiter) = self.engine.gate.line.remove(number) {
            let obstacle = if waits { Some(self.full()) } else { waiter.obstacle };
            let obstacle = obstacle.unwrap_or_else(|| self.behind_others());
            self.refuse(&waiter.launch, waiter.profile, obstacle);
        }
    }

    /// The cgroup of a waiting launch that has the least room.
    pub(super) fn room(&mut self, process: ProcessId, limit: Option<CgroupLimit>) {
        let Some(waiter) = self.engine.gate.line.of_mut(process) else { return };
        waiter.launch.cgroup = limit;
        self.decide();
    }

    /// A waiting launch is no more.
    pub(super) fn withdraw(&mut self, process: ProcessId, why: Withdrawal) {
        let Some(waiter) = self.engine.gate.line.of(process).and_then(|number| self.engine.gate.line.remove(number))
        else {
            return;
        };
        self.effect(Effect::Remember(GateRecord::Left(process)));
        if why == Withdrawal::Cancelled {
            let obstacle = Obstacle {
                reason: RefusalReason::Cancelled,
                detail: "it was taken out of the queue".to_owned(),
                bound: "watchdogctl queue --cancel".to_owned(),
                holders: Vec::new(),
                retry_after: None,
            };
            self.refuse(&waiter.launch, waiter.profile, obstacle);
        }
        self.decide();
    }

    /// What an earlier run of the daemon knew, in the order in which it was written.
    pub(super) fn restore(&mut self, restored: Restored) {
        let Restored { records, peaks } = restored;
        self.engine.gate.peaks = peaks;
        for record in records {
            let gate = &mut self.engine.gate;
            match record {
                GateRecord::Queued { at, launch } => self.restore_waiter(at, *launch),
                GateRecord::Left(process) => {
                    gate.line.of(process).map(|number| gate.line.remove(number));
                }
                GateRecord::Granted(lease) => {
                    gate.line.of(lease.process).map(|number| gate.line.remove(number));
                    gate.line.served(lease.uid, lease.granted);
                    gate.recent.push_back(lease.clone());
                    let held = Held { session: None, shown: Bytes(0), cgroup: None, lease };
                    gate.leases.insert(held.lease.process, held);
                }
                GateRecord::Ended(process) => {
                    gate.leases.remove(&process);
                }
            }
        }
        self.engine.gate.restored = Some(self.now);
        self.forget_old_grants();
    }

    fn restore_waiter(&mut self, queued: BootTime, launch: Launch) {
        let profile = self.profile_of(&launch);
        let deadline = queued.plus(launch.timeout.unwrap_or(self.engine.config.gate.timeout));
        let expected = self.expected(&launch, &profile);
        let waiter = Waiter { launch, profile, queued, deadline, expected, away: true, obstacle: None, told: None };
        self.engine.gate.line.push(waiter);
    }

    /// The first scan is in the table: whose agent is not there has no lease any more.
    pub(super) fn leases_after_scan(&mut self, began: BootTime) {
        let missing = |held: &&Held| {
            held.lease.granted < began
                && self.engine.table.alive(held.lease.process).is_none()
                && held.session.is_none()
        };
        let gone: Vec<ProcessId> =
            self.engine.gate.leases.values().filter(missing).map(|held| held.lease.process).collect();
        for process in gone {
            self.end_lease(process);
        }
    }

    /// What the gate does from time to time.
    pub(super) fn tick_gate(&mut self) {
        let now = self.now;
        let late = |waiter: &Waiter| now >= waiter.deadline;
        let lost = |waiter: &Waiter, restored: Option<BootTime>| {
            waiter.away && restored.is_none_or(|restored| now.since(restored) >= COME_BACK)
        };
        let restored = self.engine.gate.restored;
        let over: Vec<u64> = self
            .engine
            .gate
            .line
            .iter()
            .filter(|(_, waiter)| late(waiter) || lost(waiter, restored))
            .map(|(number, _)| number)
            .collect();
        let some_left = !over.is_empty();
        for number in over {
            let Some(waiter) = self.engine.gate.line.remove(number) else { continue };
            self.effect(Effect::Remember(GateRecord::Left(waiter.launch.process)));
            if !waiter.away {
                let obstacle = timed_out(&waiter, now);
                self.refuse(&waiter.launch, waiter.profile, obstacle);
            }
        }
        self.forget_old_grants();
        self.engine.gate.line.forget_turns(now);
        self.look_at_rooms();
        if some_left || !self.engine.gate.line.is_empty() {
            self.decide();
            self.tell_places(u64::MAX);
        }
        self.tick_confined();
    }

    /// What limits those who wait for room in a cgroup moves without a word.
    fn look_at_rooms(&mut self) {
        let limited = self.engine.gate.line.iter().filter(|(_, waiter)| waiter.launch.cgroup.is_some() && !waiter.away);
        let looks: Vec<Effect> =
            limited.take(LOOKS).map(|(_, waiter)| Effect::FindRoom(waiter.launch.process)).collect();
        looks.into_iter().for_each(|look| self.effect(look));
    }

    /// The host's memory was read: what sessions hold by now is no promise any more.
    pub(super) fn gate_host(&mut self) {
        let Engine { gate, table, config, close_watch, .. } = &mut *self.engine;
        if !gate.leases.is_empty() {
            let mut sums: BTreeMap<SessionId, Bytes> = BTreeMap::new();
            for process in table.living() {
                *sums.entry(process.session).or_default() += process.cost();
            }
            for held in gate.leases.values_mut() {
                let sum = held.session.and_then(|session| sums.get(&session)).copied().unwrap_or_default();
                held.shown = held.shown.max(sum);
            }
        }
        if gate.breaker.host(self.now, &close_watch.host, &config.gate) {
            let open = gate.breaker.open();
            let what = Happening::Breaker {
                open: open.is_some(),
                detail: open.map_or_else(|| "the host has memory again".to_owned(), |(_, why)| why.to_owned()),
            };
            self.journal(self.now, None, what);
        }
        if !self.engine.gate.line.is_empty() {
            self.decide();
        }
    }

    /// A process of a session is dead: its place may be free.
    pub(super) fn gate_gone(&mut self, process: ProcessId) {
        if self.engine.gate.line.of(process).is_some() {
            self.withdraw(process, Withdrawal::Gone);
        }
        let Some(dead) = self.engine.table.get(process) else { return };
        self.engine.gate.confined.gone(process);
        if dead.kind != ProcessKind::Agent {
            return;
        }
        let session = dead.session;
        if self.engine.agent_of(session).is_some() {
            return;
        }
        let root = self.engine.sessions.get(session).map(|session| session.root);
        if let Some(root) = root.filter(|root| self.engine.gate.leases.contains_key(root)) {
            self.end_lease(root);
        }
        self.gated_or_not(session);
        self.engine.gate.subagents.forget(session);
        if !self.engine.gate.line.is_empty() {
            // What it held is free by now; the next regular look may be a second away.
            self.effect(Effect::LookAtHost);
            self.decide();
        }
    }

    /// A session is over: what its sessions take is learned from it.
    pub(super) fn gate_session_ended(&mut self, session: SessionId) {
        let Some(over) = self.engine.sessions.get(session) else { return };
        let lasted = self.now.since(BootTime::from(over.root.start_time));
        let (root, profile, peak, gated) = (over.root, over.profile.clone(), over.tally.peak, over.gated);
        if gated {
            self.effect(Effect::Unbound(root));
        }
        if lasted >= learned::WORTH_LEARNING && peak > Bytes(0) {
            learned::learn(&mut self.engine.gate.peaks, &profile, peak);
            self.effect(Effect::Learned(self.engine.gate.peaks.clone()));
        }
    }

    /// The agent of a lease is gone.
    fn end_lease(&mut self, process: ProcessId) {
        if self.engine.gate.leases.remove(&process).is_some() {
            self.effect(Effect::Remember(GateRecord::Ended(process)));
        }
    }

    /// A new session: whether it came through the gate, or inside one that did.
    pub(super) fn session_began(&mut self, session: SessionId) {
        let Some((root, parent)) = self.engine.sessions.get(session).map(|new| (new.root, new.parent)) else { return };
        let granted = self.engine.gate.leases.get_mut(&root).map(|held| held.session = Some(session)).is_some();
        let inside = parent.and_then(|parent| self.engine.sessions.get(parent)).is_some_and(|outer| outer.gated);
        if let Some(new) = self.engine.sessions.get_mut(session) {
            new.gated = granted || inside;
        }
        if granted || inside {
            let bounds = if granted { self.bounds_of(session) } else { Bounds::default() };
            self.effect(Effect::Bound(root, bounds));
        }
    }

    /// Grants a launch: its process is the root of a session from now on.
    fn grant(&mut self, waiter: Waiter) {
        let Waiter { launch, profile, queued, expected, .. } = waiter;
        let Launch { process, ppid, uid, comm, image, cgroup, .. } = launch;
        let lease = Lease { process, profile: profile.clone(), uid, granted: self.now, expected };
        self.engine.gate.line.served(uid, self.now);
        self.engine.gate.recent.push_back(lease.clone());
        let held =
            Held { lease: lease.clone(), session: None, shown: Bytes(0), cgroup: cgroup.map(|limit| limit.path) };
        self.engine.gate.leases.insert(process, held);
        self.effect(Effect::Remember(GateRecord::Granted(lease.clone())));
        match self.engine.table.alive(process).map(|known| known.session) {
            Some(outer) if self.engine.sessions.get(outer).is_some_and(|outer| outer.root == process) => {
                // An agent that asks for itself: its session is granted after the fact.
                if let Some(session) = self.engine.sessions.get_mut(outer) {
                    session.profile.clone_from(&profile);
                }
                self.session_began(outer);
                self.gated_or_not(outer);
            }
            Some(outer) => self.move_out(process, &profile, Some(outer)),
            None => {
                let image = Arc::new(image);
                let newcomer = Newcomer { process, forked_by: None, ppid, uid, comm, image, forked: false };
                self.begin(newcomer, &profile, None);
            }
        }
        let waited = self.now.since(queued);
        if let Some(session) = self.engine.table.get(process).map(|known| known.session) {
            self.tell_grant(lease, session, waited);
        }
    }

    fn tell_grant(&mut self, lease: Lease, session: SessionId, waited: Duration) {
        let profile = self.named_profile(&lease.profile);
        let environment = profile.map(|profile| profile.bounds.environment.clone()).unwrap_or_default();
        let oom_score_adj = profile.and_then(|profile| profile.bounds.oom_score_adj).unwrap_or(OOM_SCORE_ADJ);
        let limits = self.bounds_of(session);
        let (process, name) = (lease.process, lease.profile.clone());
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let granted = Granted { lease, session, waited, environment, oom_score_adj, limits };
        self.effect(Effect::Granted(Box::new(granted)));
        self.journal(self.now, Some(process), Happening::LaunchGranted { profile: name, waited_ms });
    }

    fn refuse(&mut self, launch: &Launch, profile: String, obstacle: Obstacle) {
        let refused = Refused { process: launch.process, uid: launch.uid, profile, obstacle };
        let memory = &mut self.engine.gate.refused;
        memory.push_back((self.now, refused.clone()));
        if memory.len() > REMEMBER_REFUSED {
            memory.pop_front();
        }
        self.effect(Effect::Refused(Box::new(refused)));
    }

    /// A helper of a granted session goes before its agent when memory runs out.
    pub(super) fn expose_helper(&mut self, process: ProcessId) {
        let table = &self.engine.table;
        let Some(helper) = table.get(process) else { return };
        let agent =
            helper.parent.and_then(|parent| table.get(parent)).is_some_and(|parent| parent.kind == ProcessKind::Agent);
        let Some(session) = self.engine.sessions.get(helper.session).filter(|session| agent && session.gated) else {
            return;
        };
        // What is below it inherits it.
        let own = self.named_profile(&session.profile).and_then(|profile| profile.bounds.oom_score_adj);
        let raised = own.unwrap_or(OOM_SCORE_ADJ) + HELPERS_ABOVE;
        self.effect(Effect::RaiseOomScore(process, raised));
    }

    /// What a granted session is held to.
    fn bounds_of(&self, session: SessionId) -> Bounds {
        let engine = &*self.engine;
        let gate = &engine.config.gate;
        let profile = engine.sessions.get(session).and_then(|session| self.named_profile(&session.profile));
        let Some(profile) = profile else { return Bounds { max_depth: gate.max_depth, ..Bounds::default() } };
        let max_memory = profile.max_memory.map(|size| size.on_host(engine.close_watch.host.total)).filter(|b| b.0 > 0);
        let max_helpers = profile.bounds.max_helpers;
        Bounds {
            max_memory,
            max_helpers,
            max_depth: profile.bounds.max_depth.or(gate.max_depth),
            cgroup: gate.cgroups && (max_memory.is_some() || max_helpers.is_some()),
        }
    }

    fn profile_of(&self, launch: &Launch) -> String {
        let named = launch.profile.clone();
        let recognised = || self.profile(&launch.image, &launch.comm).map(|profile| profile.name.clone());
        named.or_else(recognised).unwrap_or_else(|| UNPROFILED.to_owned())
    }

    fn named_profile(&self, name: &str) -> Option<&Profile> {
        self.engine.config.profiles.iter().find(|profile| profile.name == name)
    }

    /// Grants that no rate and no estimate is made of any more.
    fn forget_old_grants(&mut self) {
        let Engine { gate, config, .. } = &mut *self.engine;
        let rates = config.profiles.iter().filter_map(|profile| profile.bounds.rate).chain(config.gate.rate);
        let longest = rates.map(|rate| rate.period).max().unwrap_or_default();
        let now = self.now;
        while gate.recent.len() > ESTIMATE_BY
            && gate.recent.front().is_some_and(|lease| now.since(lease.granted) >= longest)
        {
            gate.recent.pop_front();
        }
    }
}

fn timed_out(waiter: &Waiter, now: BootTime) -> Obstacle {
    let waited = units::span(now.since(waiter.queued));
    let (bound, cause, retry_after) = match &waiter.obstacle {
        Some(obstacle) => (obstacle.bound.clone(), obstacle.detail.clone(), obstacle.retry_after),
        None => ("--timeout".to_owned(), "others were ahead".to_owned(), None),
    };
    Obstacle {
        reason: RefusalReason::Timeout,
        detail: format!("not granted within {waited}: {cause}"),
        bound,
        holders: waiter.obstacle.iter().flat_map(|obstacle| obstacle.holders.clone()).collect(),
        retry_after: retry_after.or(Some(Duration::from_secs(30))),
    }
}

impl Engine {
    /// The records that say what the gate knows now, for a file that has grown long.
    #[must_use]
    pub fn gate_records(&self) -> Vec<GateRecord> {
        let gate = &self.gate;
        // Those that have ended still count for rates.
        let ended = gate.recent.iter().filter(|lease| !gate.leases.contains_key(&lease.process));
        let ended = ended.flat_map(|lease| [GateRecord::Granted(lease.clone()), GateRecord::Ended(lease.process)]);
        let held = gate.leases.values().map(|held| GateRecord::Granted(held.lease.clone()));
        let waiting = gate
            .line
            .iter()
            .map(|(_, waiter)| GateRecord::Queued { at: waiter.queued, launch: Box::new(waiter.launch.clone()) });
        ended.chain(held).chain(waiting).collect()
    }

    /// Whether a profile of this name is configured.
    #[must_use]
    pub fn has_profile(&self, name: &str) -> bool {
        self.config.profiles.iter().any(|profile| profile.name == name)
    }
}
