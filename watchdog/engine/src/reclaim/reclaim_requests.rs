//! Requests of users: page out a session, or all idle sessions.

use serde::{Deserialize, Serialize};

use super::candidates::SessionChoice;
use crate::{Engine, Step};
use watchdog_api::ReclaimTrigger;
use watchdog_types::{SessionId, Uid};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimDemand {
    pub uid: Uid,
    /// This session, idle or not; `None` for all idle sessions of the user, of all users for root.
    pub session: Option<SessionId>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReclaimRequestError {
    #[error("session {0} has no running process (see `watchdogctl tree`)")]
    NoSession(SessionId),
    #[error("it belongs to another user: only its owner and root may page it out")]
    NotYours,
    #[error("[reclaim] mode is off, so idleness is not measured: specify a session")]
    Off,
    #[error("another page-out is running (see `watchdogctl history`); try again in a moment")]
    Busy,
    #[error("free swap is at [reclaim] reserve, so nothing can be paged out: add swap, or lower the reserve")]
    SwapFull,
    #[error("{0}")]
    Impossible(String),
}

impl Engine {
    /// # Errors
    /// When the request is refused.
    pub fn check_reclaim(&self, demand: ReclaimDemand) -> Result<(), ReclaimRequestError> {
        let host = &self.close_watch.host;
        if host.swap_total.0 > 0 && self.swap_room().0 == 0 {
            return Err(ReclaimRequestError::SwapFull);
        }
        if self.reclaim.run.as_ref().is_some_and(|run| run.trigger == ReclaimTrigger::Request) {
            return Err(ReclaimRequestError::Busy);
        }
        if let Some(obstacle) = self.reclaim.obstacle {
            return Err(ReclaimRequestError::Impossible(obstacle.to_string()));
        }
        let Some(session) = demand.session else {
            return self.config.shortest_reclaim_idle().map(drop).ok_or(ReclaimRequestError::Off);
        };
        let known = self.sessions.get(session).filter(|known| known.members > 0);
        let owner = known.ok_or(ReclaimRequestError::NoSession(session))?.uid;
        if demand.uid == Uid::ROOT || demand.uid == owner { Ok(()) } else { Err(ReclaimRequestError::NotYours) }
    }

    pub(super) fn choice_of_demand(demand: ReclaimDemand) -> SessionChoice {
        match demand.session {
            Some(session) => SessionChoice::Named(session),
            None => {
                let user = Some(demand.uid).filter(|uid| *uid != Uid::ROOT);
                SessionChoice::Idle { user, short: false, proactive: false }
            }
        }
    }
}

impl Step<'_> {
    /// Replaces a run that the daemon started.
    pub(crate) fn request_reclaim(&mut self, demand: ReclaimDemand) {
        if self.engine.check_reclaim(demand).is_err() {
            return;
        }
        self.begin_run(ReclaimTrigger::Request, Engine::choice_of_demand(demand), Some(demand.uid));
        self.tick_reclaim();
    }
}
