//! Abandoned: an agent whose terminal or session leader is gone. Background work may be wanted: it is reported at once,
//! and nothing is ever proposed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, json};

use super::HOLD_OFF;
use crate::api::{FindingKind, Severity};
use crate::engine::Step;
use crate::engine::effect::Effect;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, ProcessId, SessionId};
use crate::engine::input::{Inspection, Lineage, Stdin};
use crate::engine::process::Process;

/// An agent that was heard of this long after its start was not seen starting.
const FOUND_RUNNING: Duration = Duration::from_secs(2);

/// What each agent had at first sight.
#[derive(Debug, Default)]
pub(in crate::engine) struct Abandoned {
    agents: BTreeMap<SessionId, Watch>,
}

#[derive(Debug)]
struct Watch {
    /// The agent had a terminal.
    tty: bool,
    /// The process that led the terminal's session, when it was another one.
    leader: Option<ProcessId>,
    /// What is gone, since when.
    lost: Option<(BootTime, &'static str)>,
}

impl Abandoned {
    pub(in crate::engine) fn pending(&self, now: BootTime) -> bool {
        self.agents.values().filter_map(|watch| watch.lost).any(|(at, _)| now.since(at) < HOLD_OFF * 2)
    }
}

impl Step<'_> {
    /// An agent was looked at: the first time it is remembered what it has, then it is compared.
    pub(in crate::engine) fn agent_inspected(&mut self, process: ProcessId) {
        let Some(known) = self.engine.table.alive(process).filter(|known| known.is_agent()) else { return };
        let Some(session) = self.engine.sessions.get(known.session) else { return };
        let (id, nested, now, heard) = (session.id, session.parent.is_some(), self.now, known.seen);
        let Some(seen) = known.inspection.as_deref().cloned() else { return };
        if session.root == process
            && let Some(session) = self.engine.sessions.get_mut(id)
            && session.ignores_hup != Some(seen.ignores_hup)
        {
            session.ignores_hup = Some(seen.ignores_hup);
            self.engine.members(id).into_iter().for_each(|member| self.judge(member));
        }
        // What an agent inside another's tree was started from is a tool call, not a terminal.
        if nested {
            return;
        }
        // One that was found running may have lost its terminal before that; one that was seen starting without a leader,
        // or to which a program speaks through its stdin, never had one.
        let found = heard.since(BootTime::from(process.start_time)) >= FOUND_RUNNING;
        let served = matches!(seen.stdin, Stdin::Peer(_));
        // Session 0 is one that nobody began: the first processes of a system or a container are in it.
        let led_by_another = seen.sid != process.pid.0 && seen.sid != 0;
        let leaderless = found && !served && !seen.tty && led_by_another && !seen.leader_alive;
        match self.engine.abandoned.agents.get_mut(&id) {
            None => {
                let lost = leaderless.then_some((now, "session leader"));
                self.engine.abandoned.agents.insert(id, Watch { tty: seen.tty, leader: seen.leader, lost });
                self.watch_leader(&seen);
            }
            Some(watch) if watch.lost.is_none() => {
                if watch.tty && !seen.tty {
                    watch.lost = Some((now, "terminal"));
                } else if watch.leader.is_some() && !seen.leader_alive {
                    watch.lost = Some((now, "session leader"));
                }
            }
            Some(_) => {}
        }
    }

    /// A shell outside every session has to be seen dying.
    fn watch_leader(&mut self, seen: &Inspection) {
        if let Some(leader) = seen.leader
            && self.engine.table.alive(leader).is_none()
        {
            let witness =
                Lineage { root: leader, parent: None, depth: 0, provisional: false, forked: false, witness: true };
            self.effect(Effect::Track(leader, witness));
        }
    }

    /// A process died: if it led an agent's terminal session, the agent is looked at.
    pub(in crate::engine) fn abandoned_by(&mut self, dead: ProcessId, at: BootTime) {
        for (session, watch) in &mut self.engine.abandoned.agents {
            if watch.leader == Some(dead) && watch.lost.is_none() {
                watch.lost = Some((at, "session leader"));
                if let Some(session) = self.engine.sessions.get(*session) {
                    self.effects.push(Effect::Inspect(session.root));
                }
            }
        }
    }

    /// The kernel hung up on an agent, or a sample shows it without a terminal.
    pub(in crate::engine) fn terminal_may_be_gone(&mut self, process: ProcessId) {
        if let Some(known) = self.engine.table.alive(process).filter(|known| known.is_agent())
            && let Some(watch) = self.engine.abandoned.agents.get(&known.session)
            && watch.lost.is_none()
        {
            self.effect(Effect::Inspect(process));
        }
    }

    pub(in crate::engine) fn tick_abandoned(&mut self) {
        let now = self.now;
        let sessions = &self.engine.sessions;
        self.engine
            .abandoned
            .agents
            .retain(|id, watch| watch.lost.is_some() || sessions.get(*id).is_some_and(|s| s.ended.is_none()));
        let lost: Vec<(SessionId, BootTime, &'static str)> = self
            .engine
            .abandoned
            .agents
            .iter()
            .filter_map(|(session, watch)| watch.lost.map(|(at, what)| (*session, at, what)))
            .collect();
        for (session, at, what) in lost {
            let Some(root) = self.engine.sessions.get(session).map(|session| session.root) else {
                self.engine.abandoned.agents.remove(&session);
                continue;
            };
            let key = Key { kind: FindingKind::Abandoned, about: root };
            let agent = self.engine.agent_of(session);
            let kept = |agent: &&Process| {
                agent.verdict.is_kept() || agent.inspection.as_deref().is_some_and(|seen| seen.ignores_hup)
            };
            match agent {
                None => {
                    self.engine.abandoned.agents.remove(&session);
                    self.close(key, "gone");
                }
                Some(agent) if kept(&agent) => self.close(key, "kept"),
                Some(_) if now.since(at) < HOLD_OFF => {}
                Some(agent) => {
                    let seen = self.abandoned_seen(key, agent, at, what);
                    self.observe(seen);
                }
            }
        }
    }

    fn abandoned_seen(&self, key: Key, agent: &Process, at: BootTime, what: &str) -> Observation {
        let had_tty = self.engine.abandoned.agents.get(&agent.session).is_some_and(|watch| watch.tty);
        let mut evidence = Map::new();
        evidence.insert("lost".into(), json!(what));
        evidence.insert("had_terminal".into(), json!(had_tty));
        evidence.insert("ppid".into(), json!(agent.ppid));
        evidence.insert("memory_bytes".into(), json!(agent.cost()));
        if let Some(seen) = agent.inspection.as_deref() {
            evidence.insert("parent_comm".into(), json!(seen.parent_comm));
            evidence.insert("sid".into(), json!(seen.sid));
            evidence.insert("stopped".into(), json!(seen.stopped));
        }
        Observation {
            key,
            severity: if had_tty { Severity::Warning } else { Severity::Info },
            session: Some(agent.session),
            subject: agent.id,
            members: Vec::new(),
            uid: agent.uid,
            cause: at,
            summary: format!("{} goes on although its {what} is gone", agent.label()),
            evidence,
            proposal: Proposal::Report,
        }
    }
}
