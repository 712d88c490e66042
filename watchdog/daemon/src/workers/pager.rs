//! Pages out idle processes, at the lowest priority. An order may take minutes; it can be cancelled meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::event_sender::EventSender;
use crate::worker::{ChannelClosed, Worker};
use watchdog_engine::input::Input;
use watchdog_host::page_out::{lower_priority, page_out};
use watchdog_host::swap::swap_status;
use watchdog_types::{Bytes, PageOut};

/// The latest order that was cancelled; earlier ones have ended.
pub(crate) type CancelledOrder = Arc<AtomicU64>;

pub(super) struct Pager {
    events: EventSender,
    cancelled: CancelledOrder,
}

impl Pager {
    pub(super) fn new(events: EventSender, cancelled: CancelledOrder) -> Self {
        if let Err(error) = lower_priority() {
            tracing::warn!("processes are paged out at normal priority: {error}");
        }
        Self { events, cancelled }
    }
}

impl Worker for Pager {
    type Command = Box<PageOut>;

    fn handle(&mut self, order: Box<PageOut>) -> Result<(), ChannelClosed> {
        let before = swap_status().compressed;
        let proceed = || self.cancelled.load(Relaxed) < order.number;
        let answer = page_out(&order, &proceed);
        let compressed = before.zip(swap_status().compressed);
        let compressed = compressed.map(|(before, after)| Bytes(after.0.saturating_sub(before.0)));
        self.events.send_input(Input::PagedOut { answer, compressed })
    }
}
