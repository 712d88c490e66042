//! When memory runs out: what goes first, one group at a time, until there is enough again.
//!
//! Never an agent, never what is kept or in doubt: where nothing else is left, nothing is done, and that is said.

use std::time::Duration;

use super::choose::Chosen;
use super::running::{Plan, Running, Stage};
use super::{Blow, Decided, Grounds};
use crate::api::{ActionKind, ActionState, FindingKind, ProcessKind};
use crate::engine::finding::Finding;
use crate::engine::id::{ActionId, BootTime, Bytes, ProcessId};
use crate::engine::input::HostMemory;
use crate::engine::process::Process;
use crate::engine::standing::Standing;
use crate::engine::{Engine, Step};

/// A burst is what one agent started of one program within this time.
const BURST: Duration = Duration::from_secs(60);
/// A burst that holds less than this share of the largest one, in per cent, is not worth ending, however young it is.
const WORTH: u64 = 25;
/// And none that holds less than this share of the memory, in per cent.
const LEAST: u64 = 1;
/// What holds less than this part of all memory is ended only when there is nothing else: it takes as long as what helps.
const LIGHT: u64 = 1_000;
/// A leak is not waited for that takes all memory within this time, once less than [`LOW`] is available.
const RUNAWAY: Duration = Duration::from_secs(20);
/// In per cent.
const LOW: u64 = 20;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Helpers are told to end.
    Term,
    /// Helpers are killed.
    Kill,
}

/// What is known of an emergency.
#[derive(Debug, Default)]
pub(super) struct Emergency {
    /// Until when the memory of what was ended is waited for.
    settling: Option<BootTime>,
    /// When the host was last read.
    read: BootTime,
    /// The last action was over then.
    over: BootTime,
    /// It was said that nothing may be ended.
    said: bool,
}

impl HostMemory {
    /// What share of all memory is left, in per cent, swap counted as memory: MemAvailable + SwapFree of MemTotal + SwapTotal. Of the
    /// total, since files in memory and the kernel's own take from it as processes do. A hundred while nothing is known.
    fn left_percent(&self) -> u64 {
        let all = self.total + self.swap_total;
        let left = self.available + self.swap_free;
        if all.0 == 0 { 100 } else { (u128::from(left.0) * 100 / u128::from(all.0)).try_into().unwrap_or(100) }
    }
}

impl Engine {
    fn level(&self) -> Option<Level> {
        let actions = &self.config.actions;
        let left = self.close_watch.host.left_percent();
        if left < u64::from(actions.emergency_kill) {
            Some(Level::Kill)
        } else {
            (left < u64::from(actions.emergency_term)).then_some(Level::Term)
        }
    }

    /// Open findings of a kind, those that hold the most first.
    fn heaviest(&self, kind: FindingKind) -> Vec<(&Finding, Chosen, Grounds)> {
        let mut all: Vec<_> = self
            .findings
            .open()
            .filter(|finding| finding.seen.key.kind == kind)
            .map(|finding| {
                let (candidates, grounds) = self.candidates(finding);
                (finding, self.choose_new(candidates, grounds), grounds)
            })
            .filter(|(_, chosen, _)| !chosen.targets.is_empty())
            .collect();
        all.sort_by_key(|(finding, chosen, _)| (std::cmp::Reverse(chosen.memory()), finding.id));
        all
    }

    /// The youngest burst of tools that is worth ending: what one agent started of one program, with all below it.
    fn youngest_burst(&self) -> Option<(&Process, Chosen)> {
        let mut tops: Vec<(ProcessId, String, &Process)> = self
            .table
            .living()
            .filter(|process| {
                matches!(process.kind, ProcessKind::Tool | ProcessKind::Other | ProcessKind::Browser)
                    && self.standing(process) == Standing::InOrder
            })
            .filter_map(|process| {
                let parent = self.table.above(process.id).next().filter(|parent| parent.is_agent())?;
                Some((parent.id, process.label(), process))
            })
            .collect();
        tops.sort_by_key(|(agent, label, top)| (*agent, label.clone(), std::cmp::Reverse(top.id.start_time)));
        let mut bursts: Vec<Vec<&Process>> = Vec::new();
        let mut of: Option<(ProcessId, String)> = None;
        for (agent, label, top) in tops {
            let youngest = bursts.last().and_then(|burst| burst.first());
            let same = of.as_ref() == Some(&(agent, label.clone()))
                && youngest.is_some_and(|first| {
                    BootTime::from(first.id.start_time).since(BootTime::from(top.id.start_time)) <= BURST
                });
            match bursts.last_mut() {
                Some(burst) if same => burst.push(top),
                _ => bursts.push(vec![top]),
            }
            of = Some((agent, label));
        }
        let mut chosen: Vec<(&Process, Chosen)> = bursts
            .into_iter()
            .filter_map(|burst| {
                let all = self.helpers(burst.iter().map(|top| top.id));
                let chosen = self.choose_new(all, Grounds::Helper);
                Some((*burst.first()?, chosen)).filter(|(_, chosen)| !chosen.targets.is_empty())
            })
            .collect();
        let largest = chosen.iter().map(|(_, chosen)| chosen.memory()).max()?;
        let floor = largest.percent(WORTH).max(self.close_watch.host.total.percent(LEAST));
        chosen.retain(|(_, chosen)| chosen.memory() >= floor);
        chosen.into_iter().max_by_key(|(top, _)| (top.id.start_time, top.id.pid))
    }

    /// A helper that will have taken all memory before policy can do anything about it.
    fn runaway(&self) -> Option<(&Finding, Chosen, Grounds)> {
        if self.close_watch.host.left_percent() >= LOW {
            return None;
        }
        let soon = |finding: &Finding| {
            let evidence = &finding.seen.evidence;
            let host = evidence.get("limit").and_then(|limit| limit.as_str()) == Some("host");
            let left = evidence.get("seconds_to_limit").and_then(serde_json::Value::as_f64);
            host && left.is_some_and(|left| left <= RUNAWAY.as_secs_f64())
        };
        self.heaviest(FindingKind::Leak).into_iter().find(|(finding, ..)| soon(finding))
    }
}

impl Step<'_> {
    /// The host's memory was read.
    pub(in crate::engine) fn emergency_host(&mut self) {
        self.engine.acts.emergency.read = self.now;
        self.tick_emergency();
    }

    pub(super) fn emergency_over(&mut self, state: ActionState) {
        let (now, settle) = (self.now, self.engine.config.actions.settle);
        let emergency = &mut self.engine.acts.emergency;
        emergency.over = now;
        // What is gone has given its memory back, and one more look tells; for what is not gone the look is later.
        emergency.settling = (state == ActionState::Incomplete).then(|| now.plus(settle));
    }

    /// Ends the next group, when memory runs out and nothing is on its way.
    pub(super) fn tick_emergency(&mut self) {
        if !self.engine.enforces() || !self.engine.config.actions.emergency {
            return;
        }
        let level = self.engine.level();
        if let Some(under_way) = self.emergency_under_way() {
            if level == Some(Level::Kill) {
                self.hurry(under_way);
            }
            return;
        }
        let emergency = &self.engine.acts.emergency;
        let settled = emergency.settling.is_none_or(|until| self.now >= until) && emergency.read >= emergency.over;
        if !settled && self.engine.acts.emergency.over > BootTime(0) {
            return;
        }
        let Some(level) = level else {
            self.engine.acts.emergency.said = false;
            self.end_runaway();
            return;
        };
        if !self.end_next(level == Level::Kill) {
            self.say_that_nothing_is_left();
        }
    }

    /// What is being ended already: its memory is waited for, though for others' grace not for ever.
    fn emergency_under_way(&self) -> Option<ActionId> {
        let (now, settle) = (self.now, self.engine.config.actions.settle);
        let ends = |running: &&Running| {
            let own = matches!(running.action.by, Decided::Emergency);
            let waits = own || now.since(running.action.began) < settle;
            running.moves() && running.action.kind == ActionKind::Terminate && waits
        };
        self.engine.acts.running.values().find(ends).map(|running| running.action.id)
    }

    /// There is no time left for who was told to end.
    fn hurry(&mut self, id: ActionId) {
        let Some(running) = self.engine.acts.running.get(&id) else { return };
        // A person's word is a grace.
        if !running.by_person() && matches!(running.stage, Stage::Ending { .. }) {
            self.look(id, Blow::Kill);
        }
    }

    fn end_runaway(&mut self) {
        let engine = &*self.engine;
        let Some((finding, chosen, grounds)) = engine.runaway() else { return };
        let plan = engine.plan_of(finding, ActionKind::Terminate, chosen, grounds);
        self.begin_within_rate(plan, false);
    }

    /// Ends the first group there is, in the order: orphans, stale helpers, what leaks, the youngest burst. `false` when there is
    /// none; that the rate bound holds it back is another matter.
    fn end_next(&mut self, urgent: bool) -> bool {
        let engine = &*self.engine;
        let kinds = [FindingKind::Orphan, FindingKind::Stale, FindingKind::Leak];
        let floor = engine.close_watch.host.total.0 / LIGHT;
        let mut light = None;
        let heavy = kinds.into_iter().find_map(|kind| {
            let heaviest = engine.heaviest(kind).into_iter().next()?;
            if heaviest.1.memory().0 >= floor {
                return Some(heaviest);
            }
            light.get_or_insert(heaviest);
            None
        });
        let about = |(finding, chosen, grounds)| engine.plan_of(finding, ActionKind::Terminate, chosen, grounds);
        let burst = || engine.youngest_burst().map(|(top, chosen)| engine.plan_burst(top, chosen));
        let Some(plan) = heavy.map(about).or_else(burst).or_else(|| light.map(about)) else { return false };
        self.begin_within_rate(plan, urgent);
        true
    }

    fn begin_within_rate(&mut self, mut plan: Plan, urgent: bool) {
        self.hold_to_rate(&mut plan);
        let host = self.engine.close_watch.host;
        let why = format!("{}% of the memory is left: ", host.left_percent());
        plan.reason.insert_str(0, &why);
        plan.evidence.insert("left_percent".into(), host.left_percent().into());
        plan.evidence.insert("available_bytes".into(), host.available.0.into());
        plan.evidence.insert("swap_free_bytes".into(), host.swap_free.0.into());
        if !plan.chosen.targets.is_empty() {
            self.begin_action(plan, Decided::Emergency, urgent);
        }
    }

    fn say_that_nothing_is_left(&mut self) {
        if std::mem::replace(&mut self.engine.acts.emergency.said, true) {
            return;
        }
        let left = self.engine.close_watch.host.left_percent();
        self.say_why_not(format!(
            "{left}% of the memory is left, and there is nothing in the sessions that may be ended"
        ));
    }
}

impl Engine {
    fn plan_burst(&self, top: &Process, chosen: Chosen) -> Plan {
        let memory: Bytes = chosen.memory();
        let mut evidence = serde_json::Map::new();
        evidence.insert("program".into(), top.label().into());
        evidence.insert("count".into(), chosen.targets.len().into());
        evidence.insert("memory_bytes".into(), memory.0.into());
        let reason =
            format!("the youngest burst of tools is {} (pid {}), {} MiB", top.label(), top.id.pid, memory.mib());
        Plan {
            kind: ActionKind::Terminate,
            grounds: Grounds::Helper,
            finding: None,
            session: Some(top.session),
            owner: top.uid,
            reason,
            evidence,
            chosen,
            cgroup: self.gate.cgroup_of(top.session),
        }
    }
}
