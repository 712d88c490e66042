//! Collects what is known of an exit, and reports it once its companions are known too.

use std::time::Duration;

use super::cause::ExitDiagnosis;
use super::explained_death::ExplainedDeath;
use super::memory_snapshot::SnapshotVictim;
use super::oom_choice::OomChoice;
use super::record::{ExitedProcess, host_then};
use super::redaction::{headline_for_owner, redact_for};
use super::signal_note::SignalNote;
use super::{cause, text};
use crate::effect::{Effect, JournalEntry, JournalEvent};
use crate::nearest_limit::ProgramLimit;
use crate::process::TrackedProcess;
use crate::{Engine, Step};
use watchdog_api::{
    Cause, Companion, DeathFacts, LeftRunning, LimitNear, MemoryHolders, MemoryThen, PressureThen, ProcessKind,
    Relation, Sender,
};
use watchdog_types::signals::SIGKILL;
use watchdog_types::{BootTime, Bytes, CgroupPressure, ExitStatus, ProcessId, Viewer};

/// Exits within this time are listed as companions.
const COMPANION_WINDOW: Duration = Duration::from_secs(1);
/// An exit is explained after this time, when its companions have been reported too.
const SETTLE_TIME: Duration = Duration::from_millis(1_200);
/// A shell exits within this time after the child that it waited for.
const PROPAGATION_WINDOW: Duration = Duration::from_secs(5);
/// A victim of the OOM killer may need this long to exit, because it has much memory to free.
const OOM_EXIT_WINDOW: Duration = Duration::from_secs(60);
/// Companions listed.
const MAX_LISTED: usize = 10;
const MAX_PER_TICK: usize = 500;
/// A process that depends on another, or shares its cgroup, may follow it this late.
const FOLLOWING_WINDOW: Duration = Duration::from_secs(10);
/// Ancestors that are recorded of each exit.
const MAX_ANCESTORS: usize = 8;
/// Kills within this time are one: a whole cgroup's.
const TOGETHER: Duration = Duration::from_millis(100);
/// A limit of which no more than this, or this share in per cent, is left was nearly reached.
const NEAR: Bytes = Bytes::from_mib(64);
const NEAR_PERCENT: u64 = 5;

impl Step<'_> {
    /// Records an exit. The process is marked dead, but still has its memory.
    pub(crate) fn died(&mut self, process: ProcessId, at: BootTime) {
        let (now, host) = (self.now, self.engine.close_watch.host);
        let Some(known) = self.engine.table.get_mut(process) else { return };
        let profile = self.engine.sessions.get(known.session).map(|session| session.profile.clone());
        let mut dead = ExitedProcess::of(known, profile, at, now, host);
        let of_it = |choice: &&OomChoice| choice.process == Some(process) && at.since(choice.at) <= OOM_EXIT_WINDOW;
        dead.while_no_daemon_ran = self.engine.remembered.exit(process).is_some();
        let above = self.engine.table.above(process).take(MAX_ANCESTORS);
        dead.ancestors = above.take_while(|above| Some(above.session) == dead.session).map(|above| above.id).collect();
        dead.above = self.engine.detectors.above_unattended(process);
        dead.oom = self.engine.exits.choices.iter().rev().find(of_it).map(|choice| choice.number);
        self.engine.exits.push(dead);
    }

    /// Explains and reports the exits that have settled.
    pub(crate) fn tick_deaths(&mut self) {
        let now = self.now;
        let deaths = &self.engine.exits;
        let (mut due, mut diagnosis) = (deaths.explained, Vec::new());
        for (at, dead) in deaths.recent.iter().enumerate().skip(deaths.explained) {
            if now.since(dead.heard) < SETTLE_TIME || diagnosis.len() == MAX_PER_TICK {
                break;
            }
            due = at + 1;
            diagnosis.extend(dead.is_notable().then_some(at));
        }
        for at in diagnosis {
            let Some(dead) = self.engine.exits.recent.get(at) else { continue };
            let (process, session) = (dead.id, dead.session);
            let mut death = self.engine.death(Viewer::Root, dead);
            let exits = &mut self.engine.exits;
            let Some(dead) = exits.recent.get_mut(at) else { continue };
            dead.series = exits.series.add(dead, &death.facts);
            death.facts.series = dead.series;
            death.facts.summary = text::paragraph(&death.facts);
            let what = JournalEvent::Died { cause: death.facts.cause, summary: headline_for_owner(&death.facts) };
            self.effect(Effect::Journal(JournalEntry { at: now, process: Some(process), session, what }));
            self.effect(Effect::Died(Box::new(death)));
            if let Some(dead) = self.engine.exits.recent.get_mut(at) {
                // Large, and never shown.
                let notes = dead.signals.iter_mut().filter(|note| !note.is_for_memory());
                notes.for_each(|note| note.memory = None);
            }
        }
        self.engine.exits.explained = due;
        let sessions = &self.engine.sessions;
        let is_open = |session| sessions.get(session).is_some_and(|session| session.ended.is_none());
        self.engine.exits.trim(is_open);
    }
}

impl Engine {
    /// The explanation so far, without what this viewer may not see.
    pub(super) fn death(&self, viewer: Viewer, dead: &ExitedProcess) -> ExplainedDeath {
        let started = (dead.id.start_time.0 > 0).then(|| BootTime::from(dead.id.start_time));
        let mut facts = self.facts(dead);
        if let Viewer::User(uid) = viewer {
            redact_for(uid, &mut facts);
        }
        facts.summary = text::paragraph(&facts);
        ExplainedDeath { at: dead.at, started, facts }
    }

    fn facts(&self, dead: &ExitedProcess) -> DeathFacts {
        let diagnosis = cause::diagnose(dead);
        let child = if diagnosis.cause == Cause::Failed { self.propagated_from(dead) } else { None };
        let (died_with, died_with_count) = self.died_with(dead);
        let choice = dead.oom.and_then(|number| self.exits.choices.iter().find(|choice| choice.number == number));
        DeathFacts {
            pid: dead.id.pid.0,
            start_time: dead.id.start_time.0,
            session: dead.session.map(|session| session.0),
            profile: dead.profile.clone(),
            kind: dead.kind,
            comm: dead.comm.clone(),
            name: dead.name(),
            uid: dead.uid.map(|uid| uid.0),
            parent_pid: dead.parent_pid.map(|pid| pid.0),
            age_seconds: dead.age().map(|age| age.as_secs_f64()),
            exit_code: dead.status.and_then(ExitStatus::code),
            signal: dead.status.and_then(ExitStatus::signal),
            while_no_daemon_ran: dead.while_no_daemon_ran,
            cause: if child.is_some() { Cause::PassedOn } else { diagnosis.cause },
            summary: String::new(),
            sender: diagnosis.signal.map(|note| self.sender(note, dead)),
            origin: diagnosis.signal.and_then(|note| note.origin.as_ref()).map(|note| self.sender(note, dead)),
            oom: choice.map(|choice| choice.to_api(dead.peak)),
            memory_holders: memory_when_killed(&diagnosis),
            heap: diagnosis.heap,
            limit_near: limit_near(dead, &diagnosis),
            kernel_reason: cause::kernel_reason(dead, &diagnosis),
            cpu_limit_seconds: cause::cpu_limit(dead),
            cgroup: cgroup_of(dead).map(str::to_owned),
            killed_together: self.killed_together(dead, &diagnosis),
            pressure: pressure(&diagnosis),
            left: self.left_running(dead),
            passed_on_from: child.map(|child| self.companion(child, dead)),
            memory: memory(dead),
            host: host_then(&dead.host),
            died_with,
            died_with_count,
            series: dead.series,
        }
    }

    /// The sender of a signal; for the daemon's own signals with the action.
    fn sender(&self, note: &SignalNote, dead: &ExitedProcess) -> Sender {
        let by_us = note.relation == Relation::Watchdog;
        let action = by_us.then(|| self.terminating_action(dead.id)).flatten().map(|action| action.0);
        Sender { action, ..note.sender(dead.at) }
    }

    /// The child whose status a shell returns: 128 plus its signal.
    fn propagated_from(&self, dead: &ExitedProcess) -> Option<&ExitedProcess> {
        let code = dead.status?.code()?;
        let number = code.checked_sub(128).filter(|number| *number > 0)?;
        let ends = [ExitStatus::Signal(number), ExitStatus::Code(code)];
        let same_end = |child: &&ExitedProcess| child.status.is_some_and(|status| ends.contains(&status));
        let recent = |child: &&ExitedProcess| child.at <= dead.at && dead.at.since(child.at) <= PROPAGATION_WINDOW;
        let child = self.exits.all().filter(|child| child.parent == Some(dead.id)).filter(recent).find(same_end)?;
        // Nested shells.
        Some(self.propagated_from(child).unwrap_or(child))
    }

    /// Other processes of the cgroup that the same sender killed with the same signal at the same time.
    fn killed_together(&self, dead: &ExitedProcess, diagnosis: &ExitDiagnosis<'_>) -> u64 {
        let (Some(note), Some(cgroup)) = (diagnosis.signal, cgroup_of(dead)) else { return 0 };
        if note.signal != SIGKILL || matches!(note.relation, Relation::Kernel | Relation::Itself) {
            return 0;
        }
        let is_same = |other: &SignalNote| {
            (other.sender, other.signal) == (note.sender, note.signal)
                && other.at.since(note.at).max(note.at.since(other.at)) <= TOGETHER
        };
        // Who kills a whole cgroup leaves nothing in it.
        let lives_on = |process: &TrackedProcess| {
            let own = process.limits.as_deref().and_then(|limits| limits.own_cgroup.as_deref());
            own == Some(cgroup) && BootTime::from(process.id.start_time) < note.at
        };
        if self.table.living().any(lives_on) {
            return 0;
        }
        let others = self.exits.around(dead).filter(|other| other.id != dead.id && cgroup_of(other) == Some(cgroup));
        others.filter(|other| other.signals.iter().any(is_same)).count() as u64
    }

    /// Processes that an exited agent left.
    fn left_running(&self, dead: &ExitedProcess) -> Option<LeftRunning> {
        dead.kind.filter(|kind| *kind == ProcessKind::Agent)?;
        let (mut processes, mut memory) = (0, Bytes(0));
        for left in self.table.living_below(dead.id) {
            processes += 1;
            memory += left.cost();
        }
        (processes > 0).then_some(LeftRunning { processes, memory_bytes: memory.0 })
    }

    fn died_with(&self, dead: &ExitedProcess) -> (Vec<Companion>, u64) {
        let mut others: Vec<&ExitedProcess> = self
            .exits
            .around(dead)
            .filter(|other| other.id != dead.id)
            .filter(|other| apart(other, dead.at) <= COMPANION_WINDOW || may_have_caused(other, dead))
            .filter(|other| (other.session.is_some() && other.session == dead.session) || other.is_notable())
            .collect();
        let rank = |other: &&ExitedProcess| (!other.is_notable(), apart(other, dead.at), other.id);
        let count = others.len() as u64;
        if others.len() > MAX_LISTED {
            others.select_nth_unstable_by_key(MAX_LISTED, rank);
            others.truncate(MAX_LISTED);
        }
        others.sort_by_key(rank);
        (others.into_iter().map(|other| self.companion(other, dead)).collect(), count)
    }

    fn companion(&self, other: &ExitedProcess, dead: &ExitedProcess) -> Companion {
        let diagnosis = cause::diagnose(other);
        let limiting = other.limits.as_deref().and_then(|limits| limits.cgroup.as_ref());
        let cgroup = limiting.map(|limiting| limiting.path.as_str()).or_else(|| cgroup_of(other));
        Companion {
            pid: other.id.pid.0,
            start_time: other.id.start_time.0,
            name: other.name(),
            uid: other.uid.map(|uid| uid.0),
            session: other.session.map(|session| session.0),
            exit_code: other.status.and_then(ExitStatus::code),
            signal: other.status.and_then(ExitStatus::signal),
            cause: diagnosis.cause,
            sender: diagnosis.signal.map(|note| self.sender(note, other)),
            cgroup: cgroup.map(str::to_owned),
            apart_seconds: apart(other, dead.at).as_secs_f64(),
            later: other.at > dead.at,
            related: may_have_caused(other, dead) || self.are_of_one_command(other, dead),
        }
    }

    /// Whether both are part of what an agent started once: the programs of a pipeline, make and a compiler.
    fn are_of_one_command(&self, other: &ExitedProcess, dead: &ExitedProcess) -> bool {
        let is_agent = |id: &ProcessId| {
            let recorded = || self.exits.all().find(|exited| exited.id == *id).map(ExitedProcess::is_agent);
            self.table.get(*id).map(TrackedProcess::is_agent).or_else(recorded).unwrap_or(true)
        };
        let own = (!dead.is_agent()).then_some(&dead.id);
        let mut parts = own.into_iter().chain(dead.ancestors.iter().take_while(|above| !is_agent(above)));
        parts.any(|part| *part == other.id || other.ancestors.contains(part))
    }
}

fn apart(other: &ExitedProcess, at: BootTime) -> Duration {
    other.at.since(at).max(at.since(other.at))
}

/// Whether a process exited a while before this one and may be why: something else ended it, and this one depended on it or shares
/// its cgroup.
fn may_have_caused(other: &ExitedProcess, dead: &ExitedProcess) -> bool {
    let before = other.at <= dead.at && dead.at.since(other.at) <= FOLLOWING_WINDOW;
    let is_server = other.kind.is_some_and(|kind| !matches!(kind, ProcessKind::Tool | ProcessKind::Other));
    // Between an agent and its server stand npm and a shell. What further down belongs to a tool call does not matter to it.
    let related = other.parent == Some(dead.id)
        || dead.ancestors.contains(&other.id)
        || is_server && other.ancestors.contains(&dead.id);
    let limit = |dead: &ExitedProcess| Some(dead.limits.as_deref()?.cgroup.as_ref()?.path.clone());
    let same_cgroup = limit(other).is_some() && limit(other) == limit(dead);
    let forced = |other: &ExitedProcess| {
        let diagnosis = cause::diagnose(other);
        let by_stranger = diagnosis.signal.is_some_and(|note| note.relation == Relation::Stranger);
        // What a tool call runs may crash without any effect on its agent.
        let crashed = matches!(diagnosis.cause, Cause::Fault | Cause::Aborted | Cause::KernelSignal);
        matches!(diagnosis.cause, Cause::Oom | Cause::HeapLimit) || by_stranger || crashed && is_server
    };
    before && (related || same_cgroup) && forced(other)
}

/// The cgroup as last read, or as read right after the signal.
fn cgroup_of(dead: &ExitedProcess) -> Option<&str> {
    let looked_at = dead.signals.iter().rev().find_map(|note| note.look.as_ref()?.cgroup.as_deref());
    looked_at.or_else(|| dead.limits.as_deref()?.own_cgroup.as_deref()).filter(|path| *path != "/")
}

fn pressure(diagnosis: &ExitDiagnosis<'_>) -> Vec<PressureThen> {
    let note = diagnosis.signal.filter(|note| note.is_for_memory());
    let seen = note.and_then(SignalNote::look_then).map_or(&[][..], |look| look.pressure.as_slice());
    let then = |pressure: &CgroupPressure| PressureThen {
        cgroup: pressure.path.clone(),
        some_avg10: pressure.some_avg10,
        full_avg10: pressure.full_avg10,
    };
    seen.iter().map(then).collect()
}

/// A limit of the process itself that it had nearly reached when it failed.
fn limit_near(dead: &ExitedProcess, diagnosis: &ExitDiagnosis<'_>) -> Option<LimitNear> {
    if !matches!(diagnosis.cause, Cause::Failed | Cause::Aborted | Cause::Fault) {
        return None;
    }
    let nearest = ProgramLimit::of(dead.limits.as_deref()?, dead.peak.max(dead.last)).into_iter().next()?;
    let near = nearest.max.percent(NEAR_PERCENT).max(NEAR);
    let ProgramLimit { name, max, left } = nearest;
    (left <= near).then(|| LimitNear { name: name.to_owned(), max_bytes: max.0, left_bytes: left.0 })
}

fn memory_when_killed(diagnosis: &ExitDiagnosis<'_>) -> Option<MemoryHolders> {
    let note = diagnosis.signal.filter(|note| note.is_for_memory())?;
    let snapshot = note.memory_then()?;
    Some(snapshot.to_api(|_| true, SnapshotVictim::default(), |_| None))
}

fn memory(dead: &ExitedProcess) -> MemoryThen {
    let growth = dead.growth.as_ref();
    let cgroup = dead.limits.as_deref().and_then(|limits| limits.cgroup.as_ref());
    MemoryThen {
        last_bytes: dead.last.0,
        peak_bytes: dead.peak.0,
        growth_bytes: growth.map(|growth| growth.bytes),
        growth_window_seconds: growth.map(|growth| growth.within.as_secs_f64()),
        doubled_in_seconds: growth.and_then(|growth| growth.doubled_within).map(|within| within.as_secs_f64()),
        cgroup_max_bytes: cgroup.map(|cgroup| cgroup.max.0),
    }
}
