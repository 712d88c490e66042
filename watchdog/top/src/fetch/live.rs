//! Polls the daemon once a second, and less often while nothing changes.
//!
//! Sums of sessions are cheap. Processes cost the daemon 2 µs each, so that only those of unfolded sessions are requested,
//! and many of them less often.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use watchdog_api::client::{ClientError, ControlClient};
use watchdog_api::{Counts, Finding, Findings, Fleet, Overview, Session};

use crate::events::Reports;
use crate::model::{GateSummary, Observation, PollPlan, ProcessInterest, TopMessage, trouble};

const INTERVAL: Duration = Duration::from_secs(1);
/// The interval after [`STEADY_AFTER`] polls in which only the host's memory changed.
const STEADY_INTERVAL: Duration = Duration::from_secs(2);
const STEADY_AFTER: u32 = 10;
/// A daemon that needs longer is treated as down.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Processes that are listed per second, on average.
const PROCESSES_PER_SECOND: u64 = 200;
/// Findings are read when their number changes, and after this many polls.
const FINDINGS_EVERY: u32 = 5;
/// The gate is read after this many polls.
const GATE_EVERY: u32 = 2;

/// Polls until the loop ends.
pub(crate) fn poll(client: &ControlClient, plans: &Receiver<PollPlan>, reports: &Reports) {
    let mut poller = DaemonPoller {
        client: client.limited_to(TIMEOUT).keeping_alive(),
        plan: PollPlan::default(),
        listed: BTreeSet::new(),
        processes_due: Instant::now(),
        polls: 0,
        findings: Vec::new(),
        gate: None,
        steadiness: Steadiness::default(),
    };
    let mut due = Instant::now();
    loop {
        match plans.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(plan) => {
                // At once for sessions that were unfolded, for the fleet, and after a pause.
                let resumed = poller.plan.paused && !plan.paused;
                if resumed || !poller.plan.fleet && plan.fleet || poller.has_new_sessions(&plan) {
                    due = Instant::now();
                }
                poller.plan = plan;
                // The user is at work.
                poller.steadiness = Steadiness::default();
                due = due.min(Instant::now() + INTERVAL);
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        due = Instant::now() + poller.steadiness.interval();
        if poller.plan.paused {
            continue;
        }
        let message = match poller.observe() {
            Ok(observation) => TopMessage::Observed(Box::new(observation)),
            Err(error) => {
                poller.forget();
                TopMessage::Unreachable(error.to_string())
            }
        };
        if !reports.send(message) {
            return;
        }
    }
}

struct DaemonPoller {
    client: ControlClient,
    plan: PollPlan,
    /// Sessions whose processes were listed last.
    listed: BTreeSet<u64>,
    processes_due: Instant,
    polls: u32,
    findings: Vec<Finding>,
    gate: Option<GateSummary>,
    steadiness: Steadiness,
}

/// Whether anything has changed lately.
#[derive(Debug, Default)]
struct Steadiness {
    /// Without processes.
    sessions: Vec<Session>,
    counts: Option<Counts>,
    unchanged: u32,
}

impl Steadiness {
    fn observe(&mut self, counts: Counts, sessions: &[Session]) {
        let sums = |session: &Session| Session { processes: Vec::new(), ..session.clone() };
        let sessions: Vec<Session> = sessions.iter().map(sums).collect();
        let same = self.counts == Some(counts) && self.sessions == sessions;
        *self =
            Self { sessions, counts: Some(counts), unchanged: if same { self.unchanged.saturating_add(1) } else { 0 } };
    }

    const fn interval(&self) -> Duration {
        if self.unchanged < STEADY_AFTER { INTERVAL } else { STEADY_INTERVAL }
    }
}

impl DaemonPoller {
    fn has_new_sessions(&self, plan: &PollPlan) -> bool {
        match &plan.processes {
            ProcessInterest::All => self.plan.processes != ProcessInterest::All,
            ProcessInterest::Sessions(sessions) => sessions.iter().any(|session| !self.listed.contains(session)),
        }
    }

    /// After an error: everything is read anew.
    fn forget(&mut self) {
        self.polls = 0;
        self.steadiness = Steadiness::default();
        self.listed.clear();
        self.processes_due = Instant::now();
    }

    fn observe(&mut self) -> Result<Observation, ClientError> {
        let Overview { status, tree, findings, queue } = self.overview()?;
        if let Some(findings) = findings {
            self.findings = findings.findings;
        } else if self.findings.len() as u64 != status.counts.findings_open {
            self.findings = self.client.get::<Findings>("/v1/findings")?.document.findings;
        }
        if let Some(queue) = queue {
            self.gate = Some(GateSummary::from(&queue));
        }
        self.polls = self.polls.wrapping_add(1);
        self.steadiness.observe(status.counts, &tree.sessions);
        Ok(Observation {
            at: Timestamp::now(),
            host: status.host,
            counts: status.counts,
            tree,
            findings: self.findings.clone(),
            gate: self.gate.clone(),
            trouble: trouble(&status),
            in_fleet: status.fleet.is_some(),
            fleet: self.plan.fleet.then(|| self.fleet()),
        })
    }

    /// A slow store does not hide the rest.
    fn fleet(&self) -> Result<Box<Fleet>, String> {
        let reply = self.client.get::<Fleet>("/v1/fleet");
        reply.map(|reply| Box::new(reply.document)).map_err(|error| error.to_string())
    }

    fn overview(&mut self) -> Result<Overview, ClientError> {
        let now = Instant::now();
        let due = now >= self.processes_due;
        let processes_of = match &self.plan.processes {
            ProcessInterest::All if due => String::new(),
            ProcessInterest::All => "&processes_of=".to_owned(),
            ProcessInterest::Sessions(sessions) => {
                let chosen = sessions.iter().filter(|session| due || !self.listed.contains(session));
                let chosen: Vec<String> = chosen.map(u64::to_string).collect();
                format!("&processes_of={}", chosen.join(","))
            }
        };
        let (findings, queue) = (self.polls.is_multiple_of(FINDINGS_EVERY), self.polls.is_multiple_of(GATE_EVERY));
        let path = format!("/v1/overview?findings={findings}&queue={queue}{processes_of}");
        let overview = self.client.get::<Overview>(&path)?.document;
        let listed = overview.tree.sessions.iter().filter(|session| !session.processes.is_empty());
        if due {
            let processes: usize = listed.clone().map(|session| session.processes.len()).sum();
            let seconds = (processes as u64).div_ceil(PROCESSES_PER_SECOND).max(1);
            // Less a part of the interval, so that a second is not two.
            self.processes_due = now + INTERVAL * u32::try_from(seconds).unwrap_or(u32::MAX) - INTERVAL / 4;
            self.listed.clear();
        }
        self.listed.extend(listed.map(|session| session.id));
        Ok(overview)
    }
}

#[cfg(test)]
mod tests {
    use watchdog_render::testing::{healthy_status, process, tree};

    use super::*;

    #[test]
    fn unchanged_sums_slow_the_polls() {
        let (counts, mut sessions) = (healthy_status().counts, tree().sessions);
        let mut steadiness = Steadiness::default();
        for _ in 0..=STEADY_AFTER {
            assert_eq!(steadiness.interval(), INTERVAL);
            steadiness.observe(counts, &sessions);
        }
        assert_eq!(steadiness.interval(), STEADY_INTERVAL);
        // Processes are not listed in each poll.
        sessions[0].processes = vec![process(1, 1, watchdog_api::ProcessKind::Tool, &["x"], 1)];
        steadiness.observe(counts, &sessions);
        assert_eq!(steadiness.interval(), STEADY_INTERVAL);
        sessions[0].memory_bytes += 1;
        steadiness.observe(counts, &sessions);
        assert_eq!(steadiness.interval(), INTERVAL);
    }
}
