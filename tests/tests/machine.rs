//! Requirements of all other tests, which a guest's init must meet: a failure here is one of the machine, not of the
//! daemon.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn mounted(kind: &str, target: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().any(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        fields[1] == target && fields[2] == kind
    })
}

#[test]
fn kernel_has_btf_and_psi() {
    assert!(std::fs::metadata("/sys/kernel/btf/vmlinux").unwrap().len() > 0);
    let pressure = std::fs::read_to_string("/proc/pressure/memory").unwrap();
    assert!(pressure.starts_with("some avg10="), "{pressure}");
}

#[test]
fn tracefs_and_bpffs_are_mounted() {
    assert!(mounted("tracefs", "/sys/kernel/tracing"));
    assert!(mounted("bpf", "/sys/fs/bpf"));
}

#[test]
fn init_reaps_orphans() {
    // The orphan must not hold the pipe: `output` would wait for its end.
    let script = "sleep 1000 </dev/null >/dev/null 2>&1 & echo $!";
    let parent = Command::new("/bin/sh").args(["-c", script]).output().unwrap();
    let orphan = String::from_utf8(parent.stdout).unwrap();
    let pid = orphan.trim().parse().ok().and_then(Pid::from_raw).expect("a pid");
    let orphan = Path::new("/proc").join(orphan.trim());
    assert!(orphan.exists(), "the orphan exited by itself");
    kill_process(pid, Signal::KILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while orphan.exists() {
        assert!(Instant::now() < deadline, "the orphan is still there after a minute: {}", orphan.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}
