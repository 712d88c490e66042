//! Colours and their meaning. Without colours only bold, faint and reverse remain.

use ratatui::style::{Color, Modifier, Style};
use watchdog_api::{ProcessState, SessionState, Severity};

/// How things look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    pub(crate) colour: bool,
}

impl Palette {
    fn colour(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn good(self) -> Style {
        self.colour(Color::Green)
    }

    pub(super) fn warn(self) -> Style {
        self.colour(Color::Yellow)
    }

    pub(super) fn bad(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    pub(super) fn chart(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub(super) fn faint(self) -> Style {
        if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    pub(super) const fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// In the terminal's own colours, since reversed colours are hard to read.
    pub(super) const fn selected(self) -> Style {
        Style::reset().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn severity(self, severity: Severity) -> Style {
        match severity {
            Severity::Info => Style::new(),
            Severity::Warning => self.warn(),
            Severity::Critical => self.bad(),
        }
    }

    pub(super) fn process(self, state: ProcessState) -> Style {
        match state {
            ProcessState::Running => self.faint(),
            ProcessState::Orphaned => self.bad(),
            ProcessState::Detached | ProcessState::Stale => self.warn(),
            ProcessState::Zombie | ProcessState::Kept => self.faint(),
        }
    }

    pub(super) fn session(self, state: SessionState) -> Style {
        match state {
            SessionState::Running => self.good(),
            SessionState::Orphaned => self.bad(),
            SessionState::Ended => self.faint(),
        }
    }
}
