//! Selecting, folding, filtering and searching rows.

use super::rows::{process_matches, session_matches};
use super::{Focus, RowId, TopModel};

impl TopModel {
    /// Where the table is on the screen, before each drawing.
    pub(crate) fn set_view(&mut self, rows: usize, top: u16) {
        (self.page, self.table_top) = (rows.max(1), top);
        self.scroll_to_selected();
    }

    /// The window over the table does not scroll beyond its end.
    pub(crate) fn limit_scroll(&mut self, hidden: usize) {
        if let Some(overlay) = &mut self.overlay {
            overlay.scroll = overlay.scroll.min(hidden);
        }
    }

    /// The index of the selected row.
    pub(crate) fn place(&self) -> Option<usize> {
        self.rows.iter().position(|row| Some(row.id) == self.selected)
    }

    pub(super) fn scroll_to_selected(&mut self) {
        let place = self.place().unwrap_or_default();
        self.offset = self.offset.min(place).max((place + 1).saturating_sub(self.page));
        self.offset = self.offset.min(self.rows.len().saturating_sub(self.page));
    }

    fn select(&mut self, place: usize) {
        self.selected = self.rows.get(place).map(|row| row.id);
        self.scroll_to_selected();
    }

    pub(super) fn move_by(&mut self, rows: isize) {
        if self.focus == Focus::Findings {
            let findings = self.observation.as_ref().map_or(0, |observation| observation.findings.len());
            self.finding = self.finding.saturating_add_signed(rows).min(findings.saturating_sub(1));
            return;
        }
        let place = self.place().unwrap_or_default().saturating_add_signed(rows);
        self.select(place.min(self.rows.len().saturating_sub(1)));
    }

    pub(super) fn click(&mut self, line: u16) {
        let Some(line) = line.checked_sub(self.table_top).map(usize::from).filter(|line| *line < self.page) else {
            return;
        };
        let place = self.offset + line;
        if let Some(row) = self.rows.get(place) {
            self.focus = Focus::Table;
            if Some(row.id) == self.selected {
                self.toggle_fold();
            } else {
                self.select(place);
            }
        }
    }

    pub(super) fn toggle_fold(&mut self) {
        if let Some(id) = self.selected {
            self.set_folded(!self.folds.is_folded(id));
        }
    }

    pub(super) fn set_folded(&mut self, folded: bool) {
        if let Some(id) = self.selected {
            self.folds.set(id, folded);
            self.rearrange();
        }
    }

    pub(super) fn toggle_all_folds(&mut self) {
        let selected = self.selected.map(|id| RowId::Session(id.session()));
        self.folds.set_all(!self.folds.default_folded());
        self.selected = selected;
        self.rearrange();
    }

    /// Folds the selected row; one that is folded or a leaf passes the selection to its parent.
    pub(super) fn fold_or_parent(&mut self) {
        let Some(place) = self.place() else { return };
        let row = &self.rows[place];
        let level = row.branch.chars().count();
        let below = self.rows.get(place + 1).is_some_and(|next| next.branch.chars().count() > level);
        if below {
            self.set_folded(true);
        } else if let Some(parent) = self.rows[..place].iter().rposition(|above| above.branch.chars().count() < level) {
            self.select(parent);
        }
    }

    pub(super) fn set_filter(&mut self, text: &str) {
        self.filter = text.to_lowercase();
        self.rearrange();
    }

    pub(super) fn search_for(&mut self, text: &str) {
        self.search = text.to_lowercase();
        self.find_next(true);
    }

    /// Selects the next match, also in folded sessions, from the selected row on and around.
    pub(super) fn find_next(&mut self, forward: bool) {
        if self.search.is_empty() {
            return;
        }
        let matches = self.matches();
        let here = self.selected.and_then(|id| matches.iter().position(|(found, ..)| *found == id));
        let candidates = matches.len();
        let start = here.unwrap_or_default();
        let found = (1..=candidates).find_map(|step| {
            let step = if forward { start + step } else { start + candidates * 2 - step };
            let (id, matching) = matches[step % candidates];
            matching.then_some(id)
        });
        let Some(id) = found else {
            self.notice = Some(format!("no match: {}", self.search));
            return;
        };
        if let RowId::Process { session, .. } = id {
            self.folds.set(RowId::Session(session), false);
            self.unfold_ancestors(id);
        }
        self.selected = Some(id);
        self.rearrange();
    }

    /// All sessions and processes in the order of the rows, hidden ones after their session, and whether they match.
    fn matches(&self) -> Vec<(RowId, bool)> {
        let mut all = Vec::new();
        let mut seen = std::collections::HashSet::new();
        let Some(observation) = &self.observation else { return all };
        for row in &self.rows {
            let session = &observation.tree.sessions[row.session];
            match row.process.and_then(|index| session.processes.get(index)) {
                Some(process) => {
                    if seen.insert(row.id) {
                        all.push((row.id, process_matches(process, &self.search)));
                    }
                }
                None => {
                    seen.insert(row.id);
                    all.push((row.id, session_matches(session, &self.search)));
                    if self.folds.is_folded(row.id) {
                        let hidden = session.processes.iter();
                        all.extend(
                            hidden.map(|process| {
                                (RowId::of(session.id, process), process_matches(process, &self.search))
                            }),
                        );
                    }
                }
            }
        }
        all
    }

    /// Unfolds what hides a process: everything folded in its session.
    fn unfold_ancestors(&mut self, id: RowId) {
        let Some(observation) = &self.observation else { return };
        let sessions = observation.tree.sessions.iter().filter(|session| session.id == id.session());
        let all: Vec<RowId> = sessions
            .flat_map(|session| session.processes.iter().map(|process| RowId::of(session.id, process)))
            .collect();
        for process in all.into_iter().filter(|process| *process != id) {
            self.folds.set(process, false);
        }
    }
}
