//! External, too: a build server (Gradle, Bazel, sccache …) that outlives the command which started it. It serves the next
//! build, of whichever session: its memory is named here, and charged to none of them.

use std::collections::BTreeSet;

use serde_json::{Map, json};

use super::helper::Helper;
use crate::api::{FindingKind, Severity};
use crate::engine::finding::{Key, Observation, Proposal};
use crate::engine::id::{Bytes, ProcessId};
use crate::engine::process::Process;
use crate::engine::{Engine, Step};

/// Less than this is not worth a word: a file system monitor takes a few MiB.
const WORTH_NAMING: Bytes = Bytes::from_mib(64);

/// Build servers whose memory is charged to nobody.
#[derive(Debug, Default)]
pub(in crate::engine) struct BuildServers {
    /// The first process of each, while its finding is open.
    tops: BTreeSet<ProcessId>,
    /// All of their living processes.
    members: BTreeSet<ProcessId>,
}

impl BuildServers {
    /// A process died. Whether it was a build server's.
    pub(super) fn forget(&mut self, process: ProcessId) -> bool {
        self.members.remove(&process)
    }
}

impl Engine {
    /// The process's memory is no session's: see [`BuildServers`].
    pub(in crate::engine) fn charged_to_nobody(&self, process: ProcessId) -> bool {
        self.build_servers.members.contains(&process)
    }

    /// What the process adds to the memory of its session, and to that of all sessions together.
    pub(in crate::engine) fn charged(&self, process: &Process) -> Bytes {
        if self.charged_to_nobody(process.id) { Bytes(0) } else { process.cost() }
    }
}

impl Step<'_> {
    pub(super) fn survey_build_servers(&mut self, helpers: &[Helper]) {
        let mut shared = BuildServers::default();
        for helper in helpers {
            let Some(seen) = self.build_server_seen(helper) else { continue };
            shared.tops.insert(helper.top);
            shared.members.extend(&helper.members);
            self.observe(seen);
        }
        let known = std::mem::take(&mut self.engine.build_servers.tops);
        for about in known.into_iter().filter(|about| !shared.tops.contains(about)) {
            let gone = self.engine.table.alive(about).is_none();
            self.close(Key { kind: FindingKind::External, about }, if gone { "gone" } else { "a session's own again" });
        }
        self.engine.build_servers = shared;
    }

    fn build_server_seen(&self, helper: &Helper) -> Option<Observation> {
        let engine = &*self.engine;
        let name = helper.build_server?;
        // While the command that started it runs, it is that command's.
        let known = engine.build_servers.tops.contains(&helper.top);
        if !helper.reparented || (helper.memory < WORTH_NAMING && !known) {
            return None;
        }
        let age = self.now.since(helper.started()).as_secs();
        let mut evidence = Map::new();
        evidence.insert("name".into(), json!(name));
        evidence.insert("memory_bytes".into(), json!(helper.memory));
        evidence.insert("process_count".into(), json!(helper.members.len()));
        evidence.insert("age_seconds".into(), json!(age));
        evidence.insert("started_by_session".into(), json!(helper.session));
        evidence.insert("charged_to".into(), json!("nobody"));
        let mib = helper.memory.mib();
        Some(Observation {
            key: Key { kind: FindingKind::External, about: helper.top },
            severity: Severity::Info,
            session: None,
            subject: helper.top,
            members: Vec::new(),
            uid: helper.uid,
            cause: self.now,
            summary: format!("{name} ({mib} MiB) serves every build of its user: its memory is charged to no session"),
            evidence,
            proposal: Proposal::Report,
        })
    }
}
