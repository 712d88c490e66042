//! Activity of a process since its start: CPU time, timeslices, and bytes read and written.
//!
//! CPU time is that of the whole process (/proc/PID/stat, including exited threads, rounded to ticks). Timeslices exist per
//! thread only: the third field of schedstat, which costs a third of the context switches in status.

use super::clock;
use super::error::HostError;
use super::process::ProcessDir;
use super::stat::{Fields, number};
use watchdog_types::{Activity, ProcessId};

/// Threads whose timeslices are read; others show in the CPU time only.
const THREADS: usize = 64;

/// `None` when the process has exited. 40 µs, and 10 µs per further thread.
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

/// rchar and wchar of /proc/PID/io; `None` without the right to ptrace the process, or on a kernel without
/// CONFIG_TASK_IO_ACCOUNTING.
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
    let Some(threads) = dir.threads()? else { return Ok(None) };
    let mut total: u64 = 0;
    for thread in threads.into_iter().take(THREADS) {
        total = total.saturating_add(runs_of(dir, thread, buffer)?.unwrap_or(0));
    }
    Ok(Some(total))
}

/// Times that one thread ran; `None` when it has exited.
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
    use crate::testing::{TestProcess, eventually, identity};
    use watchdog_types::Pid;

    fn look(process: ProcessId) -> Activity {
        activity(process).unwrap().unwrap()
    }

    #[test]
    fn work_shows_and_sleep_does_not() {
        let sleeper = TestProcess::python("import time; print('ready', flush=True); time.sleep(60)");
        let worker = TestProcess::python("print('ready', flush=True)\nwhile True: pass");
        eventually("it sleeps", || {
            let before = look(sleeper.process);
            std::thread::sleep(Duration::from_millis(100));
            let after = look(sleeper.process);
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.process.pid));
            (before.cpu, before.runs) == (after.cpu, after.runs) && stat.is_ok_and(|stat| stat.contains(") S "))
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
        let subject = TestProcess::python(program);
        let before = look(subject.process);
        eventually("the other thread ran", || look(subject.process).runs >= before.runs + 20);
    }

    #[test]
    fn io_bytes_are_counted() {
        let program = "import time\nprint('ready', flush=True)\nwhile True:\n  open('/dev/null', 'w').write('x' * 5000); time.sleep(0.01)";
        let subject = TestProcess::python(program);
        let before = look(subject.process).bytes.unwrap();
        eventually("it has written", || look(subject.process).bytes.unwrap() >= before + 5_000);
    }

    #[test]
    fn exited_process_has_no_activity() {
        let mut child = Command::new("true").spawn().unwrap();
        let process = identity(Pid(child.id()));
        eventually("a zombie", || activity(process).unwrap().is_none());
        child.wait().unwrap();
        assert_eq!(activity(process).unwrap(), None);
    }
}
