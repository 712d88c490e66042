//! PID 1 of a guest: mounts the file systems of a booted machine, runs every test binary of the plan, prints a verdict,
//! and powers the guest off.
//!
//! The plan is the file in `/guest` that `guest_plan=` on the kernel's command line names. A line is a test binary: `NAME
//! TIMEOUT_SECONDS [ARGUMENT…]`, where NAME is a file in `/guest/tests`. The environment of the tests is `/guest/env`, one
//! `NAME=VALUE` per line. All are written by
//! `cargo xtask test-guests`, which reads the result from the line that starts with `guest verdict: `.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use rustix::system::{RebootCommand, finit_module, reboot};

/// In the order in which they are mounted: later ones are inside earlier ones.
const MOUNTS: &[Mount] = &[
    Mount::required("proc", "/proc"),
    Mount::required("sysfs", "/sys"),
    Mount::required("devtmpfs", "/dev"),
    Mount::required("devpts", "/dev/pts"),
    Mount::required("tmpfs", "/dev/shm"),
    Mount::required("tmpfs", "/tmp"),
    Mount::required("tmpfs", "/run"),
    Mount::required("cgroup2", "/sys/fs/cgroup"),
    Mount::required("tracefs", "/sys/kernel/tracing"),
    Mount::required("bpf", "/sys/fs/bpf"),
    // Only lists the active security modules.
    Mount::optional("securityfs", "/sys/kernel/security"),
];

/// Interval of waitpid(2).
const POLL: Duration = Duration::from_millis(20);

fn main() {
    let verdict = match run() {
        Ok(GuestVerdict { binaries, failed }) if failed.is_empty() => format!("ok, {binaries} test binaries"),
        Ok(GuestVerdict { failed, .. }) => format!("FAILED: {}", failed.join(", ")),
        Err(error) => format!("FAILED: {error:#}"),
    };
    println!("guest verdict: {verdict}");
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        // The exit of PID 1 ends the guest too: the kernel panics, and `panic=-1` makes that a reboot.
        eprintln!("cannot power off: {error}");
    }
}

struct GuestVerdict {
    binaries: usize,
    failed: Vec<String>,
}

fn run() -> Result<GuestVerdict> {
    ensure!(rustix::process::getpid().is_init(), "this program runs as PID 1 of a guest only");
    set_up()?;
    let environment = read_lines("/guest/env")?;
    let environment: Vec<(&str, &str)> = environment.iter().filter_map(|line| line.split_once('=')).collect();
    let plan = std::env::var("guest_plan").context("guest_plan on the kernel's command line")?;
    let plan = read_lines(&format!("/guest/{plan}"))?;
    ensure!(!plan.is_empty(), "the plan is empty");

    let mut failed = Vec::new();
    for line in &plan {
        let test = PlannedTest::parse(line)?;
        println!("guest: running {line}");
        let before = clocks()?;
        if let Err(error) = test.run(&environment) {
            println!("guest: {}: {error:#}", test.name);
            failed.push(format!("{} ({error:#})", test.name));
        }
        let (took, idle) = (clocks()?.0 - before.0, clocks()?.1 - before.1);
        println!("guest: {} took {took:.0} s, in which processors were idle for {idle:.0} s", test.name);
        kill_everything_else()?;
    }
    Ok(GuestVerdict { binaries: plan.len(), failed })
}

/// Seconds since boot, and idle seconds summed over the processors.
fn clocks() -> Result<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/uptime").context("reading /proc/uptime")?;
    let mut seconds = text.split_whitespace().map(str::parse::<f64>);
    match (seconds.next(), seconds.next()) {
        (Some(Ok(up)), Some(Ok(idle))) => Ok((up, idle)),
        _ => bail!("/proc/uptime is {text:?}"),
    }
}

fn read_lines(path: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(text.lines().map(str::to_owned).collect())
}

struct Mount {
    kind: &'static str,
    target: &'static str,
    required: bool,
}

impl Mount {
    const fn required(kind: &'static str, target: &'static str) -> Self {
        Self { kind, target, required: true }
    }

    const fn optional(kind: &'static str, target: &'static str) -> Self {
        Self { kind, target, required: false }
    }

    fn mount(&self) -> Result<()> {
        let Self { kind, target, required } = *self;
        // In sysfs and tracefs the kernel has the mount points; elsewhere they may be missing.
        if !Path::new(target).exists()
            && let Err(error) = std::fs::create_dir_all(target)
        {
            if required {
                return Err(error).with_context(|| format!("making {target}"));
            }
            return Ok(());
        }
        match mount(kind, target, kind, MountFlags::empty(), None) {
            Err(error) if required => Err(error).with_context(|| format!("mounting {kind} on {target}")),
            Err(_) | Ok(()) => Ok(()),
        }
    }
}

/// Sets up the guest like a booted machine.
fn set_up() -> Result<()> {
    MOUNTS.iter().try_for_each(Mount::mount)?;
    // As systemd does: otherwise no child cgroup has a memory or pids controller.
    std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids +cpu")
        .context("enabling cgroup controllers")?;
    busybox(&["--install", "-s", "/bin"])?;
    busybox(&["ip", "link", "set", "lo", "up"])?;
    load_modules()?;
    busybox(&["chmod", "1777", "/tmp", "/dev/shm"])
}

/// Loads the modules of the running kernel that the guest has, in the order of their names.
fn load_modules() -> Result<()> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").context("reading the kernel's release")?;
    let Ok(listed) = std::fs::read_dir(Path::new("/guest/modules").join(release.trim())) else { return Ok(()) };
    let mut modules: Vec<_> = listed.filter_map(|entry| Some(entry.ok()?.path())).collect();
    modules.sort();
    for module in modules {
        let file = File::open(&module).with_context(|| format!("opening {}", module.display()))?;
        finit_module(&file, c"", 0).with_context(|| format!("loading {}", module.display()))?;
    }
    Ok(())
}

/// Runs an applet of busybox. Only before the first test, when there is no other child to reap.
fn busybox(arguments: &[&str]) -> Result<()> {
    let status = Command::new("/bin/busybox").args(arguments).status().context("running busybox")?;
    ensure!(status.success(), "busybox {}: {status}", arguments.join(" "));
    Ok(())
}

/// A line of the plan.
struct PlannedTest<'a> {
    name: &'a str,
    timeout: Duration,
    arguments: Vec<&'a str>,
}

impl<'a> PlannedTest<'a> {
    fn parse(line: &'a str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let (Some(name), Some(seconds)) = (words.next(), words.next()) else {
            bail!("the plan's line {line:?} is not NAME TIMEOUT_SECONDS [ARGUMENT…]");
        };
        let seconds = seconds.parse().with_context(|| format!("the time-out in the plan's line {line:?}"))?;
        Ok(Self { name, timeout: Duration::from_secs(seconds), arguments: words.collect() })
    }

    /// Runs the binary, with a time limit.
    fn run(&self, environment: &[(&str, &str)]) -> Result<()> {
        let child = Command::new(Path::new("/guest/tests").join(self.name))
            .args(&self.arguments)
            .current_dir("/tmp")
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::from(File::open("/dev/null").context("opening /dev/null")?))
            .process_group(0)
            .spawn()
            .context("cannot be started")?;
        let child = Pid::from_child(&child);
        let deadline = Instant::now() + self.timeout;
        loop {
            match reap()? {
                Reaped::Process(pid, status) if pid == child => {
                    ensure!(status.success(), "{status}");
                    return Ok(());
                }
                Reaped::Process(..) => {}
                Reaped::AllRun | Reaped::NoChild if Instant::now() < deadline => std::thread::sleep(POLL),
                Reaped::AllRun | Reaped::NoChild => {
                    show_processes();
                    bail!("timed out after {} s", self.timeout.as_secs());
                }
            }
        }
    }
}

enum Reaped {
    Process(Pid, ExitStatus),
    AllRun,
    NoChild,
}

/// Reaps one child: a test binary or an orphan.
fn reap() -> Result<Reaped> {
    match wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => Ok(Reaped::Process(pid, ExitStatus::from_raw(status.as_raw()))),
        Ok(None) => Ok(Reaped::AllRun),
        Err(rustix::io::Errno::CHILD) => Ok(Reaped::NoChild),
        Err(error) => Err(error).context("waiting for children"),
    }
}

/// Prints all processes with their states after a timeout, without kernel threads, which ps shows in
/// brackets.
fn show_processes() {
    let list = "ps -o pid,ppid,stat,args | grep -v '\\[.*\\]$'";
    if Command::new("/bin/busybox").args(["sh", "-c", list]).spawn().is_ok() {
        // Time to print; it is reaped with everything else.
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Kills what a test binary left behind, so that each one starts on an empty machine.
fn kill_everything_else() -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        // For PID 1 as the group this is `kill(-1)`: every process but the caller.
        kill_process_group(Pid::INIT, Signal::KILL).context("killing what is left")?;
        match reap()? {
            Reaped::NoChild => return Ok(()),
            Reaped::Process(..) => {}
            Reaped::AllRun => std::thread::sleep(POLL),
        }
        ensure!(Instant::now() < deadline, "a process survives SIGKILL for 10 s");
    }
}
