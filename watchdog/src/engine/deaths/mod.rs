//! Why processes died.
//!
//! What may explain a death is noted while it happens: the signals that a process is sent ([`signals`]), the choices of the
//! OOM killer and what every session held then ([`oom`]), the way of its memory ([`trail`]). When it dies, that goes with
//! it into a bounded memory ([`dead`]). A second later, when what died beside it is known too, the death is judged
//! ([`cause`]), told in words ([`words`]), and handed to whoever keeps a history.

mod cause;
mod dead;
mod explain;
mod oom;
mod signals;
mod trail;
mod words;

use std::collections::VecDeque;
use std::time::Duration;

use self::dead::{Dead, host_then};
use self::oom::Choice;
pub(super) use self::signals::Note;
pub(super) use self::trail::Trail;
use super::effect::{Effect, Happening, JournalEntry};
use super::id::{BootTime, ProcessId, SessionId};
use super::input::ExitStatus;
use super::view::Viewer;
use super::{Engine, Step};
use crate::api::{Cause, Companion, DeathFacts, MemoryThen, Relation, Sender};

pub use self::explain::Subject;

/// What dies within this time of a death may have to do with it.
const TOGETHER: Duration = Duration::from_secs(1);
/// A death is judged when all that died together with it has been heard of.
const SETTLED: Duration = Duration::from_millis(1_200);
/// A shell exits at once when the child that it waited for has.
const PASSED_ON_WITHIN: Duration = Duration::from_secs(5);
/// The victim of the OOM killer may take its time to die: it has much to give back.
const DIES_WITHIN: Duration = Duration::from_secs(60);
/// Deaths of any kind that are remembered.
const RECENT: usize = 1_000;
/// Older ones that are, when they are worth it; those of living sessions longer than others.
const KEPT: usize = 2_000;
/// Companions that are told.
const TOLD: usize = 10;
/// Deaths before and after one that are looked at for its companions, and deaths that are judged in one go: when thousands
/// die at once, that must not keep the engine from what lives. Those that are not worth it cost next to nothing, and do not
/// make the others wait.
const AROUND: usize = 500;
const AT_ONCE: usize = 500;

/// The dead that are remembered. About 400 bytes each.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    /// Who we are.
    pub(super) watchdog: Option<ProcessId>,
    /// In the order in which they were heard of.
    recent: VecDeque<Dead>,
    /// How many of the recent ones have been judged and told: the first.
    told: usize,
    kept: VecDeque<Dead>,
    choices: VecDeque<Choice>,
}

/// A death, as the engine tells it: to be kept in a history, say.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Death {
    /// When.
    pub at: BootTime,
    /// When the process was forked, where that is known.
    pub started: Option<BootTime>,
    /// Everything else.
    pub facts: DeathFacts,
}

impl Deaths {
    fn bury(&mut self, dead: Dead) {
        self.recent.push_back(dead);
    }

    /// Gives a victim the name that the kernel's event did not have.
    fn name_stranger(&mut self, choice: u64, comm: &str) {
        let nameless = |dead: &&mut Dead| dead.oom == Some(choice) && dead.comm.is_empty();
        if let Some(dead) = self.recent.iter_mut().rev().find(nameless) {
            comm.clone_into(&mut dead.comm);
        }
    }

    /// The latest first.
    fn all(&self) -> impl Iterator<Item = &Dead> {
        self.recent.iter().rev().chain(self.kept.iter().rev())
    }

    /// Those that died shortly before and after one; of an older one, all that are remembered.
    fn around(&self, dead: &Dead) -> Box<dyn Iterator<Item = &Dead> + '_> {
        if self.recent.front().is_none_or(|oldest| dead.heard < oldest.heard) {
            return Box::new(self.all());
        }
        let middle = self.recent.partition_point(|other| other.heard < dead.heard);
        let end = (middle + AROUND).min(self.recent.len());
        Box::new(self.recent.range(middle.saturating_sub(AROUND)..end))
    }

    /// How many deaths are remembered.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.recent.len() + self.kept.len()
    }

    /// Forgets what is too much. `is_open` says whether a session has living processes.
    fn shed(&mut self, is_open: impl Fn(SessionId) -> bool) {
        while self.told > RECENT {
            let Some(dead) = self.recent.pop_front() else { break };
            self.told -= 1;
            if dead.is_worth_knowing() {
                self.kept.push_back(dead);
            }
        }
        // Thousands may have died at once.
        if self.recent.len() < self.recent.capacity() / 4 {
            self.recent.shrink_to(2 * self.recent.len());
        }
        while self.kept.len() > KEPT {
            let of_ended = |dead: &Dead| !dead.session.is_some_and(&is_open);
            let oldest = self.kept.iter().position(of_ended).unwrap_or(0);
            self.kept.remove(oldest);
        }
    }
}

impl Step<'_> {
    /// A process has just been buried; its memory is still in the table.
    pub(super) fn died(&mut self, process: ProcessId, at: BootTime) {
        let (now, host) = (self.now, self.engine.close_watch.host);
        let Some(known) = self.engine.table.get_mut(process) else { return };
        let profile = self.engine.sessions.get(known.session).map(|session| session.profile.clone());
        let mut dead = Dead::of(known, profile, at, now, host);
        let of_it = |choice: &&Choice| choice.process == Some(process) && at.since(choice.at) <= DIES_WITHIN;
        dead.while_no_daemon_ran = self.engine.remembered.exit(process).is_some();
        dead.oom = self.engine.deaths.choices.iter().rev().find(of_it).map(|choice| choice.number);
        self.engine.deaths.bury(dead);
    }

    /// Judges and tells the deaths of which everything is known now.
    pub(super) fn tick_deaths(&mut self) {
        let now = self.now;
        let deaths = &self.engine.deaths;
        let (mut due, mut judged) = (deaths.told, Vec::new());
        for (at, dead) in deaths.recent.iter().enumerate().skip(deaths.told) {
            if now.since(dead.heard) < SETTLED || judged.len() == AT_ONCE {
                break;
            }
            due = at + 1;
            judged.extend(dead.is_worth_knowing().then_some(at));
        }
        for at in judged {
            let Some(dead) = self.engine.deaths.recent.get(at) else { continue };
            let (process, session) = (dead.id, dead.session);
            let death = self.engine.death(Viewer::Root, dead);
            let what = Happening::Died { cause: death.facts.cause, summary: explain::headline(&death.facts) };
            self.effect(Effect::Journal(JournalEntry { at: now, process: Some(process), session, what }));
            self.effect(Effect::Died(Box::new(death)));
        }
        self.engine.deaths.told = due;
        let sessions = &self.engine.sessions;
        let is_open = |session| sessions.get(session).is_some_and(|session| session.ended.is_none());
        self.engine.deaths.shed(is_open);
    }
}

impl Engine {
    /// A death as far as it is understood by now, and as far as this viewer may know.
    fn death(&self, viewer: Viewer, dead: &Dead) -> Death {
        let started = (dead.id.start_time.0 > 0).then(|| BootTime::from(dead.id.start_time));
        let mut facts = self.facts(dead);
        if let Viewer::User(uid) = viewer {
            explain::only_of(uid, &mut facts);
        }
        facts.summary = words::paragraph(&facts);
        Death { at: dead.at, started, facts }
    }

    fn facts(&self, dead: &Dead) -> DeathFacts {
        let judged = cause::judge(dead);
        let child = if judged.cause == Cause::Failed { self.passed_on(dead) } else { None };
        let (died_with, died_with_count) = self.died_with(dead);
        let choice = dead.oom.and_then(|number| self.deaths.choices.iter().find(|choice| choice.number == number));
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
            cause: if child.is_some() { Cause::PassedOn } else { judged.cause },
            summary: String::new(),
            sender: judged.signal.map(|note| self.sender(note, dead)),
            origin: judged.signal.and_then(|note| note.origin.as_ref()).map(|note| self.sender(note, dead)),
            oom: choice.map(|choice| choice.told(dead.peak)),
            heap: judged.heap,
            passed_on_from: child.map(|child| companion(child, dead.at)),
            memory: memory(dead),
            host: host_then(&dead.host),
            died_with,
            died_with_count,
        }
    }

    /// Who sent a signal; of the watchdog's own, also why.
    fn sender(&self, note: &signals::Note, dead: &Dead) -> Sender {
        let by_us = note.relation == Relation::Watchdog;
        let action = by_us.then(|| self.action_that_ended(dead.id)).flatten().map(|action| action.0);
        Sender { action, ..note.sender(dead.at) }
    }

    /// The child whose end this exit code stands for: 128 and the number of its signal.
    fn passed_on(&self, dead: &Dead) -> Option<&Dead> {
        let code = dead.status?.code()?;
        let number = code.checked_sub(128).filter(|number| *number > 0)?;
        let ends = [ExitStatus::Signal(number), ExitStatus::Code(code)];
        let same_end = |child: &&Dead| child.status.is_some_and(|status| ends.contains(&status));
        let recent = |child: &&Dead| child.at <= dead.at && dead.at.since(child.at) <= PASSED_ON_WITHIN;
        let child = self.deaths.all().filter(|child| child.parent == Some(dead.id)).filter(recent).find(same_end)?;
        // A shell in a shell.
        Some(self.passed_on(child).unwrap_or(child))
    }

    fn died_with(&self, dead: &Dead) -> (Vec<Companion>, u64) {
        let mut others: Vec<&Dead> = self
            .deaths
            .around(dead)
            .filter(|other| apart(other, dead.at) <= TOGETHER && other.id != dead.id)
            .filter(|other| (other.session.is_some() && other.session == dead.session) || other.is_worth_knowing())
            .collect();
        let rank = |other: &&Dead| (!other.is_worth_knowing(), apart(other, dead.at), other.id);
        let count = others.len() as u64;
        if others.len() > TOLD {
            others.select_nth_unstable_by_key(TOLD, rank);
            others.truncate(TOLD);
        }
        others.sort_by_key(rank);
        (others.into_iter().map(|other| companion(other, dead.at)).collect(), count)
    }
}

/// The time between two deaths, whichever was first.
fn apart(other: &Dead, at: BootTime) -> Duration {
    other.at.since(at).max(at.since(other.at))
}

fn companion(other: &Dead, at: BootTime) -> Companion {
    Companion {
        pid: other.id.pid.0,
        start_time: other.id.start_time.0,
        name: other.name(),
        uid: other.uid.map(|uid| uid.0),
        session: other.session.map(|session| session.0),
        exit_code: other.status.and_then(ExitStatus::code),
        signal: other.status.and_then(ExitStatus::signal),
        cause: cause::judge(other).cause,
        apart_seconds: apart(other, at).as_secs_f64(),
        later: other.at > at,
    }
}

fn memory(dead: &Dead) -> MemoryThen {
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
