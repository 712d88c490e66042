//! Membership in sessions: processes enter, become agents, move, and leave.

use std::sync::Arc;

use super::Step;
use super::effect::{BpfCommand, Effect, JournalEntry, JournalEvent, PersistCommand};
use super::gate::{GateRecord, UNPROFILED};
use super::ownership::nearest_agent;
use super::process::{Launcher, Life, TrackedProcess};
use watchdog_api::ProcessKind;
use watchdog_classify::{self as classify, Parent};
use watchdog_config::Profile;
use watchdog_types::{BootTime, Image, Lineage, Pid, ProcessId, SessionId, Uid};

/// The facts about a process when it enters the table.
pub(super) struct Newcomer {
    pub(super) process: ProcessId,
    pub(super) forked_by: Option<ProcessId>,
    pub(super) ppid: Pid,
    pub(super) uid: Uid,
    pub(super) comm: String,
    pub(super) image: Arc<Image>,
    pub(super) forked: bool,
}

/// The place of a program in the lineage of its process.
enum NewcomerRole {
    Root {
        profile: String,
        parent: Option<SessionId>,
    },
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
        self.apply_limits(session);
        self.update_ungated_finding(session);
        self.journal(
            BootTime::from(root.start_time),
            Some(root),
            JournalEvent::SessionStarted { profile: profile.into() },
        );
        self.effect(Effect::Inspect(root));
    }

    /// Puts a process into the table and its session.
    pub(super) fn enter(&mut self, newcomer: Newcomer, session: SessionId, lineage: &Lineage, kind: ProcessKind) {
        let Newcomer { process, forked_by, ppid, uid, comm, image, forked } = newcomer;
        self.release_reused_pid(process);
        let parent = forked_by.filter(|parent| self.engine.table.get(*parent).is_some());
        let parent = parent.or_else(|| self.root_for_lineage(process, session));
        let depth = match parent.filter(|_| parent == forked_by).and_then(|parent| self.engine.table.get(parent)) {
            Some(parent) if parent.session == session => parent.depth + 1,
            _ => lineage.depth,
        };
        let launched_by = self.was_launched(process);
        let launcher = Launcher::of(&image);
        let adopted = self.was_adopted(process);
        self.engine.table.insert(TrackedProcess {
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
            ..TrackedProcess::new(process, session, uid, self.now)
        });
        launcher.into_iter().for_each(|launcher| self.launched(process, launcher));
        if let Some(session) = self.engine.sessions.get_mut(session) {
            session.members += 1;
            session.tally.entered += 1;
            // Another member of a session that was reported as ended.
            let again = session.ended.take().map(|_| session.id);
            again.into_iter().for_each(|session| self.remember_session(session));
        }
        self.limits_unknown(process);
    }

    /// A pid is reused only after its last process has exited, whose exit event must have been lost.
    pub(super) fn release_reused_pid(&mut self, newcomer: ProcessId) {
        let earlier = |before: &&TrackedProcess| before.id.start_time < newcomer.start_time;
        if let Some(before) = self.engine.table.by_pid(newcomer.pid).filter(earlier).map(|before| before.id) {
            self.gone(before, BootTime::from(newcomer.start_time), None);
        }
    }

    /// The root of the session, for the lineage of a member whose parent is unknown. A root that died before
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
            self.engine.table.insert(TrackedProcess { life, ..TrackedProcess::new(root, id, uid, self.now) });
        }
        Some(root)
    }

    /// The session that a newcomer with this lineage belongs to: its parent's, as the table has it, since the kernel's
    /// map may lag behind; else its root's.
    pub(super) fn session_of(&self, lineage: &Lineage) -> Option<SessionId> {
        let parent = lineage.parent.and_then(|parent| self.engine.table.get(parent));
        parent.map(|parent| parent.session).or_else(|| self.engine.sessions.of_root(lineage.root))
    }

    /// Subtracts living processes from a session, and ends it after the last one.
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
                what: JournalEvent::SessionEnded,
            }));
            self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::SessionOver(root))));
            self.gate_session_ended(session);
        }
    }

    /// Says anew what a process is, after it executed something else.
    pub(super) fn reclassify(&mut self, process: ProcessId) {
        let Some(known) = self.engine.table.get(process) else { return };
        let session = known.session;
        match self.role(known) {
            NewcomerRole::Root { profile, parent } => self.split_session(process, &profile, parent),
            NewcomerRole::Member(kind) => {
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
                        self.add_matching_profile(session, profile);
                    } else if let Some(known) = self.engine.sessions.get_mut(session) {
                        known.profile = profile;
                        self.apply_limits(session);
                    }
                }
            }
        }
    }

    fn role(&self, process: &TrackedProcess) -> NewcomerRole {
        let table = &self.engine.table;
        let agent = nearest_agent(table, process.id);
        let parent = process.parent.and_then(|parent| table.get(parent));
        // A root stays an agent, whatever its launcher executes on the way.
        if process.kind == ProcessKind::Agent {
            return NewcomerRole::Member(ProcessKind::Agent);
        }
        let as_helper = || {
            let parent = parent.map(|parent| Parent { kind: parent.kind, image: &parent.image });
            NewcomerRole::Member(classify::helper_kind(&process.image, &process.comm, parent))
        };
        let Some(profile) = self.profile(&process.image, &process.comm) else { return as_helper() };
        let Some(agent) = agent else {
            return NewcomerRole::Root { profile: profile.name.clone(), parent: None };
        };
        let outer = self.engine.sessions.get(agent.session);
        let same = outer.is_some_and(|outer| outer.profile == profile.name);
        let direct = process.parent == Some(agent.id);
        let daemon = classify::agent_daemon(&process.image);
        if same && direct && !daemon && profile.is_launcher && !self.has_agent_behind(agent) {
            return NewcomerRole::Member(ProcessKind::Agent);
        }
        // A program that only lends its tools is a helper, whatever starts it; so is a server of the same program.
        if !daemon && (classify::lends_tools(&process.image) || same && classify::serves(&process.image)) {
            return NewcomerRole::Member(ProcessKind::McpServer);
        }
        if same && direct && !daemon {
            return NewcomerRole::Member(ProcessKind::Subagent);
        }
        NewcomerRole::Root { profile: profile.name.clone(), parent: Some(agent.session) }
    }

    /// A launcher has one agent behind it at a time (it starts another when that one asks to be started anew); the next of
    /// the same program is a subagent.
    pub(super) fn has_agent_behind(&self, launcher: &TrackedProcess) -> bool {
        let table = &self.engine.table;
        let is_pair = |id: &ProcessId| {
            table.alive(*id).is_some_and(|child| child.kind == ProcessKind::Agent && child.session == launcher.session)
        };
        let root = self.engine.sessions.get(launcher.session).map(|session| session.root);
        root != Some(launcher.id) || launcher.children.iter().any(is_pair)
    }

    /// A helper turned out to be an agent: it and everything below it get a session of their own.
    pub(super) fn split_session(&mut self, process: ProcessId, profile: &str, parent: Option<SessionId>) {
        let Some(known) = self.engine.table.get_mut(process) else { return };
        known.kind = ProcessKind::Agent;
        let uid = known.uid;
        let session = self.begin_session(process, profile, parent, uid);
        self.reassign(process, session, 0);
        self.began(session, process, profile);
    }

    /// Learns the parent of a known process, which may show that it belongs to another session.
    pub(super) fn learn_parent(&mut self, process: ProcessId, parent: ProcessId) {
        let Some((session, depth)) = self.engine.table.get(parent).map(|parent| (parent.session, parent.depth)) else {
            return;
        };
        self.engine.table.set_parent(process, parent);
        let Some(known) = self.engine.table.get_mut(process) else { return };
        known.forked_by = Some(parent);
        let is_root = self.engine.sessions.get(known.session).is_some_and(|session| session.root == process);
        if known.session != session && !is_root {
            self.reassign(process, session, depth + 1);
        }
    }

    /// Moves a process and what belongs to its session below it into another session.
    fn reassign(&mut self, process: ProcessId, session: SessionId, depth: u32) {
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
        self.engine.table.bump_generation();
        if let Some(session) = self.engine.sessions.get_mut(session) {
            session.members += living;
            session.tally.entered += moved;
            session.ended = None;
        }
        self.leave(old, living, self.now);
        // The agent of the old session may be among them.
        self.update_ungated_finding(old);
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
        self.effect(Effect::Bpf(BpfCommand::Track(process, lineage)));
    }

    pub(super) fn profile(&self, image: &Image, comm: &str) -> Option<&Profile> {
        Profile::find(&self.engine.config.profiles, image, comm)
    }
}
