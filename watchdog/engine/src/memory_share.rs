//! The part of a process in the pages that it shares with others.

use watchdog_types::{BootTime, Bytes, Memory};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryShare {
    /// Its memory when the part was measured, or estimated at a fork, exec or exit.
    then: Memory,
    /// Its part of the pages, each divided by the number of its users.
    part: Option<Bytes>,
    /// The part that no other process maps.
    private: Bytes,
    /// When it last got another sharer or lost one: a measurement that began earlier is void.
    changed: BootTime,
    /// When a measurement was last requested.
    pub(super) asked: Option<BootTime>,
    pub(super) estimated: bool,
}

impl MemoryShare {
    /// Growth since the measurement is private, except for shared memory, which may be more of the shared pages.
    pub(super) fn cost(&self, now: &Memory) -> Bytes {
        let charged = now.charged();
        let then = self.then.charged();
        let Some(part) = self.part.filter(|_| then.0 > 0) else { return charged };
        let scaled =
            |of: u64| u64::try_from(u128::from(of) * u128::from(part.0) / u128::from(then.0)).unwrap_or(u64::MAX);
        let own = |memory: &Memory| memory.anon.0 + memory.swap.0;
        if charged.0 <= then.0 {
            return Bytes(scaled(charged.0));
        }
        let grown = charged.0 - then.0;
        let of_its_own = own(now).saturating_sub(own(&self.then)).min(grown);
        Bytes(part.0 + of_its_own + scaled(grown - of_its_own))
    }

    pub(super) fn measured(&mut self, memory: Memory, part: Bytes, private: Bytes) {
        (self.then, self.part, self.private, self.estimated) = (memory, Some(part), private, false);
    }

    /// The part is this much from now on.
    pub(super) fn estimate(&mut self, memory: Memory, part: Bytes, private: Bytes, at: BootTime) {
        self.measured(memory, part, private);
        self.estimated = true;
        self.changed = self.changed.max(at);
    }

    /// The memory that stays with the other sharers when this process leaves them, even if it is unmapped already.
    pub(super) fn left_to_others(&self) -> Bytes {
        Bytes(self.part.unwrap_or_default().0.saturating_sub(self.private.0))
    }

    pub(super) fn private(&self) -> Bytes {
        self.private
    }

    pub(super) fn is_void(&self, measurement: BootTime) -> bool {
        self.changed > measurement
    }

    /// By how much its memory moved since its part was measured, in bytes.
    pub(super) fn error(&self, now: &Memory) -> u64 {
        now.charged().0.abs_diff(self.then.charged().0)
    }
}
