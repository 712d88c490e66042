//! The terminal: raw mode and the alternate screen, and the way back from them.

use std::io::{self, BufWriter, Stdout, Write, stdout};
use std::panic;
use std::sync::Once;

use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::{Frame, Terminal};
use rustix::process::{Signal, getpgid, getpgrp, getppid, getsid, kill_current_process_group};

/// Exit status after a panic, as Rust has it.
const PANICKED: i32 = 101;

/// The terminal while this program owns it. Dropping it gives the terminal back.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
    mouse: bool,
}

impl Screen {
    /// Takes the terminal. A panic gives it back before its message is printed.
    pub(crate) fn enter() -> io::Result<Self> {
        restore_on_panic();
        take(false).inspect_err(|_| give_back())?;
        let terminal = Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(64 << 10, stdout())));
        Ok(Self { terminal: terminal.inspect_err(|_| give_back())?, mouse: false })
    }

    /// Draws one frame. What did not change is not written.
    pub(crate) fn draw(&mut self, frame: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(frame)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// The next frame is drawn from nothing. `Terminal::clear` would ask the terminal for the cursor, and the answer would go
    /// to the thread that reads keys.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        let area = self.area()?;
        self.terminal.resize(area)?;
        execute!(self.terminal.backend_mut(), Clear(ClearType::All))
    }

    pub(crate) fn area(&self) -> io::Result<ratatui::layout::Rect> {
        let size = self.terminal.size()?;
        Ok(ratatui::layout::Rect::new(0, 0, size.width, size.height))
    }

    pub(crate) fn capture_mouse(&mut self, on: bool) -> io::Result<()> {
        self.mouse = on;
        if on { execute!(stdout(), EnableMouseCapture) } else { execute!(stdout(), DisableMouseCapture) }
    }

    /// Gives the terminal back, stops this job, and takes the terminal again when the shell continues it. Returns false
    /// without a shell that could.
    pub(crate) fn suspend(&mut self) -> io::Result<bool> {
        if !can_be_continued() {
            return Ok(false);
        }
        give_back();
        // The whole job: a script that started this program must stop too.
        kill_current_process_group(Signal::STOP)?;
        take(self.mouse)?;
        self.clear()?;
        Ok(true)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen)?;
    if mouse { execute!(stdout(), EnableMouseCapture) } else { Ok(()) }
}

/// Ignores errors: the terminal may be gone.
fn give_back() {
    let mut stdout = stdout();
    let _ = execute!(stdout, EndSynchronizedUpdate, DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = stdout.flush();
    let _ = disable_raw_mode();
}

/// In an orphaned process group, as when a terminal runs this program without a shell, a stop is for ever.
fn can_be_continued() -> bool {
    let Some(parent) = getppid() else { return false };
    let same_session = getsid(Some(parent)).ok() == getsid(None).ok();
    same_session && getpgid(Some(parent)).ok() != Some(getpgrp())
}

fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            previous(info);
            // A panic of another thread must not leave a screen that nothing draws.
            std::process::exit(PANICKED);
        }));
    });
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
