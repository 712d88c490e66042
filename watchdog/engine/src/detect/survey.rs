//! Helpers as a person counts them: npx with its shell and the server behind it is one, and so is a browser with all its
//! renderers. The detectors that compare helpers with each other look at all of them together, now and then.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Facts;
use crate::ownership::{Ownership, nearest_agent};
use crate::process::TrackedProcess;
use watchdog_api::ProcessKind;
use watchdog_classify as classify;
use watchdog_config::Config;
use watchdog_types::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid};

/// The time between two looks at all helpers, unless the configuration asks for less. At 4 µs a helper, a thousand of them
/// cost 0.07 ms of CPU per second.
const SURVEY_AT_MOST: Duration = Duration::from_secs(60);
const SURVEY_AT_LEAST: Duration = Duration::from_secs(1);
/// How many programs a group is named after.
const NAMED: usize = 5;

/// When all helpers were looked at.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    last: BootTime,
    /// A finding of the last survey has lost a member, or a detector waits for the next.
    wanted: bool,
}

impl Survey {
    /// The next inspection should be soon.
    pub(crate) fn soon(&mut self) {
        self.wanted = true;
    }

    /// Begins a survey when one is due: gives the pace of surveys.
    pub(crate) fn begin(&mut self, now: BootTime, config: &Config) -> Option<Duration> {
        let pace = (config.stale.idle / 8).min(config.duplicates.after).clamp(SURVEY_AT_LEAST, SURVEY_AT_MOST);
        let since = now.since(self.last);
        if since < pace && !(self.wanted && since >= SURVEY_AT_LEAST) {
            return None;
        }
        *self = Self { last: now, wanted: false };
        Some(pace)
    }
}

/// What a helper is: its kind and program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HelperRole {
    pub(super) kind: ProcessKind,
    pub(super) program: String,
}

/// A helper with all that is part of it.
#[derive(Clone, Debug)]
pub(crate) struct Helper {
    pub(super) top: ProcessId,
    /// It is a helper of its own, and not the agent at the root of a session that no agent started.
    pub(super) is_top: bool,
    /// What it is called, if it is a kept build server.
    pub(super) build_server: Option<&'static str>,
    pub(super) role: HelperRole,
    /// See [`classify::Identity`].
    pub(super) arguments: Option<u64>,
    pub(super) parent: HelperParent,
    /// The process that forked it has exited, or has given it up.
    pub(super) reparented: bool,
    pub(super) session: SessionId,
    pub(super) uid: Uid,
    /// The nearest agent above it, while that lives.
    pub(super) agent: Option<ProcessId>,
    pub(super) ownership: Ownership,
    /// The living: its top, and all below it.
    pub(super) members: Vec<ProcessId>,
    pub(super) memory: Bytes,
}

/// One of several helpers, without those of them that are below it.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) helper: &'a TrackedProcess,
    /// What is its own.
    pub(super) memory: Bytes,
    /// The next of them above it, of which it is a part.
    pub(super) within: Option<ProcessId>,
}

/// The living process that started a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HelperParent {
    /// A process of a session, whose child it still is; or the kept daemon further up, when what stood
    /// between them has exited.
    Within(ProcessId),
    /// Not in the table: today's parent.
    Outside(Pid),
    /// Its parent has exited.
    Gone,
}

impl Helper {
    pub(super) fn started(&self) -> BootTime {
        BootTime::from(self.top.start_time)
    }
}

impl<'a> Facts<'a> {
    /// Whether this process is a helper of its own, and not part of the one above it.
    pub(super) fn is_top(&self, process: &TrackedProcess) -> bool {
        if process.forked {
            return false;
        }
        match process.kind {
            // An agent behind a launcher is one with it; an agent that no other agent started is no helper.
            ProcessKind::Agent => {
                self.sessions.get(process.session).is_some_and(|of| of.root == process.id && of.parent.is_some())
            }
            ProcessKind::Subagent => true,
            _ if self.build_server(process).is_some() => true,
            kind => process
                .parent
                .and_then(|parent| self.table.get(parent))
                .is_none_or(|parent| parent.kind != kind || self.stands_apart(parent)),
        }
    }

    pub(super) fn role(&self, process: &TrackedProcess) -> (HelperRole, Option<u64>) {
        let classify::Identity { name, arguments } = classify::identity(&process.image);
        let arguments = match process.kind {
            // What a shell's command line runs says more than its first word does.
            ProcessKind::Tool | ProcessKind::Other => classify::shell_command(&process.image).or(arguments),
            _ => arguments,
        };
        (HelperRole { kind: process.kind, program: name }, arguments)
    }

    /// Takes helpers apart of which some have started others: each with what is its own, those below before those above.
    pub(super) fn parts(&self, helpers: &[&'a TrackedProcess]) -> Vec<Part<'a>> {
        let tops: BTreeSet<ProcessId> = helpers.iter().map(|helper| helper.id).collect();
        let own = |process: &TrackedProcess| !tops.contains(&process.id);
        let within = |helper: &TrackedProcess| {
            let mut below = helper;
            for upper in self.table.above(helper.id) {
                // A kept process is no part of the process above it, and neither are its descendants.
                if self.stands_apart(below) {
                    return None;
                }
                if tops.contains(&upper.id) {
                    return Some(upper.id);
                }
                below = upper;
            }
            None
        };
        let mut helpers = helpers.to_vec();
        helpers.sort_by_cached_key(|helper| (std::cmp::Reverse(self.table.above(helper.id).count()), helper.id));
        let part = |helper: &'a TrackedProcess| {
            let (_, memory) = self.with_below(helper, own);
            Part { helper, memory, within: within(helper) }
        };
        helpers.into_iter().map(part).collect()
    }

    /// A process and the living below it, without kept ones, and what they cost.
    fn with_all_below(&self, top: &TrackedProcess) -> (Vec<ProcessId>, Bytes) {
        self.with_below(top, |_| true)
    }

    /// The same, without what `is_part` refuses, and what is below that.
    fn with_below(&self, top: &TrackedProcess, is_part: impl Fn(&TrackedProcess) -> bool) -> (Vec<ProcessId>, Bytes) {
        let mut members = vec![top.id];
        let mut memory = top.cost();
        let enter = |process: &TrackedProcess| !self.stands_apart(process) && is_part(process);
        if !top.children.is_empty() {
            for below in self.table.below(top.id, enter).into_iter().filter_map(|id| self.table.alive(id)) {
                members.push(below.id);
                memory += below.cost();
            }
        }
        (members, memory)
    }

    /// It is kept, or would be if it were no burden.
    pub(super) fn stands_apart(&self, process: &TrackedProcess) -> bool {
        process.verdict.is_kept() || self.excesses.contains_key(&process.id)
    }

    fn build_server(&self, process: &TrackedProcess) -> Option<&'static str> {
        self.stands_apart(process).then(|| classify::build_server(&process.image, &process.comm)).flatten()
    }

    fn helper(&self, top: &TrackedProcess, is_top: bool) -> Helper {
        let (role, arguments) = self.role(top);
        let (members, memory) = self.with_all_below(top);
        let child_of = |parent: &TrackedProcess| top.ppid == parent.id.pid;
        let daemon = || self.table.above(top.id).find(|above| above.alive()).filter(|above| above.verdict.is_kept());
        let forked_by = top.forked_by.and_then(|parent| self.table.get(parent));
        let parent = match forked_by {
            Some(parent) if parent.alive() && child_of(parent) => HelperParent::Within(parent.id),
            Some(_) => daemon().map_or(HelperParent::Gone, |daemon| HelperParent::Within(daemon.id)),
            None if top.ppid == top.first_ppid && top.ppid.0 > 1 => HelperParent::Outside(top.ppid),
            None => HelperParent::Gone,
        };
        let reparented = match parent {
            HelperParent::Within(parent) => forked_by.is_none_or(|forked_by| forked_by.id != parent),
            HelperParent::Outside(_) => false,
            HelperParent::Gone => true,
        };
        let agent = nearest_agent(self.table, top.id).filter(|agent| agent.alive()).map(|agent| agent.id);
        Helper {
            top: top.id,
            is_top,
            build_server: self.build_server(top),
            role,
            arguments,
            parent,
            reparented,
            session: top.session,
            uid: top.uid,
            agent,
            ownership: self.ownership(top),
            members,
            memory,
        }
    }

    /// All helpers, and the agents at the roots of sessions, the oldest first.
    pub(super) fn all_helpers(&self) -> Vec<Helper> {
        let root =
            |process: &TrackedProcess| self.sessions.get(process.session).is_some_and(|of| of.root == process.id);
        let counts = |process| {
            let is_top = self.is_top(process);
            (is_top || root(process)).then(|| self.helper(process, is_top))
        };
        let mut helpers: Vec<Helper> = self.table.living().filter_map(counts).collect();
        helpers.sort_by_key(|helper| (helper.top.start_time, helper.top.pid));
        helpers
    }
}

/// The different ones of some names, in order. What goes beyond a few is counted.
pub(super) fn names<'n>(all: impl Iterator<Item = &'n str>) -> String {
    let mut different: Vec<&str> = Vec::new();
    all.for_each(|name| {
        if !different.contains(&name) {
            different.push(name);
        }
    });
    let unnamed = different.len().saturating_sub(NAMED);
    different.truncate(NAMED);
    let named = different.join(", ");
    if unnamed == 0 { named } else { format!("{named} and {unnamed} more") }
}

/// The middle of some amounts: the lower one of two.
pub(super) fn median(mut amounts: Vec<Bytes>) -> Option<Bytes> {
    amounts.sort_unstable();
    let middle = amounts.len().checked_sub(1)? / 2;
    amounts.get(middle).copied()
}
