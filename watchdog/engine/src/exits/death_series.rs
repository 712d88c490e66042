//! Deaths of one role: a supervisor starts a program again and again, and each of its lives ends in the same way.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::record::ExitedProcess;
use watchdog_api::{Cause, DeathFacts, DeathSeries, ProcessKind, Relation};
use watchdog_classify as classify;
use watchdog_types::{BootTime, Pid, Uid};

/// Deaths from which on a series is reported.
const SHOWN_FROM: usize = 3;
/// Roles, and the latest deaths of each, that are remembered. 100 bytes for each death.
const ROLES: usize = 1_000;
const DEATHS: usize = 100;
/// A supervisor stands at most this far above what it restarts, behind launchers.
const STARTERS: usize = 5;
/// A role without a death for this long begins anew.
const FORGET: Duration = Duration::from_secs(86_400);

/// The same program, whichever process started it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Role {
    uid: Option<Uid>,
    kind: Option<ProcessKind>,
    program: String,
    /// A digest; `None` for agents, whose prompts differ.
    arguments: Option<u64>,
}

#[derive(Clone, Debug)]
struct PastDeath {
    /// The nearest first.
    starters: Vec<Pid>,
    at: BootTime,
    age: Option<Duration>,
    cause: Cause,
}

#[derive(Debug, Default)]
pub(super) struct DeathsByRole {
    roles: BTreeMap<Role, VecDeque<PastDeath>>,
}

impl DeathsByRole {
    /// Adds a death, and gives the series that it continues.
    pub(super) fn add(&mut self, dead: &ExitedProcess, facts: &DeathFacts) -> Option<DeathSeries> {
        let (role, cause) = (Role::of(dead)?, facts.cause);
        let is_tool = matches!(dead.kind, Some(ProcessKind::Tool | ProcessKind::Other) | None);
        // A person who interrupts an agent now and then.
        let typed = cause == Cause::AskedToEnd
            && facts.sender.as_ref().is_some_and(|sender| sender.relation == Relation::Kernel);
        if typed || cause == Cause::Finished || is_tool && cause == Cause::Failed {
            return None;
        }
        self.forget(dead.at);
        let mut starters = vec![dead.parent_pid?];
        starters.extend(dead.above.iter().filter(|above| Some(**above) != dead.parent_pid).take(STARTERS - 1));
        let past = self.roles.entry(role).or_default();
        past.push_back(PastDeath { starters: starters.clone(), at: dead.at, age: dead.age(), cause });
        if past.len() > DEATHS {
            past.pop_front();
        }
        // The nearest of those that started the most of them.
        let started = |starter: &Pid| past.iter().filter(|death| death.starters.contains(starter)).count();
        let starter = starters.into_iter().rev().max_by_key(started)?;
        let all: Vec<&PastDeath> = past.iter().filter(|death| death.starters.contains(&starter)).collect();
        let same: Vec<&PastDeath> = all.iter().copied().filter(|death| death.cause == cause).collect();
        let mut ages: Vec<Duration> = same.iter().filter_map(|death| death.age).collect();
        ages.sort_unstable();
        let first = all.first().filter(|_| same.len() >= SHOWN_FROM)?;
        Some(DeathSeries {
            deaths: all.len() as u64,
            same_cause: same.len() as u64,
            span_seconds: dead.at.since(first.at).as_secs_f64() + first.age.unwrap_or_default().as_secs_f64(),
            median_age_seconds: ages.get(ages.len() / 2).map(Duration::as_secs_f64),
            starter_pid: Some(starter.0),
        })
    }

    fn forget(&mut self, now: BootTime) {
        if self.roles.len() < ROLES {
            return;
        }
        let last = |deaths: &VecDeque<PastDeath>| deaths.back().map_or(BootTime(0), |death| death.at);
        self.roles.retain(|_, deaths| now.since(last(deaths)) < FORGET);
        if self.roles.len() >= ROLES {
            let oldest = self.roles.iter().min_by_key(|(_, deaths)| last(deaths)).map(|(role, _)| role.clone());
            oldest.into_iter().for_each(|role| drop(self.roles.remove(&role)));
        }
    }
}

impl Role {
    fn of(dead: &ExitedProcess) -> Option<Self> {
        let classify::Identity { name, arguments } = classify::identity(&dead.image);
        let is_agent = dead.is_agent();
        Some(Self {
            uid: dead.uid,
            kind: dead.kind,
            program: name,
            arguments: if is_agent { None } else { Some(arguments?) },
        })
    }
}
