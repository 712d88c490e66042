//! Fan-out: many helpers, or several agents, started by one session within a short time, each of normal size. Not a leak,
//! and what fills a host within a minute all the same.
//!
//! What counts is a helper that was started within the window *and still lives*, and only as a whole: a build's thousand
//! compilers are part of the one command that the agent runs, and the searches that an agent makes by the dozen have exited
//! by the next sample. Those that overlap faster than they end do count: they are what must be found.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::survey::{Helper, HelperRole, Part, median};
use super::{Conclusions, Detector, Facts};
use crate::finding::{Detection, Key, Proposal};
use crate::ownership::nearest_agent;
use crate::process::TrackedProcess;
use watchdog_api::evidence::{FanoutEvidence, FanoutRole, FanoutStarter};
use watchdog_api::{Evidence, FindingKind, ProcessKind, Severity};
use watchdog_types::{BootTime, Bytes, ProcessId, SessionId, Uid};

/// There have to be too many for this long: parallel searches are over by then, and `agent mcp list` starts every server
/// for a second.
const LASTING: Duration = Duration::from_secs(2);
/// A tool counts only when it has lived for this long: most have exited by then, and the next ones run instead.
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

/// Recent starts of each session, and the memory of settled helpers.
#[derive(Debug, Default)]
pub(crate) struct Fanout {
    sessions: BTreeMap<SessionId, Starts>,
    /// The session in whose list a process is.
    counted: HashMap<ProcessId, SessionId>,
    steady: BTreeMap<HelperRole, Bytes>,
}

#[derive(Debug, Default)]
struct Starts {
    /// Living processes, and when they were started.
    living: BTreeMap<ProcessId, BootTime>,
    /// Starts within the window, those that have ended too.
    started: u64,
    /// When `started` was begun anew.
    counted_from: BootTime,
    /// Something started, ended, or became too old to count since the last look.
    changed: bool,
    /// Since when there are too many.
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

/// The living processes among a session's starts.
struct Seen<'a> {
    helpers: Vec<&'a TrackedProcess>,
    agents: usize,
}

impl Starts {
    /// The living of a session's starts that are helpers still.
    fn seen<'a>(&self, facts: &Facts<'a>) -> Seen<'a> {
        let counts = |process: &TrackedProcess, at: BootTime| {
            let tool = matches!(process.kind, ProcessKind::Tool | ProcessKind::Other);
            // What a person starts in a pane below a tmux server is no agent's.
            let agent = nearest_agent(facts.table, process.id).is_some_and(TrackedProcess::alive);
            agent && facts.is_top(process) && (!tool || facts.now.since(at) >= NO_SEARCH)
        };
        let alive = self.living.iter().filter_map(|(process, at)| Some((facts.table.alive(*process)?, *at)));
        let helpers: Vec<&TrackedProcess> =
            alive.filter(|(process, at)| counts(process, *at)).map(|(process, _)| process).collect();
        let agents = helpers.iter().filter(|process| process.is_agent()).count();
        Seen { helpers, agents }
    }
}

impl Detector for Fanout {
    fn started(&mut self, process: ProcessId, at: BootTime, facts: &Facts<'_>) {
        self.count_start(process, at, facts);
    }

    fn executed(&mut self, process: ProcessId, at: BootTime, facts: &Facts<'_>, _out: &mut Conclusions) {
        self.count_start(process, at, facts);
    }

    fn exited(&mut self, process: ProcessId, _at: BootTime, _facts: &Facts<'_>, _out: &mut Conclusions) {
        self.forget(process);
    }

    /// Keeps what settled helpers take, by role: what a burst of such helpers is going to take.
    fn surveyed(&mut self, helpers: &[Helper], _pace: Duration, facts: &Facts<'_>, _out: &mut Conclusions) {
        let window = facts.config.fanout.window;
        let mut elders: BTreeMap<&HelperRole, Vec<Bytes>> = BTreeMap::new();
        for helper in helpers.iter().filter(|helper| facts.now.since(helper.started()) >= window) {
            elders.entry(&helper.role).or_default().push(helper.memory);
        }
        let steady = &mut self.steady;
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

    /// Sessions that have started nothing within the window cost nothing.
    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let (now, window) = (facts.now, facts.config.fanout.window);
        let Self { sessions, counted, .. } = self;
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
        looked_at.into_iter().for_each(|session| self.review_starts(session, facts, out));
    }
}

impl Fanout {
    /// A process may be a helper that its session started.
    fn count_start(&mut self, process: ProcessId, at: BootTime, facts: &Facts<'_>) {
        let Some(known) = facts.table.alive(process).filter(|known| facts.is_top(known)) else { return };
        // An agent inside another's session is started by that one.
        let own = facts.sessions.get(known.session);
        let starter = own.filter(|own| own.root == process).and_then(|own| own.parent).unwrap_or(known.session);
        if let Some(before) = self.counted.get(&process) {
            // One that executes again is the same start; its session may be another by now.
            if *before == starter {
                return;
            }
            self.forget(process);
        }
        let starts = self.sessions.entry(starter).or_default();
        starts.started += 1;
        starts.changed = true;
        if starts.living.len() < REMEMBERED {
            starts.living.insert(process, at);
            self.counted.insert(process, starter);
        }
    }

    fn forget(&mut self, process: ProcessId) {
        if let Some(session) = self.counted.remove(&process)
            && let Some(starts) = self.sessions.get_mut(&session)
        {
            starts.changed |= starts.living.remove(&process).is_some();
        }
    }

    fn review_starts(&mut self, session: SessionId, facts: &Facts<'_>, out: &mut Conclusions) {
        let (now, config) = (facts.now, &facts.config.fanout);
        let Some(mut starts) = self.sessions.remove(&session) else { return };
        if now.since(starts.counted_from) >= config.window && starts.over.is_none() {
            (starts.counted_from, starts.started) = (now, starts.living.len() as u64);
        }
        // Nothing below both bounds needs a closer look.
        if starts.burst.is_none() && starts.living.len() <= config.max_helpers.min(config.max_agents) {
            starts.over = None;
            self.sessions.insert(session, starts);
            return;
        }
        let fresh = |burst: &Burst| now.since(burst.described) < REFRESH;
        if !std::mem::take(&mut starts.changed) && starts.burst.as_ref().is_some_and(fresh) {
            self.sessions.insert(session, starts);
            return;
        }
        let seen = starts.seen(facts);
        let (helpers, agents) = (seen.helpers.len(), seen.agents);
        let config = &facts.config.fanout;
        let over = helpers > config.max_helpers || agents > config.max_agents;
        starts.over = over.then(|| starts.over.unwrap_or(now));
        // It is over when no more than half as many are that young.
        let calm = helpers <= config.max_helpers / 2 && agents <= config.max_agents / 2;
        let lasting = starts.over.is_some_and(|since| now.since(since) >= LASTING);
        let root = facts.sessions.get(session).map(|session| (session.root, session.uid));
        if starts.burst.is_none() && lasting {
            starts.burst = root.map(|(about, _)| Burst { about, peak: (0, 0), described: now });
        }
        let mut observed = None;
        if let Some(burst) = &mut starts.burst
            && !calm
        {
            burst.peak = (burst.peak.0.max(helpers), burst.peak.1.max(agents));
            burst.described = now;
            let started = starts.started;
            observed = root.map(|(_, uid)| self.observation(burst, session, uid, started, &seen, facts));
        }
        if let Some(observed) = observed {
            out.report(observed);
        } else if let Some(burst) = starts.burst.take_if(|_| calm) {
            let gone = starts.living.is_empty() && root.is_none();
            let because = if gone { "its session is gone" } else { "no more are started" };
            out.close(Key { kind: FindingKind::Fanout, about: burst.about }, because);
        }
        self.sessions.insert(session, starts);
    }

    fn observation(
        &self,
        burst: &Burst,
        session: SessionId,
        uid: Uid,
        started: u64,
        seen: &Seen<'_>,
        facts: &Facts<'_>,
    ) -> Detection {
        let Burst { about, peak, .. } = *burst;
        let config = &facts.config.fanout;
        let mut roles: BTreeMap<HelperRole, (usize, Bytes)> = BTreeMap::new();
        let mut starters: BTreeMap<ProcessId, usize> = BTreeMap::new();
        let mut expected = Bytes(0);
        // What is expected of the helpers that a helper has started itself.
        let mut below: BTreeMap<ProcessId, Bytes> = BTreeMap::new();
        for Part { helper, memory, within } in facts.parts(&seen.helpers) {
            let (role, _) = facts.role(helper);
            // What helpers of this role settle at has in it what they start.
            let so_far = memory + below.remove(&helper.id).unwrap_or_default();
            let settled = self.steady.get(&role).copied().unwrap_or_default().max(so_far);
            *within.map_or(&mut expected, |upper| below.entry(upper).or_default()) += settled;
            let row = roles.entry(role).or_default();
            *row = (row.0 + 1, row.1 + memory);
            if let Some(parent) = helper.forked_by {
                *starters.entry(parent).or_default() += 1;
            }
        }
        let memory: Bytes = roles.values().map(|(_, memory)| *memory).sum();
        let known = roles.keys().any(|role| self.steady.contains_key(role));
        let available = facts.host.available;

        let mut by_count: Vec<(HelperRole, (usize, Bytes))> = roles.into_iter().collect();
        by_count.sort_by_key(|(_, (count, ..))| std::cmp::Reverse(*count));
        let what = by_count.iter().take(LISTED).map(|(role, (count, memory))| FanoutRole {
            count: *count,
            memory_bytes: *memory,
            name: role.program.clone(),
            process_kind: role.kind,
            steady_each_bytes: self.steady.get(role).copied(),
        });
        let mut starters: Vec<(ProcessId, usize)> = starters.into_iter().collect();
        starters.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let started_by = starters.iter().take(LISTED).map(|(starter, count)| {
            let known = facts.table.get(*starter);
            FanoutStarter {
                count: *count,
                name: known.map(TrackedProcess::label),
                pid: starter.pid,
                process_kind: known.map(|known| known.kind),
                start_time: starter.start_time,
            }
        });
        let had_agents = peak.1 > 0;
        let evidence = Evidence::Fanout(Box::new(FanoutEvidence {
            agents: had_agents.then_some(seen.agents),
            agents_at_most: had_agents.then_some(peak.1),
            agents_limit: had_agents.then_some(config.max_agents),
            available_bytes: available,
            command: None,
            expected_bytes: known.then_some(expected),
            helpers: seen.helpers.len(),
            helpers_at_most: peak.0,
            helpers_limit: config.max_helpers,
            memory_bytes: memory,
            started,
            started_by: started_by.collect(),
            what: what.collect(),
            window_seconds: config.window.as_secs(),
            workers: None,
            workers_at_most: None,
            workers_growing: None,
            workers_limit: None,
        }));
        Detection {
            key: Key { kind: FindingKind::Fanout, about },
            severity: severity(memory, expected, available),
            session: Some(session),
            subject: about,
            members: starters.iter().map(|(starter, _)| *starter).collect(),
            uid,
            cause: facts.now,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        }
    }
}

/// By what the burst has taken and what it still will, beside what is left.
pub(super) fn severity(memory: Bytes, expected: Bytes, available: Bytes) -> Severity {
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
