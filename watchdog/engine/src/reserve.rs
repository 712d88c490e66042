//! Ids that are never given twice, whatever becomes of the daemon: they are reserved in blocks, before the first of a block is given.

use super::effect::{Effect, PersistCommand};
use super::{Engine, Step};
use watchdog_types::LastIds;

/// Ids of each kind that are reserved at a time. After a crash, those of a block that were not given are skipped.
pub const ID_BLOCK: u64 = 1_000;

impl Engine {
    #[must_use]
    pub fn last_ids(&self) -> LastIds {
        LastIds { session: self.sessions.last(), finding: self.findings.last(), action: self.actions.last() }
    }
}

impl Step<'_> {
    /// An earlier run gave ids up to these. The block after them is reserved already.
    pub(super) fn ids_begin_after(&mut self, last: LastIds) {
        self.raise_ids(last);
        self.engine.reserved = Some(self.engine.last_ids().plus(ID_BLOCK));
    }

    /// Later ids are above these.
    pub(super) fn raise_ids(&mut self, last: LastIds) {
        self.engine.sessions.raise(last.session);
        self.engine.findings.raise(last.finding);
        self.engine.actions.raise(last.action);
    }

    /// Reserves the next block when half of this one is used: it is written while the other half is.
    pub(super) fn reserve_ids(&mut self) {
        let last = self.engine.last_ids();
        let needed = last.plus(ID_BLOCK / 2);
        if let Some(reserved) = self.engine.reserved
            && needed.max(reserved) != reserved
        {
            let more = last.plus(ID_BLOCK);
            self.engine.reserved = Some(more);
            self.effect(Effect::Persist(PersistCommand::Ids(more)));
        }
    }
}
