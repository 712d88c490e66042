//! The answer to "why did it die?", and to "why was it found?": for the living, the dead, and whole sessions.

use super::{Dead, Death, words};
use crate::api::{self, Cause, DeathFacts, Explanation, FindingKind, SessionBrief, SessionState};
use crate::engine::Engine;
use crate::engine::finding::Finding;
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, SessionId, Uid};
use crate::engine::process::{Process, Verdict};
use crate::engine::session::Session;
use crate::engine::view::{Naming, Viewer};
use crate::units::{count, size, span};

/// Deaths of a session that are told.
const TOLD: usize = 50;

/// Who is to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The process that has this pid, and those that had it.
    Pid(Pid),
    /// A session.
    Session(SessionId),
}

impl Naming<'_> {
    /// A death with its moments.
    #[must_use]
    pub fn death(&self, death: &Death) -> api::Death {
        api::Death {
            died_at: self.moment(death.at),
            started_at: death.started.map(|started| self.moment(started)),
            facts: death.facts.clone(),
        }
    }
}

impl Engine {
    /// `GET /v1/explain`; `None` when nothing is known that this viewer may know.
    #[must_use]
    pub fn explain(&self, viewer: Viewer, naming: &Naming<'_>, now: BootTime, who: Subject) -> Option<Explanation> {
        match who {
            Subject::Pid(pid) => self.explain_process(viewer, naming, now, pid),
            Subject::Session(session) => self.explain_session(viewer, naming, now, session),
        }
    }

    fn explain_process(&self, viewer: Viewer, naming: &Naming<'_>, now: BootTime, pid: Pid) -> Option<Explanation> {
        let living = self.table.by_pid(pid).filter(|process| viewer.sees(process.uid));
        let dead: Vec<&Dead> =
            self.deaths.all().filter(|dead| dead.id.pid == pid && sees(viewer, dead.uid)).take(TOLD).collect();
        let latest = dead.first().map(|dead| dead.id);
        let who = living.map(|process| process.id).or(latest)?;
        let session = living.map(|process| process.session).or(dead.first().and_then(|dead| dead.session));
        let findings = self.findings_about(viewer, |finding| concerns(finding, who));
        let deaths: Vec<api::Death> = dead.iter().map(|dead| self.told(viewer, naming, dead)).collect();
        let summary = match (living, deaths.first()) {
            (Some(process), earlier) => {
                let mut text = self.living(process, now, &findings);
                if let Some(earlier) = earlier {
                    text.push_str(&format!(" An earlier process had the same pid: {}", earlier.facts.summary));
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
            findings: findings.into_iter().map(|finding| crate::engine::view::shown_finding(finding, naming)).collect(),
            receipts: self.actions_on(viewer, naming, who),
        })
    }

    fn explain_session(
        &self,
        viewer: Viewer,
        naming: &Naming<'_>,
        now: BootTime,
        id: SessionId,
    ) -> Option<Explanation> {
        let session = self.sessions.get(id).filter(|session| {
            let has_a_member = || self.table.living().any(|process| process.session == id && viewer.sees(process.uid));
            viewer.sees(session.uid) || has_a_member()
        });
        let of_it = |dead: &&Dead| dead.session == Some(id) && sees(viewer, dead.uid) && dead.is_worth_knowing();
        let dead: Vec<&Dead> = self.deaths.all().filter(of_it).take(TOLD).collect();
        if session.is_none() && dead.is_empty() {
            return None;
        }
        let deaths: Vec<api::Death> = dead.iter().map(|dead| self.told(viewer, naming, dead)).collect();
        let findings = self.findings_about(viewer, |finding| finding.seen.session == Some(id));
        let brief = session.map(|session| self.brief(session, viewer, naming));
        let started = session.map(|session| BootTime::from(session.root.start_time));
        let summary = session_summary(id, brief.as_ref(), started.map(|at| now.since(at)), &deaths, &findings);
        Some(Explanation {
            summary,
            process: None,
            session: brief,
            deaths,
            findings: findings.into_iter().map(|finding| crate::engine::view::shown_finding(finding, naming)).collect(),
            receipts: self.actions_in(viewer, naming, id),
        })
    }

    fn told(&self, viewer: Viewer, naming: &Naming<'_>, dead: &Dead) -> api::Death {
        naming.death(&self.death(viewer, dead))
    }

    /// The open ones first, the latest of each first.
    fn findings_about(&self, viewer: Viewer, concerns: impl Fn(&Finding) -> bool) -> Vec<&Finding> {
        let mut found: Vec<&Finding> =
            self.findings.all().into_iter().filter(|f| viewer.sees(f.seen.uid) && concerns(f)).collect();
        found.sort_by_key(|finding| (finding.closed.is_some(), std::cmp::Reverse(finding.id)));
        found
    }

    fn brief(&self, session: &Session, viewer: Viewer, naming: &Naming<'_>) -> SessionBrief {
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

    fn living(&self, process: &Process, now: BootTime, findings: &[&Finding]) -> String {
        let age = now.since(BootTime::from(process.id.start_time));
        let of = match self.sessions.get(process.session) {
            Some(session) => format!("{} of session {}, {}", process.kind.name(), session.id, session.profile),
            None => process.kind.name().to_owned(),
        };
        let mut text = format!(
            "{} (pid {}, {of}) is alive, {} old, and holds {}; its peak was {}.",
            process.label(),
            process.id.pid,
            span(age),
            size(process.cost().0),
            size(process.peak.0)
        );
        let limits = process.limits.as_deref();
        if let Some(heap) = limits.and_then(|limits| limits.v8_heap) {
            text.push_str(&format!(" Its V8 heap may have {}.", size(heap.0)));
        }
        if let Some(cgroup) = limits.and_then(|limits| limits.cgroup.as_ref()) {
            let (current, max) = (size(cgroup.current.0), size(cgroup.max.0));
            text.push_str(&format!(
                " Its cgroup {} may have {max}, and had {current} when last looked at.",
                cgroup.path
            ));
        }
        if let Verdict::Kept(because) = &process.verdict {
            text.push_str(&format!(" It is meant to stay: {because}."));
        }
        let open: Vec<&&Finding> = findings.iter().filter(|finding| finding.closed.is_none()).collect();
        if open.is_empty() {
            text.push_str(" Nothing is found against it.");
        }
        for finding in open {
            let (kind, summary) = (finding.seen.key.kind.name(), &finding.seen.summary);
            text.push_str(&format!(" Found {kind} {} ago: {summary}.", span(now.since(finding.opened))));
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

/// A death in one sentence, for the journal, where the owner of the process reads it.
pub(super) fn headline(facts: &DeathFacts) -> String {
    let mut facts = facts.clone();
    if let Some(uid) = facts.uid {
        only_of(Uid(uid), &mut facts);
    }
    words::headline(&facts)
}

/// Takes out of a death what belongs to others than this user: how much they held stays, and who they are goes. Its
/// summary is another then.
pub(super) fn only_of(viewer: Uid, facts: &mut DeathFacts) {
    let others = |uid: Option<u32>| uid != Some(viewer.0);
    facts.died_with.retain(|other| !others(other.uid));
    facts.died_with_count = facts.died_with_count.min(facts.died_with.len() as u64);
    for sender in facts.sender.iter_mut().chain(&mut facts.origin).filter(|sender| others(Some(sender.uid))) {
        (sender.session, sender.name) = (None, None);
    }
    if let Some(oom) = &mut facts.oom {
        for holder in oom.holders.iter_mut().filter(|holder| others(Some(holder.uid))) {
            (holder.session, holder.profile) = (None, None);
        }
        oom.largest.retain(|large| !others(Some(large.uid)));
    }
}

/// Whether a finding is about this process: as its subject, or one of several.
fn concerns(finding: &Finding, who: ProcessId) -> bool {
    let seen = &finding.seen;
    seen.subject == who || seen.key.about == who || seen.members.contains(&who)
}

/// What had been found of a process that is dead, and what it left behind.
fn found_before(findings: &[&Finding], who: ProcessId) -> String {
    let (left, own): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|finding| finding.seen.key.about == who && finding.seen.subject != who);
    let mut kinds: Vec<FindingKind> = own.iter().map(|finding| finding.seen.key.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut text = String::new();
    if !kinds.is_empty() {
        let names: Vec<&str> = kinds.into_iter().map(FindingKind::name).collect();
        text.push_str(&format!(" Before that it had been found: {}.", names.join(", ")));
    }
    for finding in left.iter().filter(|finding| finding.closed.is_none()) {
        text.push_str(&format!(" Found since, {}: {}.", finding.seen.key.kind.name(), finding.seen.summary));
    }
    text
}

fn session_summary(
    id: SessionId,
    brief: Option<&SessionBrief>,
    age: Option<std::time::Duration>,
    deaths: &[api::Death],
    findings: &[&Finding],
) -> String {
    let mut text = match (brief, age) {
        (Some(brief), Some(age)) => {
            let of = format!("Session {id} ({}, uid {})", brief.profile, brief.uid);
            let age = span(age);
            let holds =
                || format!("{} in {}", size(brief.memory_bytes), count(brief.processes, "process", "processes"));
            match brief.state {
                SessionState::Running => format!("{of} has been running for {age}: {}.", holds()),
                SessionState::Orphaned => {
                    format!("{of} began {age} ago; its agent is dead, and what it left lives: {}.", holds())
                }
                SessionState::Ended => format!("{of} began {age} ago and has ended."),
            }
        }
        _ => format!("Session {id} has ended, and only deaths in it are remembered."),
    };
    let open = findings.iter().filter(|finding| finding.closed.is_none());
    for finding in open {
        text.push_str(&format!(" Open finding, {}: {}.", finding.seen.key.kind.name(), finding.seen.summary));
    }
    let is_agent = |death: &&api::Death| death.facts.kind == Some(api::ProcessKind::Agent);
    let bad = |death: &&api::Death| death.facts.cause != Cause::Finished;
    // Of a session that has ended, its agent's end is what was asked for; else the worst that happened in it.
    let chosen = deaths.iter().find(is_agent).or_else(|| deaths.iter().find(bad));
    match chosen {
        Some(death) => {
            text.push_str(&format!(" {}", death.facts.summary));
            let others = deaths.len() - 1;
            if others > 0 {
                let more = count(others as u64, "death", "deaths");
                text.push_str(&format!(" {more} besides in it can be looked at by pid."));
            }
        }
        None => text.push_str(" No process of it is remembered to have died in an unusual way."),
    }
    text
}
