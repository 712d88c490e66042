//! Buttons, and what they ask for.

use serde::{Deserialize, Serialize};
use watchdog_api::client::ClientError;
use watchdog_api::{Planned, Shown, Subject};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ActName {
    Reap,
    End,
    Thaw,
    Adopt,
    Unadopt,
    Reclaim,
    /// Reports receipts; changes nothing.
    Receipts,
    /// Reports how far a page-out is; changes nothing.
    ReclaimReceipt,
}

/// The body of a request that acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActCall {
    pub(crate) action: ActName,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) session: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) pid: Option<u32>,
    /// What the user saw and confirmed. Without it nothing is changed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) expect: Option<Vec<Shown>>,
    /// Actions whose receipts are wanted.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) ids: Vec<u64>,
    /// When the page-out began whose receipt is wanted: ids repeat after a restart of the daemon.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) began_at: Option<String>,
}

/// Asks before it acts.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ActButton {
    pub(crate) label: String,
    pub(crate) danger: bool,
    pub(crate) call: ActCall,
}

impl ActCall {
    pub(crate) const fn on_session(action: ActName, session: u64) -> Self {
        Self { action, session: Some(session), pid: None, expect: None, ids: Vec::new(), began_at: None }
    }

    pub(crate) const fn on_process(action: ActName, pid: u32) -> Self {
        Self { action, session: None, pid: Some(pid), expect: None, ids: Vec::new(), began_at: None }
    }

    pub(crate) fn subject(&self) -> Result<Subject, ClientError> {
        match (self.session, self.pid) {
            (Some(session), None) => Ok(Subject::Session(session)),
            (None, Some(pid)) => Ok(Subject::Pid(pid)),
            _ => Err(ClientError::BadRequest("expected one session or one process".into())),
        }
    }

    pub(crate) fn name(&self) -> String {
        match (self.session, self.pid) {
            (Some(session), _) => format!("session {session}"),
            (_, Some(pid)) => format!("process {pid}"),
            _ => "nothing".into(),
        }
    }

    pub(crate) fn confirmed(&self, planned: &Planned) -> Option<Self> {
        let targets = planned.actions.iter().flat_map(|action| &action.targets);
        let shown: Vec<Shown> =
            targets.map(|target| Shown { pid: target.pid, start_time: target.start_time }).collect();
        (!shown.is_empty()).then(|| Self { expect: Some(shown), ..self.clone() })
    }
}
