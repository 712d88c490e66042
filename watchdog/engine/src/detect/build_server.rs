//! External, too: a build server (Gradle, Bazel, sccache …) that outlives the command which started it. It serves the next
//! build, of whichever session: its memory is named here, and charged to none of them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::survey::Helper;
use super::{Conclusions, Detector, Facts};
use crate::finding::{Detection, Key, Proposal};
use watchdog_api::evidence::BuildServerEvidence;
use watchdog_api::{Evidence, FindingKind, Severity};
use watchdog_types::{BootTime, Bytes, ProcessId};

/// Less than this is not reported: a file system monitor takes a few MiB.
const WORTH_NAMING: Bytes = Bytes::from_mib(64);

/// Build servers whose memory is charged to no session.
#[derive(Debug, Default)]
pub(crate) struct BuildServers {
    /// The first process of each, while its finding is open.
    tops: BTreeSet<ProcessId>,
}

impl Detector for BuildServers {
    fn exited(&mut self, process: ProcessId, _at: BootTime, facts: &Facts<'_>, out: &mut Conclusions) {
        if facts.uncharged.contains(&process) {
            out.survey_soon();
        }
    }

    fn surveyed(&mut self, helpers: &[Helper], _pace: Duration, facts: &Facts<'_>, out: &mut Conclusions) {
        let (mut tops, mut members) = (BTreeSet::new(), BTreeSet::new());
        for helper in helpers {
            let Some(seen) = self.observation(helper, facts) else { continue };
            tops.insert(helper.top);
            members.extend(&helper.members);
            out.report(seen);
        }
        for about in self.tops.iter().copied().filter(|about| !tops.contains(about)) {
            let gone = facts.table.alive(about).is_none();
            out.close(Key { kind: FindingKind::External, about }, if gone { "gone" } else { "a session's own again" });
        }
        self.tops = tops;
        out.uncharge(members);
    }
}

impl BuildServers {
    fn observation(&self, helper: &Helper, facts: &Facts<'_>) -> Option<Detection> {
        let name = helper.build_server?;
        // While the command that started it runs, it is that command's.
        let known = self.tops.contains(&helper.top);
        if !helper.reparented || (helper.memory < WORTH_NAMING && !known) {
            return None;
        }
        let age = facts.now.since(helper.started()).as_secs();
        let evidence = Evidence::BuildServer(Box::new(BuildServerEvidence {
            age_seconds: age,
            charged_to: "nobody".into(),
            memory_bytes: helper.memory,
            name: name.into(),
            process_count: helper.members.len(),
            started_by_session: helper.session,
        }));
        Some(Detection {
            key: Key { kind: FindingKind::External, about: helper.top },
            severity: Severity::Info,
            session: None,
            subject: helper.top,
            members: Vec::new(),
            uid: helper.uid,
            cause: facts.now,
            summary: evidence.to_string(),
            evidence,
            proposal: Proposal::Report,
        })
    }
}
