//! The pure core: inputs in, effects out. It does no I/O, reads no clock, and knows no runtime.
//!
//! [`Engine::step`] takes one [`Input`] at one moment, and updates the process table ([`lifecycle`], [`membership`],
//! [`reconcile`]). The detectors receive the changes ([`detect`]). Then the step appends the [`Effect`]s that follow.

pub mod actions;

pub mod effect;
pub mod exits;
pub mod gate;
pub mod gauges;

pub mod input;

pub mod reclaim;

pub mod view;

mod close_watch;
mod detect;
mod excess;
mod finding;
mod keep_policy;
mod lifecycle;
mod limits;
mod membership;
mod memory;
mod memory_share;
mod nearest_limit;
mod ownership;
mod persistence;
mod process;
mod recheck;
mod reconcile;
mod reserve;
mod session;
mod session_sums;
mod summary;
mod table;
mod unit;

pub use detect::leak;
pub use reserve::ID_BLOCK;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::detect::TableEvent;
use self::effect::{Effect, JournalEntry, JournalEvent, PersistCommand};
use self::excess::Excesses;
use self::finding::{Detection, FindingChange, FindingStore, Key, StoredFinding};
use self::gate::GateRecord;
use self::ownership::Ownership;
use self::process::TrackedProcess;
use self::recheck::Recheck;
use self::session::Sessions;
use self::table::Table;
use crate::input::Input;
use watchdog_config::Config;
use watchdog_types::{BootTime, Denied, KernelEvent, Pid, ProcessId, SessionId, Uid};

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
    findings: FindingStore,
    detectors: detect::Detectors,
    survey: detect::Survey,
    /// Empty between events.
    conclusions: detect::Conclusions,
    /// Processes whose memory is charged to no session.
    uncharged: BTreeSet<ProcessId>,
    /// Workers whose growth their command's burst may explain, and since when.
    growing_workers: BTreeMap<ProcessId, BootTime>,
    close_watch: close_watch::CloseWatchState,
    /// For those that share memory and may be due for a measurement,
    sharing: Recheck,
    /// for the ceilings of those that are large,
    large: Recheck,
    excesses: Excesses,
    /// and for what each session holds.
    tallied: Recheck,
    sums: session_sums::SumsCache,
    reconciler: reconcile::Reconciler,
    ceilings: limits::ProgramCeilings,
    exits: exits::ExitTracker,
    gate: gate::GateState,
    reclaim: reclaim::ReclaimState,
    actions: actions::ActionTracker,
    remembered: persistence::PersistedSessions,
    /// Ids up to these are reserved; `None` where nothing keeps them.
    reserved: Option<watchdog_types::LastIds>,
    /// Processes that were not found in /proc, and when that was.
    missed: Vec<(BootTime, ProcessId)>,
    oom_kills: u64,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        let gate = gate::GateState::new(gate::FleetGate::new(config.fleet.store.is_some()));
        Self {
            config,
            table: Table::default(),
            sessions: Sessions::default(),
            findings: FindingStore::default(),
            detectors: detect::Detectors::default(),
            survey: detect::Survey::default(),
            conclusions: detect::Conclusions::default(),
            uncharged: BTreeSet::new(),
            growing_workers: BTreeMap::new(),
            close_watch: close_watch::CloseWatchState::default(),
            sharing: Recheck::default(),
            large: Recheck::default(),
            excesses: Excesses::default(),
            tallied: Recheck::default(),
            sums: session_sums::SumsCache::default(),
            reconciler: reconcile::Reconciler::default(),
            ceilings: limits::ProgramCeilings::default(),
            exits: exits::ExitTracker::default(),
            gate,
            reclaim: reclaim::ReclaimState::default(),
            actions: actions::ActionTracker::default(),
            remembered: persistence::PersistedSessions::default(),
            reserved: None,
            missed: Vec::new(),
            oom_kills: 0,
        }
    }

    /// Takes one input at the moment `now`, and appends the resulting effects.
    pub fn step(&mut self, now: BootTime, input: Input, effects: &mut Vec<Effect>) {
        let mut step = Step { engine: self, now, effects };
        match input {
            Input::Kernel(event) => step.kernel(event),
            Input::Lost(records) => step.lost(records),
            Input::Scan(scan) => step.reconcile(scan),
            Input::Samples(samples) => samples.into_iter().for_each(|sample| step.sample(sample)),
            Input::Zombies(zombies) => step.engine.table.set_zombies(&zombies, now),
            Input::Containers(client, found) => step.detect(TableEvent::ContainersFound(client, &found)),
            Input::Inspected(process, inspection) => step.inspected(process, inspection),
            Input::Limits(process, limits) => step.limits(process, limits),
            Input::Shares(seen) => step.shares(&seen),
            Input::KillSeen(kill, seen) => step.kill_seen(kill, seen),
            Input::OomSeen(seen) => step.oom_seen(seen),
            Input::OwnProcess(process) => step.engine.exits.own_process = Some(process),
            Input::Host(host) => step.host(host),
            Input::Activity(activities) => {
                step.detect(TableEvent::ActivityRead(&activities));
                step.reclaim_activity_read(&activities);
            }
            Input::Tmpfs(tmpfs) => step.detect(TableEvent::TmpfsRead(&tmpfs)),
            Input::Surroundings(seen) => step.detect(TableEvent::SurroundingsRead(&seen)),
            Input::Tasks(reading) => step.detect(TableEvent::TasksRead(&reading)),
            Input::Adopt(process) => step.adopt(process),
            Input::Launch(launch) => {
                step.launch(*launch);
                step.tick_reclaim();
            }
            Input::CgroupLimits(process, limits) => step.cgroup_limits(process, limits),
            Input::LaunchTasks(process, limits) => step.launch_tasks(process, limits),
            Input::CancelLaunch(process, why) => step.cancel_launch(process, why),
            Input::Restore(restored) => step.restore(*restored),
            Input::Absence(absence) => step.engine.remembered.absent(*absence),
            Input::Subagent(call) => step.subagent(&call),
            Input::Confined(session, confinement) => step.confined(session, confinement),
            Input::CgroupMembers(session, members) => step.cgroup_members(session, &members),
            Input::Permissions(permissions) => step.engine.actions.permissions = permissions,
            Input::ResumeActions(records) => step.resume_actions(records),
            Input::RequestAction(request) => step.request_action(&request),
            Input::UserIds(read) => step.user_ids(read),
            Input::BatchResult(result) => step.on_batch_result(result),
            Input::Unadopt(process) => step.unadopt(process),
            Input::PagedOut { answer, compressed } => step.paged_out(answer, compressed),
            Input::RequestReclaim(demand) => step.request_reclaim(demand),
            Input::FleetAnswer(answered) => step.fleet_answer(*answered),
            Input::FleetWake => step.fleet_wake(),
            Input::Tick => step.tick(),
        }
        step.restate_fleet();
        step.reserve_ids();
    }

    /// Takes a new configuration. Agents that are recognised stay recognised; verdicts are decided anew.
    pub fn reconfigure(&mut self, now: BootTime, config: Arc<Config>, effects: &mut Vec<Effect>) {
        self.config = config;
        // What is over a limit depends on it.
        self.table.bump_generation();
        let mut step = Step { engine: self, now, effects };
        step.update_verdicts();
        step.review_close_watch();
        step.update_ungated_findings();
        step.apply_all_limits();
        // Launches that wait for the fleet may have other limits now.
        step.fleet_wake();
        step.tick();
        step.restate_fleet();
    }

    /// How long the next [`Input::Tick`] may be in coming: a moment while something is about to be concluded.
    #[must_use]
    pub fn next_tick(&self, now: BootTime) -> Duration {
        let pending = !self.missed.is_empty() || self.actions.pending();
        let tick = if pending { TICK_PENDING } else { TICK_IDLE };
        let gate = self.gate.due(now, self.config.gate.head_blocks_for);
        let due = [gate, self.detectors.due(now, &self.config), self.reclaim.due(now)];
        due.into_iter().flatten().fold(tick, |tick, due| tick.min(due.max(TICK_SOONEST)))
    }

    /// Whether something waits for events of any kind: an action or a launch may wait for any exit.
    #[must_use]
    pub fn awaits_events(&self) -> bool {
        self.actions.pending() || self.queue_depth() > 0
    }

    /// Whether an event must be handled at once. The others are the life of short processes; they may wait for a moment, as
    /// long as every other input comes after them.
    #[must_use]
    pub fn is_urgent(&self, event: &KernelEvent) -> bool {
        if self.awaits_events() {
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

    /// The user of a process, which decides who may see it or act on it.
    #[must_use]
    pub fn owner(&self, process: ProcessId) -> Option<Uid> {
        self.table.get(process).map(|process| process.uid)
    }

    /// The living processes of a session; empty when there is no such session.
    #[must_use]
    pub fn members(&self, session: SessionId) -> Vec<ProcessId> {
        self.table.living().filter(|process| process.session == session).map(|process| process.id).collect()
    }

    /// The living agents. One of these may hold the other end of a helper's stdin.
    #[must_use]
    pub fn agents(&self) -> Vec<ProcessId> {
        self.table.living().filter(|process| process.is_agent()).map(|process| process.id).collect()
    }

    /// The living agent of a session: the launcher, or the agent behind it once the launcher has exited.
    fn agent_of(&self, session: SessionId) -> Option<&TrackedProcess> {
        ownership::agent_of(&self.table, &self.sessions, session)
    }

    fn ownership(&self, process: &TrackedProcess) -> Ownership {
        ownership::ownership(&self.table, &self.sessions, process)
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
            self.engine.detectors.changed();
            self.engine.table.bump_generation();
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
                self.journal(reclaim.at, Some(reclaim.process), JournalEvent::Reclaim { stalled_us });
            }
            KernelEvent::Denied(Denied { at, process, uid: _, comm, what }) => {
                self.journal(at, Some(process), JournalEvent::Denied { comm, what });
            }
        }
    }

    fn tick(&mut self) {
        self.tick_missed();
        self.engine.table.sweep(self.now);
        self.engine.sessions.sweep(self.now);
        self.expire_findings();
        self.tick_survey();
        self.detect(TableEvent::Tick);
        self.update_excesses();
        self.measure_shared();
        self.tick_limits();
        self.tick_deaths();
        self.tick_gate();
        self.tick_reclaim();
        self.tally();
        self.tick_actions();
        self.review_close_watch();
    }

    fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn journal(&mut self, at: BootTime, process: Option<ProcessId>, what: JournalEvent) {
        let session = process.and_then(|id| self.engine.table.get(id)).map(|process| process.session);
        self.effect(Effect::Journal(JournalEntry { at, process, session, what }));
    }

    fn journal_in(&mut self, at: BootTime, process: ProcessId, session: SessionId, what: JournalEvent) {
        self.effect(Effect::Journal(JournalEntry { at, process: Some(process), session: Some(session), what }));
    }

    /// Opens or updates a finding, and writes the change to the journal.
    fn observe(&mut self, mut seen: Detection) {
        self.engine.name_nearest_limit(&mut seen);
        let cause = seen.cause;
        match self.engine.findings.observe(self.now, seen) {
            FindingChange::Opened(id) => {
                let stored = self.engine.findings.get(id).map(StoredFinding::of);
                stored.into_iter().for_each(|stored| {
                    self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::FindingOpened(stored))))
                });
                // What became so only by lasting has no event as its cause.
                if cause < self.now {
                    self.effect(Effect::Latency(self.now.since(cause)));
                }
                self.journal_finding(id, "opened");
            }
            FindingChange::Changed(id) => self.journal_finding(id, "changed"),
            FindingChange::Same => {}
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

    fn closed(&mut self, id: watchdog_types::FindingId) {
        self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::FindingClosed(id))));
        self.journal_finding(id, "closed");
    }

    fn journal_finding(&mut self, id: watchdog_types::FindingId, change: &str) {
        let Some(finding) = self.engine.findings.get(id) else { return };
        let what = JournalEvent::Finding {
            finding: id,
            kind: finding.seen.key.kind.name().to_owned(),
            change: change.to_owned(),
            summary: finding.seen.summary.clone(),
        };
        let (process, session) = (Some(finding.seen.subject), finding.seen.session);
        self.effect(Effect::Journal(JournalEntry { at: self.now, process, session, what }));
    }
}
