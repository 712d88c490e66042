//! Fork, exec, exit: the table and the sessions as the kernel's events move them.

use std::sync::Arc;
use std::time::Duration;

use super::Step;
use super::classify::{self, Parent};
use super::effect::{Effect, Happening};
use super::id::{BootTime, Pid, ProcessId, SessionId, Uid};
use super::input::{Exec, Exit, ExitStatus, Fork, Image, Inspection, Lineage, Memory, Oom, Signal};
use super::keep::{self, Context};
use super::process::{Launcher, Life, Process, Shared};
use super::standing::nearest_agent;
use crate::api::ProcessKind;
use crate::config::Profile;

const SIGHUP: u8 = 1;
/// The event of an exit is in the ring by the time that /proc shows it, and is read at once.
const EXIT_WITHIN: Duration = Duration::from_millis(200);

/// What is known of a process when it enters the table.
pub(super) struct Newcomer {
    pub(super) process: ProcessId,
    pub(super) forked_by: Option<ProcessId>,
    pub(super) ppid: Pid,
    pub(super) uid: Uid,
    pub(super) comm: String,
    pub(super) image: Arc<Image>,
    pub(super) forked: bool,
}

/// What a program is within the lineage of the process that runs it.
enum Role {
    /// An agent at the root of a session of its own.
    Root { profile: String, parent: Option<SessionId> },
    /// One more process of its session.
    Member(ProcessKind),
}

impl Step<'_> {
    pub(super) fn fork(&mut self, fork: Fork) {
        let Fork { at, process, lineage, uid, comm } = fork;
        if lineage.witness {
            return;
        }
        if self.engine.table.get(process).is_some() {
            // A scan was quicker, and could only guess who forked it.
            if let Some(parent) = lineage.parent {
                self.learn_parent(process, parent);
            }
            return;
        }
        let image = lineage.parent.and_then(|parent| self.engine.table.get(parent)).map(|parent| &parent.image);
        let image = image.cloned().unwrap_or_default();
        let ppid = lineage.parent.map_or(Pid(0), |parent| parent.pid);
        let newcomer = Newcomer { process, forked_by: lineage.parent, ppid, uid, comm, image, forked: true };
        match self.session_of(&lineage) {
            Some(session) => {
                self.enter(newcomer, session, &lineage, ProcessKind::Other);
                self.journal(at, Some(process), Happening::Fork { parent: lineage.parent });
                self.may_be_orphan(process);
            }
            // Forked below a candidate that has turned out to be none.
            None => self.effect(Effect::Untrack(process)),
        }
    }

    pub(super) fn exec(&mut self, exec: Exec) {
        let Exec { at, process, lineage, uid, ppid, comm, image } = exec;
        if lineage.witness && self.engine.table.get(process).is_none() {
            return;
        }
        let image = Arc::new(image);
        if self.engine.table.alive(process).is_none() {
            if !self.admit(process, &lineage, uid, ppid, &comm, &image) {
                self.effect(Effect::Untrack(process));
                return;
            }
        } else if let Some(known) = self.engine.table.get_mut(process) {
            known.launched_by = Launcher::of(&image).or(known.launched_by);
            known.image = Arc::clone(&image);
            known.comm.clone_from(&comm);
            known.forked = false;
            known.uid = uid;
            known.shared = Shared::default();
            // The exec let go of the old program's memory; its peak was the old program's too.
            known.memory = Memory::default();
            known.peak = super::id::Bytes(0);
            self.reclassify(process);
        }
        self.judge(process);
        self.may_be_orphan(process);
        self.journal(at, Some(process), Happening::Exec { comm, image: (*image).clone() });
        self.external_exec(at, process);
    }

    pub(super) fn exit(&mut self, exit: &Exit) {
        let Exit { at, process, status, peak } = *exit;
        if let Some(known) = self.engine.table.get_mut(process) {
            // Samples know what the kernel's mark cannot tell after an exec of something smaller.
            known.peak = peak.unwrap_or_default().max(known.peak);
        }
        self.gone(process, at, status);
        self.abandoned_by(process, at);
    }

    /// A process is dead, seen by an event or missing from a scan.
    pub(super) fn gone(&mut self, process: ProcessId, at: BootTime, status: Option<ExitStatus>) {
        if !self.engine.table.bury(process, at, status, self.now) {
            return;
        }
        let Some(dead) = self.engine.table.get(process) else { return };
        let (session, peak_bytes) = (dead.session, dead.peak.0);
        if let Some(dead) = self.engine.table.get_mut(process) {
            dead.memory = Memory::default();
        }
        self.journal(at, Some(process), Happening::Exit { status, peak_bytes });
        self.leave(session, 1, at);
        self.forget_growth(process);
        self.orphaned_by(process, at);
        self.detached_by(process, at);
        self.external_exit(at, process);
    }

    pub(super) fn oom(&mut self, oom: Oom) {
        self.engine.oom_kills += 1;
        let process = oom.process.or_else(|| self.engine.process(oom.pid));
        self.journal(oom.at, process, Happening::Oom { comm: oom.comm });
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        let what = Happening::Signal {
            signal: signal.signal,
            sender: signal.sender,
            sender_comm: signal.sender_comm,
            sender_uid: signal.sender_uid.0,
            delivered: signal.delivered,
        };
        self.journal(signal.at, Some(signal.process), what);
        if signal.signal == SIGHUP {
            self.terminal_may_be_gone(signal.process);
        }
    }

    pub(super) fn adopt(&mut self, process: ProcessId) {
        if let Some(known) = self.engine.table.get_mut(process) {
            known.adopted = true;
            self.judge(process);
            self.tick();
        }
    }

    pub(super) fn inspected(&mut self, process: ProcessId, inspection: Option<Inspection>) {
        if inspection.is_none() {
            self.missed(process);
        }
        if let Some(inspection) = inspection
            && let Some(known) = self.engine.table.get_mut(process).filter(|known| known.alive())
        {
            known.ppid = Pid(inspection.ppid);
            known.comm.clone_from(&inspection.comm);
            known.inspection = Some(Box::new(inspection));
            let was_kept = known.verdict.is_kept();
            self.judge(process);
            if was_kept && self.engine.table.get(process).is_some_and(|known| !known.verdict.is_kept()) {
                self.may_be_orphan(process);
            }
        }
        self.orphan_inspected(process);
        self.agent_inspected(process);
    }

    /// A process is not where the table says that it lives. Most often its exit is on the way; where it happened before
    /// the kernel tracked the process, none will come.
    pub(super) fn missed(&mut self, process: ProcessId) {
        if self.engine.table.alive(process).is_some() {
            self.engine.missed.push((self.now, process));
        }
    }

    /// Gives up those whose exit has had the time to come.
    pub(super) fn tick_missed(&mut self) {
        let now = self.now;
        let missed = std::mem::take(&mut self.engine.missed);
        let (due, waiting): (Vec<_>, Vec<_>) = missed.into_iter().partition(|(at, _)| now.since(*at) >= EXIT_WITHIN);
        self.engine.missed = waiting;
        for (at, process) in due {
            self.gone(process, at, None);
            self.abandoned_by(process, at);
        }
    }

    /// Takes a process that the table does not have into its session, or refuses it.
    pub(super) fn admit(
        &mut self,
        process: ProcessId,
        lineage: &Lineage,
        uid: Uid,
        ppid: Pid,
        comm: &str,
        image: &Arc<Image>,
    ) -> bool {
        let newcomer = Newcomer {
            process,
            forked_by: lineage.parent,
            ppid,
            uid,
            comm: comm.to_owned(),
            image: Arc::clone(image),
            forked: lineage.forked,
        };
        if lineage.root == process {
            let Some(profile) = self.profile(image, comm).map(|profile| profile.name.clone()) else { return false };
            self.begin(newcomer, &profile, None);
            return true;
        }
        let Some(session) = self.session_of(lineage) else { return false };
        self.enter(newcomer, session, lineage, ProcessKind::Other);
        if !lineage.forked {
            self.reclassify(process);
        }
        true
    }

    /// Begins a session with a process that is not in the table.
    pub(super) fn begin(&mut self, root: Newcomer, profile: &str, parent: Option<SessionId>) {
        let (process, uid, forked_by) = (root.process, root.uid, root.forked_by);
        let session = self.engine.sessions.begin(process, profile, parent, uid);
        let lineage =
            Lineage { root: process, parent: forked_by, depth: 0, provisional: false, forked: false, witness: false };
        self.enter(root, session, &lineage, ProcessKind::Agent);
        self.began(process, profile);
    }

    fn began(&mut self, root: ProcessId, profile: &str) {
        self.track(root);
        self.journal(
            BootTime::from(root.start_time),
            Some(root),
            Happening::SessionStarted { profile: profile.into() },
        );
        self.effect(Effect::Inspect(root));
    }

    /// Puts a process into the table and its session.
    pub(super) fn enter(&mut self, newcomer: Newcomer, session: SessionId, lineage: &Lineage, kind: ProcessKind) {
        let Newcomer { process, forked_by, ppid, uid, comm, image, forked } = newcomer;
        self.had_pid_before(process);
        let parent = forked_by.filter(|parent| self.engine.table.get(*parent).is_some());
        let parent = parent.or_else(|| self.root_for_lineage(process, session));
        let depth = match parent.filter(|_| parent == forked_by).and_then(|parent| self.engine.table.get(parent)) {
            Some(parent) if parent.session == session => parent.depth + 1,
            _ => lineage.depth,
        };
        let launched_by = Launcher::of(&image);
        self.engine.table.insert(Process {
            forked_by,
            parent,
            first_ppid: ppid,
            ppid,
            depth,
            comm,
            image,
            forked,
            kind,
            launched_by,
            ..Process::new(process, session, uid, self.now)
        });
        if let Some(session) = self.engine.sessions.get_mut(session) {
            session.members += 1;
            session.ended = None;
        }
    }

    /// A pid is given out again only when its last holder is gone, whose exit must have been lost.
    fn had_pid_before(&mut self, newcomer: ProcessId) {
        let earlier = |before: &&Process| before.id.start_time < newcomer.start_time;
        if let Some(before) = self.engine.table.by_pid(newcomer.pid).filter(earlier).map(|before| before.id) {
            let at = BootTime::from(newcomer.start_time);
            self.gone(before, at, None);
            self.abandoned_by(before, at);
        }
    }

    /// The root of the session, for the lineage of a member whose parent nobody knows any more. A root that died before
    /// the member was heard of is remembered as dead.
    fn root_for_lineage(&mut self, member: ProcessId, session: SessionId) -> Option<ProcessId> {
        let session = self.engine.sessions.get(session)?;
        let (root, id, uid) = (session.root, session.id, session.uid);
        if root == member {
            return None;
        }
        if self.engine.table.get(root).is_none() {
            let at = session.ended.unwrap_or(self.now);
            let life = Life::Dead { at, status: None, zombie: false };
            self.engine.table.insert(Process { life, ..Process::new(root, id, uid, self.now) });
        }
        Some(root)
    }

    /// The session that a newcomer with this lineage belongs to: its parent's, as the table has it, since the kernel's
    /// map may lag behind; else its root's.
    fn session_of(&self, lineage: &Lineage) -> Option<SessionId> {
        let parent = lineage.parent.and_then(|parent| self.engine.table.get(parent));
        parent.map(|parent| parent.session).or_else(|| self.engine.sessions.of_root(lineage.root))
    }

    /// So many living processes less in a session, which may end it.
    fn leave(&mut self, session: SessionId, living: usize, at: BootTime) {
        let Some(left) = self.engine.sessions.get_mut(session).filter(|_| living > 0) else { return };
        left.members = left.members.saturating_sub(living);
        if left.members == 0 {
            left.ended = Some(at);
            let root = left.root;
            self.effect(Effect::Journal(super::effect::JournalEntry {
                at,
                process: Some(root),
                session: Some(session),
                what: Happening::SessionEnded,
            }));
        }
    }

    /// Says anew what a process is, after it executed something else.
    pub(super) fn reclassify(&mut self, process: ProcessId) {
        let Some(known) = self.engine.table.get(process) else { return };
        let session = known.session;
        match self.role(known) {
            Role::Root { profile, parent } => self.move_out(process, &profile, parent),
            Role::Member(kind) => {
                let renamed = self.profile(&known.image, &known.comm).map(|profile| profile.name.clone());
                let root = self.engine.sessions.get(session).map(|session| session.root);
                if let Some(known) = self.engine.table.get_mut(process) {
                    known.kind = kind;
                }
                // A wrapper executed another agent in its own place.
                if let Some(profile) = renamed
                    && root == Some(process)
                    && let Some(session) = self.engine.sessions.get_mut(session)
                {
                    session.profile = profile;
                }
            }
        }
    }

    fn role(&self, process: &Process) -> Role {
        let table = &self.engine.table;
        let agent = nearest_agent(table, process.id);
        let parent = process.parent.and_then(|parent| table.get(parent));
        // A root stays an agent, whatever its launcher executes on the way.
        if process.kind == ProcessKind::Agent {
            return Role::Member(ProcessKind::Agent);
        }
        let as_helper = || {
            let parent = parent.map(|parent| Parent { kind: parent.kind, image: &parent.image });
            Role::Member(classify::helper_kind(&process.image, &process.comm, parent))
        };
        let Some(profile) = self.profile(&process.image, &process.comm) else { return as_helper() };
        let Some(agent) = agent else {
            return Role::Root { profile: profile.name.clone(), parent: None };
        };
        let outer = self.engine.sessions.get(agent.session);
        let same = outer.is_some_and(|outer| outer.profile == profile.name);
        let direct = process.parent == Some(agent.id);
        let daemon = classify::agent_daemon(&process.image);
        if same && direct && !daemon && profile.relaunches && !self.has_agent_behind(agent) {
            return Role::Member(ProcessKind::Agent);
        }
        // Whoever starts it, what only lends its tools is a helper; a server of the same program is, too.
        if !daemon && (classify::lends_tools(&process.image) || same && classify::serves(&process.image)) {
            return Role::Member(ProcessKind::McpServer);
        }
        if same && direct && !daemon {
            return Role::Member(ProcessKind::Subagent);
        }
        Role::Root { profile: profile.name.clone(), parent: Some(agent.session) }
    }

    /// A launcher has one agent behind it at a time (it starts another when that one asks to be started anew); the next of the same program is a subagent.
    fn has_agent_behind(&self, launcher: &Process) -> bool {
        let table = &self.engine.table;
        let is_pair = |id: &ProcessId| {
            table.alive(*id).is_some_and(|child| child.kind == ProcessKind::Agent && child.session == launcher.session)
        };
        let root = self.engine.sessions.get(launcher.session).map(|session| session.root);
        root != Some(launcher.id) || launcher.children.iter().any(is_pair)
    }

    /// A helper turned out to be an agent: it and everything below it get a session of their own.
    fn move_out(&mut self, process: ProcessId, profile: &str, parent: Option<SessionId>) {
        let Some(known) = self.engine.table.get_mut(process) else { return };
        known.kind = ProcessKind::Agent;
        let session = self.engine.sessions.begin(process, profile, parent, known.uid);
        self.resettle(process, session, 0);
        self.began(process, profile);
    }

    /// Learns who forked a process after the process itself, which may show that it belongs to another session.
    pub(super) fn learn_parent(&mut self, process: ProcessId, parent: ProcessId) {
        let Some((session, depth)) = self.engine.table.get(parent).map(|parent| (parent.session, parent.depth)) else {
            return;
        };
        self.engine.table.set_parent(process, parent);
        let Some(known) = self.engine.table.get_mut(process) else { return };
        known.forked_by = Some(parent);
        let is_root = self.engine.sessions.get(known.session).is_some_and(|session| session.root == process);
        if known.session != session && !is_root {
            self.resettle(process, session, depth + 1);
        }
    }

    /// Moves a process and what belongs to its session below it into another session.
    fn resettle(&mut self, process: ProcessId, session: SessionId, depth: u32) {
        let Some(known) = self.engine.table.get(process) else { return };
        let (old, old_depth) = (known.session, known.depth);
        let mut movers = self.engine.table.below(process, |below| below.session == old);
        movers.insert(0, process);
        let mut living = 0;
        for mover in movers {
            if let Some(mover) = self.engine.table.get_mut(mover) {
                mover.session = session;
                mover.depth = depth + mover.depth.saturating_sub(old_depth);
                living += usize::from(mover.alive());
            }
            self.track(mover);
        }
        if let Some(session) = self.engine.sessions.get_mut(session) {
            session.members += living;
            session.ended = None;
        }
        self.leave(old, living, self.now);
    }

    /// Brings the kernel's entry of a living process into line with the table.
    pub(super) fn track(&mut self, process: ProcessId) {
        let Some(known) = self.engine.table.alive(process) else { return };
        let Some(session) = self.engine.sessions.get(known.session) else { return };
        let lineage = Lineage {
            root: session.root,
            parent: known.forked_by,
            depth: known.depth,
            provisional: false,
            forked: known.forked,
            witness: false,
        };
        self.effect(Effect::Track(process, lineage));
    }

    pub(super) fn profile(&self, image: &Image, comm: &str) -> Option<&Profile> {
        Profile::find(&self.engine.config.profiles, image, comm)
    }

    /// Weighs the keep-evidence of a process anew.
    pub(super) fn judge(&mut self, process: ProcessId) {
        let engine = &*self.engine;
        let Some(known) = engine.table.get(process) else { return };
        let root = engine.sessions.get(known.session).and_then(|session| engine.table.get(session.root));
        // An agent that was started inside another's session talks to that one: this is no reason to outlive it.
        let above = |session| {
            let mut outer = std::iter::successors(Some(known.session), |id| engine.sessions.get(*id)?.parent);
            outer.any(|id| id == session)
        };
        let other_agent = |holder: ProcessId| {
            engine.table.alive(holder).is_some_and(|agent| agent.is_agent() && !above(agent.session))
        };
        let context = Context {
            configured: &engine.config.orphans,
            agent_ignores_hup: engine
                .sessions
                .get(known.session)
                .and_then(|session| session.ignores_hup)
                .or_else(|| root?.inspection.as_deref().map(|seen| seen.ignores_hup)),
            other_agent: &other_agent,
        };
        let verdict = keep::weigh(known, &context);
        if let Some(known) = self.engine.table.get_mut(process)
            && known.verdict != verdict
        {
            known.verdict = verdict;
            self.engine.orphans.changed();
        }
    }

    pub(super) fn judge_all(&mut self) {
        let all: Vec<ProcessId> = self.engine.table.iter().map(|process| process.id).collect();
        for process in all {
            self.judge(process);
            self.may_be_orphan(process);
        }
    }
}

impl Launcher {
    /// The launcher that this image is.
    fn of(image: &Image) -> Option<Self> {
        match image.path.rsplit('/').next() {
            Some("nohup") => Some(Self::Nohup),
            Some("setsid") => Some(Self::Setsid),
            _ => None,
        }
    }
}
