//! External: a helper that runs where the tree does not reach. A container's processes are children of the container
//! runtime; what stands in the tree is only the client that asked for it, and it may die without them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::api::{FindingKind, Severity};
use crate::engine::effect::Effect;
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{BootTime, ProcessId, SessionId, Uid};
use crate::engine::input::Container;
use crate::engine::{Step, classify};

/// A container begins at most this long after its client asked for it (an image may have to be unpacked).
const START_WITHIN: Duration = Duration::from_secs(60);
/// How often the runtime's processes are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The container clients of all sessions, dead ones too while a container of theirs runs.
#[derive(Debug, Default)]
pub(in crate::engine) struct External {
    clients: BTreeMap<ProcessId, Client>,
}

#[derive(Debug)]
struct Client {
    session: SessionId,
    uid: Uid,
    label: String,
    /// It starts a container; `exec` runs something in another's.
    starts: bool,
    began: BootTime,
    died: Option<BootTime>,
    looked: BootTime,
    containers: Vec<Container>,
    /// The answer after the client's death is in.
    settled: bool,
}

impl Step<'_> {
    pub(in crate::engine) fn external_exec(&mut self, at: BootTime, process: ProcessId) {
        let Some(known) = self.engine.table.alive(process) else { return };
        if !classify::container_client(&known.image) {
            return;
        }
        let client = Client {
            session: known.session,
            uid: known.uid,
            label: known.label(),
            starts: classify::starts_container(&known.image),
            began: at,
            died: None,
            looked: at,
            containers: Vec::new(),
            settled: false,
        };
        self.engine.external.clients.insert(process, client);
        self.describe_client(process);
    }

    pub(in crate::engine) fn external_exit(&mut self, at: BootTime, process: ProcessId) {
        if let Some(client) = self.engine.external.clients.get_mut(&process) {
            client.died = Some(at);
            if client.starts {
                self.look_for_containers(process);
            } else {
                self.containers(process, Vec::new());
            }
        }
    }

    pub(in crate::engine) fn containers(&mut self, process: ProcessId, containers: Vec<Container>) {
        let Some(client) = self.engine.external.clients.get_mut(&process) else { return };
        client.containers = containers;
        client.settled = client.died.is_some();
        if client.settled && client.containers.is_empty() {
            self.engine.external.clients.remove(&process);
            self.close(Key { kind: FindingKind::External, about: process }, "gone");
        } else {
            self.describe_client(process);
        }
    }

    pub(in crate::engine) fn tick_external(&mut self) {
        let now = self.now;
        let due = |client: &Client| client.starts && now.since(client.looked) >= LOOK_EVERY;
        let clients = &self.engine.external.clients;
        let due: Vec<ProcessId> = clients.iter().filter(|(_, client)| due(client)).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|process| self.look_for_containers(process));
    }

    fn look_for_containers(&mut self, process: ProcessId) {
        let now = self.now;
        let Some(client) = self.engine.external.clients.get_mut(&process) else { return };
        client.looked = now;
        let from = client.began;
        let latest = from.plus(START_WITHIN);
        let to = client.died.map_or(latest, |died| died.min(latest));
        self.effect(Effect::FindContainers { client: process, from, to });
    }

    fn describe_client(&mut self, process: ProcessId) {
        let Some(client) = self.engine.external.clients.get(&process) else { return };
        let mut evidence = Map::new();
        evidence.insert("client".into(), json!(client.label));
        evidence.insert("client_alive".into(), json!(client.died.is_none()));
        let containers: Vec<Value> = client
            .containers
            .iter()
            .map(|container| {
                json!({
                    "id": container.id,
                    "runtime": container.runtime,
                    "pid": container.process.pid,
                    "start_time": container.process.start_time,
                    "comm": container.comm,
                })
            })
            .collect();
        evidence.insert("containers_started_meanwhile".into(), Value::Array(containers));
        evidence.insert("linked_by".into(), json!("start time"));
        let left = client.died.is_some();
        let summary = if left {
            format!("a container that was started while {} ran is still running after its end", client.label)
        } else {
            format!(
                "{} runs its program in a container, outside the tree: its memory is not counted here",
                client.label
            )
        };
        let seen = Observation {
            key: Key { kind: FindingKind::External, about: process },
            severity: if left { Severity::Warning } else { Severity::Info },
            session: Some(client.session),
            subject: process,
            members: client.containers.iter().map(|container| container.process).collect(),
            uid: client.uid,
            cause: client.died.unwrap_or(client.began),
            summary,
            evidence,
            proposal: Proposal::Report,
        };
        self.observe(seen);
    }
}
