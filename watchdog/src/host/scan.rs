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
    let Some((dir, stat)) = ProcessDir::with_stat(pid, buffer)? else { return Ok(None) };
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
    let Some(image) = image(&dir, buffer)? else { return Ok(None) };
    let titled = !image.truncated && is_title(buffer, &image.argv);
    Ok(Some(ScannedProcess {
        process: stat.process,
        ppid: stat.ppid,
        uid,
        image,
        titled,
        zombie: stat.is_zombie(),
        comm: stat.comm,
        lineage,
        memory,
    }))
}

/// exe and cmdline as they are now; `None` when the process is gone. What /proc gives for a script's path is its interpreter's.
fn image(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<Image>, HostError> {
    let path = match dir.link("exe") {
        Ok(link) => link.unwrap_or_default(),
        Err(error) if error.is_denied() => Vec::new(),
        Err(error) => return Err(error),
    };
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    if dir.read_up_to("cmdline", CMDLINE_MAX, buffer)?.is_none() {
        return Ok(None);
    }
    Ok(Some(Image {
        path: String::from_utf8_lossy(path).into_owned(),
        argv: argv(buffer),
        truncated: buffer.len() >= CMDLINE_MAX,
    }))
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

/// Whether a cmdline looks like a title: setproctitle(3) and its like leave one string, and NULs up to the end of the arguments
/// that were there before; one that is longer than those has no NUL at its end, or words in it.
fn is_title(cmdline: &[u8], argv: &[String]) -> bool {
    let padded = cmdline.ends_with(&[0, 0]);
    let unended = !cmdline.is_empty() && !cmdline.ends_with(&[0]);
    padded || unended || matches!(argv, [only] if only.contains(' '))
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
