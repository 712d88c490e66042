//! A real terminal: tmux with a server of its own.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::limit;
use crate::pty::shown_within;

/// A tmux server with one window. It and everything in it is killed when it is dropped.
pub struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    /// A window with a shell, without prompt.
    ///
    /// # Panics
    /// When tmux is not installed.
    #[must_use]
    pub fn new(directory: &Path, columns: u16, lines: u16) -> Self {
        // The server of an earlier window may still be exiting.
        static WINDOWS: AtomicU32 = AtomicU32::new(0);
        let number = WINDOWS.fetch_add(1, Ordering::Relaxed);
        let tmux = Self { socket: directory.join(format!("tmux-{number}.sock")) };
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let shell = "env PS1= ENV= TERM=screen-256color LC_ALL=C.UTF-8 sh -i";
        let _ = tmux.run(&["-f", "/dev/null", "-u", "new-session", "-d", "-x", &columns, "-y", &lines, shell]);
        tmux
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(arguments).env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        // A key press that interrupts the caller does not interrupt it.
        command.process_group(0);
        let output = command.output().expect("tmux is installed");
        assert!(output.status.success(), "tmux {arguments:?}: {output:?}");
        output
    }

    /// Runs a command in a further session.
    pub fn new_session(&self, command: &str) {
        let _ = self.run(&["new-session", "-d", command]);
    }

    /// What a shell in another terminal runs to attach to this server.
    pub fn attach_command(&self) -> String {
        format!("env -u TMUX tmux -S {} attach", self.socket.display())
    }

    /// Whether a terminal is attached.
    pub fn has_clients(&self) -> bool {
        !self.run(&["list-clients"]).stdout.is_empty()
    }

    /// The pid of the server.
    ///
    /// # Panics
    /// When tmux has exited.
    pub fn server_pid(&self) -> u32 {
        self.number("#{pid}")
    }

    /// Types a line into the window.
    pub fn type_line(&self, text: &str) {
        let _ = self.run(&["send-keys", "-l", text]);
        self.keys(&["Enter"]);
    }

    /// Presses keys, by the names that tmux has for them.
    pub fn keys(&self, keys: &[&str]) {
        let _ = self.run(&[&["send-keys"], keys].concat());
    }

    pub fn resize(&self, columns: u16, lines: u16) {
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let _ = self.run(&["resize-window", "-x", &columns, "-y", &lines]);
    }

    /// The text in the window.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.run(&["capture-pane", "-p"]).stdout).into_owned()
    }

    /// The pid of the shell in the window.
    ///
    /// # Panics
    /// When tmux has exited.
    pub fn shell_pid(&self) -> u32 {
        self.number("#{pane_pid}")
    }

    fn number(&self, format: &str) -> u32 {
        let output = self.run(&["display-message", "-p", format]);
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a pid")
    }

    /// Whether a program has the alternate screen.
    pub fn has_alternate_screen(&self) -> bool {
        self.run(&["display-message", "-p", "#{alternate_on}"]).stdout.starts_with(b"1")
    }

    /// Waits until the window shows this.
    ///
    /// # Panics
    /// After 15 s, with what it shows.
    pub fn until(&self, what: &str, shown: impl Fn(&str) -> bool) -> String {
        shown_within(limit(Duration::from_secs(15)), what, || self.screen(), shown)
    }

    /// Waits until the window contains this text.
    ///
    /// # Panics
    /// As [`Self::until`].
    pub fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        // An error means that it has exited.
        let _ = command.arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}
