//! A script that only gated sessions may execute.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use tempfile::TempDir;
use watchdog_host::testing::spawn;
use watchdog_types::{Attempt, Denied, KernelEvent, Pid};

use super::scene::KernelScene;

/// A script that logs each of its starts.
pub(super) struct DeniedScript {
    pub(super) dir: TempDir,
    pub(super) path: PathBuf,
    pub(super) name: String,
    log: PathBuf,
}

impl DeniedScript {
    /// With a name that is unique on this host.
    pub(super) fn named(stem: &str) -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join(unique(stem));
        Self::in_dir(dir, path)
    }

    pub(super) fn at(path: &Path) -> Self {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        Self::in_dir(tempfile::tempdir().expect("tempdir"), path.to_owned())
    }

    fn in_dir(dir: TempDir, path: PathBuf) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let log = dir.path().join("log");
        std::fs::write(&path, format!("#!/bin/sh\necho >> {}\n", log.display())).expect("write");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        Self { dir, path, name, log }
    }

    pub(super) fn names(&self) -> Vec<Vec<u8>> {
        vec![self.name.clone().into_bytes()]
    }

    pub(super) fn run(&self) -> ExitStatus {
        status(&mut Command::new(&self.path)).expect("it starts")
    }

    /// The number of times its first line ran.
    pub(super) fn starts(&self) -> usize {
        std::fs::read_to_string(&self.log).map_or(0, |log| log.lines().count())
    }

    /// Its exec fails, or it is killed before its first instruction; either way that is reported.
    pub(super) fn assert_does_not_start(&self, scene: &mut KernelScene) {
        // Without LSM programs, execs are denied only while a daemon runs.
        scene.tracer.save_heartbeat().expect("heartbeat");
        let before = self.starts();
        let refuses = scene.tracer.features().lsm.is_ok();
        assert_eq!(scene.tracer.attached_refusals().1, refuses);
        match status(&mut Command::new(&self.path)) {
            Err(error) => {
                assert!(refuses, "{error}");
                assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            }
            Ok(status) => {
                assert!(!refuses, "{status}");
                assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
            }
        }
        assert_eq!(self.starts(), before);
        let denied = scene.wait_for("a refused exec", denied);
        let path = self.path.to_string_lossy().into_owned();
        assert_eq!(denied.what, Attempt::Exec { ppid: Pid(std::process::id()), path, killed: !refuses });
        // No exec was reported.
        assert!(
            !scene
                .events
                .iter()
                .any(|event| matches!(event, KernelEvent::Exec(exec) if exec.process == denied.process))
        );
    }
}

/// Runs a program without input.
pub(super) fn status(command: &mut Command) -> io::Result<ExitStatus> {
    spawn(command.stdin(Stdio::null()))?.wait()
}

pub(super) fn unique(stem: &str) -> String {
    let dir = tempfile::tempdir().expect("tempdir");
    let random = dir.path().file_name().expect("a name").to_string_lossy().into_owned();
    format!("{stem}-{}", random.trim_start_matches('.'))
}

pub(super) fn denied(event: &KernelEvent) -> Option<Denied> {
    match event {
        KernelEvent::Denied(denied) => Some(denied.clone()),
        _ => None,
    }
}
