//! The machine as a whole: its memory, its pressure, its kernel.

use std::fs;
use std::process::Command;

use watchdog_tests::Daemon;

/// A line of /proc/meminfo, in bytes.
fn meminfo(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib: Option<u64> = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    kib.expect("a line of /proc/meminfo") * 1024
}

/// What is left of the memory that processes can have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineMemory {
    /// MemAvailable.
    available: u64,
    /// AnonPages.
    anonymous: u64,
}

impl MachineMemory {
    /// As it is.
    pub(crate) fn now() -> Self {
        let text = fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
        Self { available: meminfo(&text, "MemAvailable"), anonymous: meminfo(&text, "AnonPages") }
    }

    /// What share is available, in per cent: the measure of earlyoom and of agent-watchdog. There is no swap here.
    pub(crate) fn left_percent(self) -> f64 {
        self.available as f64 * 100.0 / (self.available + self.anonymous) as f64
    }
}

/// Swap that is compressed memory, as distributions set it up; removed when dropped.
pub(crate) struct CompressedSwap {
    /// The device's number.
    number: String,
}

impl CompressedSwap {
    pub(crate) fn new(mib: u64) -> Self {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").expect("the module zram");
        let swap = Self { number: number.trim().to_owned() };
        fs::write(format!("/sys/block/zram{}/disksize", swap.number), format!("{mib}M")).expect("a size");
        swap.run("mkswap");
        swap.run("swapon");
        swap
    }

    fn run(&self, program: &str) {
        let device = format!("/dev/zram{}", self.number);
        let status = Command::new(program).arg(&device).status().expect("busybox has it");
        assert!(status.success(), "{program} {device}: {status}");
    }
}

impl Drop for CompressedSwap {
    fn drop(&mut self) {
        self.run("swapoff");
        let _ = fs::write("/sys/class/zram-control/hot_remove", &self.number);
    }
}

/// How often the kernel has killed for want of memory.
pub(crate) fn oom_kills() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|number| number.trim().parse().ok()).expect("a number")
}

/// Over the last ten seconds, the share of the time in which no task could run for lack of memory, in per cent.
pub(crate) fn pressure() -> f64 {
    let text = fs::read_to_string("/proc/pressure/memory").expect("psi=1 on the kernel's command line");
    let full = text.lines().find_map(|line| line.strip_prefix("full avg10="));
    full.and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("full avg10 of /proc/pressure/memory")
}

/// The kernel's release.
pub(crate) fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// The higher the score, the sooner the kernel, or a guard that reads it, kills this process.
pub(crate) fn set_oom_score_adj(pid: u32, score: i32) {
    fs::write(format!("/proc/{pid}/oom_score_adj"), score.to_string()).expect("root sets any score");
}

/// What the daemon says of its page-outs.
pub(crate) fn reclaimed(daemon: &Daemon) -> String {
    let metrics = daemon.metrics();
    let line = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).collect::<Vec<_>>().join(", ");
    format!("{}; {}", line("agent_watchdog_reclaim"), line("agent_watchdog_refault"))
}
