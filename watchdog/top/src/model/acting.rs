//! Actions: the question, the consent, and what came of it.

use crossterm::event::KeyCode;
use watchdog_api::client::ConfirmedAction;
use watchdog_api::{ReclaimRunState, Subject};
use watchdog_render::receipt;

use super::{
    Focus, Overlay, OverlayContent, PlainAction, RowId, ScreenSource, TopMessage, TopModel, TopRequest, subject_name,
};

impl TopModel {
    /// The process or session that is selected in the focused pane.
    fn chosen(&self) -> Option<Subject> {
        if self.focus == Focus::Findings {
            let finding = self.observation.as_ref()?.findings.get(self.finding)?;
            return Some(match finding.session {
                // A group of orphans is reaped by its session.
                Some(session) => Subject::Session(session),
                None => Subject::Pid(finding.pid),
            });
        }
        Some(match self.selected? {
            RowId::Session(id) => Subject::Session(id),
            RowId::Process { pid, .. } => Subject::Pid(pid),
        })
    }

    /// The session that is selected, or that of the selected process or finding.
    fn chosen_session(&self) -> Option<u64> {
        match self.focus {
            Focus::Findings => self.observation.as_ref()?.findings.get(self.finding)?.session,
            Focus::Table => Some(self.selected?.session()),
        }
    }

    pub(super) fn act(&mut self, key: KeyCode) -> Vec<TopRequest> {
        if !matches!(self.source, ScreenSource::Live) {
            self.notice = Some("actions are for the present only: press h".to_owned());
            return Vec::new();
        }
        let subject = self.chosen();
        match (key, subject) {
            (KeyCode::Char('R'), _) => self.plan(ConfirmedAction::Reap(Vec::new())),
            (KeyCode::Char('T'), _) => self.ask(PlainAction::Thaw(None)),
            (KeyCode::Char('O'), _) => self.plan_page_out(None),
            (_, None) => {
                self.notice = Some("nothing is selected".to_owned());
                Vec::new()
            }
            (KeyCode::Enter | KeyCode::Char('x'), Some(subject)) => {
                self.overlay = Some(Overlay::new(OverlayContent::Busy(format!("explain {}", subject_name(subject)))));
                vec![TopRequest::Explain(subject)]
            }
            (KeyCode::Char('r'), Some(subject)) => self.plan(ConfirmedAction::Reap(vec![subject])),
            (KeyCode::Char('E'), Some(subject)) => self.plan(ConfirmedAction::EndKept(subject)),
            (KeyCode::Char('e'), Some(Subject::Session(id))) => self.plan(ConfirmedAction::End(id)),
            (KeyCode::Char('e'), Some(Subject::Pid(_))) => {
                let reason = "end is for a session: select it; r reaps an orphan, E ends a kept process";
                self.notice = Some(reason.to_owned());
                Vec::new()
            }
            (KeyCode::Char('o'), Some(_)) => match self.chosen_session() {
                Some(id) => self.plan_page_out(Some(id)),
                None => {
                    self.notice = Some("page-out is for a session, and the finding belongs to none".to_owned());
                    Vec::new()
                }
            },
            (KeyCode::Char('a'), Some(subject)) => self.ask(PlainAction::Adopt(subject)),
            (KeyCode::Char('u'), Some(subject)) => self.ask(PlainAction::Unadopt(subject)),
            (KeyCode::Char('t'), Some(subject)) => self.ask(PlainAction::Thaw(Some(subject))),
            _ => Vec::new(),
        }
    }

    fn plan(&mut self, action: ConfirmedAction) -> Vec<TopRequest> {
        self.overlay = Some(Overlay::new(OverlayContent::Busy("asking the daemon for the targets".to_owned())));
        vec![TopRequest::Plan(action)]
    }

    fn plan_page_out(&mut self, session: Option<u64>) -> Vec<TopRequest> {
        self.overlay = Some(Overlay::new(OverlayContent::Busy("asking the daemon what can be paged out".to_owned())));
        vec![TopRequest::PlanPageOut(session)]
    }

    fn ask(&mut self, action: PlainAction) -> Vec<TopRequest> {
        self.overlay = Some(Overlay::new(OverlayContent::Question(action)));
        Vec::new()
    }

    /// Takes the user's yes.
    pub(super) fn confirm(&mut self) -> Vec<TopRequest> {
        let Some(overlay) = self.overlay.take() else { return Vec::new() };
        let request = match overlay.content {
            OverlayContent::Plan(action, planned) => TopRequest::Perform(action, planned.shown()),
            OverlayContent::Question(action) => TopRequest::PerformPlain(action),
            OverlayContent::PageOut(run) => TopRequest::PageOut(run.session),
            other => {
                self.overlay = Some(Overlay::new(other));
                return Vec::new();
            }
        };
        self.overlay = Some(Overlay::new(OverlayContent::Busy("waiting for the daemon".to_owned())));
        vec![request]
    }

    /// Shows the answer, unless the user closed the window that waits for it. A receipt is shown in any case.
    pub(super) fn answered(&mut self, message: TopMessage) {
        let waits = matches!(&self.overlay, Some(Overlay { content: OverlayContent::Busy(_), .. }));
        let (content, wanted) = match message {
            TopMessage::Planned(action, Ok(planned)) => (OverlayContent::Plan(action, planned), waits),
            TopMessage::Explained(pid, Ok(explanation)) => (OverlayContent::Explanation(pid, explanation), waits),
            TopMessage::Started(planned) => (OverlayContent::Receipts(planned), waits),
            TopMessage::Acted(Ok(planned)) => (OverlayContent::Receipts(planned), self.awaits_receipt()),
            TopMessage::Answered(Ok(text)) => (OverlayContent::Message("done".to_owned(), text), waits),
            TopMessage::PagedOut(Ok(run)) => {
                let wanted = match run.state {
                    ReclaimRunState::Planned => waits,
                    ReclaimRunState::Running => waits || self.shows_page_out(),
                    ReclaimRunState::Done => self.awaits_receipt(),
                };
                (OverlayContent::PageOut(run), wanted)
            }
            TopMessage::Planned(_, Err(why))
            | TopMessage::PagedOut(Err(why))
            | TopMessage::Explained(_, Err(why))
            | TopMessage::Acted(Err(why))
            | TopMessage::Answered(Err(why)) => (OverlayContent::Message("failed".to_owned(), why), true),
            _ => return,
        };
        if wanted {
            self.overlay = Some(Overlay::new(content));
            return;
        }
        match content {
            OverlayContent::Receipts(planned) => {
                let results: Vec<String> = planned.actions.iter().map(receipt::line).collect();
                self.notice = Some(results.join("; "));
            }
            OverlayContent::PageOut(run) if run.state == ReclaimRunState::Done => self.notice = Some(run.to_string()),
            _ => {}
        }
    }

    pub(super) fn shows_page_out(&self) -> bool {
        let content = self.overlay.as_ref().map(|overlay| &overlay.content);
        matches!(content, Some(OverlayContent::PageOut(run)) if run.state == ReclaimRunState::Running)
    }

    fn awaits_receipt(&self) -> bool {
        self.overlay
            .as_ref()
            .is_none_or(|overlay| matches!(overlay.content, OverlayContent::Busy(_) | OverlayContent::Receipts(_)))
            || self.shows_page_out()
    }
}
