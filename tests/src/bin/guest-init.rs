//! PID 1 of a guest kernel: mounts what a booted machine has, runs every test binary of the plan, prints one verdict,
//! and powers the guest off.
//!
//! The plan is the file in `/guest` that `guest_plan=` on the kernel's command line names, one test binary a line: `NAME
//! TIMEOUT_SECONDS [ARGUMENT…]`, where NAME is a file in `/guest/tests`. The environment of the tests is `/guest/env`, one
//! `NAME=VALUE` a line. All are written by
//! `cargo xtask test-guests`, which takes the guest's word from the line that starts with `guest verdict: `.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use rustix::system::{RebootCommand, reboot};

/// What is mounted, in this order. Later ones lie inside earlier ones.
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
    // Only tells which security modules are on: a kernel without it still runs everything else.
    Mount::optional("securityfs", "/sys/kernel/security"),
];

/// How often the children are looked at. Short beside a test, long beside a look.
const POLL: Duration = Duration::from_millis(20);

fn main() {
    let verdict = match run() {
        Ok(Verdict { binaries, failed }) if failed.is_empty() => format!("ok, {binaries} test binaries"),
        Ok(Verdict { failed, .. }) => format!("FAILED: {}", failed.join(", ")),
        Err(error) => format!("FAILED: {error:#}"),
    };
    println!("guest verdict: {verdict}");
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        // The end of PID 1 ends the guest just as well: the kernel panics, and `panic=-1` makes that a reboot.
        eprintln!("cannot power off: {error}");
    }
}

struct Verdict {
    binaries: usize,
    failed: Vec<String>,
}

fn run() -> Result<Verdict> {
    ensure!(rustix::process::getpid().is_init(), "this program is PID 1 of a guest and does nothing elsewhere");
    set_up()?;
    let environment = read_lines("/guest/env")?;
    let environment: Vec<(&str, &str)> = environment.iter().filter_map(|line| line.split_once('=')).collect();
    let plan = std::env::var("guest_plan").context("guest_plan on the kernel's command line")?;
    let plan = read_lines(&format!("/guest/{plan}"))?;
    ensure!(!plan.is_empty(), "the plan holds no test binary");

    let mut failed = Vec::new();
    for line in &plan {
        let test = Test::parse(line)?;
        println!("guest: running {line}");
        let before = clocks()?;
        if let Err(error) = test.run(&environment) {
            println!("guest: {}: {error:#}", test.name);
            failed.push(format!("{} ({error:#})", test.name));
        }
        let (took, idle) = (clocks()?.0 - before.0, clocks()?.1 - before.1);
        println!("guest: {} took {took:.0} s, in which processors were idle for {idle:.0} s", test.name);
        end_everything_else()?;
    }
    Ok(Verdict { binaries: plan.len(), failed })
}

/// Seconds since boot, and those that processors were idle, summed over them.
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
        // In sysfs and tracefs the mount points are the kernel's; elsewhere they may have to be made.
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

/// Brings the guest to where a booted machine stands.
fn set_up() -> Result<()> {
    MOUNTS.iter().try_for_each(Mount::mount)?;
    // What `systemd` does on a booted machine: without it, no child cgroup has a memory or pids controller.
    std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory +pids +cpu")
        .context("enabling cgroup controllers")?;
    busybox(&["--install", "-s", "/bin"])?;
    busybox(&["ip", "link", "set", "lo", "up"])?;
    busybox(&["chmod", "1777", "/tmp", "/dev/shm"])
}

/// Runs one of busybox's applets. Only before the first test: nothing else is there to be reaped.
fn busybox(arguments: &[&str]) -> Result<()> {
    let status = Command::new("/bin/busybox").args(arguments).status().context("running busybox")?;
    ensure!(status.success(), "busybox {}: {status}", arguments.join(" "));
    Ok(())
}

/// A line of the plan.
struct Test<'a> {
    name: &'a str,
    timeout: Duration,
    arguments: Vec<&'a str>,
}

impl<'a> Test<'a> {
    fn parse(line: &'a str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let (Some(name), Some(seconds)) = (words.next(), words.next()) else {
            bail!("the plan's line {line:?} is not NAME TIMEOUT_SECONDS [ARGUMENT…]");
        };
        let seconds = seconds.parse().with_context(|| format!("the time-out in the plan's line {line:?}"))?;
        Ok(Self { name, timeout: Duration::from_secs(seconds), arguments: words.collect() })
    }

    /// Runs the binary to its end, or kills it when its time is over.
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

/// Reaps one child: a test binary, or any orphan of the guest, since PID 1 is the parent of all of them.
fn reap() -> Result<Reaped> {
    match wait(WaitOptions::NOHANG) {
        Ok(Some((pid, status))) => Ok(Reaped::Process(pid, ExitStatus::from_raw(status.as_raw()))),
        Ok(None) => Ok(Reaped::AllRun),
        Err(rustix::io::Errno::CHILD) => Ok(Reaped::NoChild),
        Err(error) => Err(error).context("waiting for children"),
    }
}

/// Prints who is there and in what state, the first question that a time-out raises. Without the kernel's threads, which
/// stand in brackets.
fn show_processes() {
    let list = "ps -o pid,ppid,stat,args | grep -v '\\[.*\\]$'";
    if Command::new("/bin/busybox").args(["sh", "-c", list]).spawn().is_ok() {
        // It is reaped with everything else; here it only gets the time to print.
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Ends what a test binary left behind, so that each one starts on an empty machine.
fn end_everything_else() -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        // For PID 1 as the group this is `kill(-1)`: every process but the caller.
        kill_process_group(Pid::INIT, Signal::KILL).context("killing what is left")?;
        match reap()? {
            Reaped::NoChild => return Ok(()),
            Reaped::Process(..) => {}
            Reaped::AllRun => std::thread::sleep(POLL),
        }
        ensure!(Instant::now() < deadline, "some process survives SIGKILL for 10 s");
    }
}
