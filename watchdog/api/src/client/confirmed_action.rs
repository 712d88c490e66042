//! Actions on processes with the user's consent: plan, request, wait for the result.

use std::collections::HashMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::{ClientError, ControlClient, JsonReply};
use crate::{Actions, EndRequest, Planned, ReapRequest, Receipt, Shown, Subject};

/// Pause between two queries of an action: it grows from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// Time limit of an action in addition to its grace: checks, SIGKILL, and processes that are forked meanwhile.
const EXTRA_TIME: Duration = Duration::from_secs(30);

/// An action that terminates processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfirmedAction {
    /// Terminate orphans; without subjects all.
    Reap(Vec<Subject>),
    /// Terminate a session, but for kept processes.
    End(u64),
    /// Includes kept processes. A process includes its descendants.
    EndKept(Subject),
}

impl ConfirmedAction {
    /// Requests the action, or only its plan. `expect` limits it to the processes that the user was shown.
    ///
    /// # Errors
    /// The daemon is unreachable or refuses.
    pub fn request(
        &self,
        client: &ControlClient,
        dry_run: bool,
        expect: Option<Vec<Shown>>,
    ) -> Result<JsonReply<Planned>, ClientError> {
        let (session, pid, kept) = match self {
            Self::Reap(subjects) => {
                let subjects = subjects.clone();
                return client.post("/v1/reap", &ReapRequest { subjects, dry_run, expect });
            }
            Self::End(session) => (Some(*session), None, false),
            Self::EndKept(Subject::Session(session)) => (Some(*session), None, true),
            Self::EndKept(Subject::Pid(pid)) => (None, Some(*pid), true),
        };
        client.post("/v1/end", &EndRequest { session, pid, kept, dry_run, expect })
    }
}

impl ControlClient {
    /// Updates the receipts until their actions are over, or the time limit is reached.
    ///
    /// # Errors
    /// The daemon is unreachable or refuses. The actions continue.
    pub fn wait_for_actions(&self, planned: &mut Planned) -> Result<(), ClientError> {
        let grace = Duration::try_from_secs_f64(planned.kill_after_seconds).unwrap_or_default();
        let deadline = Instant::now() + grace.saturating_add(EXTRA_TIME).min(Duration::from_secs(86_400));
        let mut pause = FIRST_PAUSE;
        while planned.actions.iter().any(|action| !action.state.is_over()) && Instant::now() < deadline {
            sleep(pause);
            pause = (pause * 3 / 2).min(MAX_PAUSE);
            let running: Vec<&mut Receipt> =
                planned.actions.iter_mut().filter(|action| !action.state.is_over()).collect();
            let path = match running.as_slice() {
                [one] => format!("/v1/actions?id={}", one.id),
                _ => "/v1/actions".to_owned(),
            };
            let reply = self.get::<Actions>(&path)?;
            let mut current: HashMap<u64, Receipt> =
                reply.document.actions.into_iter().map(|action| (action.id, action)).collect();
            for action in running {
                if let Some(current) = current.remove(&action.id) {
                    *action = current;
                }
            }
        }
        Ok(())
    }
}

impl Planned {
    /// The targets, as the user was shown them.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        let targets = self.actions.iter().flat_map(|action| &action.targets);
        targets.map(|target| Shown { pid: target.pid, start_time: target.start_time }).collect()
    }
}
