//! Which rows hide what is below them.

use std::collections::HashSet;

use super::row_id::RowId;

/// Sessions are folded or not by default, processes are not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folds {
    sessions_folded: bool,
    /// Rows that differ from the default.
    toggled: HashSet<RowId>,
}

impl Folds {
    pub(crate) fn is_folded(&self, id: RowId) -> bool {
        let default = matches!(id, RowId::Session(_)) && self.sessions_folded;
        default ^ self.toggled.contains(&id)
    }

    pub(crate) fn set(&mut self, id: RowId, folded: bool) {
        if self.is_folded(id) != folded && !self.toggled.remove(&id) {
            self.toggled.insert(id);
        }
    }

    /// Folds or unfolds all sessions, and unfolds all processes.
    pub(crate) fn set_all(&mut self, folded: bool) {
        self.sessions_folded = folded;
        self.toggled.clear();
    }

    pub(crate) const fn default_folded(&self) -> bool {
        self.sessions_folded
    }
}
