//! Inspects one process closely, for its verdict.

use std::collections::HashSet;

use rustix::fs::{AtFlags, statat};

use super::error::{HostError, is_missing};
use super::executable::executable;
use super::fds::{Object, descriptors};
use super::passwd::PASSWD;
use super::pidfd::PidFd;
use super::process::{ProcessDir, leads_to_private_mount};
use super::stat::{Fields, ProcStat};
use super::{environment, listen, stdin};
use watchdog_types::{Bytes, Directory, Inspection, Pid, ProcessId, Stdin};

/// SIGHUP.
const HUP: u32 = 1;

/// Evidence for and against keeping the process; `None` when it has exited. `peers` are searched for the other end of its
/// stdin, usually the processes of its session.
///
/// Costs about 100 µs, and 2 µs per descriptor of the process (at most 4,096). If it has a socket, reads the socket tables of
/// its network namespace; if its stdin is a pipe or a socket, 2 µs per descriptor of each peer.
///
/// # Errors
/// When the kernel refuses: descriptors of other users' processes need CAP_SYS_PTRACE. An unreadable process is an error,
/// because "no listening socket" would be evidence.
pub fn inspect(process: ProcessId, peers: &[ProcessId]) -> Result<Option<Inspection>, HostError> {
    let mut buffer = Vec::new();
    let Some((dir, _)) = ProcessDir::of(process, &mut buffer)? else { return Ok(None) };
    let Some((stat, parent_comm)) = with_parent(&dir, &mut buffer)? else { return Ok(None) };
    let leader = leader(&stat, &mut buffer)?;
    if dir.read_up_to("status", 8192, &mut buffer)?.is_none() {
        return Ok(None);
    }
    let ignores_hup =
        Fields(&buffer).has_signal("SigIgn", HUP).ok_or_else(|| HostError::malformed(dir.path("status"), "SigIgn"))?;
    let user_ids = PidFd::open(process.pid)?.map(|pinned| pinned.identity()).transpose()?.flatten();
    let user_ids = user_ids.filter(|found| found.process == process).map(|found| found.users);
    let oom_score_adj = dir.oom_score_adj(&mut buffer)?;
    let environment = environment::hash(&dir, &mut buffer)?;
    let zombie = stat.is_zombie();
    let executable = executable(&dir)?.map(Box::new);
    // A zombie has released its descriptors and its directory.
    let (listens, (stdin, stdin_unread), (directory, cwd_deleted)) = if zombie {
        (Vec::new(), (Stdin::Other, Bytes(0)), (None, false))
    } else {
        (listens(&dir)?, stdin::stdin(process, &dir, peers)?, working_directory(&dir)?)
    };
    Ok(Some(Inspection {
        ppid: stat.ppid.0,
        parent_comm,
        sid: stat.sid.0,
        pgid: stat.pgid.0,
        leader_alive: leader.is_some(),
        leader: leader.filter(|leader| *leader != process),
        tty: stat.tty != 0,
        ignores_hup,
        listens,
        cwd_deleted,
        stdin,
        stdin_unread,
        zombie,
        stopped: stat.is_stopped(),
        comm: stat.comm,
        user_ids,
        executable,
        oom_score_adj,
        directory: directory.map(Box::new),
        environment,
    }))
}

/// The process's stat, and the comm of its parent. The parent may exit between the two reads and its pid be reused, so the
/// result counts only if the process still has that parent afterwards.
fn with_parent(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<(ProcStat, String)>, HostError> {
    let Some(mut stat) = dir.stat(buffer)? else { return Ok(None) };
    loop {
        let parent = match ProcessDir::open(stat.ppid)? {
            Some(parent) => parent.stat(buffer)?,
            None => None,
        };
        let Some(after) = dir.stat(buffer)? else { return Ok(None) };
        if after.ppid == stat.ppid {
            return Ok(Some((after, parent.map(|parent| parent.comm).unwrap_or_default())));
        }
        stat = after;
    }
}

/// The live leader of the process's session. The kernel does not reuse a pid while it is a session id, so a process with that
/// pid in that session is the leader.
fn leader(stat: &ProcStat, buffer: &mut Vec<u8>) -> Result<Option<ProcessId>, HostError> {
    // 0: the leader is in a pid namespace outside of ours.
    if stat.sid == Pid(0) {
        return Ok(None);
    }
    let Some(dir) = ProcessDir::open(stat.sid)? else { return Ok(None) };
    let leader = dir.stat(buffer)?.filter(|leader| leader.sid == stat.sid && !leader.is_zombie());
    Ok(leader.map(|leader| leader.process))
}

fn listens(dir: &ProcessDir) -> Result<Vec<String>, HostError> {
    let sockets: HashSet<u64> = descriptors(dir)?
        .into_iter()
        .filter_map(|held| match held.object {
            Object::Socket(inode) => Some(inode),
            Object::Pipe(_) | Object::Device(_) => None,
        })
        .collect();
    listen::listens(dir, &sockets)
}

/// The working directory where it may be a workspace, and whether it was removed.
fn working_directory(dir: &ProcessDir) -> Result<(Option<Directory>, bool), HostError> {
    let Some(path) = dir.link("cwd")? else { return Ok((None, false)) };
    let removed = path.ends_with(b" (deleted)");
    if path == b"/" || is_home(&path) {
        return Ok((None, removed));
    }
    match statat(dir.fd(), "cwd", AtFlags::empty()) {
        Ok(seen) => Ok((Some(Directory { device: seen.st_dev, inode: seen.st_ino }), removed)),
        Err(errno) if is_missing(errno) || leads_to_private_mount(dir.fd(), "cwd") => Ok((None, removed)),
        Err(errno) => Err(HostError::io("stat", dir.path("cwd"), errno)),
    }
}

/// Whether an account has this home directory. One read of /etc/passwd, 10 µs.
fn is_home(path: &[u8]) -> bool {
    let Ok(accounts) = std::fs::read(PASSWD) else { return false };
    accounts.split(|byte| *byte == b'\n').any(|line| line.split(|byte| *byte == b':').nth(5) == Some(path))
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
