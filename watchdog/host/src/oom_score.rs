//! oom_score_adj: which process the kernel kills first when memory runs out.

use std::io::Write;

use rustix::fs::{Mode, OFlags, openat};

use super::error::{HostError, is_missing};
use super::process::ProcessDir;
use super::stat::number;
use watchdog_types::ProcessId;

/// Raises a process's oom_score_adj to at least `min`. Does nothing if the process has exited.
pub fn raise(process: ProcessId, min: i32) -> Result<(), HostError> {
    const FILE: &str = "oom_score_adj";
    let mut buffer = Vec::new();
    let Some((dir, _)) = ProcessDir::of(process, &mut buffer)? else { return Ok(()) };
    if dir.read_up_to(FILE, 64, &mut buffer)?.is_none() {
        return Ok(());
    }
    let present: i32 = number(&buffer).ok_or_else(|| HostError::malformed(dir.path(FILE), "not a number"))?;
    if present >= min {
        return Ok(());
    }
    let written = match openat(dir.fd(), FILE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => std::fs::File::from(file).write_all(min.to_string().as_bytes()),
        Err(errno) => Err(errno.into()),
    };
    match written {
        Err(error) if !rustix::io::Errno::from_io_error(&error).is_some_and(is_missing) => {
            Err(HostError::io("write", dir.path(FILE), error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::testing::TestProcess;
    use watchdog_types::Ticks;

    #[test]
    fn score_is_raised_never_lowered() {
        let subject = TestProcess::spawn(Command::new("sleep").arg("1000"));
        let score = || -> i32 {
            let text = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", subject.process.pid)).unwrap();
            text.trim().parse().unwrap()
        };
        let before = score();
        raise(subject.process, before + 20).unwrap();
        assert_eq!(score(), before + 20);
        raise(subject.process, before + 10).unwrap();
        assert_eq!(score(), before + 20);
        let another = ProcessId { start_time: Ticks(subject.process.start_time.0 + 1), ..subject.process };
        raise(another, before + 30).unwrap();
        assert_eq!(score(), before + 20);
    }
}
