//! A cgroup of the test's own, with a limit on its memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::proc::ProcessId;
use crate::{limit, poll};

/// A cgroup; removed when it is dropped. Whoever is left in it goes to the cgroup above.
pub struct Cgroup {
    directory: PathBuf,
    version: u32,
    name: String,
}

impl Cgroup {
    /// A cgroup that may have this much memory, and no swap; `None`, with a line on standard error, where this machine has no
    /// hierarchy of cgroups that a test may add to.
    ///
    /// # Panics
    /// When there is one, and it does not do as it is told.
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

    /// Has the kernel slow down whoever needs more memory here than this.
    ///
    /// # Panics
    /// When it is none of cgroup v2.
    pub fn slow_down_above(&self, bytes: u64) {
        self.write("memory.high", &bytes.to_string());
    }

    /// Its path below the root of the hierarchy.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Whether it is one of cgroup v2, which is what the daemon reads.
    #[must_use]
    pub fn is_v2(&self) -> bool {
        self.version == 2
    }

    /// Moves a process here.
    ///
    /// # Panics
    /// When it is gone.
    pub fn take(&self, process: ProcessId) {
        self.write("cgroup.procs", &process.pid.to_string());
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.directory.join(file);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{text} into {}: {error}", path.display()));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A test's stage may end after its cgroup, and what runs there is in it.
        let left = std::fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
        let above = self.directory.with_file_name("cgroup.procs");
        for pid in left.lines() {
            // One that ends meanwhile is out of it too.
            let _ = std::fs::write(&above, pid);
        }
        let removed = poll(limit(Duration::from_secs(5)), || std::fs::remove_dir(&self.directory).ok());
        if removed.is_none() {
            eprintln!("the cgroup {} is not empty, and stays", self.directory.display());
        }
    }
}

/// Whether children of this root can have a limit on their memory.
fn gives_memory(root: &Path, version: u32) -> bool {
    if version == 1 {
        return root.join("memory.limit_in_bytes").exists();
    }
    let given = std::fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    given.split_whitespace().any(|controller| controller == "memory")
}
