//! External: a helper that runs outside the process tree. A container's processes are children of the container runtime;
//! the tree contains only the client that started it, which may die before them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Conclusions, Detector, Facts};
use crate::effect::{Effect, ScanRequest};
use crate::finding::{Detection, Key, Proposal};
use watchdog_api::evidence::{ContainerEvidence, ListedContainer};
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_classify as classify;
use watchdog_types::{BootTime, Container, ProcessId, SessionId, Uid};

/// A container begins at most this long after its client asked for it (an image may have to be unpacked).
const START_WITHIN: Duration = Duration::from_secs(60);
/// How often the runtime's processes are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How many containers the evidence lists.
const LISTED: usize = 50;

/// The container clients of all sessions, dead ones too while a container of theirs runs.
#[derive(Debug, Default)]
pub(crate) struct External {
    clients: BTreeMap<ProcessId, Client>,
    /// Sessions with an open finding, and the client that each is named after.
    open: BTreeMap<SessionId, ProcessId>,
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

impl Detector for External {
    fn executed(&mut self, process: ProcessId, at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        let Some(known) = facts.table.alive(process) else { return };
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
        let session = client.session;
        self.clients.insert(process, client);
        self.describe_session(session, out);
    }

    fn exited(&mut self, process: ProcessId, at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        if let Some(client) = self.clients.get_mut(&process) {
            client.died = Some(at);
            if client.starts {
                self.look_for_containers(process, facts.now, out);
            } else {
                self.containers_found(process, &[], out);
            }
        }
    }

    fn containers_found(&mut self, process: ProcessId, found: &[Container], out: &mut Conclusions) {
        let Some(client) = self.clients.get_mut(&process) else { return };
        client.containers = found.to_vec();
        client.settled = client.died.is_some();
        let session = client.session;
        if client.settled && client.containers.is_empty() {
            self.clients.remove(&process);
        }
        self.describe_session(session, out);
    }

    fn tick(&mut self, facts: &Facts<'_>, out: &mut Conclusions) {
        let now = facts.now;
        let due = |client: &Client| client.starts && now.since(client.looked) >= LOOK_EVERY;
        let clients = &self.clients;
        let due: Vec<ProcessId> = clients.iter().filter(|(_, client)| due(client)).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|process| self.look_for_containers(process, facts.now, out));
    }
}

impl External {
    fn look_for_containers(&mut self, process: ProcessId, now: BootTime, out: &mut Conclusions) {
        let Some(client) = self.clients.get_mut(&process) else { return };
        client.looked = now;
        let from = client.began;
        let latest = from.plus(START_WITHIN);
        let to = client.died.map_or(latest, |died| died.min(latest));
        out.ask(Effect::Scan(ScanRequest::Containers { client: process, from, to }));
    }

    /// One finding for all clients of a session, or none once they have exited.
    fn describe_session(&mut self, session: SessionId, out: &mut Conclusions) {
        let mut clients: Vec<(&ProcessId, &Client)> =
            self.clients.iter().filter(|(_, client)| client.session == session).collect();
        clients.sort_unstable_by_key(|(process, _)| (process.start_time, process.pid));
        let Some((oldest, first)) = clients.first().copied() else {
            if let Some(about) = self.open.remove(&session) {
                out.close(Key { kind: FindingKind::External, about }, "gone");
            }
            return;
        };
        let about = *self.open.entry(session).or_insert(*oldest);
        let mut containers: Vec<&Container> = clients.iter().flat_map(|(_, client)| &client.containers).collect();
        containers.sort_unstable_by_key(|container| (container.process.start_time, container.process.pid));
        // Clients that run at the same time are linked to the same containers.
        containers.dedup_by_key(|container| container.process);
        let listed = containers.iter().take(LISTED).map(|container| ListedContainer {
            comm: container.comm.clone(),
            id: container.id.clone(),
            pid: container.process.pid,
            runtime: container.runtime.clone(),
            start_time: container.process.start_time,
        });
        let left: Vec<&Client> = clients.iter().map(|(_, client)| *client).filter(|it| it.settled).collect();
        let several = clients.len() > 1;
        let evidence = Evidence::Container(Box::new(ContainerEvidence {
            client: first.label.clone(),
            client_alive: left.is_empty(),
            clients: several.then_some(clients.len()),
            clients_exited: several.then_some(left.len()),
            containers_started_meanwhile: listed.collect(),
            linked_by: "start time".into(),
        }));
        let seen = Detection {
            key: Key { kind: FindingKind::External, about },
            severity: if left.is_empty() { Severity::Info } else { Severity::Warning },
            session: Some(session),
            subject: *oldest,
            members: containers.iter().map(|container| container.process).collect(),
            uid: first.uid,
            cause: left.iter().filter_map(|client| client.died).max().unwrap_or(first.began),
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        };
        out.report(seen);
    }
}
