//! What each key does.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use super::time_travel::TimeStep;
use super::{Focus, Overlay, OverlayContent, Prompt, PromptPurpose, ScreenSource, TopModel, TopRequest};

/// A prompt takes no more.
const MAX_PROMPT: usize = 100;
/// Rows that a turn of the wheel moves.
const WHEEL: isize = 3;

/// Keys and their meaning, for the help.
pub(crate) const HELP: [(&str, &str); 24] = [
    ("↑ ↓ PgUp PgDn Home End", "select a row (also j k g G)"),
    ("space", "fold or unfold; z all sessions"),
    ("← →", "fold, to the parent; unfold (live)"),
    ("s S", "sort by the next column; reverse"),
    ("f", "filter by session, command, pid, kind, state"),
    ("/ n N", "search; next and previous match"),
    ("Tab", "between sessions and findings"),
    ("Enter x", "explain the row or the finding"),
    ("r R", "reap orphans of the row; all orphans"),
    ("e E", "end the session; with kept processes"),
    ("a u", "adopt; remove that mark"),
    ("t T", "thaw the row; all that is held"),
    ("o O", "page out the session; all idle (reclaim)"),
    ("F", "the fleet, if this host belongs to one"),
    ("h", "history, and back; Esc goes back too"),
    ("@", "go to a time: yesterday 03:00, 2h"),
    ("← → [ ] { }", "history: 1 or 10 records, 10 minutes"),
    ("p", "pause; a recording: play and pause"),
    ("+ -", "speed of a recording"),
    ("m", "mouse on or off (wheel and click)"),
    ("Ctrl-L", "redraw"),
    ("Ctrl-Z", "suspend; fg resumes"),
    ("?", "this help"),
    ("q Ctrl-C", "quit"),
];

impl TopModel {
    pub(super) fn key(&mut self, key: KeyEvent) -> Vec<TopRequest> {
        // Esc and a key in quick succession arrive as Alt and the key, which was not meant.
        if key.kind == KeyEventKind::Release || key.modifiers.contains(KeyModifiers::ALT) {
            return Vec::new();
        }
        self.notice = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => vec![TopRequest::Quit],
                KeyCode::Char('z') => vec![TopRequest::Suspend],
                KeyCode::Char('u') => {
                    if let Some(prompt) = &mut self.prompt {
                        prompt.text.clear();
                    }
                    Vec::new()
                }
                _ => Vec::new(),
            };
        }
        if self.prompt.is_some() {
            self.prompt_key(key.code)
        } else if self.overlay.is_some() {
            self.overlay_key(key.code)
        } else {
            self.table_key(key.code, key.modifiers.contains(KeyModifiers::SHIFT))
        }
    }

    fn table_key(&mut self, code: KeyCode, shift: bool) -> Vec<TopRequest> {
        let page = isize::try_from(self.page).unwrap_or(isize::MAX).max(2) - 1;
        match code {
            KeyCode::Char('q') => return vec![TopRequest::Quit],
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-page),
            KeyCode::PageDown => self.move_by(page),
            KeyCode::Home | KeyCode::Char('g') => self.move_by(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.move_by(isize::MAX),
            KeyCode::Left | KeyCode::Right if self.travels() => {
                let step = if shift { TimeStep::Ten } else { TimeStep::Record };
                return self.travel(step, code == KeyCode::Right);
            }
            KeyCode::Char('[' | ']') => return self.travel(TimeStep::Ten, code == KeyCode::Char(']')),
            KeyCode::Char('{' | '}') => return self.travel(TimeStep::Far, code == KeyCode::Char('}')),
            KeyCode::Left => self.fold_or_parent(),
            KeyCode::Right => self.set_folded(false),
            KeyCode::Char(' ') => self.toggle_fold(),
            KeyCode::Char('z') => self.toggle_all_folds(),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.rearrange();
            }
            KeyCode::Char('S') => {
                self.reversed = !self.reversed;
                self.rearrange();
            }
            KeyCode::Char('f' | '\\') => self.ask_for(PromptPurpose::Filter),
            KeyCode::Char('/') => self.ask_for(PromptPurpose::Search),
            KeyCode::Char('@') if !matches!(self.source, ScreenSource::Replay(_)) => {
                self.ask_for(PromptPurpose::Moment)
            }
            KeyCode::Char('n') => self.find_next(true),
            KeyCode::Char('N') => self.find_next(false),
            KeyCode::Tab | KeyCode::BackTab => self.switch_focus(),
            KeyCode::Char('h') => return self.enter_history(),
            KeyCode::Esc => self.escape(),
            KeyCode::Char('p') => return self.pause(),
            KeyCode::Char('+' | '=' | '-') => {
                if let ScreenSource::Replay(playback) = &mut self.source {
                    playback.change_speed(code != KeyCode::Char('-'));
                }
            }
            KeyCode::Char('m') => {
                self.mouse = !self.mouse;
                return vec![TopRequest::CaptureMouse(self.mouse)];
            }
            KeyCode::Char('?') | KeyCode::F(1) => self.overlay = Some(Overlay::new(OverlayContent::Help)),
            KeyCode::Enter | KeyCode::Char('x' | 'r' | 'R' | 'e' | 'E' | 'a' | 'u' | 't' | 'T' | 'o' | 'O') => {
                return self.act(code);
            }
            KeyCode::Char('F') => self.show_fleet(),
            _ => {}
        }
        Vec::new()
    }

    /// Undoes one thing: the filter, the look into the past, or the search.
    fn escape(&mut self) {
        if !self.filter.is_empty() {
            self.set_filter("");
        } else if matches!(self.source, ScreenSource::History(_)) {
            self.leave_history();
        } else {
            self.search_for("");
        }
    }

    fn show_fleet(&mut self) {
        let in_fleet = self.observation.as_ref().is_some_and(|observation| observation.in_fleet);
        if !matches!(self.source, ScreenSource::Live) {
            self.notice = Some("the fleet is shown for the present only: press h".to_owned());
        } else if in_fleet {
            self.overlay = Some(Overlay::new(OverlayContent::Fleet));
        } else {
            self.notice = Some("this host belongs to no fleet: [fleet] store is not set".to_owned());
        }
    }

    fn pause(&mut self) -> Vec<TopRequest> {
        match &mut self.source {
            ScreenSource::Replay(playback) => {
                if playback.toggle() {
                    return vec![TopRequest::ReplayTo(playback.position)];
                }
            }
            ScreenSource::Live => self.paused = !self.paused,
            ScreenSource::History(_) => {}
        }
        Vec::new()
    }

    fn switch_focus(&mut self) {
        let findings = self.observation.as_ref().is_some_and(|observation| !observation.findings.is_empty());
        self.focus = match self.focus {
            Focus::Table if findings => Focus::Findings,
            Focus::Table | Focus::Findings => Focus::Table,
        };
    }

    fn ask_for(&mut self, purpose: PromptPurpose) {
        let text = if purpose == PromptPurpose::Filter { self.filter.clone() } else { String::new() };
        self.prompt = Some(Prompt { purpose, text });
    }

    fn prompt_key(&mut self, code: KeyCode) -> Vec<TopRequest> {
        let Some(prompt) = &mut self.prompt else { return Vec::new() };
        match code {
            KeyCode::Char(c) if prompt.text.len() < MAX_PROMPT => prompt.text.push(c),
            KeyCode::Backspace => drop(prompt.text.pop()),
            KeyCode::Esc => {
                let filters = prompt.purpose == PromptPurpose::Filter;
                self.prompt = None;
                if filters {
                    self.set_filter("");
                }
                return Vec::new();
            }
            KeyCode::Enter => {
                let Prompt { purpose, text } = prompt.clone();
                self.prompt = None;
                return match purpose {
                    PromptPurpose::Moment => self.go_to_text(&text),
                    PromptPurpose::Search => {
                        self.search_for(&text);
                        Vec::new()
                    }
                    PromptPurpose::Filter => Vec::new(),
                };
            }
            _ => return Vec::new(),
        }
        if prompt.purpose == PromptPurpose::Filter {
            let text = prompt.text.clone();
            self.set_filter(&text);
        }
        Vec::new()
    }

    fn overlay_key(&mut self, code: KeyCode) -> Vec<TopRequest> {
        let Some(overlay) = &mut self.overlay else { return Vec::new() };
        let page = self.page.max(2) - 1;
        match code {
            KeyCode::Up | KeyCode::Char('k') => overlay.scroll = overlay.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => overlay.scroll = overlay.scroll.saturating_add(1),
            KeyCode::PageUp => overlay.scroll = overlay.scroll.saturating_sub(page),
            KeyCode::PageDown => overlay.scroll = overlay.scroll.saturating_add(page),
            KeyCode::Home => overlay.scroll = 0,
            // As far as there are lines.
            KeyCode::End => overlay.scroll = usize::MAX,
            KeyCode::Char('y' | 'Y') if overlay.is_question() => return self.confirm(),
            // Enter is no consent: it may have been meant for what was there before.
            KeyCode::Enter if overlay.is_question() => {}
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | 'n' | 'N' | '?' | 'x' | 'F') => self.overlay = None,
            _ => {}
        }
        Vec::new()
    }

    pub(super) fn mouse(&mut self, event: MouseEvent) -> Vec<TopRequest> {
        match event.kind {
            MouseEventKind::ScrollUp | MouseEventKind::ScrollDown => {
                let down = event.kind == MouseEventKind::ScrollDown;
                match &mut self.overlay {
                    Some(overlay) if down => overlay.scroll = overlay.scroll.saturating_add(WHEEL.unsigned_abs()),
                    Some(overlay) => overlay.scroll = overlay.scroll.saturating_sub(WHEEL.unsigned_abs()),
                    None => self.move_by(if down { WHEEL } else { -WHEEL }),
                }
            }
            MouseEventKind::Down(MouseButton::Left) if self.overlay.is_none() => self.click(event.row),
            _ => {}
        }
        Vec::new()
    }
}
