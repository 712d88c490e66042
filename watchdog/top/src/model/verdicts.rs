//! Why a row is in its state, in one sentence.

use watchdog_api::{Evidence, Finding, ProcessState, Session, SessionState, Severity};

use super::observation::Observation;
use super::rows::TopRow;

/// The worst open finding that a row is a subject of.
pub(crate) fn finding_of<'a>(observation: &'a Observation, row: &TopRow) -> Option<&'a Finding> {
    let session = observation.tree.sessions.get(row.session)?;
    let about = |finding: &&Finding| match row.process.and_then(|index| session.processes.get(index)) {
        None => finding.session == Some(session.id),
        Some(process) => {
            (finding.pid, finding.start_time) == (process.pid, process.start_time)
                || orphan_reason(finding, process.pid, process.start_time).is_some()
        }
    };
    observation.findings.iter().filter(about).max_by_key(|finding| (finding.severity, finding.id))
}

/// The severity of the worst finding of a row. What is kept has none.
pub(crate) fn severity_of(observation: &Observation, row: &TopRow) -> Option<Severity> {
    let session = observation.tree.sessions.get(row.session)?;
    let kept = row.process.and_then(|index| session.processes.get(index)).is_some_and(|one| one.kept_because.is_some());
    finding_of(observation, row).filter(|_| !kept).map(|finding| finding.severity)
}

/// Empty if there is nothing to explain.
pub(crate) fn verdict(observation: &Observation, row: &TopRow) -> String {
    let Some(session) = observation.tree.sessions.get(row.session) else { return String::new() };
    let finding = finding_of(observation, row);
    let Some(process) = row.process.and_then(|index| session.processes.get(index)) else {
        return of_session(session, finding);
    };
    if let Some(why) = &process.kept_because {
        return format!("kept: {why}");
    }
    match finding {
        Some(finding) => orphan_reason(finding, process.pid, process.start_time)
            .unwrap_or_else(|| format!("{}: {}", finding.kind.name(), finding.summary)),
        None if process.state == ProcessState::Zombie => "zombie: its parent has not waited for it".to_owned(),
        None if process.state == ProcessState::Orphaned => "orphaned: its agent is dead".to_owned(),
        None => String::new(),
    }
}

fn of_session(session: &Session, finding: Option<&Finding>) -> String {
    match (finding, session.state) {
        (Some(finding), _) => format!("{}: {}", finding.kind.name(), finding.summary),
        (None, SessionState::Orphaned) => "orphaned: its agent is dead".to_owned(),
        (None, SessionState::Ended) => "ended: only kept processes are alive".to_owned(),
        (None, SessionState::Running) => String::new(),
    }
}

/// What an orphan finding says about one process.
fn orphan_reason(finding: &Finding, pid: u32, start_time: u64) -> Option<String> {
    let Evidence::Orphan(evidence) = &finding.evidence else { return None };
    let mut members = evidence.processes.iter().chain(&evidence.kept);
    let member = members.find(|member| (member.pid.0, member.start_time.0) == (pid, start_time))?;
    let verdict = match member.verdict {
        watchdog_api::evidence::MemberVerdict::Clear if evidence.in_grace => "orphan, in its grace period",
        watchdog_api::evidence::MemberVerdict::Clear => "orphan, can be terminated",
        watchdog_api::evidence::MemberVerdict::Unknown => "orphan, uncertain",
        watchdog_api::evidence::MemberVerdict::Kept => "kept",
    };
    let agent = format!("{} (pid {}) is dead", evidence.profile, evidence.agent_pid.0);
    Some(match &member.because {
        Some(because) => format!("{verdict}: {because}; {agent}"),
        None => format!("{verdict}: {agent}"),
    })
}
