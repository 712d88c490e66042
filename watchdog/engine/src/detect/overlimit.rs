//! Over a limit: a process, a session, or all sessions of a profile take more memory than the configuration allows them.
//! One finding for each subject, with every limit that it breaks.
//!
//! One walk over the table per tick in which a memory moved.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Conclusions, Detector, Facts};
use crate::finding::{Detection, Key, Proposal};
use crate::process::TrackedProcess;
use crate::recheck::Recheck;
use watchdog_api::evidence::{LimitScope, OverlimitEvidence, PassedLimit};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_config::Profile;
use watchdog_types::{BootTime, Bytes, ProcessId, SessionId};

/// A limit has to be passed for this long: a tool's burst of a second or two is over by then.
const LASTING: Duration = Duration::from_secs(3);
/// Below this share of the limit, for [`CLEAR_FOR`], it is no longer passed: memory that sways around a limit is over it.
const CLEAR_PERCENT: u64 = 90;
const CLEAR_FOR: Duration = Duration::from_secs(15);
/// The multiple of the limit from which on it is urgent.
const URGENT_TIMES: u64 = 2;

/// The limits that are passed, or were a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Overlimit {
    passed: BTreeMap<Limited, Passed>,
    /// Findings that are open.
    open: BTreeSet<ProcessId>,
    walk: Recheck,
}

/// A subject with a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limited {
    Process(ProcessId),
    /// The memory of a kept process and its descendants.
    Kept(ProcessId),
    Session(SessionId),
    Profile(String),
}

#[derive(Clone, Copy, Debug)]
struct Passed {
    /// The process that the finding is about: of a profile, the oldest agent when it was passed.
    about: ProcessId,
    since: BootTime,
    limit: Bytes,
    value: Bytes,
    peak: Bytes,
    /// Since when it has been well below.
    below: Option<BootTime>,
}

/// The current memory of a subject with a limit.
struct Taken {
    about: ProcessId,
    limit: Bytes,
    value: Bytes,
}

impl Limited {
    const fn scope(&self) -> LimitScope {
        match self {
            Self::Process(_) => LimitScope::Process,
            Self::Kept(_) => LimitScope::Kept,
            Self::Session(_) => LimitScope::Session,
            Self::Profile(_) => LimitScope::Profile,
        }
    }
}

impl Overlimit {
    /// Single processes that have passed a limit, and which.
    pub(crate) fn processes_over(&self, now: BootTime) -> impl Iterator<Item = (ProcessId, &'static str)> + use<'_> {
        let lasting = self.passed.iter().filter(move |(_, passed)| now.since(passed.since) >= LASTING);
        lasting.filter_map(|(limited, _)| match limited {
            Limited::Process(process) => Some((*process, "passes the memory limit of a process")),
            Limited::Kept(process) => Some((*process, "passes [orphans] kept_memory_limit")),
            Limited::Session(_) | Limited::Profile(_) => None,
        })
    }
}

impl Detector for Overlimit {
    /// One walk over the table, when a memory moved.
    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        if !self.walk.is_due(facts.table.generation(), facts.now) && self.passed.is_empty() {
            return;
        }
        let taken = self.all_limited(facts);
        let now = facts.now;
        let passed = &mut self.passed;
        // A subject that has exited, or lost its limit, counts as zero.
        passed.retain(|limited, _| taken.contains_key(limited));
        for (limited, Taken { about, limit, value }) in taken {
            let clear = value < limit.percent(CLEAR_PERCENT);
            match passed.get_mut(&limited) {
                Some(known) => {
                    (known.limit, known.value, known.peak) = (limit, value, known.peak.max(value));
                    let lasting = now.since(known.since) >= LASTING;
                    known.below = clear.then(|| known.below.unwrap_or(now));
                    let over = known.below.is_some_and(|since| now.since(since) >= CLEAR_FOR);
                    // One that was short was a burst.
                    if over || (!lasting && value <= limit) {
                        passed.remove(&limited);
                    }
                }
                None if value > limit => {
                    passed.insert(limited, Passed { about, since: now, limit, value, peak: value, below: None });
                }
                None => {}
            }
        }
        self.describe_limits(facts, out);
    }
}

impl Overlimit {
    /// Everything that has a limit and lives, with what it takes.
    fn all_limited(&self, facts: &Facts<'_>) -> BTreeMap<Limited, Taken> {
        let total = facts.host.total;
        let limits = |profile: &Profile| {
            let on_host =
                |size: Option<watchdog_config::Size>| size.map(|size| size.on_host(total)).filter(|b| b.0 > 0);
            (on_host(profile.max_process_memory), on_host(profile.max_memory), on_host(profile.max_total_memory))
        };
        let profiles: BTreeMap<&str, _> = facts
            .config
            .profiles
            .iter()
            .map(|profile| (profile.name.as_str(), limits(profile)))
            .filter(|(_, limits)| *limits != (None, None, None))
            .collect();
        let mut taken = self.kept_taken(facts);
        if profiles.is_empty() {
            return taken;
        }
        for process in facts.table.living() {
            let Some(session) = facts.sessions.get(process.session) else { continue };
            let names = std::iter::once(&session.profile).chain(&session.matched);
            let limiting: Vec<_> = names.filter_map(|name| Some((name, profiles.get(name.as_str())?))).collect();
            let cost = process.cost();
            if let Some(limit) = limiting.iter().filter_map(|(_, limits)| limits.0).min() {
                taken.insert(Limited::Process(process.id), Taken { about: process.id, limit, value: cost });
            }
            if facts.uncharged.contains(&process.id) {
                continue;
            }
            let mut add = |limited: Limited, limit: Option<Bytes>| {
                let Some(limit) = limit else { return };
                let row = taken.entry(limited).or_insert(Taken { about: session.root, limit, value: Bytes(0) });
                row.value += cost;
                // The table has no order: the oldest agent stands for all.
                if (session.root.start_time, session.root.pid) < (row.about.start_time, row.about.pid) {
                    row.about = session.root;
                }
            };
            add(Limited::Session(session.id), limiting.iter().filter_map(|(_, limits)| limits.1).min());
            for (name, (_, _, of_profile)) in limiting {
                add(Limited::Profile(name.clone()), *of_profile);
            }
        }
        taken
    }

    /// The memory of kept processes, and those that were kept until they exceeded this limit.
    fn kept_taken(&self, facts: &Facts<'_>) -> BTreeMap<Limited, Taken> {
        let limit = facts.config.orphans.kept_memory_limit.on_host(facts.host.total);
        if limit.0 == 0 {
            return BTreeMap::new();
        }
        let passed = |id| self.passed.contains_key(&Limited::Kept(id));
        let kept = facts.table.living().filter(|process| process.verdict.is_kept() || passed(process.id));
        kept.map(|process| {
            let started = facts.table.below(process.id, |below| !below.is_agent() && !below.verdict.is_kept());
            let started = started.into_iter().filter_map(|id| facts.table.alive(id)).map(TrackedProcess::cost);
            let value = process.cost() + started.sum();
            (Limited::Kept(process.id), Taken { about: process.id, limit, value })
        })
        .collect()
    }

    /// Opens, brings up to date and closes the findings.
    fn describe_limits(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let now = facts.now;
        let mut by_subject: BTreeMap<ProcessId, Vec<(Limited, Passed)>> = BTreeMap::new();
        for (limited, passed) in &self.passed {
            if now.since(passed.since) >= LASTING {
                by_subject.entry(passed.about).or_default().push((limited.clone(), *passed));
            }
        }
        let over: Vec<ProcessId> = self.open.iter().filter(|about| !by_subject.contains_key(about)).copied().collect();
        for about in over {
            self.open.remove(&about);
            let gone = facts.table.alive(about).is_none();
            out.close(Key { kind: FindingKind::Overlimit, about }, if gone { "gone" } else { "below its limit" });
        }
        for (about, limits) in by_subject {
            if let Some(seen) = observation(about, &limits, facts) {
                self.open.insert(about);
                out.report(seen);
            }
        }
    }
}

fn observation(about: ProcessId, limits: &[(Limited, Passed)], facts: &Facts<'_>) -> Option<Detection> {
    let excess = |passed: &Passed| u128::from(passed.value.0) * 1_000 / u128::from(passed.limit.0.max(1));
    let (worst, passed) = limits.iter().max_by_key(|(_, passed)| excess(passed))?;
    let process = facts.table.get(about);
    let session = process.and_then(|process| facts.sessions.get(process.session)).or_else(|| {
        let of = limits.iter().find_map(|(limited, _)| match limited {
            Limited::Session(session) => Some(*session),
            Limited::Process(_) | Limited::Kept(_) | Limited::Profile(_) => None,
        });
        facts.sessions.get(of.or_else(|| facts.sessions.of_root(about))?)
    })?;
    let all = limits.iter().map(|(limited, passed)| PassedLimit {
        limit_bytes: passed.limit,
        over_for_seconds: facts.now.since(passed.since).as_secs(),
        peak_bytes: passed.peak,
        scope: limited.scope(),
        value_bytes: passed.value,
    });
    let (pid, of_session) = match worst {
        Limited::Process(process) | Limited::Kept(process) => (Some(process.pid), None),
        Limited::Session(session) => (None, Some(*session)),
        Limited::Profile(_) => (None, None),
    };
    let evidence = Evidence::Overlimit(Box::new(OverlimitEvidence {
        limit_bytes: passed.limit,
        limits: if limits.len() > 1 { all.collect() } else { Vec::new() },
        name: process.map(TrackedProcess::label),
        over_for_seconds: facts.now.since(passed.since).as_secs(),
        peak_bytes: passed.peak,
        pid,
        profile: session.profile.clone(),
        scope: worst.scope(),
        session: of_session,
        value_bytes: passed.value,
    }));
    let urgent = passed.value.0 / URGENT_TIMES >= passed.limit.0;
    Some(Detection {
        key: Key { kind: FindingKind::Overlimit, about },
        severity: if urgent { Severity::Critical } else { Severity::Warning },
        session: Some(session.id),
        subject: about,
        members: Vec::new(),
        uid: session.uid,
        cause: facts.now,
        summary: evidence.to_string(),
        evidence,
        proposal: Proposal::Report,
    })
}
