//! Processes that are never paged out.

use crate::error::HostError;
use crate::executable::executable;
use crate::memory;
use crate::process::ProcessDir;
use crate::stat::{Fields, number};
use watchdog_types::{Bytes, Memory, PageOutExclusion, Uid, UserIds};

/// Executables that hold keys or passwords. They lock only part of their memory.
#[rustfmt::skip]
const KEY_HOLDERS: [&str; 17] = [
    "1password", "bitwarden", "gcr-ssh-agent", "git-credential-cache--daemon", "gnome-keyring-daemon", "gpg-agent",
    "keepassxc", "keyboxd", "ksecretd", "kwalletd5", "kwalletd6", "pinentry", "scdaemon", "ssh-add", "ssh-agent",
    "ssh-pkcs11-helper", "ssh-sk-helper",
];
/// `SCHED_FIFO`, `SCHED_RR` and `SCHED_DEADLINE` of include/uapi/linux/sched.h.
const REAL_TIME: [u32; 3] = [1, 2, 6];

/// What /proc/PID/status shows of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessStatus {
    pub(super) memory: Memory,
    users: UserIds,
    /// VmLck.
    locked: Bytes,
}

impl ProcessStatus {
    /// `None` when the process has exited. 25 µs.
    pub(super) fn read(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<Self>, HostError> {
        if dir.read_up_to("status", 16 << 10, buffer)?.is_none() {
            return Ok(None);
        }
        let fields = Fields(buffer);
        let users = fields.user_ids().ok_or_else(|| HostError::malformed(dir.path("status"), "no Uid"))?;
        let locked = fields.kib("VmLck").unwrap_or_default();
        Ok(Some(Self { memory: memory::of_status(&fields), users, locked }))
    }

    /// Checked again during the page-out: an exec may change the user ids, and memory may be locked.
    pub(super) fn exclusion(&self, uid: Uid) -> Option<PageOutExclusion> {
        let UserIds { real, effective, saved } = self.users;
        if [real, effective, saved].iter().any(|id| *id != uid) {
            Some(PageOutExclusion::OtherUser)
        } else {
            (self.locked > Bytes(0)).then_some(PageOutExclusion::Locked)
        }
    }
}

/// Why a process must not be paged out, by its executable and scheduling policy. 30 µs, and 10 µs per thread.
pub(super) fn exclusion(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<PageOutExclusion>, HostError> {
    if executable(dir)?.is_some_and(|file| holds_keys(&file.path)) {
        return Ok(Some(PageOutExclusion::KeyHolder));
    }
    Ok(is_real_time(dir, buffer)?.then_some(PageOutExclusion::RealTime))
}

/// By the file name of its executable, including `pinentry-curses` and similar.
fn holds_keys(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    KEY_HOLDERS.contains(&name) || name.starts_with("pinentry-")
}

/// Whether any thread is scheduled in real time or by deadline.
fn is_real_time(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<bool, HostError> {
    for thread in dir.threads()?.unwrap_or_default() {
        if dir.read_up_to(&format!("task/{thread}/stat"), 4096, buffer)?.is_some()
            && policy(buffer).is_some_and(|policy| REAL_TIME.contains(&policy))
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// policy (41) of a stat line.
fn policy(stat: &[u8]) -> Option<u32> {
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat.get(close + 1..)?.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    // The first one is state (3).
    number(fields.nth(41 - 3)?)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::agent("/usr/bin/ssh-agent", true)]
    #[case::pinentry("/usr/bin/pinentry-curses", true)]
    #[case::keyring("/usr/bin/gnome-keyring-daemon", true)]
    #[case::other("/usr/bin/node", false)]
    #[case::directory("/opt/ssh-agent/node", false)]
    fn key_holders_by_executable(#[case] path: &str, #[case] expected: bool) {
        assert_eq!(holds_keys(path), expected);
    }

    #[test]
    fn scheduling_policy_is_field_41() {
        let own = std::fs::read("/proc/thread-self/stat").unwrap();
        assert_eq!(policy(&own), Some(0));
        let fields: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        assert_eq!(policy(format!("7 (a) b) {}\n", fields.join(" ")).as_bytes()), Some(41));
        assert_eq!(policy(b"7 (a) S 1 2"), None);
    }
}
