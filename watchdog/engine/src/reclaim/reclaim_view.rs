//! Page-outs as the API shows them.

use std::time::Duration;

use super::candidates::{ReclaimableSession, SessionChoice};
use super::reclaim_requests::ReclaimDemand;
use super::reclaim_state::ReclaimTotals;
use super::run::Run;
use crate::Engine;
use crate::process::TrackedProcess;
use crate::view::DisplayContext;
use watchdog_api::{self as api, ReclaimRunState, ReclaimTrigger};
use watchdog_types::{BootTime, Bytes, SessionId, Uid, Viewer};

/// Shortest idle time that is shown.
const MIN_SHOWN_IDLE: Duration = Duration::from_secs(60);
/// Exempt processes that a plan lists at most.
const MAX_EXEMPT: usize = 50;

impl Engine {
    /// `GET /v1/reclaim`. Users other than root see what they requested.
    #[must_use]
    pub fn reclaims(&self, now: BootTime, viewer: Viewer, naming: &DisplayContext<'_>) -> api::Reclaims {
        let sees = |run: &&Run| viewer == Viewer::Root || run.asked_by.is_some_and(|uid| viewer.sees(uid));
        let runs = self.reclaim.run.iter().chain(self.reclaim.finished.iter().rev()).filter(sees);
        let runs = runs.map(|run| self.to_api_run(run, now, naming.moment(run.began)));
        api::Reclaims { mode: self.config.reclaim.mode.name().to_owned(), runs: runs.collect() }
    }

    /// A run of this number, and the user that requested it.
    #[must_use]
    pub fn reclaim_run(
        &self,
        number: u64,
        now: BootTime,
        naming: &DisplayContext<'_>,
    ) -> Option<(Option<Uid>, api::ReclaimRun)> {
        let run = self.run_of(number)?;
        Some((run.asked_by, self.to_api_run(run, now, naming.moment(run.began))))
    }

    /// The number of the latest run.
    #[must_use]
    pub const fn last_reclaim(&self) -> u64 {
        self.reclaim.runs
    }

    #[must_use]
    pub const fn reclaim_totals(&self) -> ReclaimTotals {
        self.reclaim.totals
    }

    /// What page-out could release now, from sessions that the viewer may see.
    #[must_use]
    pub fn reclaim_status(&self, now: BootTime, viewer: Viewer) -> api::ReclaimStatus {
        let choice = SessionChoice::Idle { user: None, short: false, proactive: false };
        let idle = self.reclaimable(now, choice).into_iter().filter(|session| viewer.sees(session.uid));
        let (sessions, bytes) = idle.fold((0, Bytes(0)), |(count, sum), idle| (count + 1, sum + idle.resident()));
        let host = &self.close_watch.host;
        let problem = match self.reclaim.obstacle {
            Some(obstacle) => Some(obstacle.to_string()),
            None if host.swap_total == Bytes(0) => Some("no swap: idle sessions keep their memory".to_owned()),
            None if self.swap_room() == Bytes(0) => Some("free swap is at [reclaim] reserve".to_owned()),
            None => None,
        };
        api::ReclaimStatus {
            mode: self.config.reclaim.mode.name().to_owned(),
            idle_sessions: sessions,
            idle_resident_bytes: bytes.0,
            swap_room_bytes: self.swap_room().0,
            problem,
        }
    }

    pub(crate) const fn is_paging_out(&self) -> bool {
        self.reclaim.run.is_some()
    }

    /// What a request would page out.
    #[must_use]
    pub fn plan_reclaim(&self, now: BootTime, demand: ReclaimDemand, naming: &DisplayContext<'_>) -> api::ReclaimRun {
        let choice = Self::choice_of_demand(demand);
        let sessions = self.reclaimable(now, choice);
        let processes = || sessions.iter().flat_map(|session| &session.processes);
        let resident: Bytes = sessions.iter().map(ReclaimableSession::resident).sum();
        let swaps = self.close_watch.host.swap_total > Bytes(0);
        let most = if swaps { resident.min(self.swap_room()) } else { resident };
        api::ReclaimRun {
            id: 0,
            trigger: ReclaimTrigger::Request,
            state: ReclaimRunState::Planned,
            asked_by_uid: Some(demand.uid.0),
            session: demand.session.map(|session| session.0),
            began_at: naming.moment(now),
            sessions: sessions.len() as u64,
            processes: processes().count() as u64,
            resident_before_bytes: resident.0,
            resident_after_bytes: resident.0,
            paged_out_bytes: most.0,
            swapped_bytes: 0,
            compressed_bytes: None,
            seconds: 0.0,
            cpu_seconds: 0.0,
            note: (!swaps).then(|| "without swap, only pages of files can be dropped".to_owned()),
            exempt: self.exempt_of(demand.session, &sessions),
        }
    }

    /// Exempt processes of the sessions of a plan.
    fn exempt_of(&self, named: Option<SessionId>, sessions: &[ReclaimableSession]) -> Vec<api::ReclaimExemption> {
        let planned = |id: SessionId| named == Some(id) || sessions.iter().any(|session| session.session == id);
        let exempt = self.table.living().filter(|process| planned(process.session)).filter_map(|process| {
            let because = self.page_out_exemption(process, self.sessions.get(process.session)?)?.to_string();
            Some(api::ReclaimExemption { pid: process.id.pid.0, name: process.label(), because })
        });
        exempt.take(MAX_EXEMPT).collect()
    }

    fn run_of(&self, number: u64) -> Option<&Run> {
        self.reclaim.run.iter().chain(&self.reclaim.finished).find(|run| run.number == number)
    }

    pub(super) fn run_summary(&self, number: u64, now: BootTime) -> String {
        self.run_of(number).map(|run| self.to_api_run(run, now, String::new()).to_string()).unwrap_or_default()
    }

    fn to_api_run(&self, run: &Run, now: BootTime, began_at: String) -> api::ReclaimRun {
        let session = run.choice.session();
        let tally = &run.tally;
        api::ReclaimRun {
            id: run.number,
            trigger: run.trigger,
            state: if run.ended.is_some() { ReclaimRunState::Done } else { ReclaimRunState::Running },
            asked_by_uid: run.asked_by.map(|uid| uid.0),
            session: session.map(|session| session.0),
            began_at,
            sessions: tally.sessions.len() as u64,
            processes: tally.processes.len() as u64,
            resident_before_bytes: tally.before.0,
            resident_after_bytes: tally.after.0,
            paged_out_bytes: tally.out().0,
            swapped_bytes: tally.swapped.0,
            compressed_bytes: tally.compressed.map(|compressed| compressed.0),
            seconds: run.ended.unwrap_or(now).since(run.began).as_secs_f64(),
            cpu_seconds: tally.cpu.as_secs_f64(),
            note: run.note.clone(),
            exempt: session.map_or(Vec::new(), |session| self.exempt_of(Some(session), &[])),
        }
    }

    /// Rises when an idle time may have changed.
    pub(crate) const fn idle_changes(&self) -> u64 {
        self.reclaim.idle.changes()
    }

    /// Since when a session with these members is idle; `None` below the shortest shown time.
    pub(crate) fn idle_since(&self, members: &[&TrackedProcess]) -> Option<BootTime> {
        let (since, seen) = self.session_rest(self.reclaim.idle.last_read()?, members.iter().copied())?;
        let shown = self.config.shortest_reclaim_idle()?.min(MIN_SHOWN_IDLE);
        (seen >= shown).then_some(since)
    }
}
