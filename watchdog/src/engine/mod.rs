//! The pure core: inputs in, effects out. It does no I/O, reads no clock, and knows no runtime.
//!
//! [`Engine::step`] takes one [`Input`] at one moment, brings the process table up to date ([`lifecycle`], [`membership`], [`merge`]),
//! lets the detectors look at what changed ([`detect`]), and appends the [`Effect`]s that follow.

pub mod act;
pub mod classify;
pub mod deaths;
pub mod effect;
pub mod gate;
pub mod id;
pub mod input;
pub mod v8;
pub mod view;

mod closewatch;
mod detect;
mod excess;
mod finding;
mod keep;
mod lifecycle;
mod limits;
mod membership;
mod memory;
mod merge;
mod process;
mod remembered;
mod reserve;
mod revisit;
mod session;
mod standing;
mod summary;
mod table;

pub use detect::leak;
pub use reserve::ID_BLOCK;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use self::effect::{Effect, Happening, JournalEntry};
use self::excess::Excesses;
use self::finding::{Change, Findings, Key, Observation, StoredFinding};
use self::gate::GateRecord;
use self::id::{BootTime, Pid, ProcessId, SessionId, Uid};
use self::input::{Denied, Input, KernelEvent};
use self::process::Process;
use self::revisit::Revisit;
use self::session::Sessions;
use self::standing::Standing;
use self::table::Table;
use crate::api::ProcessKind;
use crate::config::Config;

/// The time between two ticks while something is about to be concluded, and while nothing is.
const TICK_PENDING: Duration = Duration::from_millis(250);
/// No two ticks are closer, however many are due.
const TICK_SOONEST: Duration = Duration::from_millis(20);
const TICK_IDLE: Duration = Duration::from_secs(1);

/// The state machine. One task owns it.
pub struct Engine {
    config: Arc<Config>,
    table: Table,
    sessions: Sessions,
    findings: Findings,
    orphans: detect::Orphans,
    detached: detect::Detached,
    abandoned: detect::Abandoned,
    external: detect::External,
    survey: detect::Survey,
    stale: detect::Stale,
    duplicates: detect::Duplicates,
    fanout: detect::Fanout,
    overlimit: detect::Overlimit,
    build_servers: detect::BuildServers,
    tmpfs: detect::TmpfsWatch,
    leaks: detect::Leaks,
    close_watch: closewatch::CloseWatchState,
    /// For those that share memory and may be due for a measurement,
    sharing: Revisit,
    /// for the ceilings of those that are large,
    large: Revisit,
    /// for what takes more than its limit,
    limited: Revisit,
    excesses: Excesses,
    /// and for what each session holds.
    tallied: Revisit,
    merge: merge::Merge,
    ceilings: limits::Ceilings,
    deaths: deaths::Deaths,
    gate: gate::Gate,
    acts: act::Actions,
    remembered: remembered::Remembered,
    /// Ids up to these are reserved; `None` where nothing keeps them.
    reserved: Option<id::LastIds>,
    /// Processes that were not found in /proc, and when that was.
    missed: Vec<(BootTime, ProcessId)>,
    oom_kills: u64,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            table: Table::default(),
            sessions: Sessions::default(),
            findings: Findings::default(),
            orphans: detect::Orphans::default(),
            detached: detect::Detached::default(),
            abandoned: detect::Abandoned::default(),
            external: detect::External::default(),
            survey: detect::Survey::default(),
            stale: detect::Stale::default(),
            duplicates: detect::Duplicates::default(),
            fanout: detect::Fanout::default(),
            overlimit: detect::Overlimit::default(),
            build_servers: detect::BuildServers::default(),
            tmpfs: detect::TmpfsWatch::default(),
            leaks: detect::Leaks::default(),
            close_watch: closewatch::CloseWatchState::default(),
            sharing: Revisit::default(),
            large: Revisit::default(),
            limited: Revisit::default(),
            excesses: Excesses::default(),
            tallied: Revisit::default(),
            merge: merge::Merge::default(),
            ceilings: limits::Ceilings::default(),
            deaths: deaths::Deaths::default(),
            gate: gate::Gate::default(),
            acts: act::Actions::default(),
            remembered: remembered::Remembered::default(),
            reserved: None,
            missed: Vec::new(),
            oom_kills: 0,
        }
    }

    /// Takes one input at the moment `now`, and appends what is to be done to `effects`.
    pub fn step(&mut self, now: BootTime, input: Input, effects: &mut Vec<Effect>) {
        let mut step = Step { engine: self, now, effects };
        match input {
            Input::Kernel(event) => step.kernel(event),
            Input::Lost(records) => step.lost(records),
            Input::Scan(scan) => step.merge(scan),
            Input::Samples(samples) => samples.into_iter().for_each(|sample| step.sample(sample)),
            Input::Zombies(zombies) => step.engine.table.set_zombies(&zombies, now),
            Input::Containers(client, containers) => step.containers(client, containers),
            Input::Inspected(process, inspection) => step.inspected(process, inspection),
            Input::Limits(process, limits) => step.limits(process, limits),
            Input::OomSeen(seen) => step.oom_seen(seen),
            Input::Watchdog(process) => step.engine.deaths.watchdog = Some(process),
            Input::Host(host) => step.host(host),
            Input::Activity(looks) => step.active(looks),
            Input::Tmpfs(tmpfs) => step.tmpfs(tmpfs),
            Input::Adopt(process) => step.adopt(process),
            Input::Launch(launch) => step.launch(*launch),
            Input::Room(process, limit) => step.room(process, limit),
            Input::Withdraw(process, why) => step.withdraw(process, why),
            Input::Restore(restored) => step.restore(*restored),
            Input::Absence(absence) => step.engine.remembered.absent(*absence),
            Input::Subagent(call) => step.subagent(&call),
            Input::Confined(session, confinement) => step.confined(session, confinement),
            Input::CgroupMembers(session, members) => step.cgroup_members(session, &members),
            Input::Rights(rights) => step.engine.acts.rights = rights,
            Input::Resume(records) => step.resume(records),
            Input::Ask(ask) => step.ask(&ask),
            Input::UserIds(read) => step.user_ids(read),
            Input::Struck(struck) => step.struck(struck),
            Input::Unadopt(process) => step.unadopt(process),
            Input::Tick => step.tick(),
        }
        step.reserve_ids();
    }

    /// Takes a new configuration. What is recognised already stays recognised; what is meant to stay is judged anew.
    pub fn reconfigure(&mut self, now: BootTime, config: Arc<Config>, effects: &mut Vec<Effect>) {
        self.config = config;
        // What is over a limit depends on it.
        self.table.moved();
        let mut step = Step { engine: self, now, effects };
        step.judge_all();
        step.review_close_watch();
        step.judge_ungated();
        step.bind_all();
        step.tick();
    }

    /// How long the next [`Input::Tick`] may be in coming: a moment while something is about to be concluded.
    #[must_use]
    pub fn next_tick(&self, now: BootTime) -> Duration {
        let pending = !self.missed.is_empty()
            || self.orphans.pending()
            || self.detached.pending(now)
            || self.acts.pending()
            || self.abandoned.pending(now);
        let tick = if pending { TICK_PENDING } else { TICK_IDLE };
        let due =
            [self.gate.due(now, self.config.gate.head_blocks_for), self.orphans.due(now, self.config.orphans.grace)];
        due.into_iter().flatten().fold(tick, |tick, due| tick.min(due.max(TICK_SOONEST)))
    }

    /// Whether an event must be handled at once. The others are the life of short processes; they may wait for a moment, as
    /// long as every other input comes after them.
    #[must_use]
    pub fn is_urgent(&self, event: &KernelEvent) -> bool {
        // An action or a launch may wait for any exit.
        if self.acts.pending() || self.queue_depth() > 0 {
            return true;
        }
        match event {
            KernelEvent::Fork(_) => false,
            KernelEvent::Exec(exec) => exec.lineage.provisional || exec.lineage.root == exec.process,
            KernelEvent::Exit(exit) => self.table.alive(exit.process).is_some_and(|dead| {
                dead.is_agent() || dead.children.iter().any(|child| self.table.alive(*child).is_some())
            }),
            KernelEvent::Oom(_)
            | KernelEvent::Signal(_)
            | KernelEvent::MemoryStep(_)
            | KernelEvent::Reclaim(_)
            | KernelEvent::Denied(_) => true,
        }
    }

    /// The living process of a session that has this pid now.
    #[must_use]
    pub fn process(&self, pid: Pid) -> Option<ProcessId> {
        self.table.by_pid(pid).map(|process| process.id)
    }

    /// The user of a process, for the decision whether somebody may see it or act on it.
    #[must_use]
    pub fn owner(&self, process: ProcessId) -> Option<Uid> {
        self.table.get(process).map(|process| process.uid)
    }

    /// The living processes of a session; empty when there is no such session.
    #[must_use]
    pub fn members(&self, session: SessionId) -> Vec<ProcessId> {
        self.table.living().filter(|process| process.session == session).map(|process| process.id).collect()
    }

    /// The living agents: whoever holds the other end of a helper's stdin is one of these.
    #[must_use]
    pub fn agents(&self) -> Vec<ProcessId> {
        self.table.living().filter(|process| process.is_agent()).map(|process| process.id).collect()
    }

    /// The living agent of a session: the launcher, or the agent behind it once that has gone.
    fn agent_of(&self, session: SessionId) -> Option<&Process> {
        let root = self.sessions.get(session)?.root;
        let behind =
            || self.table.living().find(|process| process.session == session && process.kind == ProcessKind::Agent);
        self.table.alive(root).or_else(behind)
    }

    fn standing(&self, process: &Process) -> Standing {
        standing::standing(&self.table, &self.sessions, process)
    }
}

/// One step: the engine, the moment, and where effects go.
struct Step<'a> {
    engine: &'a mut Engine,
    now: BootTime,
    effects: &'a mut Vec<Effect>,
}

impl Step<'_> {
    fn kernel(&mut self, event: KernelEvent) {
        if matches!(event, KernelEvent::Fork(_) | KernelEvent::Exec(_) | KernelEvent::Exit(_)) {
            self.engine.orphans.changed();
            self.engine.table.moved();
        }
        match event {
            KernelEvent::Fork(fork) => self.fork(fork),
            KernelEvent::Exec(exec) => self.exec(exec),
            KernelEvent::Exit(exit) => self.exit(&exit),
            KernelEvent::Oom(oom) => self.oom(oom),
            KernelEvent::Signal(signal) => self.signal(signal),
            KernelEvent::MemoryStep(sample) => self.memory_step(sample),
            KernelEvent::Reclaim(reclaim) => {
                let stalled_us = u64::try_from(reclaim.stalled.as_micros()).unwrap_or(u64::MAX);
                self.journal(reclaim.at, Some(reclaim.process), Happening::Reclaim { stalled_us });
            }
            KernelEvent::Denied(Denied { at, process, uid: _, comm, what }) => {
                self.journal(at, Some(process), Happening::Denied { comm, what });
            }
        }
    }

    fn tick(&mut self) {
        self.tick_missed();
        self.engine.table.sweep(self.now);
        self.engine.sessions.sweep(self.now);
        self.expire_findings();
        self.tick_orphans();
        self.tick_detached();
        self.tick_abandoned();
        self.tick_external();
        self.tick_survey();
        self.tick_fanout();
        self.tick_overlimit();
        self.tick_leaks();
        self.tick_excess();
        self.measure_shared();
        self.tick_limits();
        self.tick_deaths();
        self.tick_gate();
        self.tally();
        self.tick_actions();
        self.review_close_watch();
    }

    fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn journal(&mut self, at: BootTime, process: Option<ProcessId>, what: Happening) {
        let session = process.and_then(|id| self.engine.table.get(id)).map(|process| process.session);
        self.effect(Effect::Journal(JournalEntry { at, process, session, what }));
    }

    fn journal_in(&mut self, at: BootTime, process: ProcessId, session: SessionId, what: Happening) {
        self.effect(Effect::Journal(JournalEntry { at, process: Some(process), session: Some(session), what }));
    }

    /// Opens a finding or brings it up to date, and tells the journal what changed.
    fn observe(&mut self, seen: Observation) {
        let cause = seen.cause;
        match self.engine.findings.observe(self.now, seen) {
            Change::Opened(id) => {
                let stored = self.engine.findings.get(id).map(StoredFinding::of);
                stored.into_iter().for_each(|stored| self.effect(Effect::Remember(GateRecord::FindingOpened(stored))));
                // What became so only by lasting has no cause that an event told.
                if cause < self.now {
                    self.effect(Effect::Latency(self.now.since(cause)));
                }
                self.journal_finding(id, "opened");
            }
            Change::Changed(id) => self.journal_finding(id, "changed"),
            Change::Same => {}
        }
    }

    fn close(&mut self, key: Key, because: &'static str) {
        if let Some(id) = self.engine.findings.close(self.now, key, because) {
            self.closed(id);
        }
    }

    /// Closes findings of an earlier run that were not observed again in time.
    fn expire_findings(&mut self) {
        let expired = self.engine.findings.expire(self.now);
        expired.into_iter().for_each(|id| self.closed(id));
    }

    fn closed(&mut self, id: id::FindingId) {
        self.effect(Effect::Remember(GateRecord::FindingClosed(id)));
        self.journal_finding(id, "closed");
    }

    fn journal_finding(&mut self, id: id::FindingId, change: &str) {
        let Some(finding) = self.engine.findings.get(id) else { return };
        let what = Happening::Finding {
            finding: id,
            kind: finding.seen.key.kind.name().to_owned(),
            change: change.to_owned(),
            summary: finding.seen.summary.clone(),
        };
        let (process, session) = (Some(finding.seen.subject), finding.seen.session);
        self.effect(Effect::Journal(JournalEntry { at: self.now, process, session, what }));
    }
}
