//! Bursts within one command: many workers of one program, too many by their number, by what they take, or because most of
//! them grow. One finding names the command, in place of a leak for each worker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::fanout::severity;
use super::survey::HelperRole;
use super::workers::Pool;
use super::{Conclusions, Detector, Facts};
use crate::finding::{Detection, Key, Proposal};
use crate::ownership::nearest_agent;
use crate::process::TrackedProcess;
use watchdog_api::evidence::{FanoutEvidence, FanoutRole, FanoutStarter};
use watchdog_api::{Evidence, FindingKind};
use watchdog_classify as classify;
use watchdog_types::{BootTime, Bytes, ProcessId};

/// Commands are examined this often.
const EVERY: Duration = Duration::from_secs(1);
/// A burst has to last this long, unless most of its workers grow.
const LASTING: Duration = Duration::from_secs(2);
/// A burst ends when its workers have been absent for this long, because a pool replaces exited workers.
const REPLACED: Duration = Duration::from_secs(5);
/// Workers count as exited when at most one in this many is left.
const LEFT: usize = 4;
/// From this share of the memory that would be free without them on, workers are too many for the host.
const TOO_MUCH_PERCENT: u64 = 50;
/// Below this share of the available memory, a few processes are not examined.
const LITTLE_PERCENT: u64 = 10;
/// Less memory than this is never too much.
const WORTH_REPORTING: Bytes = Bytes::from_mib(256);
/// For how many commands the memory of earlier workers is remembered.
const REMEMBERED: usize = 256;
/// How many programs the evidence lists.
const LISTED: usize = 10;

/// The same command with the same arguments, and what its workers run.
type Job = (HelperRole, Option<u64>, Option<HelperRole>);

#[derive(Debug, Default)]
pub(crate) struct WorkerBursts {
    looked: BootTime,
    jobs: BTreeMap<ProcessId, JobState>,
    /// What workers of ended jobs took, by job.
    elders: BTreeMap<Job, Bytes>,
}

#[derive(Debug)]
struct JobState {
    job: Job,
    /// It has had too many workers since.
    over: Option<BootTime>,
    /// When its workers exited.
    gone: Option<BootTime>,
    open: bool,
    started: u64,
    peak: usize,
    /// The most that its workers took, in the middle.
    typical: Bytes,
}

/// What a pool takes, and what it will take.
struct Outlook {
    each: Option<Bytes>,
    expected: Bytes,
}

impl Detector for WorkerBursts {
    fn exited(&mut self, process: ProcessId, _at: BootTime, _facts: &Facts<'_>, out: &mut Conclusions) {
        self.finish(process, "its command exited", out);
    }

    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let before = self.looked;
        if facts.now.since(before) < EVERY {
            return;
        }
        self.looked = facts.now;
        let found = facts.commands().into_iter().map(|command| command.id);
        let commands: BTreeSet<ProcessId> = found.chain(self.jobs.keys().copied()).collect();
        for id in commands {
            let of_agent = nearest_agent(facts.table, id).is_some_and(TrackedProcess::alive);
            let command = facts.table.alive(id).filter(|_| of_agent);
            let pool = command.filter(|command| self.may_matter(command, facts)).and_then(|it| facts.pool(it));
            match pool {
                Some(pool) => self.review(&pool, before, facts, out),
                None => self.without_pool(id, facts.now, out),
            }
        }
    }
}

impl WorkerBursts {
    /// A cheap look: most commands are small.
    fn may_matter(&self, command: &TrackedProcess, facts: &Facts<'_>) -> bool {
        let below = facts.below_command(command);
        let memory: Bytes = below.iter().map(|process| process.cost()).sum();
        let grows = || below.iter().any(|process| facts.growing_workers.contains_key(&process.id));
        let known = || {
            let (role, arguments) = facts.role(command);
            self.elders.keys().any(|(command, with, _)| *command == role && *with == arguments)
        };
        self.jobs.contains_key(&command.id)
            || below.len() > facts.config.fanout.max_workers
            || memory >= facts.host.available.percent(LITTLE_PERCENT)
            || grows()
            || known()
    }

    fn review(&mut self, pool: &Pool<'_>, before: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        let (now, config) = (facts.now, &facts.config.fanout);
        let (role, arguments) = facts.role(pool.command);
        let job = (role, arguments, pool.role.clone());
        let each = self.elders.get(&job).copied();
        let state = self.jobs.entry(pool.command.id).or_insert_with(|| JobState {
            job: job.clone(),
            over: None,
            gone: None,
            open: false,
            started: 0,
            peak: 0,
            typical: Bytes(0),
        });
        if state.job != job {
            // Another program takes the most by now.
            (state.job, state.typical) = (job, Bytes(0));
        }
        let count = pool.workers.len();
        let started = |worker: &&&TrackedProcess| state.started == 0 || BootTime::from(worker.id.start_time) > before;
        state.started += pool.workers.iter().filter(started).count() as u64;
        state.peak = state.peak.max(count);
        state.typical = state.typical.max(pool.typical());
        let outlook = Outlook::of(pool, each);

        let young = pool.workers.iter().filter(|worker| now.since(worker.id.start_time.into()) < config.window).count();
        let many =
            young > config.max_workers && !pool.role.as_ref().is_some_and(|role| classify::compiles(&role.program));
        let free = facts.host.available + pool.memory;
        let read = facts.host.total.0 > 0;
        let heavy = read && outlook.expected >= free.percent(TOO_MUCH_PERCENT).max(WORTH_REPORTING);
        let grows = pool.most_grow(facts);
        state.over = (many || heavy || grows).then(|| state.over.unwrap_or(now));
        state.open |= grows || state.over.is_some_and(|since| now.since(since) >= LASTING);
        if state.peak >= LEFT * count {
            self.without_pool(pool.command.id, now, out);
            return;
        }
        state.gone = None;
        if state.open {
            out.report(observation(pool, state, &outlook, facts));
        }
    }

    /// A command has no workers, or few of those that it had.
    fn without_pool(&mut self, command: ProcessId, now: BootTime, out: &mut Conclusions) {
        let Some(state) = self.jobs.get_mut(&command) else { return };
        let gone = *state.gone.get_or_insert(now);
        if now.since(gone) >= REPLACED {
            self.finish(command, "its workers are gone", out);
        }
    }

    fn finish(&mut self, command: ProcessId, because: &'static str, out: &mut Conclusions) {
        let Some(state) = self.jobs.remove(&command) else { return };
        if self.elders.len() >= REMEMBERED && !self.elders.contains_key(&state.job) {
            self.elders.pop_first();
        }
        self.elders.insert(state.job, state.typical);
        if state.open {
            out.close(Key { kind: FindingKind::Fanout, about: command }, because);
        }
    }
}

impl Outlook {
    /// `before` is what workers of the same job took earlier. The older half of the workers shows it too.
    fn of(pool: &Pool<'_>, before: Option<Bytes>) -> Self {
        let each = before.unwrap_or_default().max(pool.of_elders());
        let to_come = pool.workers.iter().map(|worker| Bytes(each.0.saturating_sub(worker.cost().0))).sum::<Bytes>();
        Self { each: (each.0 > 0).then_some(each), expected: pool.memory + to_come }
    }
}

fn observation(pool: &Pool<'_>, state: &JobState, outlook: &Outlook, facts: &Facts<'_>) -> Detection {
    let (command, config, count) = (pool.command, &facts.config.fanout, pool.workers.len());
    let starter = FanoutStarter {
        count,
        name: Some(command.label()),
        pid: command.id.pid,
        process_kind: Some(command.kind),
        start_time: command.id.start_time,
    };
    let mut parts: Vec<(&HelperRole, &(usize, Bytes))> = pool.parts.iter().collect();
    parts
        .sort_by_key(|(role, (count, memory))| std::cmp::Reverse((pool.role.as_ref() == Some(*role), *memory, *count)));
    let what = parts.into_iter().take(LISTED).map(|(role, (count, memory))| FanoutRole {
        count: *count,
        memory_bytes: *memory,
        name: role.program.clone(),
        process_kind: role.kind,
        steady_each_bytes: outlook.each.filter(|_| pool.role.as_ref() == Some(role)),
    });
    let growing = pool.workers.iter().filter(|worker| facts.growing_workers.contains_key(&worker.id)).count();
    let evidence = Evidence::Fanout(Box::new(FanoutEvidence {
        agents: None,
        agents_at_most: None,
        agents_limit: None,
        available_bytes: facts.host.available,
        command: Some(starter.clone()),
        expected_bytes: outlook.each.map(|_| outlook.expected),
        helpers: 1,
        helpers_at_most: 1,
        helpers_limit: config.max_helpers,
        memory_bytes: pool.memory,
        started: state.started,
        started_by: vec![starter],
        what: what.collect(),
        window_seconds: config.window.as_secs(),
        workers: Some(count),
        workers_at_most: Some(state.peak),
        workers_growing: Some(growing),
        workers_limit: Some(config.max_workers),
    }));
    let members = std::iter::once(command.id).chain(pool.workers.iter().map(|worker| worker.id));
    Detection {
        key: Key { kind: FindingKind::Fanout, about: command.id },
        severity: severity(pool.memory, outlook.expected, facts.host.available),
        session: Some(command.session),
        subject: command.id,
        members: members.collect(),
        uid: command.uid,
        cause: facts.now,
        summary: evidence.to_string(),
        evidence,
        proposal: Proposal::Report,
    }
}
