//! Over a limit: a process, a session, or all sessions of a profile take more memory than the configuration allows them.
//! One finding for each subject, with every limit that it breaks.
//!
//! One walk over the table per tick in which a memory moved.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::api::{FindingKind, Severity};
use crate::config::Profile;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, Bytes, ProcessId, SessionId};
use crate::engine::process::Process;
use crate::engine::{Engine, Step};

/// A limit has to be passed for this long: a tool's burst of a second or two is over by then.
const LASTING: Duration = Duration::from_secs(3);
/// And it is passed no longer when less than this share of it was taken for this long: what sways around a limit is over it.
const CLEAR_PERCENT: u64 = 90;
const CLEAR_FOR: Duration = Duration::from_secs(15);
/// From this many times the limit on it is urgent.
const URGENT_TIMES: u64 = 2;

/// The limits that are passed, or were a moment ago.
#[derive(Debug, Default)]
pub(in crate::engine) struct Overlimit {
    passed: BTreeMap<Limited, Passed>,
    /// Findings that are open.
    open: BTreeSet<ProcessId>,
}

/// What has a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Limited {
    Process(ProcessId),
    /// What a kept process costs, with what it started.
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

/// What a limited thing takes now.
struct Taken {
    about: ProcessId,
    limit: Bytes,
    value: Bytes,
}

impl Limited {
    const fn scope(&self) -> &'static str {
        match self {
            Self::Process(_) => "process",
            Self::Kept(_) => "kept",
            Self::Session(_) => "session",
            Self::Profile(_) => "profile",
        }
    }
}

impl Overlimit {
    /// Single processes that have passed a limit, and which.
    pub(in crate::engine) fn processes_over(
        &self,
        now: BootTime,
    ) -> impl Iterator<Item = (ProcessId, &'static str)> + use<'_> {
        let lasting = self.passed.iter().filter(move |(_, passed)| now.since(passed.since) >= LASTING);
        lasting.filter_map(|(limited, _)| match limited {
            Limited::Process(process) => Some((*process, "passes the memory limit of a process")),
            Limited::Kept(process) => Some((*process, "passes [orphans] kept_memory_limit")),
            Limited::Session(_) | Limited::Profile(_) => None,
        })
    }
}

impl Step<'_> {
    pub(in crate::engine) fn tick_overlimit(&mut self) {
        let Engine { table, overlimit, limited, .. } = &mut *self.engine;
        if !limited.is_due(table.moves(), self.now) && overlimit.passed.is_empty() {
            return;
        }
        let taken = self.all_limited();
        let now = self.now;
        let passed = &mut self.engine.overlimit.passed;
        // What has ended, or has no limit any more, takes nothing.
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
        self.describe_limits();
    }

    /// Everything that has a limit and lives, with what it takes.
    fn all_limited(&self) -> BTreeMap<Limited, Taken> {
        let engine = &*self.engine;
        let total = engine.close_watch.host.total;
        let limits = |profile: &Profile| {
            let on_host = |size: Option<crate::config::Size>| size.map(|size| size.on_host(total)).filter(|b| b.0 > 0);
            (on_host(profile.max_process_memory), on_host(profile.max_memory), on_host(profile.max_total_memory))
        };
        let profiles: BTreeMap<&str, _> = engine
            .config
            .profiles
            .iter()
            .map(|profile| (profile.name.as_str(), limits(profile)))
            .filter(|(_, limits)| *limits != (None, None, None))
            .collect();
        let mut taken = self.kept_taken();
        if profiles.is_empty() {
            return taken;
        }
        for process in engine.table.living() {
            let Some(session) = engine.sessions.get(process.session) else { continue };
            let names = std::iter::once(&session.profile).chain(&session.matched);
            let limiting: Vec<_> = names.filter_map(|name| Some((name, profiles.get(name.as_str())?))).collect();
            let cost = process.cost();
            if let Some(limit) = limiting.iter().filter_map(|(_, limits)| limits.0).min() {
                taken.insert(Limited::Process(process.id), Taken { about: process.id, limit, value: cost });
            }
            if engine.charged_to_nobody(process.id) {
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

    /// What kept processes cost, and those that were kept until they passed this limit.
    fn kept_taken(&self) -> BTreeMap<Limited, Taken> {
        let engine = &*self.engine;
        let limit = engine.config.orphans.kept_memory_limit.on_host(engine.close_watch.host.total);
        if limit.0 == 0 {
            return BTreeMap::new();
        }
        let passed = |id| engine.overlimit.passed.contains_key(&Limited::Kept(id));
        let kept = engine.table.living().filter(|process| process.verdict.is_kept() || passed(process.id));
        kept.map(|process| {
            let started = engine.table.below(process.id, |below| !below.is_agent() && !below.verdict.is_kept());
            let started = started.into_iter().filter_map(|id| engine.table.alive(id)).map(Process::cost);
            let value = process.cost() + started.sum();
            (Limited::Kept(process.id), Taken { about: process.id, limit, value })
        })
        .collect()
    }

    /// Opens, brings up to date and closes the findings.
    fn describe_limits(&mut self) {
        let now = self.now;
        let mut by_subject: BTreeMap<ProcessId, Vec<(Limited, Passed)>> = BTreeMap::new();
        for (limited, passed) in &self.engine.overlimit.passed {
            if now.since(passed.since) >= LASTING {
                by_subject.entry(passed.about).or_default().push((limited.clone(), *passed));
            }
        }
        let over: Vec<ProcessId> =
            self.engine.overlimit.open.iter().filter(|about| !by_subject.contains_key(about)).copied().collect();
        for about in over {
            self.engine.overlimit.open.remove(&about);
            let gone = self.engine.table.alive(about).is_none();
            self.close(Key { kind: FindingKind::Overlimit, about }, if gone { "gone" } else { "below its limit" });
        }
        for (about, limits) in by_subject {
            if let Some(seen) = self.overlimit_seen(about, &limits) {
                self.engine.overlimit.open.insert(about);
                self.observe(seen);
            }
        }
    }

    fn overlimit_seen(&self, about: ProcessId, limits: &[(Limited, Passed)]) -> Option<Observation> {
        let engine = &*self.engine;
        let excess = |passed: &Passed| u128::from(passed.value.0) * 1_000 / u128::from(passed.limit.0.max(1));
        let (worst, passed) = limits.iter().max_by_key(|(_, passed)| excess(passed))?;
        let process = engine.table.get(about);
        let session = process.and_then(|process| engine.sessions.get(process.session)).or_else(|| {
            let of = limits.iter().find_map(|(limited, _)| match limited {
                Limited::Session(session) => Some(*session),
                Limited::Process(_) | Limited::Kept(_) | Limited::Profile(_) => None,
            });
            engine.sessions.get(of.or_else(|| engine.sessions.of_root(about))?)
        })?;
        let row = |limited: &Limited, passed: &Passed| {
            json!({
                "scope": limited.scope(),
                "limit_bytes": passed.limit,
                "value_bytes": passed.value,
                "peak_bytes": passed.peak,
                "over_for_seconds": self.now.since(passed.since).as_secs(),
            })
        };
        let mut evidence = Map::new();
        if let Value::Object(fields) = row(worst, passed) {
            evidence.extend(fields);
        }
        evidence.insert("profile".into(), json!(session.profile));
        evidence.insert("name".into(), json!(process.map(Process::label)));
        if limits.len() > 1 {
            let all = limits.iter().map(|(limited, passed)| row(limited, passed)).collect();
            evidence.insert("limits".into(), Value::Array(all));
        }
        let who = match worst {
            Limited::Process(process) => {
                let label = engine.table.get(*process).map_or_else(|| "a process".into(), |known| known.label());
                format!("{label} (pid {})", process.pid)
            }
            Limited::Kept(process) => {
                let label = engine.table.get(*process).map_or_else(|| "a process".into(), |known| known.label());
                format!("{label} (pid {}) and what it started, which is kept", process.pid)
            }
            Limited::Session(session) => format!("session {session}"),
            Limited::Profile(profile) => format!("all sessions of {profile} together"),
        };
        let urgent = passed.value.0 / URGENT_TIMES >= passed.limit.0;
        Some(Observation {
            key: Key { kind: FindingKind::Overlimit, about },
            severity: if urgent { Severity::Critical } else { Severity::Warning },
            session: Some(session.id),
            subject: about,
            members: Vec::new(),
            uid: session.uid,
            cause: self.now,
            summary: format!("{who}: {} MiB, over the limit of {} MiB", passed.value.mib(), passed.limit.mib()),
            evidence,
            proposal: Proposal::Report,
        })
    }
}
