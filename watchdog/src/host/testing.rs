//! Processes that tests start, know and end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::cgroup::SessionCgroups;
use super::limits::Cgroups;
use super::process::ProcessDir;
use crate::engine::id::{Pid, ProcessId};

/// A child of the test; killed and waited for when dropped.
pub(crate) struct Subject {
    child: Child,
    /// Who it is.
    pub(crate) process: ProcessId,
}

impl Subject {
    /// Starts a command.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.spawn().unwrap();
        let process = identity(Pid(child.id()));
        Self { child, process }
    }

    /// Starts python with this program, and waits until it prints `ready` and a newline.
    pub(crate) fn python(program: &str) -> Self {
        Self::python_with(program, &mut Command::new("python3"))
    }

    /// The same with a prepared command, which must end up as python.
    pub(crate) fn python_with(program: &str, command: &mut Command) -> Self {
        let mut subject = Self::spawn(command.arg("-c").arg(program).stdout(Stdio::piped()));
        assert_eq!(subject.line(), "ready");
        subject
    }

    /// The next line that it writes.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// The child's handle.
    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that looks like a hierarchy; the files of a new cgroup are the kernel's to make, so tests make them.
pub(crate) struct Hierarchy(tempfile::TempDir);

impl Hierarchy {
    /// Its root has these controllers.
    pub(crate) fn new(controllers: &str) -> Self {
        let hierarchy = Self(tempfile::tempdir().unwrap());
        hierarchy.file("/cgroup.controllers", controllers);
        hierarchy.file("/cgroup.subtree_control", "");
        hierarchy
    }

    /// Where a file of it is.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    /// Makes a file.
    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// What stands in a file.
    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// What works on it.
    pub(crate) fn cgroups(&self) -> SessionCgroups {
        SessionCgroups::new(Cgroups::at(self.0.path()))
    }
}

/// Who has this pid now.
pub(crate) fn identity(pid: Pid) -> ProcessId {
    ProcessDir::open(pid).unwrap().unwrap().stat(&mut Vec::new()).unwrap().unwrap().process
}

/// Waits until something holds; panics after twenty seconds: machines that run tests are busy.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not within twenty seconds: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
