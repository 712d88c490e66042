//! Fan-out: many helpers, or several agents, started by one session within a short time, each of normal size. Not a leak,
//! and what fills a host within a minute all the same.
//!
//! What counts is a helper that was started within the window *and still lives*, and only as a whole: a build's thousand
//! compilers are part of the one command that the agent runs, and the searches that an agent makes by the dozen are gone
//! when one looks. Those that overlap faster than they end do count: they are what is to be found.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::helper::{Helper, Part, Role, median};
use crate::api::{FindingKind, ProcessKind, Severity};
use crate::engine::Step;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, Bytes, ProcessId, SessionId, Uid};
use crate::engine::process::Process;
use crate::engine::standing::nearest_agent;

/// There have to be too many for this long: parallel searches are over by then, and `agent mcp list` starts every server
/// for a second.
const LASTING: Duration = Duration::from_secs(2);
/// A tool counts only when it has lived for this long: most are gone by then, and the next ones are there instead.
const NO_SEARCH: Duration = Duration::from_secs(1);
/// An open burst in which nothing starts or ends is described anew this often, for its memory: a look at a thousand helpers
/// costs 4 ms.
const REFRESH: Duration = Duration::from_secs(15);
/// How many starts of one session are remembered; a storm of more is as much of a finding.
const REMEMBERED: usize = 1_024;
/// From this many on, the steady memory of a role that has no helper left is forgotten.
const ROLES: usize = 512;
/// How many roles and starters the evidence lists; the rest is counted.
const LISTED: usize = 10;
/// From this share of the available memory on, what the burst will take is worth doing something about.
const HEAVY_PERCENT: u64 = 25;

/// What each session has started lately, and what helpers take once they have settled.
#[derive(Debug, Default)]
pub(in crate::engine) struct Fanout {
    sessions: BTreeMap<SessionId, Starts>,
    /// The session in whose list a process is.
    counted: HashMap<ProcessId, SessionId>,
    steady: BTreeMap<Role, Bytes>,
}

#[derive(Debug, Default)]
struct Starts {
    /// Who lives, and when it was started.
    living: BTreeMap<ProcessId, BootTime>,
    /// Starts within the window, those that have ended too.
    started: u64,
    /// When `started` was begun anew.
    counted_from: BootTime,
    /// Something started, ended, or became too old to count since the last look.
    changed: bool,
    /// There have been too many since.
    over: Option<BootTime>,
    burst: Option<Burst>,
}

/// An open finding.
#[derive(Debug)]
struct Burst {
    about: ProcessId,
    /// The most helpers and agents that there were.
    peak: (usize, usize),
    described: BootTime,
}

/// What is alive of a session's starts.
struct Seen<'a> {
    helpers: Vec<&'a Process>,
    agents: usize,
}

impl Step<'_> {
    /// A process executed a program: it may be a helper that its session started.
    pub(in crate::engine) fn fanout_exec(&mut self, at: BootTime, process: ProcessId) {
        let engine = &mut *self.engine;
        let Some(known) = engine.table.alive(process).filter(|known| engine.is_top(known)) else { return };
        // An agent inside another's session is started by that one.
        let own = engine.sessions.get(known.session);
        let starter = own.filter(|own| own.root == process).and_then(|own| own.parent).unwrap_or(known.session);
        let fanout = &mut engine.fanout;
        if let Some(before) = fanout.counted.get(&process) {
            // One that executes again is the same start; its session may be another by now.
            if *before == starter {
                return;
            }
            self.fanout_gone(process);
        }
        let fanout = &mut self.engine.fanout;
        let starts = fanout.sessions.entry(starter).or_default();
        starts.started += 1;
        starts.changed = true;
        if starts.living.len() < REMEMBERED {
            starts.living.insert(process, at);
            fanout.counted.insert(process, starter);
        }
    }

    pub(in crate::engine) fn fanout_gone(&mut self, process: ProcessId) {
        let fanout = &mut self.engine.fanout;
        if let Some(session) = fanout.counted.remove(&process)
            && let Some(starts) = fanout.sessions.get_mut(&session)
        {
            starts.changed |= starts.living.remove(&process).is_some();
        }
    }

    /// Keeps what settled helpers take, by role: what a burst of such helpers is going to take.
    pub(super) fn remember_steady(&mut self, helpers: &[Helper]) {
        let window = self.engine.config.fanout.window;
        let mut elders: BTreeMap<&Role, Vec<Bytes>> = BTreeMap::new();
        for helper in helpers.iter().filter(|helper| self.now.since(helper.started()) >= window) {
            elders.entry(&helper.role).or_default().push(helper.memory);
        }
        let steady = &mut self.engine.fanout.steady;
        if steady.len() > ROLES {
            // What runs now is more likely to be started again than what ran once.
            steady.retain(|role, _| elders.contains_key(role));
        }
        for (role, amounts) in elders {
            if let Some(typical) = median(amounts) {
                steady.insert(role.clone(), typical);
            }
        }
    }

    /// Looks at the sessions that have started something within the window; no other costs anything.
    pub(in crate::engine) fn tick_fanout(&mut self) {
        let (now, window) = (self.now, self.engine.config.fanout.window);
        let Fanout { sessions, counted, .. } = &mut self.engine.fanout;
        for starts in sessions.values_mut() {
            starts.living.retain(|process, at| {
                let recent = now.since(*at) < window;
                if !recent {
                    counted.remove(process);
                    starts.changed = true;
                }
                recent
            });
        }
        sessions.retain(|_, starts| !starts.living.is_empty() || starts.burst.is_some());
        let looked_at: Vec<SessionId> = sessions.keys().copied().collect();
        looked_at.into_iter().for_each(|session| self.review_starts(session));
    }

    fn review_starts(&mut self, session: SessionId) {
        let engine = &mut *self.engine;
        let (now, config) = (self.now, &engine.config.fanout);
        let Some(mut starts) = engine.fanout.sessions.remove(&session) else { return };
        if now.since(starts.counted_from) >= config.window && starts.over.is_none() {
            (starts.counted_from, starts.started) = (now, starts.living.len() as u64);
        }
        // Nothing below both bounds needs a closer look.
        if starts.burst.is_none() && starts.living.len() <= config.max_helpers.min(config.max_agents) {
            starts.over = None;
            engine.fanout.sessions.insert(session, starts);
            return;
        }
        let fresh = |burst: &Burst| now.since(burst.described) < REFRESH;
        if !std::mem::take(&mut starts.changed) && starts.burst.as_ref().is_some_and(fresh) {
            engine.fanout.sessions.insert(session, starts);
            return;
        }
        let seen = self.alive_of(&starts);
        let (helpers, agents) = (seen.helpers.len(), seen.agents);
        let config = &self.engine.config.fanout;
        let over = helpers > config.max_helpers || agents > config.max_agents;
        starts.over = over.then(|| starts.over.unwrap_or(now));
        // It is over when no more than half as many are that young.
        let calm = helpers <= config.max_helpers / 2 && agents <= config.max_agents / 2;
        let lasting = starts.over.is_some_and(|since| now.since(since) >= LASTING);
        let root = self.engine.sessions.get(session).map(|session| (session.root, session.uid));
        if starts.burst.is_none() && lasting {
            starts.burst = root.map(|(about, _)| Burst { about, peak: (0, 0), described: now });
        }
        let mut observed = None;
        if let Some(burst) = &mut starts.burst
            && !calm
        {
            burst.peak = (burst.peak.0.max(helpers), burst.peak.1.max(agents));
            burst.described = now;
            let (about, peak, started) = (burst.about, burst.peak, starts.started);
            observed = root.map(|(_, uid)| self.fanout_seen(about, session, uid, peak, started, &seen));
        }
        if let Some(observed) = observed {
            self.observe(observed);
        } else if let Some(burst) = starts.burst.take_if(|_| calm) {
            let gone = starts.living.is_empty() && root.is_none();
            let because = if gone { "its session is gone" } else { "no more are started" };
            self.close(Key { kind: FindingKind::Fanout, about: burst.about }, because);
        }
        self.engine.fanout.sessions.insert(session, starts);
    }

    /// The living of a session's starts that are helpers still.
    fn alive_of(&self, starts: &Starts) -> Seen<'_> {
        let engine = &*self.engine;
        let counts = |process: &Process, at: BootTime| {
            let tool = matches!(process.kind, ProcessKind::Tool | ProcessKind::Other);
            // What a person starts in a pane below a tmux server is no agent's.
            let agent = nearest_agent(&engine.table, process.id).is_some_and(Process::alive);
            agent && engine.is_top(process) && (!tool || self.now.since(at) >= NO_SEARCH)
        };
        let alive = starts.living.iter().filter_map(|(process, at)| Some((engine.table.alive(*process)?, *at)));
        let helpers: Vec<&Process> =
            alive.filter(|(process, at)| counts(process, *at)).map(|(process, _)| process).collect();
        let agents = helpers.iter().filter(|process| process.is_agent()).count();
        Seen { helpers, agents }
    }

    fn fanout_seen(
        &self,
        about: ProcessId,
        session: SessionId,
        uid: Uid,
        peak: (usize, usize),
        started: u64,
        seen: &Seen<'_>,
    ) -> Observation {
        let engine = &*self.engine;
        let config = &engine.config.fanout;
        let mut roles: BTreeMap<Role, (usize, Bytes)> = BTreeMap::new();
        let mut starters: BTreeMap<ProcessId, usize> = BTreeMap::new();
        let mut expected = Bytes(0);
        // What is expected of the helpers that a helper has started itself.
        let mut below: BTreeMap<ProcessId, Bytes> = BTreeMap::new();
        for Part { helper, memory, within } in engine.parts(&seen.helpers) {
            let (role, _) = engine.role(helper);
            // What helpers of this role settle at has in it what they start.
            let so_far = memory + below.remove(&helper.id).unwrap_or_default();
            let settled = engine.fanout.steady.get(&role).copied().unwrap_or_default().max(so_far);
            *within.map_or(&mut expected, |upper| below.entry(upper).or_default()) += settled;
            let row = roles.entry(role).or_default();
            *row = (row.0 + 1, row.1 + memory);
            if let Some(parent) = helper.forked_by {
                *starters.entry(parent).or_default() += 1;
            }
        }
        let memory: Bytes = roles.values().map(|(_, memory)| *memory).sum();
        let known = roles.keys().any(|role| engine.fanout.steady.contains_key(role));
        let available = engine.close_watch.host.available;

        let mut evidence = Map::new();
        evidence.insert("helpers".into(), json!(seen.helpers.len()));
        evidence.insert("helpers_at_most".into(), json!(peak.0));
        evidence.insert("helpers_limit".into(), json!(config.max_helpers));
        if peak.1 > 0 {
            evidence.insert("agents".into(), json!(seen.agents));
            evidence.insert("agents_at_most".into(), json!(peak.1));
            evidence.insert("agents_limit".into(), json!(config.max_agents));
        }
        evidence.insert("window_seconds".into(), json!(config.window.as_secs()));
        evidence.insert("started".into(), json!(started));
        evidence.insert("memory_bytes".into(), json!(memory));
        evidence.insert("expected_bytes".into(), json!(known.then_some(expected)));
        evidence.insert("available_bytes".into(), json!(available));
        let mut by_count: Vec<(Role, (usize, Bytes))> = roles.into_iter().collect();
        by_count.sort_by_key(|(_, (count, ..))| std::cmp::Reverse(*count));
        let listed = by_count.iter().take(LISTED).map(|(role, (count, memory))| {
            json!({
                "name": role.program,
                "process_kind": role.kind,
                "count": count,
                "memory_bytes": memory,
                "steady_each_bytes": engine.fanout.steady.get(role),
            })
        });
        evidence.insert("what".into(), Value::Array(listed.collect()));
        let mut starters: Vec<(ProcessId, usize)> = starters.into_iter().collect();
        starters.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let label = |id: &ProcessId| engine.table.get(*id).map(Process::label);
        let listed = starters.iter().take(LISTED).map(|(starter, count)| {
            let kind = engine.table.get(*starter).map(|starter| starter.kind);
            json!({
                "pid": starter.pid, "start_time": starter.start_time, "name": label(starter), "process_kind": kind,
                "count": count,
            })
        });
        evidence.insert("started_by".into(), Value::Array(listed.collect()));

        let what = if peak.0 > config.max_helpers || peak.1 <= config.max_agents {
            format!("{} helpers", peak.0)
        } else {
            format!("{} agents", peak.1)
        };
        let by = starters.first().and_then(|(starter, _)| Some(format!("{} (pid {})", label(starter)?, starter.pid)));
        let will = if known {
            format!(", {} MiB when they are like those before them", expected.mib())
        } else {
            String::new()
        };
        Observation {
            key: Key { kind: FindingKind::Fanout, about },
            severity: severity(memory, expected, available),
            session: Some(session),
            subject: about,
            members: starters.iter().map(|(starter, _)| *starter).collect(),
            uid,
            cause: self.now,
            summary: format!(
                "{what} within {} s by {}: {} MiB now{will}",
                config.window.as_secs(),
                by.unwrap_or_else(|| "a process that is gone".into()),
                memory.mib()
            ),
            evidence,
            proposal: Proposal::Report,
        }
    }
}

/// By what the burst has taken and what it still will, beside what is left.
fn severity(memory: Bytes, expected: Bytes, available: Bytes) -> Severity {
    let to_come = Bytes(expected.0.saturating_sub(memory.0));
    if available.0 == 0 {
        Severity::Info
    } else if to_come.max(memory) >= available {
        Severity::Critical
    } else if expected >= available.percent(HEAVY_PERCENT) {
        Severity::Warning
    } else {
        Severity::Info
    }
}
