//! Helpers as a person counts them: npx with its shell and the server behind it is one, and so is a browser with all its
//! renderers. The detectors that compare helpers with each other look at all of them together, now and then.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::api::ProcessKind;
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid};
use crate::engine::process::Process;
use crate::engine::standing::{Standing, nearest_agent};
use crate::engine::{Engine, Step, classify};

/// The time between two looks at all helpers, unless the configuration asks for less. At 4 µs a helper, a thousand of them
/// cost 0.07 ms of CPU per second.
const SURVEY_AT_MOST: Duration = Duration::from_secs(60);
const SURVEY_AT_LEAST: Duration = Duration::from_secs(1);

/// When all helpers were looked at.
#[derive(Debug, Default)]
pub(in crate::engine) struct Survey {
    last: BootTime,
    /// A finding of the last survey has lost a member, or somebody waits for the next.
    stale: bool,
}

impl Survey {
    /// The next look is to be soon.
    pub(in crate::engine) fn soon(&mut self) {
        self.stale = true;
    }
}

/// What a helper is: its kind and program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Role {
    pub(super) kind: ProcessKind,
    pub(super) program: String,
}

/// A helper with all that is part of it.
#[derive(Clone, Debug)]
pub(super) struct Helper {
    /// Its topmost process.
    pub(super) top: ProcessId,
    /// It is a helper of its own, and not the agent at the root of a session that nobody's agent started.
    pub(super) is_top: bool,
    /// What it is called, where it is a build server that is meant to stay.
    pub(super) build_server: Option<&'static str>,
    pub(super) role: Role,
    /// See [`classify::Identity`].
    pub(super) arguments: Option<u64>,
    pub(super) parent: Parent,
    /// The process that forked it is gone, or has let go of it.
    pub(super) reparented: bool,
    pub(super) session: SessionId,
    pub(super) uid: Uid,
    /// The nearest agent above it, while that lives.
    pub(super) agent: Option<ProcessId>,
    pub(super) standing: Standing,
    /// The living: its top, and all below it.
    pub(super) members: Vec<ProcessId>,
    pub(super) memory: Bytes,
}

/// One of several helpers, without those of them that are below it.
#[derive(Debug)]
pub(super) struct Part<'a> {
    pub(super) helper: &'a Process,
    /// What is its own.
    pub(super) memory: Bytes,
    /// The next of them above it, of which it is a part.
    pub(super) within: Option<ProcessId>,
}

/// Who started a helper, and lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Parent {
    /// A process of a session, whose child it still is; or the daemon further up that is meant to stay, when what stood
    /// between them is gone.
    Within(ProcessId),
    /// Nobody in the table: today's parent.
    Outside(Pid),
    /// Its parent is gone.
    Gone,
}

impl Helper {
    pub(super) fn started(&self) -> BootTime {
        BootTime::from(self.top.start_time)
    }
}

impl Engine {
    /// Whether this process is a helper of its own, and not part of the one above it.
    pub(super) fn is_top(&self, process: &Process) -> bool {
        if process.forked {
            return false;
        }
        match process.kind {
            // An agent behind a launcher is one with it; an agent that nobody's agent started is no helper.
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

    pub(super) fn role(&self, process: &Process) -> (Role, Option<u64>) {
        let classify::Identity { name, arguments } = classify::identity(&process.image);
        let arguments = match process.kind {
            // What a shell's command line runs says more than its first word does.
            ProcessKind::Tool | ProcessKind::Other => classify::shell_command(&process.image).or(arguments),
            _ => arguments,
        };
        (Role { kind: process.kind, program: name }, arguments)
    }

    /// Takes helpers apart of which some have started others: each with what is its own, those below before those above.
    pub(super) fn parts<'a>(&'a self, helpers: &[&'a Process]) -> Vec<Part<'a>> {
        let tops: BTreeSet<ProcessId> = helpers.iter().map(|helper| helper.id).collect();
        let own = |process: &Process| !tops.contains(&process.id);
        let within = |helper: &Process| {
            let mut below = helper;
            for upper in self.table.above(helper.id) {
                // What is meant to stay is no part of what is above it, and neither is what is below that.
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
        let part = |helper: &'a Process| {
            let (_, memory) = self.with_below(helper, own);
            Part { helper, memory, within: within(helper) }
        };
        helpers.into_iter().map(part).collect()
    }

    /// A process and the living below it, without what is meant to stay there, and what they cost.
    fn with_all_below(&self, top: &Process) -> (Vec<ProcessId>, Bytes) {
        self.with_below(top, |_| true)
    }

    /// The same, without what `is_part` refuses, and what is below that.
    fn with_below(&self, top: &Process, is_part: impl Fn(&Process) -> bool) -> (Vec<ProcessId>, Bytes) {
        let mut members = vec![top.id];
        let mut memory = top.cost();
        let enter = |process: &Process| !self.stands_apart(process) && is_part(process);
        if !top.children.is_empty() {
            for below in self.table.below(top.id, enter).into_iter().filter_map(|id| self.table.alive(id)) {
                members.push(below.id);
                memory += below.cost();
            }
        }
        (members, memory)
    }

    /// It is kept, or would be if it were no burden.
    fn stands_apart(&self, process: &Process) -> bool {
        process.verdict.is_kept() || self.excesses.contains_key(&process.id)
    }

    fn build_server(&self, process: &Process) -> Option<&'static str> {
        self.stands_apart(process).then(|| classify::build_server(&process.image, &process.comm)).flatten()
    }

    fn helper(&self, top: &Process, is_top: bool) -> Helper {
        let (role, arguments) = self.role(top);
        let (members, memory) = self.with_all_below(top);
        let child_of = |parent: &Process| top.ppid == parent.id.pid;
        let daemon = || self.table.above(top.id).find(|above| above.alive()).filter(|above| above.verdict.is_kept());
        let forked_by = top.forked_by.and_then(|parent| self.table.get(parent));
        let parent = match forked_by {
            Some(parent) if parent.alive() && child_of(parent) => Parent::Within(parent.id),
            Some(_) => daemon().map_or(Parent::Gone, |daemon| Parent::Within(daemon.id)),
            None if top.ppid == top.first_ppid && top.ppid.0 > 1 => Parent::Outside(top.ppid),
            None => Parent::Gone,
        };
        let reparented = match parent {
            Parent::Within(parent) => forked_by.is_none_or(|forked_by| forked_by.id != parent),
            Parent::Outside(_) => false,
            Parent::Gone => true,
        };
        let agent = nearest_agent(&self.table, top.id).filter(|agent| agent.alive()).map(|agent| agent.id);
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
            standing: self.standing(top),
            members,
            memory,
        }
    }

    /// All helpers, and the agents at the roots of sessions, the oldest first.
    fn all_helpers(&self) -> Vec<Helper> {
        let root = |process: &Process| self.sessions.get(process.session).is_some_and(|of| of.root == process.id);
        let counts = |process| {
            let is_top = self.is_top(process);
            (is_top || root(process)).then(|| self.helper(process, is_top))
        };
        let mut helpers: Vec<Helper> = self.table.living().filter_map(counts).collect();
        helpers.sort_by_key(|helper| (helper.top.start_time, helper.top.pid));
        helpers
    }
}

impl Step<'_> {
    /// A process died: what was found of it is looked at at once.
    pub(in crate::engine) fn survey_gone(&mut self, process: ProcessId) {
        let Engine { stale, duplicates, build_servers, .. } = &mut *self.engine;
        // All three are to forget it.
        if stale.forget(process) | duplicates.forget(process) | build_servers.forget(process) {
            self.engine.survey.soon();
        }
    }

    /// Looks at all helpers when it is time to.
    pub(in crate::engine) fn tick_survey(&mut self) {
        let config = &self.engine.config;
        let wanted = (config.stale.idle / 8).min(config.duplicates.after);
        let pace = wanted.clamp(SURVEY_AT_LEAST, SURVEY_AT_MOST);
        let since = self.now.since(self.engine.survey.last);
        if since < pace && !(self.engine.survey.stale && since >= SURVEY_AT_LEAST) {
            return;
        }
        self.engine.survey = Survey { last: self.now, stale: false };
        let helpers = self.engine.all_helpers();
        self.survey_stale(&helpers, pace);
        self.survey_duplicates(&helpers);
        self.survey_build_servers(&helpers);
        self.remember_steady(&helpers);
    }
}

/// The middle of some amounts: the lower one of two.
pub(super) fn median(mut amounts: Vec<Bytes>) -> Option<Bytes> {
    amounts.sort_unstable();
    let middle = amounts.len().checked_sub(1)? / 2;
    amounts.get(middle).copied()
}
