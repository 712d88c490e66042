//! The host slept, or we did not run: time passed in which nobody could end, look or change his mind. The clock went on.

use std::time::Duration;

use super::running::Stage;
use crate::engine::Step;
use crate::engine::id::BootTime;

/// Ticks are never so far apart while the host is awake.
const ASLEEP: Duration = Duration::from_secs(10);
/// Policy leaves people this long after the host woke up: what was to be called off within a grace could not be meanwhile.
const WAKING: Duration = Duration::from_secs(30);

/// When time was last seen to pass.
#[derive(Debug, Default)]
pub(super) struct Awake {
    ticked: Option<BootTime>,
    woke: Option<BootTime>,
    /// How long the host slept, until it is told.
    untold: Option<Duration>,
}

impl Awake {
    /// The host has not been awake for long.
    pub(super) fn is_waking(&self, now: BootTime) -> bool {
        self.woke.is_some_and(|woke| now.since(woke) < WAKING)
    }

    /// Why policy does nothing while it would, once each time.
    pub(super) fn why_not_yet(&mut self) -> Option<String> {
        let (slept, waking) = (self.untold.take()?.as_secs(), WAKING.as_secs());
        Some(format!(
            "the host slept, or kept the watchdog from running, for {slept} s: what was to be called off meanwhile still can be, \
             for {waking} s from then on"
        ))
    }
}

impl Step<'_> {
    /// Has the patience with whatever is on its way begin where it was before the host slept.
    pub(super) fn tick_awake(&mut self) {
        let now = self.now;
        let acts = &mut self.engine.acts;
        let slept = acts.awake.ticked.replace(now).map_or(Duration::ZERO, |ticked| now.since(ticked));
        if slept < ASLEEP {
            return;
        }
        acts.awake.woke = Some(now);
        acts.awake.untold = Some(slept);
        for running in acts.running.values_mut() {
            match &mut running.stage {
                Stage::Looking { since, .. }
                | Stage::Ending { since }
                | Stage::Killing { since }
                | Stage::Counting { since } => *since = since.plus(slept).min(now),
                Stage::Holding { .. } | Stage::Releasing | Stage::Over { .. } => {}
            }
        }
    }
}
