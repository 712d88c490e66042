//! When the memory programs are attached: they cost every process of the host, so only while it matters.

use std::collections::HashMap;
use std::time::Duration;

use super::Step;
use super::detect::TableEvent;
use super::effect::{BpfCommand, Effect};
use watchdog_config::CloseWatch;
use watchdog_types::{BootTime, Bytes, HostMemory, ProcessId};

/// A process whose growth would take all that is available within this time is a suspected runaway.
const RUNAWAY_HORIZON: Duration = Duration::from_secs(60);
/// Growth slower than this is not called one, however little there is. Bytes per second.
const RUNAWAY_FLOOR: u64 = 32 * 1024 * 1024;
/// Growth is measured over at least this long.
const WINDOW: Duration = Duration::from_millis(200);
/// After the last reason, close watch continues for this long.
const CALM: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct CloseWatchState {
    on: bool,
    pub(super) host: HostMemory,
    reason_seen: Option<BootTime>,
    /// Where each growing process was when its growth was last measured.
    marks: HashMap<ProcessId, (BootTime, Bytes)>,
}

impl Step<'_> {
    pub(super) fn host(&mut self, host: HostMemory) {
        self.engine.close_watch.host = host;
        if host.is_short() {
            self.engine.close_watch.reason_seen = Some(self.now);
        }
        self.review_close_watch();
        self.detect(TableEvent::HostRead);
        self.engine.reclaim.host_read();
        self.gate_host_read();
        self.tick_reclaim();
        self.actions_host_read();
        self.emergency_host_read();
    }

    /// A process's memory is now this much.
    pub(super) fn grew(&mut self, process: ProcessId, at: BootTime, cost: Bytes) {
        let state = &mut self.engine.close_watch;
        let Some((since, before)) = state.marks.insert(process, (at, cost)) else { return };
        let window = at.since(since);
        if window < WINDOW {
            state.marks.insert(process, (since, before));
            return;
        }
        let grown = u128::from(cost.0.saturating_sub(before.0));
        let per_second = u64::try_from(grown * 1_000_000_000 / window.as_nanos().max(1)).unwrap_or(u64::MAX);
        let reach = per_second.saturating_mul(RUNAWAY_HORIZON.as_secs());
        if per_second >= RUNAWAY_FLOOR && state.host.total.0 > 0 && reach >= state.host.available.0 {
            state.reason_seen = Some(self.now);
            self.review_close_watch();
        }
    }

    pub(super) fn forget_growth(&mut self, process: ProcessId) {
        self.engine.close_watch.marks.remove(&process);
    }

    pub(super) fn review_close_watch(&mut self) {
        let state = &mut self.engine.close_watch;
        let wanted = match self.engine.config.tracking.close_watch {
            CloseWatch::Always => true,
            CloseWatch::Never => false,
            CloseWatch::Auto => state.reason_seen.is_some_and(|seen| self.now.since(seen) < CALM),
        };
        if wanted != state.on {
            state.on = wanted;
            self.effect(Effect::Bpf(BpfCommand::CloseWatch(wanted)));
        }
    }
}
