//! Detached: a helper's own parent exited while its agent lives. Worth knowing, and never more than that: shells
//! background work on purpose, and a daemon's double fork looks the same. An agent whose launcher died is in the same
//! place, and more urgent: whoever ended the launcher meant to end the agent.

use std::collections::BTreeMap;

use serde_json::{Map, json};

use super::HOLD_OFF;
use crate::api::{FindingKind, ProcessKind, Severity};
use crate::engine::effect::Effect;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, ProcessId};
use crate::engine::process::Process;
use crate::engine::standing::{Standing, nearest_agent};
use crate::engine::{Step, classify};

/// Processes whose parent exited.
#[derive(Debug, Default)]
pub(in crate::engine) struct Detached {
    losses: BTreeMap<ProcessId, Loss>,
}

#[derive(Clone, Copy, Debug)]
struct Loss {
    at: BootTime,
    /// The parent was the launcher of this agent.
    of_launcher: bool,
}

impl Detached {
    pub(in crate::engine) fn pending(&self, now: BootTime) -> bool {
        self.losses.values().any(|loss| now.since(loss.at) < HOLD_OFF * 2)
    }
}

impl Loss {
    fn key(self, process: ProcessId) -> Key {
        Key { kind: if self.of_launcher { FindingKind::Orphan } else { FindingKind::Detached }, about: process }
    }
}

impl Step<'_> {
    /// A process died: its children have another parent from now on.
    pub(in crate::engine) fn detached_by(&mut self, dead: ProcessId, at: BootTime) {
        let Some(parent) = self.engine.table.get(dead) else { return };
        // What loses an agent is an orphan, but for the agent that its launcher leaves behind.
        let (of_agent, session) = (parent.is_agent(), parent.session);
        let concerns = |child: &Process| !of_agent || child.kind == ProcessKind::Agent && child.session == session;
        for child in parent.children.clone() {
            if self.engine.table.alive(child).is_some_and(concerns) {
                let loss = Loss { at, of_launcher: of_agent };
                // What was found of an earlier parent is a finding of another kind.
                if let Some(before) = self.engine.detached.losses.insert(child, loss)
                    && before.of_launcher != of_agent
                {
                    self.close(before.key(child), "has lost another parent since");
                }
                self.effect(Effect::Inspect(child));
            }
        }
    }

    pub(in crate::engine) fn tick_detached(&mut self) {
        let (now, grace) = (self.now, self.engine.config.orphans.grace);
        let losses: Vec<(ProcessId, Loss)> =
            self.engine.detached.losses.iter().map(|(process, loss)| (*process, *loss)).collect();
        for (id, loss) in losses {
            let key = loss.key(id);
            let Some(process) = self.engine.table.alive(id) else {
                self.engine.detached.losses.remove(&id);
                self.close(key, "gone");
                continue;
            };
            let left_alone = if classify::ends_by_itself(&process.image) { grace } else { HOLD_OFF };
            match self.engine.standing(process) {
                Standing::Kept => self.close(key, "kept"),
                Standing::Orphan { .. } => self.close(key, "became an orphan"),
                Standing::InOrder if !loss.of_launcher && !self.has_living_agent(id) => self.close(key, "kept"),
                Standing::InOrder if now.since(loss.at) < left_alone => {}
                Standing::InOrder => {
                    if let Some(seen) = self.detached_seen(process, loss) {
                        self.observe(seen);
                    }
                    self.look_for_new_parent(id);
                }
            }
        }
    }

    /// Below what is meant to stay (a person's panes below a tmux server) no agent is concerned.
    fn has_living_agent(&self, process: ProcessId) -> bool {
        nearest_agent(&self.engine.table, process).is_some_and(Process::alive)
    }

    fn detached_seen(&self, process: &Process, loss: Loss) -> Option<Observation> {
        let engine = &*self.engine;
        let session = engine.sessions.get(process.session)?;
        let parent = process.parent.and_then(|parent| engine.table.get(parent));
        let parent_name = parent.map_or_else(|| "its parent".into(), |parent| parent.label());
        let mut evidence = Map::new();
        evidence.insert("name".into(), json!(process.label()));
        evidence.insert("process_kind".into(), json!(process.kind));
        evidence.insert("parent_pid".into(), json!(process.forked_by.map(|parent| parent.pid)));
        evidence.insert("parent_name".into(), json!(parent_name));
        evidence.insert("ppid".into(), json!(process.ppid));
        evidence.insert("memory_bytes".into(), json!(process.cost()));
        evidence.insert("agent_alive".into(), json!(true));
        if let Some(seen) = process.inspection.as_deref() {
            evidence.insert("parent_comm".into(), json!(seen.parent_comm));
            evidence.insert("tty".into(), json!(seen.tty));
            evidence.insert("cwd_deleted".into(), json!(seen.cwd_deleted));
            evidence.insert("listens".into(), json!(seen.listens));
        }
        let label = process.label();
        let (severity, summary) = if loss.of_launcher {
            let terminal = match process.inspection.as_deref() {
                Some(seen) if seen.tty => ", and still has its terminal",
                _ => "",
            };
            let summary = format!("{label} goes on without the launcher that started it{terminal}");
            (Severity::Warning, summary)
        } else {
            let summary = format!("{label} goes on after {parent_name}, which started it, has exited; its agent lives");
            (Severity::Info, summary)
        };
        Some(Observation {
            key: loss.key(process.id),
            severity,
            session: Some(session.id),
            subject: process.id,
            members: Vec::new(),
            uid: process.uid,
            cause: loss.at,
            summary,
            evidence,
            proposal: Proposal::Report,
        })
    }
}
