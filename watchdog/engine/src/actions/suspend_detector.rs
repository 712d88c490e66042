//! Detects that the host was suspended, or that the daemon was stalled, from the time between ticks.

use std::time::Duration;

use watchdog_types::BootTime;

/// A longer time between two ticks is a suspend or a stall.
pub(super) const STALL_THRESHOLD: Duration = Duration::from_secs(10);
/// Policy pauses this long after a resume, so that users can intervene.
const RESUME_HOLDOFF: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct SuspendDetector {
    pub(super) last_tick: Option<BootTime>,
    pub(super) resumed_at: Option<BootTime>,
    /// The length of the last suspend, until it is reported.
    pub(super) unreported: Option<Duration>,
}

impl SuspendDetector {
    pub(super) fn in_resume_holdoff(&self, now: BootTime) -> bool {
        self.resumed_at.is_some_and(|resumed_at| now.since(resumed_at) < RESUME_HOLDOFF)
    }

    /// The notice about the pause, once after each resume.
    pub(super) fn take_holdoff_notice(&mut self) -> Option<String> {
        let (slept, waking) = (self.unreported.take()?.as_secs(), RESUME_HOLDOFF.as_secs());
        Some(format!("system was suspended or stalled for {slept}s; automatic actions are paused for {waking}s"))
    }
}
