//! What a process has done since its start: its CPU time, how often it was put on a CPU, and what it read and wrote.
//!
//! CPU time is that of the group (/proc/PID/stat, which sums up the threads that have ended too, and is the precise run
//! time rounded to ticks). How often threads ran is told for each by itself only: the third field of their schedstat is as
//! good as the context switches of their status, and cheaper by two thirds.

use super::clock;
use super::error::{HostError, is_gone};
use super::process::ProcessDir;
use super::stat::{Fields, number};
use crate::engine::id::ProcessId;
use crate::engine::input::Activity;

/// Threads beyond so many are not asked one by one: what they do shows in the CPU time.
const THREADS: usize = 64;

/// What the process has done so far; `None` when it is gone or a zombie. 40 µs, and 10 µs for each further thread.
///
/// # Errors
/// When the kernel refuses to open or read the process's files.
pub fn activity(process: ProcessId) -> Result<Option<Activity>, HostError> {
    let mut buffer = Vec::new();
    let Some((dir, stat)) = ProcessDir::of(process, &mut buffer)? else { return Ok(None) };
    if stat.is_zombie() {
        return Ok(None);
    }
    let dir = dir.of_all_threads();
    let Some(runs) = runs(&dir, &mut buffer)? else { return Ok(None) };
    let bytes = bytes(&dir, &mut buffer)?;
    Ok(Some(Activity { at: clock::now(), process, cpu: stat.cpu, runs, bytes }))
}

/// rchar and wchar of /proc/PID/io, which only those may read that may trace the process; `None` on a kernel without
/// CONFIG_TASK_IO_ACCOUNTING, too.
fn bytes(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<u64>, HostError> {
    match dir.read_up_to("io", 1024, buffer) {
        Ok(Some(())) => {}
        Ok(None) => return Ok(None),
        Err(error) if error.is_denied() => return Ok(None),
        Err(error) => return Err(error),
    }
    let io = Fields(buffer);
    let (read, written) = (io.number::<u64>("rchar"), io.number::<u64>("wchar"));
    Ok(read.zip(written).map(|(read, written)| read.saturating_add(written)))
}

fn runs(dir: &ProcessDir, buffer: &mut Vec<u8>) -> Result<Option<u64>, HostError> {
    let Some(tasks) = dir.list("task")? else { return Ok(None) };
    let mut threads: Vec<u32> = Vec::new();
    for entry in tasks {
        match entry {
            Ok(entry) => threads.extend(number::<u32>(entry.file_name().to_bytes())),
            Err(errno) if is_gone(errno) => return Ok(None),
            Err(errno) => return Err(HostError::io("list", dir.path("task"), errno)),
        }
    }
    // In their order, so that the same ones are asked each time.
    threads.sort_unstable();
    let mut total: u64 = 0;
    for thread in threads.into_iter().take(THREADS) {
        total = total.saturating_add(runs_of(dir, thread, buffer)?.unwrap_or(0));
    }
    Ok(Some(total))
}

/// Of one thread; `None` when it has ended.
fn runs_of(dir: &ProcessDir, thread: u32, buffer: &mut Vec<u8>) -> Result<Option<u64>, HostError> {
    let path = format!("task/{thread}/schedstat");
    if dir.read_up_to(&path, 256, buffer)?.is_some() {
        let third = buffer.split(u8::is_ascii_whitespace).nth(2).and_then(number::<u64>);
        return third.map(Some).ok_or_else(|| HostError::malformed(dir.path(&path), "no third field"));
    }
    // A kernel without CONFIG_SCHED_INFO.
    if dir.read_up_to(&format!("task/{thread}/status"), 8192, buffer)?.is_none() {
        return Ok(None);
    }
    let status = Fields(buffer);
    let voluntary = status.number::<u64>("voluntary_ctxt_switches");
    let other = status.number::<u64>("nonvoluntary_ctxt_switches");
    Ok(voluntary.zip(other).map(|(voluntary, other)| voluntary + other))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::engine::id::Pid;
    use crate::host::testing::{Subject, eventually, identity};

    fn look(process: ProcessId) -> Activity {
        activity(process).unwrap().unwrap()
    }

    #[test]
    fn work_shows_and_sleep_does_not() {
        let sleeper = Subject::python("import time; print('ready', flush=True); time.sleep(60)");
        let worker = Subject::python("print('ready', flush=True)\nwhile True: pass");
        eventually("it sleeps", || {
            let before = look(sleeper.process);
            std::thread::sleep(Duration::from_millis(100));
            let after = look(sleeper.process);
            (before.cpu, before.runs) == (after.cpu, after.runs)
        });
        let before = (look(sleeper.process), look(worker.process));
        eventually("it works", || look(worker.process).cpu > before.1.cpu);
        let after = look(sleeper.process);
        assert_eq!((after.cpu, after.runs), (before.0.cpu, before.0.runs));
        assert!(after.runs > 0);
    }

    #[test]
    fn every_thread_counts() {
        let program = "import threading, time\ndef tick():\n  while True: time.sleep(0.005)\nthreading.Thread(target=tick).start()\nprint('ready', flush=True)\ntime.sleep(60)";
        let subject = Subject::python(program);
        let before = look(subject.process);
        eventually("the other thread ran", || look(subject.process).runs >= before.runs + 20);
    }

    #[test]
    fn what_is_read_and_written_counts() {
        let program = "import time\nprint('ready', flush=True)\nwhile True:\n  open('/dev/null', 'w').write('x' * 5000); time.sleep(0.01)";
        let subject = Subject::python(program);
        let before = look(subject.process).bytes.unwrap();
        eventually("it has written", || look(subject.process).bytes.unwrap() >= before + 5_000);
    }

    #[test]
    fn a_process_that_is_gone_has_no_activity() {
        let mut child = Command::new("true").spawn().unwrap();
        let process = identity(Pid(child.id()));
        eventually("a zombie", || activity(process).unwrap().is_none());
        child.wait().unwrap();
        assert_eq!(activity(process).unwrap(), None);
    }
}
