//! A cgroup with a memory limit, for a test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::proc::ProcessKey;
use crate::{limit, poll};

/// Removed when dropped; its processes move to the parent.
pub struct TestCgroup {
    directory: PathBuf,
    version: u32,
    name: String,
}

impl TestCgroup {
    /// Limits memory and forbids swap. `None`, with a line on stderr, where the machine has no writable hierarchy with a
    /// memory controller.
    ///
    /// # Panics
    /// When the hierarchy refuses.
    #[must_use]
    pub fn of(name: &str, bytes: u64) -> Option<Self> {
        let hierarchies = [("/sys/fs/cgroup", 2), ("/sys/fs/cgroup/memory", 1)];
        let found = hierarchies.into_iter().find(|(root, version)| gives_memory(Path::new(root), *version));
        let Some((root, version)) = found else {
            eprintln!("skipped: no hierarchy of cgroups here gives its children a limit on their memory");
            return None;
        };
        let directory = Path::new(root).join(name);
        if let Err(error) = std::fs::create_dir(&directory) {
            eprintln!("skipped: cannot make the cgroup {}: {error}", directory.display());
            return None;
        }
        let cgroup = Self { directory, version, name: name.to_owned() };
        cgroup.write(if version == 2 { "memory.max" } else { "memory.limit_in_bytes" }, &bytes.to_string());
        // Version 1 limits memory and swap together.
        for (file, text) in [("memory.swap.max", "0"), ("memory.memsw.limit_in_bytes", &bytes.to_string())] {
            if cgroup.directory.join(file).exists() {
                cgroup.write(file, text);
            }
        }
        Some(cgroup)
    }

    /// Sets memory.high.
    ///
    /// # Panics
    /// On cgroup v1.
    pub fn slow_down_above(&self, bytes: u64) {
        self.write("memory.high", &bytes.to_string());
    }

    /// Below the root of the hierarchy.
    pub fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Whether it is cgroup v2, which the daemon reads.
    pub fn is_v2(&self) -> bool {
        self.version == 2
    }

    ///
    /// # Panics
    /// When it has exited.
    pub fn take(&self, process: ProcessKey) {
        self.write("cgroup.procs", &process.pid.to_string());
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.directory.join(file);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{text} into {}: {error}", path.display()));
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // The stage may be dropped later, so its processes may still be here.
        let left = std::fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
        let above = self.directory.with_file_name("cgroup.procs");
        for pid in left.lines() {
            // Fails if it has exited.
            let _ = std::fs::write(&above, pid);
        }
        let removed = poll(limit(Duration::from_secs(5)), || std::fs::remove_dir(&self.directory).ok());
        if removed.is_none() {
            eprintln!("the cgroup {} is not empty, and stays", self.directory.display());
        }
    }
}

/// Whether children of this root can have a memory limit.
fn gives_memory(root: &Path, version: u32) -> bool {
    if version == 1 {
        return root.join("memory.limit_in_bytes").exists();
    }
    let given = std::fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    given.split_whitespace().any(|controller| controller == "memory")
}
