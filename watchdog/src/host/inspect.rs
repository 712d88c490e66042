//! A close look at one process, for a verdict on it.

use std::collections::HashSet;

use super::descriptors::{Object, descriptors};
use super::error::HostError;
use super::executable::executable;
use super::pinned::Pinned;
use super::process::ProcessDir;
use super::stat::{Fields, Stat};
use super::{listen, stdin};
use crate::engine::id::{Pid, ProcessId};
use crate::engine::input::{Inspection, Stdin};

/// SIGHUP.
const HUP: u32 = 1;

/// What can be said for and against keeping the process; `None` when it is gone. `peers` are the processes that are
/// searched for the other end of its stdin: those of its session, say.
///
/// Costs about 100 µs and 2 µs for each descriptor of the process (4,096 at most); when it has a socket, the tables of
/// listening sockets of its network namespace besides; when its stdin is a pipe or a socket, 2 µs for each descriptor of
/// each peer.
///
/// # Errors
/// When the kernel refuses to let us look: the descriptors of other users' processes need CAP_SYS_PTRACE. What cannot be
/// seen is an error, because "listens on nothing" would be a verdict.
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
    let user_ids = Pinned::open(process.pid)?.map(|pinned| pinned.identity()).transpose()?.flatten();
    let user_ids = user_ids.filter(|found| found.process == process).map(|found| found.users);
    let zombie = stat.is_zombie();
    let executable = executable(&dir)?;
    // A zombie has let go of its descriptors and its directory.
    let (listens, stdin, cwd_deleted) = if zombie {
        (Vec::new(), Stdin::Other, false)
    } else {
        (listens(&dir)?, stdin::stdin(process, &dir, peers)?, cwd_deleted(&dir)?)
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
        zombie,
        stopped: stat.is_stopped(),
        comm: stat.comm,
        user_ids,
        executable,
    }))
}

/// The process's stat, and the comm of the parent that this stat names. A parent may die between two looks and its pid be
/// used again, so what was read counts only if the process still has that parent afterwards.
fn with_parent(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<(Stat, String)>, HostError> {
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

/// The living leader of the process's session. The kernel does not give a pid out again while it is a session's
/// number, so whoever has it and is in that session is the leader.
fn leader(stat: &Stat, buffer: &mut Vec<u8>) -> Result<Option<ProcessId>, HostError> {
    // 0: the leader is in a pid namespace that we cannot see.
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

fn cwd_deleted(dir: &ProcessDir) -> Result<bool, HostError> {
    Ok(dir.link("cwd")?.is_some_and(|cwd| cwd.ends_with(b" (deleted)")))
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
