//! `[actions] notify`: the command that is told, as another user.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::Mode;
use rustix::process::{Pid, Signal, geteuid, getpriority_process, kill_process_group, setpriority_process, umask};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Inbox, PACE};
use crate::config::Notify;
use crate::daemon::grumble::Grumble;
use crate::engine::id::Uid;
use crate::host::users::{self, Account, PASSWD};

/// How long a command may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to die of SIGKILL before it is left to itself.
const DYING: Duration = Duration::from_secs(1);
/// All of the environment that a command gets.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// As whom a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunAs {
    /// As the daemon itself: it is nobody else's process, or root's by the configuration.
    Daemon,
    /// As this user, with this group and no other.
    Account(Account),
}

/// Why a command was not told, or not for certain.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("cannot read {PASSWD}: {0}")]
    NoUsers(io::Error),
    #[error("there is no user {0:?} in {PASSWD}")]
    NoUser(String),
    #[error("{0:?} is root by another name: only notify_user = \"root\" runs anything as root")]
    Root(String),
    #[error(
        "it cannot be started as {user:?}: {error}. To become another user the daemon needs CAP_SETUID and CAP_SETGID"
    )]
    MayNotBecome { user: String, error: io::Error },
    #[error("it cannot be started: {0}")]
    Start(io::Error),
    #[error("it took longer than {} s and was killed", PATIENCE.as_secs())]
    Hung,
    #[error("it failed: {0}")]
    Failed(ExitStatus),
    #[error("how it ended is not known: {0}")]
    Unknown(io::Error),
}

/// Tells the command of all that comes in, one after the other.
pub(super) async fn serve(mut wishes: watch::Receiver<Notify>, mut inbox: Inbox) {
    let mut failed = Grumble::default();
    check(&wishes.borrow_and_update());
    loop {
        let news = tokio::select! {
            news = inbox.next(1) => news,
            Ok(()) = wishes.changed() => {
                check(&wishes.borrow_and_update());
                continue;
            }
        };
        let Some(news) = news else { return };
        let notify = wishes.borrow().clone();
        let Some(command) = &notify.command else { continue };
        for news in news {
            let next = Instant::now() + PACE;
            if let Err(failure) = run(command, &notify.user, &news.document(), PATIENCE).await {
                failed.say(format_args!("[actions] notify: {:?} was not told of a receipt: {failure}", shown(command)));
            }
            sleep_until(next).await;
        }
    }
}

fn shown(command: &[String]) -> &str {
    command.first().map_or("", String::as_str)
}

/// Says when the configuration is read, and not at the first receipt, what will come of it.
fn check(notify: &Notify) {
    let Some(command) = &notify.command else { return };
    let (program, user) = (shown(command), &notify.user);
    match run_as(user) {
        Ok(RunAs::Daemon) if !geteuid().is_root() => tracing::info!(
            "[actions] notify: {program:?} runs as the daemon's own user, {}, and not as {user:?}: only root can become another",
            geteuid().as_raw()
        ),
        Ok(_) => {}
        Err(failure) => tracing::warn!("[actions] notify: {program:?} will not be told of receipts: {failure}"),
    }
}

/// As whom to run for a user of the configuration.
pub(super) fn run_as(user: &str) -> Result<RunAs, Failure> {
    if !geteuid().is_root() || user == "root" {
        return Ok(RunAs::Daemon);
    }
    // Looked up each time: users come and go, and a number that was kept could be another's.
    let found = users::account(Path::new(PASSWD), user).map_err(Failure::NoUsers)?;
    let account = found.ok_or_else(|| Failure::NoUser(user.to_owned()))?;
    if account.uid == Uid::ROOT {
        return Err(Failure::Root(user.to_owned()));
    }
    Ok(RunAs::Account(account))
}

/// Runs a command with this on its stdin, to its end.
pub(super) async fn run(command: &[String], user: &str, document: &[u8], patience: Duration) -> Result<(), Failure> {
    let mut child = spawn(command, user, run_as(user)?)?;
    let group = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let served = timeout(patience, async {
        if let Some(mut stdin) = child.stdin.take() {
            // It need not read what it does not want.
            let _ = stdin.write_all(document).await;
        }
        child.wait().await
    });
    match served.await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(Failure::Failed(status)),
        Ok(Err(error)) => Err(Failure::Unknown(error)),
        Err(_) => {
            // It has not been reaped, so that the number of its group is still its own. What it started goes with it.
            if let Some(group) = group
                && child.id().is_some()
            {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = timeout(DYING, child.wait()).await;
            Err(Failure::Hung)
        }
    }
}

fn spawn(command: &[String], user: &str, run_as: RunAs) -> Result<Child, Failure> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| Failure::Start(io::Error::other("there is no program")))?;
    let mut child = Command::new(program);
    child
        .args(arguments)
        .env_clear()
        .env("PATH", SEARCH_PATH)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    if let RunAs::Account(Account { uid, gid }) = run_as {
        // The child gives up root's other groups as well, and does not run at all where it cannot.
        child.uid(uid.0).gid(gid);
    }
    // SAFETY: plain system calls, which are allowed between fork and exec.
    unsafe { child.pre_exec(leave_daemon_settings) };
    let child = child.spawn().map_err(|error| match (run_as, error.raw_os_error()) {
        (RunAs::Account(_), Some(libc::EPERM)) => Failure::MayNotBecome { user: user.to_owned(), error },
        _ => Failure::Start(error),
    })?;
    if let Some(pid) = child.id() {
        be_killable(pid);
    }
    Ok(child)
}

/// Undoes what the daemon's unit sets for the daemon alone: a priority above other processes, and a strict umask.
fn leave_daemon_settings() -> io::Result<()> {
    umask(Mode::WGRP | Mode::WOTH);
    if getpriority_process(None)? < 0 {
        setpriority_process(None, 0)?;
    }
    Ok(())
}

/// The daemon is among the last to be killed for want of memory; what it starts must not be. The child has not been reaped:
/// its pid is its own.
fn be_killable(pid: u32) {
    let file = format!("/proc/{pid}/oom_score_adj");
    let spared = std::fs::read_to_string(&file).is_ok_and(|score| score.starts_with('-'));
    if spared && let Err(error) = std::fs::write(&file, "0") {
        tracing::debug!("cannot write {file}: {error}");
    }
}
