//! `GET /v1/explain`: why a process or session exited, and its findings.

use super::explained_death::ExplainedDeath;
use super::record::ExitedProcess;
use crate::Engine;
use crate::finding::TrackedFinding;
use crate::nearest_limit;
use crate::process::{TrackedProcess, Verdict};
use crate::session::TrackedSession;
use crate::view::DisplayContext;
use watchdog_api::{self as api, Cause, Explanation, FindingKind, SessionBrief, SessionState};
use watchdog_types::units::{count, size, span};
use watchdog_types::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid, Viewer};

/// Exits that are listed.
const MAX_LISTED: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplainTarget {
    /// The running process with this pid, and exited ones.
    Pid(Pid),
    Session(SessionId),
}

impl DisplayContext<'_> {
    #[must_use]
    pub fn death(&self, death: &ExplainedDeath) -> api::Death {
        api::Death {
            died_at: self.moment(death.at),
            started_at: death.started.map(|started| self.moment(started)),
            facts: death.facts.clone(),
        }
    }
}

impl Engine {
    /// `None` when nothing is on record that this viewer may see.
    #[must_use]
    pub fn explain(
        &self,
        viewer: Viewer,
        naming: &DisplayContext<'_>,
        now: BootTime,
        target: ExplainTarget,
    ) -> Option<Explanation> {
        match target {
            ExplainTarget::Pid(pid) => self.explain_process(viewer, naming, now, pid),
            ExplainTarget::Session(session) => self.explain_session(viewer, naming, now, session),
        }
    }

    fn explain_process(
        &self,
        viewer: Viewer,
        naming: &DisplayContext<'_>,
        now: BootTime,
        pid: Pid,
    ) -> Option<Explanation> {
        let living = self.table.by_pid(pid).filter(|process| viewer.sees(process.uid));
        let dead: Vec<&ExitedProcess> =
            self.exits.all().filter(|dead| dead.id.pid == pid && sees(viewer, dead.uid)).take(MAX_LISTED).collect();
        let latest = dead.first().map(|dead| dead.id);
        let who = living.map(|process| process.id).or(latest)?;
        let session = living.map(|process| process.session).or(dead.first().and_then(|dead| dead.session));
        let findings = self.findings_about(viewer, |finding| concerns(finding, who));
        let deaths: Vec<api::Death> = dead.iter().map(|dead| self.to_api_death(viewer, naming, dead)).collect();
        let summary = match (living, deaths.first()) {
            (Some(process), earlier) => {
                let mut text = self.living(process, now, &findings);
                if let Some(earlier) = earlier {
                    text.push_str(&format!(" An earlier process had this pid: {}", earlier.facts.summary));
                }
                text
            }
            (None, Some(death)) => format!("{}{}", death.facts.summary, found_before(&findings, who)),
            (None, None) => return None,
        };
        Some(Explanation {
            summary,
            process: living.map(|process| self.row(process)),
            session: session.and_then(|id| self.sessions.get(id)).map(|session| self.brief(session, viewer, naming)),
            deaths,
            findings: findings.into_iter().map(|finding| crate::view::to_api_finding(finding, naming)).collect(),
            receipts: self.actions_on(viewer, naming, who),
        })
    }

    fn explain_session(
        &self,
        viewer: Viewer,
        naming: &DisplayContext<'_>,
        now: BootTime,
        id: SessionId,
    ) -> Option<Explanation> {
        let session = self.sessions.get(id).filter(|session| {
            let has_a_member = || self.table.living().any(|process| process.session == id && viewer.sees(process.uid));
            viewer.sees(session.uid) || has_a_member()
        });
        let of_it = |dead: &&ExitedProcess| dead.session == Some(id) && sees(viewer, dead.uid) && dead.is_notable();
        let dead: Vec<&ExitedProcess> = self.exits.all().filter(of_it).take(MAX_LISTED).collect();
        if session.is_none() && dead.is_empty() {
            return None;
        }
        let deaths: Vec<api::Death> = dead.iter().map(|dead| self.to_api_death(viewer, naming, dead)).collect();
        let findings = self.findings_about(viewer, |finding| finding.seen.session == Some(id));
        let brief = session.map(|session| self.brief(session, viewer, naming));
        let started = session.map(|session| BootTime::from(session.root.start_time));
        let summary = session_summary(id, brief.as_ref(), started.map(|at| now.since(at)), &deaths, &findings);
        Some(Explanation {
            summary,
            process: None,
            session: brief,
            deaths,
            findings: findings.into_iter().map(|finding| crate::view::to_api_finding(finding, naming)).collect(),
            receipts: self.actions_in(viewer, naming, id),
        })
    }

    fn to_api_death(&self, viewer: Viewer, naming: &DisplayContext<'_>, dead: &ExitedProcess) -> api::Death {
        naming.death(&self.death(viewer, dead))
    }

    /// Open findings first, latest first.
    fn findings_about(&self, viewer: Viewer, concerns: impl Fn(&TrackedFinding) -> bool) -> Vec<&TrackedFinding> {
        let mut found: Vec<&TrackedFinding> =
            self.findings.all().into_iter().filter(|f| viewer.sees(f.seen.uid) && concerns(f)).collect();
        found.sort_by_key(|finding| (finding.closed.is_some(), std::cmp::Reverse(finding.id)));
        found
    }

    fn brief(&self, session: &TrackedSession, viewer: Viewer, naming: &DisplayContext<'_>) -> SessionBrief {
        let members =
            || self.table.living().filter(|process| process.session == session.id && viewer.sees(process.uid));
        SessionBrief {
            id: session.id.0,
            profile: session.profile.clone(),
            state: self.state(session),
            uid: session.uid.0,
            started_at: naming.moment(BootTime::from(session.root.start_time)),
            ended_at: session.ended.map(|at| naming.moment(at)),
            processes: members().count() as u64,
            memory_bytes: members().map(|process| self.charged(process)).sum::<Bytes>().0,
        }
    }

    fn living(&self, process: &TrackedProcess, now: BootTime, findings: &[&TrackedFinding]) -> String {
        let age = now.since(BootTime::from(process.id.start_time));
        let of = match self.sessions.get(process.session) {
            Some(session) => format!("{} of session {}, {}", process.kind.name(), session.id, session.profile),
            None => process.kind.name().to_owned(),
        };
        let mut text = format!(
            "{} (pid {}, {of}) is running: age {}, memory {}, peak {}.",
            process.label(),
            process.id.pid,
            span(age),
            size(process.cost().0),
            size(process.peak.0)
        );
        if let Some(trend) = self.detectors.memory_trend(process.id, now) {
            text.push_str(&format!(" {trend}."));
        }
        text.push_str(&nearest_limit::described(process));
        if let Verdict::Kept(because) = &process.verdict {
            text.push_str(&format!(" Kept: {because}."));
        }
        let open: Vec<&&TrackedFinding> = findings.iter().filter(|finding| finding.closed.is_none()).collect();
        if open.is_empty() {
            text.push_str(" No open findings.");
        }
        for finding in open {
            let (kind, summary) = (finding.seen.key.kind.name(), &finding.seen.summary);
            text.push_str(&format!(" Open finding ({kind}, {} ago): {summary}.", span(now.since(finding.opened))));
        }
        text
    }
}

fn sees(viewer: Viewer, uid: Option<Uid>) -> bool {
    match uid {
        Some(uid) => viewer.sees(uid),
        None => viewer == Viewer::Root,
    }
}

/// Whether the process is the subject or a member of the finding.
fn concerns(finding: &TrackedFinding, who: ProcessId) -> bool {
    let seen = &finding.seen;
    seen.subject == who || seen.key.about == who || seen.members.contains(&who)
}

/// Findings about an exited process, and about what it left.
fn found_before(findings: &[&TrackedFinding], who: ProcessId) -> String {
    let (left, own): (Vec<&TrackedFinding>, Vec<&TrackedFinding>) =
        findings.iter().partition(|finding| finding.seen.key.about == who && finding.seen.subject != who);
    let mut kinds: Vec<FindingKind> = own.iter().map(|finding| finding.seen.key.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut text = String::new();
    if !kinds.is_empty() {
        let names: Vec<&str> = kinds.into_iter().map(FindingKind::name).collect();
        text.push_str(&format!(" Earlier findings: {}.", names.join(", ")));
    }
    for finding in left.iter().filter(|finding| finding.closed.is_none()) {
        text.push_str(&format!(" Open finding ({}): {}.", finding.seen.key.kind.name(), finding.seen.summary));
    }
    text
}

fn session_summary(
    id: SessionId,
    brief: Option<&SessionBrief>,
    age: Option<std::time::Duration>,
    deaths: &[api::Death],
    findings: &[&TrackedFinding],
) -> String {
    let mut text = match (brief, age) {
        (Some(brief), Some(age)) => {
            let of = format!("Session {id} ({}, uid {})", brief.profile, brief.uid);
            let age = span(age);
            let holds =
                || format!("{} in {}", size(brief.memory_bytes), count(brief.processes, "process", "processes"));
            match brief.state {
                SessionState::Running => format!("{of} is running, age {age}: {}.", holds()),
                SessionState::Orphaned => {
                    format!("{of} is orphaned (agent exited), age {age}: {}.", holds())
                }
                SessionState::Ended => format!("{of} ended; it started {age} ago."),
            }
        }
        _ => format!("Session {id} ended; only exits of its processes are on record."),
    };
    let open = findings.iter().filter(|finding| finding.closed.is_none());
    for finding in open {
        text.push_str(&format!(" Open finding ({}): {}.", finding.seen.key.kind.name(), finding.seen.summary));
    }
    let is_agent = |death: &&api::Death| death.facts.kind == Some(api::ProcessKind::Agent);
    let bad = |death: &&api::Death| death.facts.cause != Cause::Finished;
    // The agent's exit, or else the first abnormal one.
    let chosen = deaths.iter().find(is_agent).or_else(|| deaths.iter().find(bad));
    match chosen {
        Some(death) => {
            text.push_str(&format!(" {}", death.facts.summary));
            let others = deaths.len() - 1;
            if others > 0 {
                let more = count(others as u64, "exit", "exits");
                text.push_str(&format!(" {more} also on record: see `watchdogctl explain PID`."));
            }
        }
        None => text.push_str(" No abnormal exits on record."),
    }
    text
}
