//! Processes and cgroup hierarchies for tests.

#![allow(clippy::unwrap_used, reason = "tests call these, and panic")]

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::cgroup::SessionCgroups;
use super::limits::CgroupTree;
use super::process::ProcessDir;
use watchdog_types::{Pid, ProcessId};

/// A child of the test; killed and waited for when dropped.
pub struct TestProcess {
    child: Child,
    pub process: ProcessId,
}

impl TestProcess {
    pub fn spawn(command: &mut Command) -> Self {
        let child = spawn(command).unwrap();
        let process = identity(Pid(child.id()));
        eventually("the end of the exec", || has_executed(process.pid));
        Self { child, process }
    }

    /// Starts python with this program, and waits until it prints a line `ready`.
    pub fn python(program: &str) -> Self {
        Self::python_with(program, &mut Command::new("python3"))
    }

    /// The same with a prepared command that runs python.
    pub fn python_with(program: &str, command: &mut Command) -> Self {
        let mut subject = Self::spawn(command.arg("-c").arg(program).stdout(Stdio::piped()));
        assert_eq!(subject.line(), "ready");
        subject
    }

    /// The next line of its stdout.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // Fails if it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory in the place of the cgroup hierarchy. The kernel would create the files of a cgroup; here the test does.
pub struct TestHierarchy(tempfile::TempDir);

impl TestHierarchy {
    /// `controllers`: those of its root.
    pub fn new(controllers: &str) -> Self {
        let hierarchy = Self(tempfile::tempdir().unwrap());
        hierarchy.file("/cgroup.controllers", controllers);
        hierarchy.file("/cgroup.subtree_control", "");
        hierarchy
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    /// Creates a file, and its directory.
    pub fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub fn cgroups(&self) -> SessionCgroups {
        SessionCgroups::new(CgroupTree::at(self.0.path()))
    }
}

/// The process that has this pid now.
pub fn identity(pid: Pid) -> ProcessId {
    ProcessDir::open(pid).unwrap().unwrap().stat(&mut Vec::new()).unwrap().unwrap().process
}

/// Starts a program, which may be a file that this test has just written. A child of another test may hold that file open until
/// its exec. Until then the kernel refuses to execute the file (`ETXTBSY`).
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    loop {
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(2));
            }
            started => return started,
        }
    }
}

/// Whether a process has arguments, which an exec sets last, or is dead.
pub fn has_executed(pid: Pid) -> bool {
    let proc = format!("/proc/{pid}");
    let dead = fs::read_to_string(format!("{proc}/stat")).is_ok_and(|stat| stat.contains(") Z "));
    dead || fs::read(format!("{proc}/cmdline")).is_ok_and(|cmdline| !cmdline.is_empty())
}

/// Waits for a condition; panics after 60 s, which an emulated guest on a busy machine may need.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "timeout after 60 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The store of the swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapKind {
    /// A file in the temporary directory.
    File,
    Zram,
}

/// The turn of a test with the swap of the host. Other tests wait for it, in this program and in others: a test that uses or
/// removes its swap would move pages of another test, and cause memory pressure.
pub struct SwapTurn(fs::File);

impl SwapTurn {
    /// Waits for the turn. `None` without root, which cannot add swap.
    pub fn take() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let path = std::env::temp_dir().join("watchdog-test-swap.lock");
        let file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        // A lock of the open file: it ends when the last process that has this file open exits.
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        Some(Self(file))
    }
}

/// Swap for a test. A separate process removes it, however the test ends, and then ends the [`SwapTurn`].
pub struct TestSwap(Child);

impl TestSwap {
    /// A file; zram where the file system cannot hold one, as in a guest. `None`, with a message, where the kernel refuses
    /// both: without root, or in a container.
    pub fn new(mib: u64) -> Option<Self> {
        let swap = Self::of(SwapKind::File, mib).or_else(|| Self::of(SwapKind::Zram, mib));
        if swap.is_none() {
            eprintln!("skipped: no swap can be used here");
        }
        swap
    }

    /// `None` where the kernel refuses.
    pub fn of(kind: SwapKind, mib: u64) -> Option<Self> {
        // The kernel refuses a swap file on tmpfs, which would only cost its size in memory.
        if kind == SwapKind::File && rustix::fs::statfs(std::env::temp_dir()).unwrap().f_type == libc::TMPFS_MAGIC {
            return None;
        }
        let SwapTurn(turn) = SwapTurn::take()?;
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path().keep().unwrap();
        let script = r#"
            use() { mkswap "$1" >/dev/null 2>&1 && swapon "$1"; }
            if [ "$3" = File ]; then
                dd if=/dev/zero of="$1" bs=1M count="$2" 2>/dev/null && chmod 600 "$1" && use "$1" && swap=$1
            elif number=$(cat /sys/class/zram-control/hot_add 2>/dev/null); then
                echo "$2M" >"/sys/block/zram$number/disksize" && use "/dev/zram$number" && swap=/dev/zram$number
            fi
            echo "${swap:+ready}"
            read -r _
            [ -n "$swap" ] && swapoff "$swap"
            [ -n "$number" ] && echo "$number" >/sys/class/zram-control/hot_remove
            rm -f "$1""#;
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh"])
            .arg(file)
            .arg(mib.to_string())
            .arg(format!("{kind:?}"))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        // A runner that kills the test's process group leaves this one.
        let child = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(turn).spawn().unwrap();
        // It holds the only descriptor of the lock.
        drop(command);
        let mut swap = Self(child);
        let mut line = String::new();
        BufReader::new(swap.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (line.trim() == "ready").then_some(swap)
    }
}

impl Drop for TestSwap {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
