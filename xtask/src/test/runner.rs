//! Runs a test binary as root, with default signal dispositions and umask, the file systems that the tests need, and a time
//! limit per test.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::Mode;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, umask, wait};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::progress::TestProgress;
use xtask::privilege::{become_root, is_root};

/// Poll interval for the end of the binary: a daemon that it left behind may keep its output open.
const POLL: Duration = Duration::from_millis(100);

/// File systems that the tests need, with their type in statfs(2).
const FILE_SYSTEMS: [(&str, &str, i64); 2] =
    [("bpf", "/sys/fs/bpf", 0xcafe_4a11), ("tracefs", "/sys/kernel/tracing", 0x7472_6163)];

/// Files of tests are readable for other users, unless a test sets their mode.
const UMASK: Mode = Mode::from_raw_mode(0o022);

/// `cargo xtask run-test PROGRAM [ARGUMENT…]`
#[derive(clap::Args)]
pub(crate) struct RunnerOptions {
    /// Seconds per test: some wait for minutes, and the machine may be busy.
    #[arg(long, default_value_t = 600)]
    limit: u64,
    /// The test binary and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the binary, and kills it when one of its tests exceeds the limit.
pub(crate) fn run(RunnerOptions { limit, command }: &RunnerOptions) -> Result<ExitCode> {
    if !is_root()? {
        let this = std::env::current_exe().context("finding this program's own path")?;
        let limit = limit.to_string().into();
        let arguments =
            ["run-test".into(), "--limit".into(), limit, "--".into()].into_iter().chain(command.iter().cloned());
        return become_root(this.as_os_str(), &arguments.collect::<Vec<_>>());
    }
    let Some((program, arguments)) = command.split_first() else { bail!("no program given") };
    // A shell or `nohup` may have left some ignored.
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the default disposition is valid for each signal. The calls for SIGKILL, SIGSTOP and those of the C library
        // fail without effect.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    umask(UMASK);
    if let Err(error) = mount_missing() {
        eprintln!("tests that load kernel programs may fail: {error:#}");
    }
    let mut test = Command::new(program);
    let test = test.args(arguments).stdout(Stdio::piped());
    let mut test = test.spawn().with_context(|| format!("running {}", program.display()))?;
    let lines = lines_of(&mut test)?;
    let mut progress = TestProgress::new(Duration::from_secs(*limit), Instant::now());
    match follow(&mut test, &lines, &mut progress)? {
        Some(status) => Ok(exit_code(status)),
        None => {
            kill(&mut test)?;
            for name in progress.late() {
                println!("test {name} ... FAILED: killed, its time limit is {limit} s");
            }
            println!("{}: a test took longer than {limit} s", program.display());
            println!("\n{}", progress.totals_when_killed());
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Mounts the file systems that are missing, in a mount namespace of this process.
fn mount_missing() -> Result<()> {
    let is_missing = |path: &str, kind: i64| rustix::fs::statfs(path).map_or(true, |found| found.f_type != kind);
    let missing: Vec<_> = FILE_SYSTEMS.into_iter().filter(|(_, path, kind)| is_missing(path, *kind)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // SAFETY: this process has one thread, and no descriptor is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.context("cannot make a mount namespace")?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .context("cannot make the mounts private")?;
    for (name, path, _) in missing {
        mount(name, path, name, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {name} on {}", Path::new(path).display()))?;
    }
    Ok(())
}

/// The binary's output by line; the last may be incomplete.
fn lines_of(test: &mut Child) -> Result<Receiver<Vec<u8>>> {
    let output = test.stdout.take().context("the test binary's output was not piped")?;
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Forwards the output until the binary exits. Returns its status, or `None` when a test exceeds the limit.
fn follow(test: &mut Child, lines: &Receiver<Vec<u8>>, progress: &mut TestProgress) -> Result<Option<ExitStatus>> {
    let mut status = None;
    loop {
        match lines.recv_timeout(POLL) {
            Ok(line) => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(&line).and_then(|()| stdout.flush()).context("printing the binary's output")?;
                progress.read(&String::from_utf8_lossy(&line), Instant::now());
            }
            // Its whole output has been read.
            Err(RecvTimeoutError::Timeout) if status.is_some() => return Ok(status),
            Err(RecvTimeoutError::Timeout) => status = test.try_wait().context("waiting for the test binary")?,
            Err(RecvTimeoutError::Disconnected) => return test.wait().map(Some).context("waiting for the test binary"),
        }
        if status.is_none() && Instant::now() >= progress.deadline() {
            return Ok(None);
        }
    }
}

/// Kills the binary and its descendants.
fn kill(test: &mut Child) -> Result<()> {
    // From now on, orphaned descendants become children of this process.
    set_child_subreaper(Some(Pid::INIT)).context("becoming a subreaper")?;
    test.kill().context("killing the test binary")?;
    test.wait().context("waiting for the test binary")?;
    loop {
        for child in children()? {
            // Not reaped yet, so its pid is valid.
            let _ = kill_process(child, Signal::KILL);
        }
        if wait(WaitOptions::empty()).is_err() {
            return Ok(());
        }
    }
}

/// The children of this process.
fn children() -> Result<Vec<Pid>> {
    let this = std::process::id().to_string();
    let is_child = |stat: &str| stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)) == Some(&this);
    let entries = std::fs::read_dir("/proc").context("reading /proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children =
        pids.filter(|pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| is_child(&stat)));
    Ok(children.filter_map(Pid::from_raw).collect())
}

/// The exit code that a shell would report.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    if status.code().is_none() {
        println!("the test binary was terminated: {status}");
    }
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}
