//! The processes of a test: a directory, programs with unique names, and a subreaper that is the parent of everything that
//! runs there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::binaries::binaries;
use crate::proc::{ProcessKey, descendants};
use crate::{limit, poll};

/// The stage of one test. All its processes are killed when it is dropped or the test dies.
pub struct Stage {
    directory: TempDir,
    agent: String,
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    ///
    /// # Panics
    /// When it cannot be created.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("watchdog-test-").tempdir().expect("a directory");
        // Processes of other users report here too.
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o1777)).expect("permissions");
        let reports = std::fs::File::create(directory.path().join("reports")).expect("the file of reports");
        reports.set_permissions(PermissionsExt::from_mode(0o666)).expect("permissions");
        let random = directory.path().file_name().unwrap().to_string_lossy().rsplit('-').next().unwrap().to_owned();
        let log = std::fs::File::create(directory.path().join("stage.log")).expect("a log");
        let mut process = Command::new(&binaries().fixture)
            .arg("stage")
            .env("FIXTURE_DIR", directory.path())
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the stage starts");
        let answers = BufReader::new(process.stdout.take().expect("a piped output"));
        let stage = Self { directory, agent: format!("agent-{random}"), process, answers };
        stage.install(&stage.agent);
        stage.install("helper");
        stage
    }

    /// Readable and writable for every user.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The unique file name of the agent, for its profile.
    pub fn agent_name(&self) -> &str {
        &self.agent
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Installs the fixture under this name, for `spawn` in scripts.
    ///
    /// # Panics
    /// When that fails.
    pub fn install(&self, name: &str) -> PathBuf {
        let path = self.directory().join(name);
        install(&binaries().fixture, &path);
        path
    }

    /// The same as a copy, whose owner and mode can be changed; others are hard links to one file.
    ///
    /// # Panics
    /// When that fails.
    pub fn copy(&self, name: &str) -> PathBuf {
        let path = self.directory().join(name);
        copy(&binaries().fixture, &path);
        path
    }

    /// Creates a FIFO, for a script's stdin.
    ///
    /// # Panics
    /// When that fails.
    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.directory().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap_or_else(|error| panic!("fifo {}: {error}", path.display()));
        path
    }

    /// Starts the agent with this script; `AGENT` in it stands for the agent's name.
    pub fn agent(&mut self, script: &str) -> ProcessKey {
        let agent = self.agent.clone();
        self.start(&agent, script)
    }

    /// Starts an installed program with this script.
    pub fn start(&mut self, name: &str, script: &str) -> ProcessKey {
        let path = self.directory().join(name).display().to_string();
        let agent = self.agent.clone();
        let words = script.split_whitespace().map(|word| if word == "AGENT" { agent.clone() } else { word.to_owned() });
        self.execute([path].into_iter().chain(words).collect())
    }

    /// Starts any program: its path and arguments.
    ///
    /// # Panics
    /// When the subreaper has exited.
    pub fn execute(&mut self, words: Vec<String>) -> ProcessKey {
        let stdin = self.process.stdin.as_mut().expect("a piped input");
        writeln!(stdin, "{}", words.join("\u{1f}")).expect("the stage listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the stage answers");
        parse_identity(&answer).unwrap_or_else(|| panic!("no identity: {answer:?}\n{}", self.log()))
    }

    /// Releases all scripts that wait for this file.
    ///
    /// # Panics
    /// When the file cannot be created.
    pub fn mark(&self, name: &str) {
        std::fs::File::create(self.directory().join(name)).expect("a mark");
    }

    /// Waits until a script has created this file.
    ///
    /// # Panics
    /// After the time limit.
    pub fn await_mark(&self, name: &str) {
        let path = self.directory().join(name);
        let there = poll(limit(Duration::from_secs(30)), || path.exists().then_some(()));
        assert!(there.is_some(), "no process made {name}\n{}", self.log());
    }

    /// All reports of scripts by name, in order.
    pub fn reports(&self) -> BTreeMap<String, Vec<ProcessKey>> {
        let text = std::fs::read_to_string(self.directory().join("reports")).unwrap_or_default();
        let mut reports: BTreeMap<String, Vec<ProcessKey>> = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, identity)) = line.split_once(' ')
                && let Some(process) = parse_identity(identity)
            {
                reports.entry(name.to_owned()).or_default().push(process);
            }
        }
        reports
    }

    /// Waits for the report of this name.
    pub fn reported(&self, name: &str) -> ProcessKey {
        self.all_reported(name, 1)[0]
    }

    /// Waits for this many reports of one name.
    ///
    /// # Panics
    /// After the time limit.
    pub fn all_reported(&self, name: &str, count: usize) -> Vec<ProcessKey> {
        let found = poll(limit(Duration::from_secs(20)), || {
            self.reports().remove(name).filter(|processes| processes.len() >= count)
        });
        found.unwrap_or_else(|| panic!("no {count} reports of {name}, but {:?}\n{}", self.reports(), self.log()))
    }

    /// Sends a signal to a process of this stage.
    ///
    /// # Panics
    /// When it has exited.
    pub fn signal(&self, process: ProcessKey, signal: Signal) {
        assert!(self.signal_if_there(process, signal), "{process} does not run on this stage");
    }

    /// Sends a signal to a process that may have exited. Returns whether it was alive.
    ///
    /// # Panics
    /// When the signal cannot be sent for another reason.
    pub fn signal_if_there(&self, process: ProcessKey, signal: Signal) -> bool {
        let pid = Pid::from_raw(i32::try_from(process.pid).unwrap()).expect("a pid");
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return false,
            opened => opened.unwrap_or_else(|error| panic!("pidfd of {process}: {error}")),
        };
        // The pidfd is opened before this check, so the signal cannot reach another process.
        if !descendants(self.pid()).contains(&process) {
            return false;
        }
        match pidfd_send_signal(&handle, signal) {
            Err(Errno::SRCH) => false,
            sent => sent.map(|()| true).unwrap_or_else(|error| panic!("signal to {process}: {error}")),
        }
    }

    /// SIGKILL.
    pub fn kill(&self, process: ProcessKey) {
        self.signal(process, Signal::KILL);
    }

    /// Output of the programs.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory().join("stage.log")).unwrap_or_default()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The subreaper kills all processes when its stdin ends.
        drop(self.process.stdin.take());
        let exited = poll(limit(Duration::from_secs(30)), || self.process.try_wait().ok().flatten());
        if exited.is_none() {
            eprintln!("the stage {} did not end", self.process.id());
        }
    }
}

/// Installs a program under another name, executable for every user.
pub(crate) fn install(program: &Path, path: &Path) {
    if std::fs::hard_link(program, path).is_err() {
        copy(program, path);
    }
}

/// Copies a program in a process of its own: a test that holds the copy open while another thread forks could not execute it.
///
/// # Panics
/// When that fails.
pub fn copy(program: &Path, path: &Path) {
    let copied = Command::new(&binaries().fixture).arg("copy").args([program, path]).status().expect("the fixture");
    assert!(copied.success(), "cannot copy {} to {}", program.display(), path.display());
}

fn parse_identity(text: &str) -> Option<ProcessKey> {
    let (pid, start_time) = text.trim().split_once(' ')?;
    Some(ProcessKey { pid: pid.parse().ok()?, start_time: start_time.parse().ok()? })
}
