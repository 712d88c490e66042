//! `[actions] notify`: a command that gets each receipt on its stdin, as another user.

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

use super::{MIN_INTERVAL, NotificationQueue};
use crate::log_throttle::ThrottledWarning;
use watchdog_config::NotifyConfig;
use watchdog_host::passwd::{self, Account, PASSWD};
use watchdog_types::Uid;

/// The time for a command to end.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// The time for a command to die of SIGKILL, before it is left alone.
const DYING: Duration = Duration::from_secs(1);
/// The only variable in a command's environment.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunAs {
    /// As the daemon's user: the daemon does not run as root, or the configuration names root.
    Daemon,
    /// As this user, with this group and no other.
    Account(Account),
}

/// Why a notification failed, or may have failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommandError {
    #[error("cannot read {PASSWD}: {0}")]
    NoUsers(io::Error),
    #[error("there is no user {0:?} in {PASSWD}")]
    NoUser(String),
    #[error("{0:?} is root by another name: only notify_user = \"root\" runs anything as root")]
    Root(String),
    #[error("cannot start it as {user:?}: {error}. To change its user the daemon needs CAP_SETUID and CAP_SETGID")]
    MayNotBecome { user: String, error: io::Error },
    #[error("cannot start it: {0}")]
    Start(io::Error),
    #[error("killed after its timeout of {} s", TIMEOUT.as_secs())]
    Hung,
    #[error("it failed: {0}")]
    Failed(ExitStatus),
    #[error("cannot read its exit status: {0}")]
    Unknown(io::Error),
}

/// Runs the command for each notification, one after the other.
pub(super) async fn serve(mut config: watch::Receiver<NotifyConfig>, mut queue: NotificationQueue) {
    let mut warning = ThrottledWarning::default();
    check(&config.borrow_and_update());
    loop {
        let notifications = tokio::select! {
            notifications = queue.next(1) => notifications,
            Ok(()) = config.changed() => {
                check(&config.borrow_and_update());
                continue;
            }
        };
        let Some(notifications) = notifications else { return };
        let notify = config.borrow().clone();
        let Some(command) = &notify.command else { continue };
        for notifications in notifications {
            let next = Instant::now() + MIN_INTERVAL;
            if let Err(failure) = run(command, &notify.user, &notifications.document(), TIMEOUT).await {
                warning.warn(format_args!("[actions] notify: failed to notify {:?}: {failure}", shown(command)));
            }
            sleep_until(next).await;
        }
    }
}

fn shown(command: &[String]) -> &str {
    command.first().map_or("", String::as_str)
}

/// Logs problems when the configuration is read, and not at the first receipt.
fn check(notify: &NotifyConfig) {
    let Some(command) = &notify.command else { return };
    let (program, user) = (shown(command), &notify.user);
    match run_as(user) {
        Ok(RunAs::Daemon) if !geteuid().is_root() => tracing::info!(
            "[actions] notify: {program:?} runs as the daemon's own user ({}) instead of {user:?}: only root can change its user",
            geteuid().as_raw()
        ),
        Ok(_) => {}
        Err(failure) => tracing::warn!("[actions] notify: {program:?} will not be run: {failure}"),
    }
}

/// The user to run as, for a user name of the configuration.
pub(super) fn run_as(user: &str) -> Result<RunAs, CommandError> {
    if !geteuid().is_root() || user == "root" {
        return Ok(RunAs::Daemon);
    }
    // Looked up each time: users come and go, and a stored number could become another's.
    let found = passwd::account(Path::new(PASSWD), user).map_err(CommandError::NoUsers)?;
    let account = found.ok_or_else(|| CommandError::NoUser(user.to_owned()))?;
    if account.uid == Uid::ROOT {
        return Err(CommandError::Root(user.to_owned()));
    }
    Ok(RunAs::Account(account))
}

/// Runs a command with the document on its stdin, until it exits.
pub(super) async fn run(
    command: &[String],
    user: &str,
    document: &[u8],
    timeout_after: Duration,
) -> Result<(), CommandError> {
    let mut child = spawn(command, user, run_as(user)?)?;
    let group = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let served = timeout(timeout_after, async {
        if let Some(mut stdin) = child.stdin.take() {
            // The command need not read its stdin.
            let _ = stdin.write_all(document).await;
        }
        child.wait().await
    });
    match served.await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(CommandError::Failed(status)),
        Ok(Err(error)) => Err(CommandError::Unknown(error)),
        Err(_) => {
            // The command has not been waited for, so its group id is still its own. Its children are killed with it.
            if let Some(group) = group
                && child.id().is_some()
            {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = timeout(DYING, child.wait()).await;
            Err(CommandError::Hung)
        }
    }
}

fn spawn(command: &[String], user: &str, run_as: RunAs) -> Result<Child, CommandError> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| CommandError::Start(io::Error::other("there is no program")))?;
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
        // The child drops root's other groups too, and does not start where it cannot.
        child.uid(uid.0).gid(gid);
    }
    // SAFETY: plain system calls, which are allowed between fork and exec.
    unsafe { child.pre_exec(leave_daemon_settings) };
    let child = child.spawn().map_err(|error| match (run_as, error.raw_os_error()) {
        (RunAs::Account(_), Some(libc::EPERM)) => CommandError::MayNotBecome { user: user.to_owned(), error },
        _ => CommandError::Start(error),
    })?;
    if let Some(pid) = child.id() {
        be_killable(pid);
    }
    Ok(child)
}

/// Undoes what the unit sets for the daemon alone: a higher priority, and a strict umask.
fn leave_daemon_settings() -> io::Result<()> {
    umask(Mode::WGRP | Mode::WOTH);
    if getpriority_process(None)? < 0 {
        setpriority_process(None, 0)?;
    }
    Ok(())
}

/// The OOM killer spares the daemon, but must not spare what it starts. The child has not been waited for, so its pid is
/// still its own.
fn be_killable(pid: u32) {
    let file = format!("/proc/{pid}/oom_score_adj");
    let spared = std::fs::read_to_string(&file).is_ok_and(|score| score.starts_with('-'));
    if spared && let Err(error) = std::fs::write(&file, "0") {
        tracing::debug!("cannot write {file}: {error}");
    }
}
