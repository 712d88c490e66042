//! Scans all processes of /proc, at start and after lost events.

use std::collections::HashMap;

use super::clock;
use super::error::HostError;
use super::memory;
use super::process::{self, ProcessDir};
use super::relative_paths;
use super::stat::Fields;
use watchdog_types::{Image, Lineage, Memory, Pid, ProcessId, Scan, ScannedProcess};

/// Bytes of a cmdline that are read: a page, since profiles match the first arguments only.
const CMDLINE_MAX: usize = 4096;

/// All processes, without threads and kernel threads. A process that exits meanwhile, or is forked after the listing has
/// passed its pid, is missing.
///
/// `entries` are those of the kernel's map, by pid; an entry belongs to the process with the same start time. Memory is read
/// for processes with an entry only, and is zero for all others.
///
/// Costs about 40 µs a process: its directory and four files. A host with 500 processes takes 20 ms.
///
/// # Errors
/// When /proc cannot be listed, or the kernel refuses a file that every user may read. An exe link that may not be read gives
/// an empty path: without root, that of most processes of other users.
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

/// exe and cmdline now; `None` when the process has exited. /proc shows the interpreter as the path of a script.
pub(super) fn image(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<Image>, HostError> {
    let path = match dir.link("exe") {
        Ok(link) => link.unwrap_or_default(),
        Err(error) if error.is_denied() => Vec::new(),
        Err(error) => return Err(error),
    };
    let path = path.strip_suffix(b" (deleted)").unwrap_or(&path);
    if dir.read_up_to("cmdline", CMDLINE_MAX, buffer)?.is_none() {
        return Ok(None);
    }
    let mut image = Image {
        path: String::from_utf8_lossy(path).into_owned(),
        argv: argv(buffer),
        truncated: buffer.len() >= CMDLINE_MAX,
        script: None,
    };
    match relative_paths::resolve_in(dir, &mut image) {
        Err(error) if !error.is_denied() => Err(error),
        Ok(()) | Err(_) => Ok(Some(image)),
    }
}

/// The arguments in a cmdline. A program that writes a title over its arguments fills the rest with NULs, which are not
/// arguments. (Empty arguments at the end are lost, too.)
fn argv(cmdline: &[u8]) -> Vec<String> {
    let end = cmdline.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if end == 0 {
        return Vec::new();
    }
    cmdline[..end].split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

/// Whether a cmdline looks like a title. setproctitle(3) leaves one string, padded with NULs to the length of the former
/// arguments; a longer title has no NUL at its end, or contains spaces.
fn is_title(cmdline: &[u8], argv: &[String]) -> bool {
    let padded = cmdline.ends_with(&[0, 0]);
    let unended = !cmdline.is_empty() && !cmdline.ends_with(&[0]);
    padded || unended || matches!(argv, [only] if only.contains(' '))
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
