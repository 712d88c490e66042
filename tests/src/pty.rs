//! A program in a terminal of its own, where there is no tmux.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, ExitStatus};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use vt100::Parser;

use crate::{limit, poll};

/// Killed when it is dropped.
pub struct PtyProgram {
    terminal: File,
    process: Child,
    screen: Arc<Mutex<Parser>>,
}

impl PtyProgram {
    ///
    /// # Panics
    /// When there is no terminal, or the program does not start.
    #[must_use]
    pub fn start(command: &mut Command, columns: u16, lines: u16) -> Self {
        let [terminal, program_side] = open(columns, lines);
        let same = || program_side.try_clone().expect("a descriptor");
        command.env("TERM", "xterm-256color").stdin(same()).stdout(same()).stderr(same());
        let process = command.spawn().expect("the program starts");
        let terminal = File::from(terminal);
        let [lines, columns] = [lines, columns].map(|cells| NonZero::new(cells).expect("a size"));
        let screen = Arc::new(Mutex::new(Parser::new(lines, columns, 0)));
        let (mut output, written) = (terminal.try_clone().expect("a descriptor"), screen.clone());
        // Ends with an error when the program has closed its side.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                written.lock().unwrap().process(&buffer[..length]);
            }
        });
        Self { terminal, process, screen }
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The text on the screen.
    ///
    /// # Panics
    /// When the terminal's thread has.
    pub fn screen(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen shows this.
    ///
    /// # Panics
    /// After 15 s, with what it shows.
    pub fn until(&self, what: &str, shown: impl Fn(&str) -> bool) -> String {
        shown_within(limit(Duration::from_secs(15)), what, || self.screen(), shown)
    }

    /// Types this, and waits until the program has exited.
    ///
    /// # Panics
    /// When it has not after 5 s.
    #[must_use]
    pub fn ends_upon(&mut self, keys: &str) -> ExitStatus {
        self.terminal.write_all(keys.as_bytes()).expect("a terminal");
        let exited = poll(limit(Duration::from_secs(5)), || self.process.try_wait().expect("our child"));
        exited.unwrap_or_else(|| panic!("the program runs on:\n{}", self.screen()))
    }
}

impl Drop for PtyProgram {
    fn drop(&mut self) {
        // An error means that it has exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The terminal's side and that of programs in it.
fn open(columns: u16, lines: u16) -> [OwnedFd; 2] {
    let size = libc::winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut terminal, mut program_side) = (-1, -1);
    // SAFETY: both descriptors and the size are valid during the call; null means no name, and the usual modes.
    let done = unsafe { libc::openpty(&raw mut terminal, &raw mut program_side, null_mut(), null(), &raw const size) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    [terminal, program_side].map(|descriptor| {
        // SAFETY: the call opened it, and nothing else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        fcntl_setfd(&descriptor, FdFlags::CLOEXEC).expect("an open descriptor");
        descriptor
    })
}

/// Waits until the screen shows this; panics with what it shows otherwise.
pub(crate) fn shown_within(
    within: Duration,
    what: &str,
    screen: impl Fn() -> String,
    shown: impl Fn(&str) -> bool,
) -> String {
    let mut last = String::new();
    let found = poll(within, || {
        last = screen();
        shown(&last).then(|| last.clone())
    });
    found.unwrap_or_else(|| panic!("the screen does not show {what}:\n{last}"))
}
