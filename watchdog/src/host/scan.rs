//! Every process of /proc, once: the first look, and the one after events were lost.

use std::collections::HashMap;

use super::clock;
use super::error::HostError;
use super::memory;
use super::process::{self, ProcessDir};
use super::stat::Fields;
use crate::engine::id::{Pid, ProcessId};
use crate::engine::input::{Image, Lineage, Memory, Scan, ScannedProcess};

/// Most bytes of a cmdline that are looked at: as long as a page, since no profile looks further than its first arguments.
const CMDLINE_MAX: usize = 4096;

/// Looks at every process. Threads are not looked at, and kernel threads are left out. A process that goes away
/// meanwhile, or was forked after the listing passed its pid, is not in the answer.
///
/// `entries` is what the kernel's map holds, by pid: an entry is given to the process that bears both its pid and its
/// start. Memory is told for processes with an entry only; it is zero for all others.
///
/// Costs about 40 µs a process: one look-up of its directory and four files in it. A host of 500 processes takes 20 ms.
///
/// # Errors
/// When /proc cannot be listed, or the kernel refuses a file that everybody may read. An exe link that we may not read
/// leaves the path empty instead: without root that is so for most processes of others.
pub fn scan(entries: &HashMap<Pid, (ProcessId, Lineage)>) -> Result<Scan, HostError> {
    let began = clock::now();
    let mut buffer = Vec::with_capacity(2 * CMDLINE_MAX);
    let mut processes = Vec::new();
    for pid in process::pids()? {
        let entry = entries.get(&pid);
        if let Some(scanned) = scan_one(pid, entry, &mut buffer)? {
            processes.push(scanned);
        }
    }
    Ok(Scan { began, processes })
}

fn scan_one(
    pid: Pid,
    entry: Option<&(ProcessId, Lineage)>,
    buffer: &mut Vec<u8>,
) -> Result<Option<ScannedProcess>, HostError> {
    let Some(dir) = ProcessDir::open(pid)? else { return Ok(None) };
    let Some(stat) = dir.stat(buffer)? else { return Ok(None) };
    if stat.is_kernel_thread() {
        return Ok(None);
    }
    let lineage = entry.and_then(|(process, lineage)| (*process == stat.process).then_some(*lineage));
    if dir.read_up_to("status", 8192, buffer)?.is_none() {
        return Ok(None);
    }
    let status = Fields(buffer);
    let uid = status.uid().ok_or_else(|| HostError::malformed(dir.path("status"), "Uid"))?;
    let memory = if lineage.is_some() { memory::of_status(&status) } else { Memory::default() };
    Ok(Some(ScannedProcess {
        process: stat.process,
        ppid: stat.ppid,
        uid,
        image: image(&dir, buffer)?,
        zombie: stat.is_zombie(),
        comm: stat.comm,
        lineage,
        memory,
    }))
}

/// exe and cmdline as they are now. What /proc gives for a script's path is its interpreter's.
fn image(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Image, HostError> {
    let path = match dir.link("exe") {
        Ok(link) => link.unwrap_or_default(),
        Err(error) if error.is_denied() => Vec::new(),
        Err(error) => return Err(error),
    };
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    buffer.clear();
    dir.read_up_to("cmdline", CMDLINE_MAX, buffer)?;
    Ok(Image {
        path: String::from_utf8_lossy(path).into_owned(),
        argv: argv(buffer),
        truncated: buffer.len() >= CMDLINE_MAX,
    })
}

/// The arguments in a cmdline. A program that wrote a title over its arguments left the rest filled with NULs: they are
/// no arguments. (Empty arguments at the end go with them.)
fn argv(cmdline: &[u8]) -> Vec<String> {
    let end = cmdline.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if end == 0 {
        return Vec::new();
    }
    cmdline[..end].split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::kernel_or_zombie(b"", &[])]
    #[case::plain(b"node\0server.js\0", &["node", "server.js"])]
    #[case::title(b"npm exec @scope/server\0\0\0\0\0\0", &["npm exec @scope/server"])]
    #[case::empty_in_between(b"sh\0\0x\0", &["sh", "", "x"])]
    #[case::not_terminated(b"postgres: writer", &["postgres: writer"])]
    #[case::not_utf8(b"a\xff\0", &["a\u{fffd}"])]
    fn arguments_are_read_without_padding(#[case] cmdline: &[u8], #[case] expected: &[&str]) {
        assert_eq!(argv(cmdline), expected);
    }
}
