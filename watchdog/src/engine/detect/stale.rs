//! Stale: nobody died, but a helper belongs to a finished task. Its parent lives and has started an equal one since, and it
//! has done nothing for long; or it was started while a subagent ran that has finished since, as the agent's hooks told, and
//! has done nothing since then. Half of all left-overs are these. The parent may still want it: it is reported, with its group,
//! and never more than that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::helper::{Helper, Parent, Role};
use super::rest::{Quiet, Rest};
use crate::api::{FindingKind, ProcessKind, Severity};
use crate::engine::Step;
use crate::engine::effect::Effect;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, Bytes, ProcessId};
use crate::engine::input::{Activity, Stdin};
use crate::engine::process::Process;
use crate::engine::standing::Standing;

/// Equals that were started within this time are one generation: a pool of workers, or the servers of one task.
const GENERATION: Duration = Duration::from_secs(30);
/// What a finished subagent started is stale when it has done nothing for this long.
const SETTLED: Duration = Duration::from_secs(10);
/// And is looked at more often for this long.
const WATCHED: Duration = Duration::from_secs(120);
/// How many processes are looked at in one survey; the others wait for the next. At 40 µs each, and 10 µs for each further
/// thread, so many node processes cost 0.3 ms of CPU per second; sleepers of one thread 0.1 ms.
const LOOKS: usize = 128;
/// How many processes are remembered at most.
const REMEMBERED: usize = 4_096;
/// How many members the evidence lists; the rest is counted.
const LISTED: usize = 50;
/// So many stale helpers, or this share of the host's memory, are worth doing something about.
const MANY: usize = 20;
const HEAVY_PERCENT: u64 = 5;
/// A rate is not told of a group that began less than this long before its youngest.
const RATE_NEEDS: Duration = Duration::from_secs(300);

/// Parents that anything may have been left to: that they live says nothing.
const ANYBODYS: &[&str] = &[
    "conmon",
    "containerd-shim",
    "containerd-shim-runc-v2",
    "cron",
    "crond",
    "docker-init",
    "dumb-init",
    "init",
    "s6-svscan",
    "sshd",
    "supervisord",
    "systemd",
    "tini",
];

/// Who may be stale, and who is.
#[derive(Debug, Default)]
pub(in crate::engine) struct Stale {
    quiet: BTreeMap<ProcessId, Quiet>,
    groups: BTreeMap<Group, Open>,
    /// The processes of all stale helpers.
    members: BTreeSet<ProcessId>,
}

/// What makes helpers equal.
type Group = (Parent, Role, Option<u64>);

#[derive(Debug)]
struct Open {
    about: ProcessId,
    tops: Vec<ProcessId>,
}

impl Stale {
    /// The process is part of a stale helper.
    pub(in crate::engine) fn contains(&self, process: ProcessId) -> bool {
        self.members.contains(&process)
    }

    /// A process died. Whether it was part of a stale helper.
    pub(super) fn forget(&mut self, process: ProcessId) -> bool {
        self.quiet.remove(&process);
        self.members.remove(&process)
    }
}

impl Step<'_> {
    /// Processes were looked at for what they do.
    pub(in crate::engine) fn active(&mut self, looks: Vec<Activity>) {
        for seen in looks {
            let Some(process) = self.engine.table.alive(seen.process) else { continue };
            let (memory, rest) = (process.memory.charged(), Rest::of(process));
            let quiet = &mut self.engine.stale.quiet;
            if let Some(before) = quiet.get_mut(&seen.process) {
                *before = before.then(seen, memory, rest);
            } else if quiet.len() < REMEMBERED {
                quiet.insert(seen.process, Quiet::first(seen, memory));
            }
        }
    }

    /// Compares equal helpers, looks at those that may be stale, and says which are.
    pub(super) fn survey_stale(&mut self, helpers: &[Helper], pace: Duration) {
        let mut groups: BTreeMap<Group, Vec<&Helper>> = BTreeMap::new();
        for helper in helpers.iter().filter(|helper| self.may_have_equals(helper)) {
            groups.entry((helper.parent, helper.role.clone(), told_apart_by(helper))).or_default().push(helper);
        }
        groups.retain(|_, equals| equals.len() >= self.engine.config.stale.min_count);
        let mut older: BTreeMap<Group, Vec<&Helper>> =
            groups.iter().map(|(of, equals)| (of.clone(), self.older(equals, pace))).collect();
        for helper in helpers.iter().filter(|helper| self.left_by_subagent(helper).is_some()) {
            let group = older.entry((helper.parent, helper.role.clone(), told_apart_by(helper))).or_default();
            if !group.iter().any(|known| known.top == helper.top) {
                group.push(helper);
                group.sort_by_key(|helper| (helper.top.start_time, helper.top.pid));
            }
        }
        self.look_at_activity(older.values().flatten().flat_map(|helper| helper.members.iter().copied()).collect());

        let mut found: Vec<(Group, Vec<&Helper>)> = Vec::new();
        for (group, older) in older {
            let idle: Vec<&Helper> = older.into_iter().filter(|helper| self.is_stale(helper)).collect();
            if !idle.is_empty() {
                found.push((group.clone(), idle));
            }
        }
        found.sort_by_key(|(_, stale)| stale.first().map(|oldest| (oldest.top.start_time, oldest.top.pid)));
        self.engine.stale.members =
            found.iter().flat_map(|(_, stale)| stale).flat_map(|helper| &helper.members).copied().collect();
        self.close_stale_but(&found.iter().map(|(group, _)| group).collect());
        for (group, stale) in &found {
            let equals = groups.get(group).map_or(&[][..], Vec::as_slice);
            self.describe_stale(group, stale, equals);
        }
    }

    /// A helper whose parent may have started others like it, and whom nobody means to keep.
    fn may_have_equals(&self, helper: &Helper) -> bool {
        let Some(top) = self.engine.table.alive(helper.top) else { return false };
        if top.verdict.is_kept() || helper.standing != Standing::InOrder {
            return false;
        }
        let seen = top.inspection.as_deref();
        match (helper.parent, helper.role.kind) {
            // An agent with a terminal is a person's; one that a program keeps has none.
            (Parent::Outside(_), _) => seen.is_some_and(|seen| {
                !seen.tty && seen.ppid == top.ppid.0 && !ANYBODYS.contains(&seen.parent_comm.as_str())
            }),
            (Parent::Within(_), ProcessKind::Agent) if helper.agent.is_none() => seen.is_some_and(|seen| !seen.tty),
            // Below what is meant to stay (panes below a tmux server) commands are a person's, and no agent is concerned.
            (Parent::Within(_), ProcessKind::Tool | ProcessKind::Other) => helper.agent.is_some() && helper.is_top,
            (Parent::Within(_), _) => helper.is_top,
            (Parent::Gone, _) => false,
        }
    }

    /// When the subagent finished that left this helper, whom nobody means to keep.
    fn left_by_subagent(&self, helper: &Helper) -> Option<BootTime> {
        let top = self.engine.table.alive(helper.top)?;
        let owned = helper.is_top && helper.agent.is_some() && helper.standing == Standing::InOrder;
        let finished = self.engine.gate.finished_subagent(helper.session, helper.started())?;
        (owned && !top.verdict.is_kept()).then_some(finished)
    }

    /// Those that are old enough to be looked at, and have a younger equal of another generation.
    fn older<'h>(&self, equals: &[&'h Helper], pace: Duration) -> Vec<&'h Helper> {
        let youngest = equals.iter().map(|helper| helper.started()).max().unwrap_or_default();
        let is_older = |helper: &Helper| {
            youngest.since(helper.started()) > self.engine.config.stale.idle.min(GENERATION)
                && self.now.since(helper.started()) >= pace
        };
        equals.iter().copied().filter(|helper| is_older(helper)).collect()
    }

    /// Asks what these do, those first that were looked at longest ago; forgets all others.
    fn look_at_activity(&mut self, wanted: BTreeSet<ProcessId>) {
        let quiet = &mut self.engine.stale.quiet;
        quiet.retain(|process, _| wanted.contains(process));
        let mut order: Vec<(Option<BootTime>, ProcessId)> =
            wanted.into_iter().map(|process| (quiet.get(&process).map(|quiet| quiet.seen.at), process)).collect();
        order.sort_unstable();
        let looks: Vec<ProcessId> = order.into_iter().take(LOOKS).map(|(_, process)| process).collect();
        if !looks.is_empty() {
            self.effect(Effect::LookAtActivity(looks));
        }
    }

    /// Every process of the helper has been at rest for long, and a close look shows no reason to spare it.
    fn is_stale(&mut self, helper: &Helper) -> bool {
        let now = self.now;
        let finished = self.left_by_subagent(helper);
        let idle = self.engine.config.stale.idle;
        let idle = if finished.is_some() { idle.min(SETTLED) } else { idle };
        if finished.is_some_and(|finished| now.since(finished) < WATCHED) {
            self.engine.survey.soon();
        }
        let at_rest = |quiet: &Quiet| quiet.seen.at.since(quiet.since) >= idle;
        // A member without an entry is new: the helper did something.
        let all = helper.members.iter().map(|member| self.engine.stale.quiet.get(member).copied().filter(at_rest));
        let Some(all) = all.collect::<Option<Vec<Quiet>>>() else { return false };
        let mut fresh = true;
        for quiet in all.iter().filter(|quiet| quiet.inspected.is_none()) {
            fresh = false;
            if let Some(quiet) = self.engine.stale.quiet.get_mut(&quiet.seen.process) {
                quiet.inspected = Some(now);
            }
            self.effect(Effect::Inspect(quiet.seen.process));
        }
        fresh && !helper.members.iter().any(|member| self.engine.table.get(*member).is_some_and(spares))
    }

    /// Closes the findings of all groups but these.
    fn close_stale_but(&mut self, found: &BTreeSet<&Group>) {
        let stale = &mut self.engine.stale.groups;
        let over: Vec<Group> = stale.keys().filter(|group| !found.contains(group)).cloned().collect();
        for group in over {
            let Some(Open { about, tops }) = self.engine.stale.groups.remove(&group) else { continue };
            let table = &self.engine.table;
            let left: Vec<&Process> = tops.iter().filter_map(|top| table.alive(*top)).collect();
            let parent_lives = !matches!(group.0, Parent::Within(parent) if table.alive(parent).is_none());
            let because = match left.as_slice() {
                [] => "gone",
                _ if !parent_lives => "its parent is gone",
                left if left.iter().any(|top| top.verdict.is_kept()) => "kept",
                left if left.iter().any(|top| self.engine.stale.quiet.contains_key(&top.id)) => "active again",
                _ => "the last of its kind",
            };
            self.close(Key { kind: FindingKind::Stale, about }, because);
        }
    }

    fn describe_stale(&mut self, group: &Group, stale: &[&Helper], equals: &[&Helper]) {
        let Some(oldest) = stale.first() else { return };
        let tops: Vec<ProcessId> = stale.iter().map(|helper| helper.top).collect();
        let open =
            self.engine.stale.groups.entry(group.clone()).or_insert(Open { about: oldest.top, tops: Vec::new() });
        open.tops = tops;
        let key = Key { kind: FindingKind::Stale, about: open.about };
        let seen = self.stale_seen(key, group, oldest, stale, equals);
        self.observe(seen);
    }

    fn stale_seen(
        &self,
        key: Key,
        group: &Group,
        oldest: &Helper,
        stale: &[&Helper],
        equals: &[&Helper],
    ) -> Observation {
        let (engine, now) = (&*self.engine, self.now);
        let (parent, role, _) = group;
        let age = |helper: &Helper| now.since(helper.started()).as_secs();
        let idle_since = |helper: &Helper| {
            let since =
                helper.members.iter().filter_map(|member| engine.stale.quiet.get(member)).map(|quiet| quiet.since);
            since.max().unwrap_or(now)
        };
        let memory: Bytes = stale.iter().map(|helper| helper.memory).sum();
        let began = |helper: Option<&&Helper>| helper.map_or(now, |helper| helper.started());
        let span = began(equals.last()).since(began(equals.first()));
        let newest = equals.last().map_or(0, |helper| age(helper));
        let stdin_closed = |helper: &&&Helper| {
            let seen = engine.table.get(helper.top).and_then(|top| top.inspection.as_deref());
            seen.is_some_and(|seen| seen.stdin == Stdin::Closed)
        };
        let (parent_pid, parent_name) = match *parent {
            Parent::Within(parent) => (parent.pid, engine.table.get(parent).map(Process::label)),
            Parent::Outside(pid) => {
                let seen = engine.table.get(oldest.top).and_then(|top| top.inspection.as_deref());
                (pid, seen.map(|seen| seen.parent_comm.clone()))
            }
            Parent::Gone => (oldest.top.pid, None),
        };
        let parent_name = parent_name.unwrap_or_else(|| "its parent".into());

        let mut evidence = Map::new();
        evidence.insert("name".into(), json!(role.program));
        evidence.insert("process_kind".into(), json!(role.kind));
        evidence.insert("parent_pid".into(), json!(parent_pid));
        evidence.insert("parent_name".into(), json!(parent_name));
        evidence.insert("count".into(), json!(stale.len()));
        evidence.insert("equals".into(), json!(equals.len()));
        evidence.insert("process_count".into(), json!(stale.iter().map(|helper| helper.members.len()).sum::<usize>()));
        evidence.insert("memory_bytes".into(), json!(memory));
        evidence.insert("oldest_age_seconds".into(), json!(age(oldest)));
        evidence.insert("youngest_equal_age_seconds".into(), json!(newest));
        let idle = stale.iter().map(|helper| now.since(idle_since(helper)).as_secs()).min();
        evidence.insert("idle_seconds".into(), json!(idle));
        if span >= RATE_NEEDS && equals.len() > 1 {
            #[expect(clippy::cast_precision_loss, reason = "no parent has 2^52 children")]
            let per_hour = (equals.len() - 1) as f64 * 3_600.0 / span.as_secs_f64();
            evidence.insert("started_per_hour".into(), json!((per_hour * 10.0).round() / 10.0));
        }
        evidence.insert("stdin_closed".into(), json!(stale.iter().filter(stdin_closed).count()));
        let listed: Vec<Value> = stale
            .iter()
            .take(LISTED)
            .map(|helper| {
                json!({
                    "pid": helper.top.pid,
                    "start_time": helper.top.start_time,
                    "age_seconds": age(helper),
                    "idle_seconds": now.since(idle_since(helper)).as_secs(),
                    "memory_bytes": helper.memory,
                })
            })
            .collect();
        evidence.insert("processes".into(), Value::Array(listed));

        let finished: Option<Vec<BootTime>> = stale.iter().map(|helper| self.left_by_subagent(helper)).collect();
        let finished = finished.and_then(|all| all.into_iter().max());
        if let Some(finished) = finished {
            evidence.insert("subagent_finished_seconds_ago".into(), json!(now.since(finished).as_secs()));
        }
        let why = match finished {
            Some(_) => "left by a subagent that has finished",
            None => "which has started others like it since",
        };

        let total = engine.close_watch.host.total;
        let heavy = total.0 > 0 && memory > total.percent(HEAVY_PERCENT);
        let mib = memory.mib();
        let (count, program) = (stale.len(), &role.program);
        Observation {
            key,
            severity: if heavy || count >= MANY { Severity::Warning } else { Severity::Info },
            session: Some(oldest.session),
            subject: oldest.top,
            members: stale.iter().map(|helper| helper.top).collect(),
            uid: oldest.uid,
            // What became true just now is that this has lasted for long enough.
            cause: now,
            summary: format!("{count} idle {program} ({mib} MiB) below {parent_name} (pid {parent_pid}), {why}"),
            evidence,
            proposal: Proposal::Report,
        }
    }
}

/// Servers with other arguments serve something else; what an agent is asked to do does not make it another program.
fn told_apart_by(helper: &Helper) -> Option<u64> {
    match helper.role.kind {
        ProcessKind::Agent | ProcessKind::Subagent | ProcessKind::Browser => None,
        ProcessKind::McpServer | ProcessKind::LanguageServer | ProcessKind::Tool | ProcessKind::Other => {
            helper.arguments
        }
    }
}

/// A reason not to call the helper stale of which this process is a part.
fn spares(process: &Process) -> bool {
    let serves = matches!(process.kind, ProcessKind::Tool | ProcessKind::Other);
    let Some(seen) = process.inspection.as_deref() else { return process.verdict.is_kept() };
    // A terminal of its own has a person at its other end; a dev server waits for a browser.
    let interactive = seen.tty && seen.sid == process.id.pid.0;
    process.verdict.is_kept() || interactive || (serves && !seen.listens.is_empty())
}
