//! Duplicates: the same server once more, for another agent of the same user. Every agent starts its own, so this is no
//! fault; but where there are many, one that all of them share would do.
//!
//! Also: many servers of one program that each look after another directory (a language server or a build server for every
//! worktree). They cannot be shared, and each is as it should be; together they may be what fills the host.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::helper::{Helper, Role};
use crate::api::{FindingKind, ProcessKind, Severity};
use crate::engine::Step;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{Bytes, ProcessId, SessionId, Uid};
use crate::engine::standing::Standing;

/// How many instances the evidence lists; the rest is counted.
const LISTED: usize = 50;

/// The groups with an open finding, and the process that each is named after.
#[derive(Debug, Default)]
pub(in crate::engine) struct Duplicates {
    open: BTreeMap<Group, ProcessId>,
    /// The servers that are counted in them.
    members: BTreeSet<ProcessId>,
}

/// Servers that are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    uid: Uid,
    role: Role,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// One could take the place of the others. With the digest of their arguments.
    Same(u64),
    /// Each has its own directory.
    OnePerDirectory,
}

impl Duplicates {
    /// A process died. Whether it was a server that was counted.
    pub(super) fn forget(&mut self, process: ProcessId) -> bool {
        self.members.remove(&process)
    }
}

impl Step<'_> {
    pub(super) fn survey_duplicates(&mut self, helpers: &[Helper]) {
        let mut groups: BTreeMap<Group, Vec<&Helper>> = BTreeMap::new();
        for helper in helpers {
            if let Some(group) = self.group_of(helper) {
                groups.entry(group).or_default().push(helper);
            }
        }
        groups.retain(|group, same| self.are_too_many(group, same));
        let over: Vec<Group> =
            self.engine.duplicates.open.keys().filter(|group| !groups.contains_key(group)).cloned().collect();
        for group in over {
            if let Some(about) = self.engine.duplicates.open.remove(&group) {
                self.close(Key { kind: FindingKind::Duplicate, about }, "fewer of them");
            }
        }
        let mut groups: Vec<(Group, Vec<&Helper>)> = groups.into_iter().collect();
        groups.sort_by_key(|(_, same)| same.first().map(|oldest| (oldest.top.start_time, oldest.top.pid)));
        self.engine.duplicates.members = groups.iter().flat_map(|(_, same)| same).map(|helper| helper.top).collect();
        for (group, same) in groups {
            if let Some(oldest) = same.first() {
                let about = *self.engine.duplicates.open.entry(group.clone()).or_insert(oldest.top);
                let seen = self.duplicates_seen(Key { kind: FindingKind::Duplicate, about }, &group, oldest, &same);
                self.observe(seen);
            }
        }
    }

    /// The group in which a helper counts, if in any: one that has been there for a while, with an agent that lives.
    fn group_of(&self, helper: &Helper) -> Option<Group> {
        if self.now.since(helper.started()) < self.engine.config.duplicates.after {
            return None;
        }
        let group = |what| Group { uid: helper.uid, role: helper.role.clone(), what };
        match helper.role.kind {
            // One that is meant to stay may be the shared one already.
            ProcessKind::McpServer if helper.standing == Standing::InOrder && helper.agent.is_some() => {
                helper.arguments.map(|arguments| group(What::Same(arguments)))
            }
            ProcessKind::LanguageServer if helper.agent.is_some() => Some(group(What::OnePerDirectory)),
            ProcessKind::Tool | ProcessKind::Other => {
                let program = helper.build_server?.to_owned();
                let role = Role { kind: helper.role.kind, program };
                Some(Group { role, ..group(What::OnePerDirectory) })
            }
            _ => None,
        }
    }

    fn are_too_many(&self, group: &Group, same: &[&Helper]) -> bool {
        let config = &self.engine.config.duplicates;
        match group.what {
            What::Same(_) => agents_of(same).len() >= config.min_agents,
            What::OnePerDirectory => same.len() >= config.min_directories,
        }
    }

    fn duplicates_seen(&self, key: Key, group: &Group, oldest: &Helper, same: &[&Helper]) -> Observation {
        let memory: Bytes = same.iter().map(|helper| helper.memory).sum();
        let largest = same.iter().map(|helper| helper.memory).max().unwrap_or_default();
        let sessions: BTreeSet<SessionId> = same.iter().map(|helper| helper.session).collect();
        let (count, agents) = (same.len(), agents_of(same).len());
        let name = &group.role.program;

        let mut evidence = Map::new();
        evidence.insert("name".into(), json!(name));
        evidence.insert("process_kind".into(), json!(group.role.kind));
        evidence.insert("count".into(), json!(count));
        evidence.insert("agents".into(), json!(agents));
        evidence.insert("sessions".into(), json!(sessions));
        evidence.insert("memory_bytes".into(), json!(memory));
        let summary = match group.what {
            What::Same(_) => {
                let saved = Bytes(memory.0.saturating_sub(largest.0));
                evidence.insert("sharing_would_save_bytes".into(), json!(saved));
                evidence.insert("compared".into(), json!("program and arguments, not the environment"));
                format!("{count} times the same {name} for {agents} agents: sharing one would save {} MiB", saved.mib())
            }
            What::OnePerDirectory => {
                format!("{count} times {name}, one for each directory that it serves: {} MiB together", memory.mib())
            }
        };
        let listed: Vec<Value> = same
            .iter()
            .take(LISTED)
            .map(|helper| {
                json!({
                    "pid": helper.top.pid,
                    "start_time": helper.top.start_time,
                    "session": helper.session,
                    "memory_bytes": helper.memory,
                })
            })
            .collect();
        evidence.insert("processes".into(), Value::Array(listed));
        Observation {
            key,
            severity: Severity::Info,
            session: (sessions.len() == 1).then_some(oldest.session),
            subject: oldest.top,
            members: same.iter().map(|helper| helper.top).collect(),
            uid: group.uid,
            cause: self.now,
            summary,
            evidence,
            proposal: Proposal::Report,
        }
    }
}

fn agents_of(helpers: &[&Helper]) -> BTreeSet<ProcessId> {
    helpers.iter().filter_map(|helper| helper.agent).collect()
}
