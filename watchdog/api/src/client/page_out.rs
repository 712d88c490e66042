//! The end of a page-out.

use std::thread::sleep;
use std::time::Duration;

use super::{ClientError, ControlClient};
use crate::{ReclaimRun, ReclaimRunState, Reclaims};

/// Pause between two queries.
const PAUSE: Duration = Duration::from_millis(200);

impl ControlClient {
    /// A page-out that has begun; `None` if the daemon has been restarted since.
    ///
    /// # Errors
    /// The daemon is unreachable or refuses.
    pub fn find_reclaim(&self, id: u64, began_at: &str) -> Result<Option<ReclaimRun>, ClientError> {
        let runs = self.get::<Reclaims>("/v1/reclaim")?.document.runs;
        Ok(runs.into_iter().find(|run| run.id == id && run.began_at == began_at))
    }

    /// Waits for the end of a page-out, and reports its progress. Its budget limits its speed, so that there is no limit of
    /// time.
    ///
    /// # Errors
    /// The daemon is unreachable or refuses. The page-out continues.
    pub fn wait_for_reclaim(
        &self,
        mut run: ReclaimRun,
        mut progress: impl FnMut(&ReclaimRun),
    ) -> Result<ReclaimRun, ClientError> {
        while run.state == ReclaimRunState::Running {
            progress(&run);
            sleep(PAUSE);
            match self.find_reclaim(run.id, &run.began_at)? {
                Some(current) => run = current,
                None => return Ok(ReclaimRun { state: ReclaimRunState::Done, ..run }),
            }
        }
        Ok(run)
    }
}
