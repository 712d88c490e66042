//! Who belongs to which session: processes enter, turn out to be agents, move, and leave.

use std::sync::Arc;

use super::Step;
use super::classify::{self, Parent};
use super::effect::{Effect, Happening, JournalEntry};
use super::gate::{GateRecord, UNPROFILED};
use super::id::{BootTime, Pid, ProcessId, SessionId, Uid};
use super::input::{Image, Lineage};
use super::process::{Launcher, Life, Process};
use super::standing::nearest_agent;
use crate::api::ProcessKind;
use crate::config::Profile;

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
            let Some(profile) = self.root_profile(process, image, comm) else { return false };
            self.begin(newcomer, &profile, None);
            return true;
        }
        let known = self.session_of(lineage).or_else(|| self.remembered_session(lineage));
        let Some(session) = known else { return false };
        self.enter(newcomer, session, lineage, ProcessKind::Other);
        if !lineage.forked {
            self.reclassify(process);
        }
        true
    }

    /// Begins a session with a process that is not in the table.
    pub(super) fn begin(&mut self, root: Newcomer, profile: &str, parent: Option<SessionId>) {
        let (process, uid, forked_by) = (root.process, root.uid, root.forked_by);
        let session = self.begin_session(process, profile, parent, uid);
        let lineage =
            Lineage { root: process, parent: forked_by, depth: 0, provisional: false, forked: false, witness: false };
        self.enter(root, session, &lineage, ProcessKind::Agent);
        self.began(session, process, profile);
    }

    /// The profile of a process that may be the root of a session: what it was granted as, else what recognises it.
    pub(super) fn root_profile(&self, process: ProcessId, image: &Image, comm: &str) -> Option<String> {
        let granted = self.engine.gate.lease(process).map(|lease| lease.profile.clone());
        granted.or_else(|| self.profile(image, comm).map(|profile| profile.name.clone()))
    }

    fn began(&mut self, session: SessionId, root: ProcessId, profile: &str) {
        self.track(root);
        self.remember_session(session);
        self.bind(session);
        self.gated_or_not(session);
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
        let launched_by = self.was_launched(process);
        let launcher = Launcher::of(&image);
        let adopted = self.was_adopted(process);
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
            adopted,
            ..Process::new(process, session, uid, self.now)
        });
        launcher.into_iter().for_each(|launcher| self.launched(process, launcher));
        if let Some(session) = self.engine.sessions.get_mut(session) {
            session.members += 1;
            session.tally.entered += 1;
            // Another member of a session that was said to be over.
            let again = session.ended.take().map(|_| session.id);
            again.into_iter().for_each(|session| self.remember_session(session));
        }
        self.limits_unknown(process);
    }

    /// A pid is given out again only when its last holder is gone, whose exit must have been lost.
    pub(super) fn had_pid_before(&mut self, newcomer: ProcessId) {
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
    pub(super) fn session_of(&self, lineage: &Lineage) -> Option<SessionId> {
        let parent = lineage.parent.and_then(|parent| self.engine.table.get(parent));
        parent.map(|parent| parent.session).or_else(|| self.engine.sessions.of_root(lineage.root))
    }

    /// So many living processes less in a session, which may end it.
    pub(super) fn leave(&mut self, session: SessionId, living: usize, at: BootTime) {
        let Some(left) = self.engine.sessions.get_mut(session).filter(|_| living > 0) else { return };
        left.members = left.members.saturating_sub(living);
        if left.members == 0 {
            left.ended = Some(at);
            let root = left.root;
            self.effect(Effect::Journal(JournalEntry {
                at,
                process: Some(root),
                session: Some(session),
                what: Happening::SessionEnded,
            }));
            self.effect(Effect::Remember(GateRecord::SessionOver(root)));
            self.gate_session_ended(session);
        }
    }

    /// Says anew what a process is, after it executed something else.
    pub(super) fn reclassify(&mut self, process: ProcessId) {
        let Some(known) = self.engine.table.get(process) else { return };
        let session = known.session;
        match self.role(known) {
            Role::Root { profile, parent } => self.move_out(process, &profile, parent),
            Role::Member(kind) => {
                let is_root = self.engine.sessions.get(session).is_some_and(|session| session.root == process);
                let renamed = is_root.then(|| self.profile(&known.image, &known.comm)).flatten();
                let renamed = renamed.map(|profile| profile.name.clone());
                if let Some(known) = self.engine.table.get_mut(process) {
                    known.kind = kind;
                }
                // A wrapper executed another agent in its own place. What was granted as something keeps that name.
                let granted = self.engine.gate.lease(process).is_some_and(|lease| lease.profile != UNPROFILED);
                if let Some(profile) = renamed {
                    if granted {
                        self.matches_too(session, profile);
                    } else if let Some(known) = self.engine.sessions.get_mut(session) {
                        known.profile = profile;
                        self.bind(session);
                    }
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

    /// A launcher has one agent behind it at a time (it starts another when that one asks to be started anew); the next of
    /// the same program is a subagent.
    pub(super) fn has_agent_behind(&self, launcher: &Process) -> bool {
        let table = &self.engine.table;
        let is_pair = |id: &ProcessId| {
            table.alive(*id).is_some_and(|child| child.kind == ProcessKind::Agent && child.session == launcher.session)
        };
        let root = self.engine.sessions.get(launcher.session).map(|session| session.root);
        root != Some(launcher.id) || launcher.children.iter().any(is_pair)
    }

    /// A helper turned out to be an agent: it and everything below it get a session of their own.
    pub(super) fn move_out(&mut self, process: ProcessId, profile: &str, parent: Option<SessionId>) {
        let Some(known) = self.engine.table.get_mut(process) else { return };
        known.kind = ProcessKind::Agent;
        let uid = known.uid;
        let session = self.begin_session(process, profile, parent, uid);
        self.resettle(process, session, 0);
        self.began(session, process, profile);
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
        let moved = movers.len() as u64;
        for mover in movers {
            if let Some(mover) = self.engine.table.get_mut(mover) {
                mover.session = session;
                mover.depth = depth + mover.depth.saturating_sub(old_depth);
                living += usize::from(mover.alive());
            }
            self.track(mover);
        }
        self.engine.table.moved();
        if let Some(session) = self.engine.sessions.get_mut(session) {
            session.members += living;
            session.tally.entered += moved;
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
}
