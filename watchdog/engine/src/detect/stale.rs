//! Stale: a helper of a finished task whose parent lives. The parent has started an equal one since, and the helper has been
//! idle for long; or the helper was started while a subagent ran that has finished, as the agent's hooks reported, and has been
//! idle since. Half of all left-overs are these. The parent may still want it: it is reported, with its group,
//! and never more than that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::idle::{IdleSince, IdleTracker};
use super::superseded::{
    distinguishing_arguments, finished_at, left_by_subagent, may_have_equals, older, spares, stdin_closed, stdin_unread,
};
use super::survey::{Helper, HelperParent, HelperRole, names};
use super::{Conclusions, Detector, Facts};
use crate::finding::{Detection, Key, Proposal};
use crate::process::TrackedProcess;
use watchdog_api::evidence::{StaleEvidence, StaleHelper};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_types::{Activity, BootTime, Bytes, ProcessId, SessionId};

/// A helper of a finished subagent is stale after this idle time.
const SETTLED: Duration = Duration::from_secs(10);
/// For this long it is inspected more often.
const WATCHED: Duration = Duration::from_secs(120);
/// Inspections of one survey.
const LOOKS: usize = 128;
/// How many members the evidence lists; the rest is counted.
const LISTED: usize = 50;
/// This many stale helpers, or [`HEAVY_PERCENT`] of the host's memory, are a warning.
const MANY: usize = 20;
const HEAVY_PERCENT: u64 = 5;
/// A group that began less than this long before its youngest has no rate.
const RATE_NEEDS: Duration = Duration::from_secs(300);

/// Helpers that may be stale, and those that are.
#[derive(Debug, Default)]
pub(crate) struct Stale {
    quiet: IdleTracker,
    /// Those whose activity was asked for.
    wanted: BTreeSet<ProcessId>,
    groups: BTreeMap<StaleKey, Open>,
    /// The processes of all stale helpers.
    members: BTreeSet<ProcessId>,
    /// When helpers of the youngest generation were inspected for their stdin.
    inspected: BTreeMap<ProcessId, BootTime>,
}

/// What makes helpers equal.
type StaleKey = (HelperParent, HelperRole, Option<u64>);

/// Stale helpers of one finding, and those that are equal to one of them; both by age.
struct StaleGroup<'h> {
    group: StaleKey,
    stale: Vec<&'h Helper>,
    equals: Vec<&'h Helper>,
}

#[derive(Debug)]
struct Open {
    about: ProcessId,
    tops: Vec<ProcessId>,
}

impl Stale {
    /// The process is part of a stale helper.
    pub(crate) fn contains(&self, process: ProcessId) -> bool {
        self.members.contains(&process)
    }
}

impl Detector for Stale {
    fn exited(&mut self, process: ProcessId, _at: BootTime, _facts: &Facts<'_>, out: &mut Conclusions) {
        self.quiet.forget(process);
        if self.members.remove(&process) {
            out.survey_soon();
        }
    }

    fn activity_read(&mut self, activities: &[Activity], facts: &Facts<'_>) {
        self.quiet.read(activities, facts, |process| self.wanted.contains(&process.id));
    }

    /// Compares equal helpers, looks at those that may be stale, and says which are.
    fn surveyed(&mut self, helpers: &[Helper], pace: Duration, facts: &Facts<'_>, out: &mut Conclusions) {
        let mut groups: BTreeMap<StaleKey, Vec<&Helper>> = BTreeMap::new();
        for helper in helpers.iter().filter(|helper| may_have_equals(helper, facts)) {
            groups
                .entry((helper.parent, helper.role.clone(), distinguishing_arguments(helper)))
                .or_default()
                .push(helper);
        }
        groups.retain(|_, equals| equals.len() >= facts.config.stale.min_count);
        self.inspect_generations(&groups, pace, facts, out);
        let mut older: BTreeMap<StaleKey, Vec<&Helper>> =
            groups.iter().map(|(of, equals)| (of.clone(), older(equals, pace, facts))).collect();
        for helper in helpers.iter().filter(|helper| left_by_subagent(helper, facts).is_some()) {
            let group =
                older.entry((helper.parent, helper.role.clone(), distinguishing_arguments(helper))).or_default();
            if !group.iter().any(|known| known.top == helper.top) {
                group.push(helper);
                group.sort_by_key(|helper| (helper.top.start_time, helper.top.pid));
            }
        }
        self.wanted = older.values().flatten().flat_map(|helper| helper.members.iter().copied()).collect();
        self.quiet.ask(self.wanted.clone(), out);

        let mut found: Vec<(StaleKey, Vec<&Helper>)> = Vec::new();
        for (group, older) in older {
            let idle: Vec<&Helper> = older.into_iter().filter(|helper| self.is_stale(helper, facts, out)).collect();
            if !idle.is_empty() {
                found.push((group.clone(), idle));
            }
        }
        found.sort_by_key(|(_, stale)| stale.first().map(|oldest| (oldest.top.start_time, oldest.top.pid)));
        self.members = found.iter().flat_map(|(_, stale)| stale).flat_map(|helper| &helper.members).copied().collect();
        let found = self.join_left(found, &groups, facts);
        self.close_all_but(&found.iter().map(|found| &found.group).collect(), facts, out);
        for StaleGroup { group, stale, equals } in &found {
            self.describe(group, stale, equals, facts, out);
        }
    }
}

impl Stale {
    /// Inspects equals of one generation now and then: a closed stdin distinguishes them.
    fn inspect_generations(
        &mut self,
        groups: &BTreeMap<StaleKey, Vec<&Helper>>,
        pace: Duration,
        facts: &Facts<'_>,
        out: &mut Conclusions,
    ) {
        let settled = |helper: &&&Helper| facts.now.since(helper.started()) >= pace;
        let settled = groups.values().flatten().filter(settled).map(|helper| helper.top);
        let settled: BTreeSet<ProcessId> = settled.collect();
        self.inspected.retain(|process, _| settled.contains(process));
        let again = facts.config.stale.idle / 2;
        let due = |process: &ProcessId| self.inspected.get(process).is_none_or(|at| facts.now.since(*at) >= again);
        let due: Vec<ProcessId> = settled.into_iter().filter(due).take(LOOKS).collect();
        for process in due {
            self.inspected.insert(process, facts.now);
            out.inspect(process);
        }
    }

    /// Every process of the helper has been at rest for long, and a close look shows no reason to spare it.
    fn is_stale(&mut self, helper: &Helper, facts: &Facts<'_>, out: &mut Conclusions) -> bool {
        let now = facts.now;
        let finished = left_by_subagent(helper, facts);
        let idle = facts.config.stale.idle;
        let idle = if finished.is_some() { idle.min(SETTLED) } else { idle };
        if finished.is_some_and(|finished| now.since(finished) < WATCHED) {
            out.survey_soon();
        }
        let at_rest = |quiet: &IdleSince| quiet.seen.at.since(quiet.since) >= idle;
        // A member without an entry is new: the helper did something.
        let all = helper.members.iter().map(|member| self.quiet.get(*member).filter(at_rest));
        let Some(all) = all.collect::<Option<Vec<IdleSince>>>() else { return false };
        let mut fresh = true;
        for quiet in all.iter().filter(|quiet| quiet.inspected.is_none()) {
            fresh = false;
            self.quiet.set_inspected(quiet.seen.process, now);
            out.inspect(quiet.seen.process);
        }
        fresh && !helper.members.iter().any(|member| facts.table.get(*member).is_some_and(spares))
    }

    /// Joins what one subagent left when it finished, whatever programs these are.
    fn join_left<'h>(
        &self,
        found: Vec<(StaleKey, Vec<&'h Helper>)>,
        groups: &BTreeMap<StaleKey, Vec<&'h Helper>>,
        facts: &Facts<'_>,
    ) -> Vec<StaleGroup<'h>> {
        let mut joined: Vec<StaleGroup<'h>> = Vec::new();
        let mut finishes: BTreeMap<(SessionId, BootTime), usize> = BTreeMap::new();
        for (group, stale) in found {
            let equals = groups.get(&group).cloned().unwrap_or_default();
            let finish = finished_at(&stale, facts).zip(stale.first()).map(|(at, oldest)| (oldest.session, at));
            let place = finish.map_or(joined.len(), |finish| *finishes.entry(finish).or_insert(joined.len()));
            let Some(other) = joined.get_mut(place) else {
                joined.push(StaleGroup { group, stale, equals });
                continue;
            };
            if self.groups.contains_key(&group) && !self.groups.contains_key(&other.group) {
                // Its finding stays the same.
                other.group = group;
            }
            other.stale.extend(stale);
            other.equals.extend(equals);
            for helpers in [&mut other.stale, &mut other.equals] {
                helpers.sort_by_key(|helper| (helper.top.start_time, helper.top.pid));
            }
        }
        joined
    }

    /// Closes the findings of all groups but these.
    fn close_all_but(&mut self, found: &BTreeSet<&StaleKey>, facts: &Facts<'_>, out: &mut Conclusions) {
        let over: Vec<StaleKey> = self.groups.keys().filter(|group| !found.contains(group)).cloned().collect();
        for group in over {
            let Some(Open { about, tops }) = self.groups.remove(&group) else { continue };
            let table = facts.table;
            let left: Vec<&TrackedProcess> = tops.iter().filter_map(|top| table.alive(*top)).collect();
            let parent_lives = !matches!(group.0, HelperParent::Within(parent) if table.alive(parent).is_none());
            let because = match left.as_slice() {
                [] => "gone",
                _ if !parent_lives => "its parent is gone",
                left if left.iter().any(|top| top.verdict.is_kept()) => "kept",
                left if left.iter().all(|top| self.members.contains(&top.id)) => "part of another finding",
                left if left.iter().any(|top| self.quiet.contains(top.id)) => "active again",
                _ => "the last of its kind",
            };
            out.close(Key { kind: FindingKind::Stale, about }, because);
        }
    }

    fn describe(
        &mut self,
        group: &StaleKey,
        stale: &[&Helper],
        equals: &[&Helper],
        facts: &Facts<'_>,
        out: &mut Conclusions,
    ) {
        let Some(oldest) = stale.first() else { return };
        let tops: Vec<ProcessId> = stale.iter().map(|helper| helper.top).collect();
        let open = self.groups.entry(group.clone()).or_insert(Open { about: oldest.top, tops: Vec::new() });
        open.tops = tops;
        let key = Key { kind: FindingKind::Stale, about: open.about };
        let seen = self.observation(key, group, oldest, stale, equals, facts);
        out.report(seen);
    }

    fn observation(
        &self,
        key: Key,
        group: &StaleKey,
        oldest: &Helper,
        stale: &[&Helper],
        equals: &[&Helper],
        facts: &Facts<'_>,
    ) -> Detection {
        let now = facts.now;
        let (parent, role, _) = group;
        let name = names(stale.iter().map(|helper| helper.role.program.as_str()));
        let age = |helper: &Helper| now.since(helper.started()).as_secs();
        let idle_since = |helper: &Helper| {
            let since = helper.members.iter().filter_map(|member| self.quiet.get(*member)).map(|quiet| quiet.since);
            since.max().unwrap_or(now)
        };
        let memory: Bytes = stale.iter().map(|helper| helper.memory).sum();
        let began = |helper: Option<&&Helper>| helper.map_or(now, |helper| helper.started());
        let span = began(equals.last()).since(began(equals.first()));
        let newest = equals.last().map_or(0, |helper| age(helper));
        let (parent_pid, parent_name) = match *parent {
            HelperParent::Within(parent) => (parent.pid, facts.table.get(parent).map(TrackedProcess::label)),
            HelperParent::Outside(pid) => {
                let seen = facts.table.get(oldest.top).and_then(|top| top.inspection.as_deref());
                (pid, seen.map(|seen| seen.parent_comm.clone()))
            }
            HelperParent::Gone => (oldest.top.pid, None),
        };

        #[expect(clippy::cast_precision_loss, reason = "no parent has 2^52 children")]
        let per_hour = (span >= RATE_NEEDS && equals.len() > 1).then(|| {
            let per_hour = (equals.len() - 1) as f64 * 3_600.0 / span.as_secs_f64();
            (per_hour * 10.0).round() / 10.0
        });
        let listed = stale.iter().take(LISTED).map(|helper| StaleHelper {
            age_seconds: age(helper),
            idle_seconds: now.since(idle_since(helper)).as_secs(),
            memory_bytes: helper.memory,
            pid: helper.top.pid,
            start_time: helper.top.start_time,
        });
        let finished = finished_at(stale, facts);
        let count = stale.len();
        let evidence = Evidence::Stale(Box::new(StaleEvidence {
            count,
            equals: equals.len(),
            idle_seconds: stale.iter().map(|helper| now.since(idle_since(helper)).as_secs()).min(),
            memory_bytes: memory,
            name,
            oldest_age_seconds: age(oldest),
            parent_name: parent_name.unwrap_or_else(|| "its parent".into()),
            parent_pid,
            process_count: stale.iter().map(|helper| helper.members.len()).sum(),
            process_kind: role.kind,
            processes: listed.collect(),
            started_per_hour: per_hour,
            stdin_closed: stale.iter().filter(|helper| stdin_closed(helper, facts)).count(),
            stdin_unread: stale.iter().filter(|helper| stdin_unread(helper, facts)).count(),
            subagent_finished_seconds_ago: finished.map(|finished| now.since(finished).as_secs()),
            youngest_equal_age_seconds: newest,
        }));
        let total = facts.host.total;
        let heavy = total.0 > 0 && memory > total.percent(HEAVY_PERCENT);
        Detection {
            key,
            severity: if heavy || count >= MANY { Severity::Warning } else { Severity::Info },
            session: Some(oldest.session),
            subject: oldest.top,
            members: stale.iter().map(|helper| helper.top).collect(),
            uid: oldest.uid,
            // What became true just now is that this has lasted for long enough.
            cause: now,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        }
    }
}
