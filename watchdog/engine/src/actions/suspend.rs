//! Extends the timeouts of running actions by the time of a suspend.

use std::time::Duration;

use super::progress::ActionStage;
use super::suspend_detector::STALL_THRESHOLD;
use crate::Step;

impl Step<'_> {
    /// During a suspend no process can exit and no user can intervene, but the clock runs on.
    pub(super) fn detect_suspend(&mut self) {
        let now = self.now;
        let acts = &mut self.engine.actions;
        let slept = acts.suspend.last_tick.replace(now).map_or(Duration::ZERO, |last_tick| now.since(last_tick));
        if slept < STALL_THRESHOLD {
            return;
        }
        acts.suspend.resumed_at = Some(now);
        acts.suspend.unreported = Some(slept);
        for running in acts.running.values_mut() {
            match &mut running.stage {
                ActionStage::Verifying { since, .. }
                | ActionStage::Terminating { since }
                | ActionStage::Killing { since }
                | ActionStage::AwaitingReclaim { since } => *since = since.plus(slept).min(now),
                ActionStage::Held { .. } | ActionStage::Releasing | ActionStage::Finished { .. } => {}
            }
        }
    }
}
