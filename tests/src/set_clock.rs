//! A wall clock of one process's own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = include_str!("set_clock.c");

/// A wall clock that can be set while its process runs.
pub struct SetClock {
    directory: tempfile::TempDir,
}

impl SetClock {
    /// The clock of the machine, until it is set.
    ///
    /// # Panics
    /// Without a C compiler.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("watchdog-clock-").tempdir().expect("a directory");
        let (source, library) = (directory.path().join("set_clock.c"), Self::library(&directory));
        fs::write(&source, SOURCE).expect("a file");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(source);
        assert!(compiler.status().expect("a C compiler").success());
        let clock = Self { directory };
        clock.set(0);
        clock
    }

    /// So many seconds ahead of the machine's.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, ahead: i64) {
        // Replaced in place, since the process has it open; padded, so that no digit remains.
        fs::write(self.directory.path().join("ahead"), format!("{ahead:<16}")).expect("a file");
    }

    /// Gives a program this clock.
    pub fn give(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", Self::library(&self.directory))
            .env("WATCHDOG_CLOCK", self.directory.path().join("ahead"));
    }

    fn library(directory: &tempfile::TempDir) -> PathBuf {
        directory.path().join("set_clock.so")
    }
}

impl Default for SetClock {
    fn default() -> Self {
        Self::new()
    }
}
