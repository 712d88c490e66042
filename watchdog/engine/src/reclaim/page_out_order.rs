//! One order: processes of a session, within a few seconds of the budget and the swap reserve.

use super::candidates::ReclaimableSession;
use crate::Engine;
use watchdog_types::{Bytes, PageOut, PageOutOutcome, PageOutProcess, PageOutStop, PagedOut, ProcessId};

/// An order uses this many seconds of the budget at most. Before the next one activity is read again, so that a session
/// keeps the rest of its memory once it is used.
const ORDER_SECONDS: u64 = 4;

/// Memory of a process that is left to the next order.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessRest {
    pub(super) process: ProcessId,
    /// At most what was resident at first: a process that is in use is not paged out again and again.
    most: Bytes,
}

impl ProcessRest {
    /// Whether only the end of the order stopped the page-out.
    pub(super) fn follows(self, answer: &PagedOut) -> bool {
        let stopped = PageOutOutcome::Stopped(PageOutStop::Budget);
        let mut results = answer.processes.iter().filter(|result| result.id == self.process);
        results.any(|result| result.outcome == stopped && result.freed() > Bytes(0))
    }
}

impl Engine {
    /// The next order of a run, after the one that left `before`; and what it leaves itself.
    pub(super) fn page_out_order(
        &self,
        session: &ReclaimableSession,
        before: Option<ProcessRest>,
    ) -> (PageOut, Option<ProcessRest>) {
        let config = &self.config.reclaim;
        let host = &self.close_watch.host;
        let rate = config.budget.on_host(host.total).max(Bytes(1));
        let room = if host.swap_total > Bytes(0) { self.swap_room() } else { Bytes(u64::MAX) };
        let less = |all: Bytes, used: Bytes| Bytes(all.0.saturating_sub(used.0));
        let (mut ordered, mut processes, mut rest) = (Bytes(0), Vec::new(), None);
        for process in &session.processes {
            let most = before.filter(|rest| rest.process == process.id).map_or(process.resident, |rest| rest.most);
            let possible = process.resident.min(most).min(less(room, ordered));
            let budget = possible.min(less(Bytes(rate.0.saturating_mul(ORDER_SECONDS)), ordered));
            if budget == Bytes(0) {
                break;
            }
            let left = less(possible, budget);
            rest = (left > Bytes(0)).then_some(ProcessRest { process: process.id, most: left });
            ordered += budget;
            processes.push(PageOutProcess { id: process.id, uid: session.uid, budget });
        }
        let (number, reserve) = (self.reclaim.orders + 1, self.swap_reserve());
        (PageOut { number, session: session.session, processes, rate, reserve }, rest)
    }
}
