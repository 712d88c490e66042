//! A killer outside every session and the cgroup of its target, right after the signal.

use super::error::HostError;
use super::limits::{CgroupTree, lineage};
use super::process::ProcessDir;
use super::scan;
use watchdog_classify::label;
use watchdog_types::{CgroupPressure, Kill, KillSeen};

/// Threads whose names are read.
const MAX_THREADS: usize = 64;

/// `cgroup` is the last known one of the target, which may have exited by now. 100 µs, 20 µs for each level of its cgroup, and
/// 10 µs for each thread of the killer.
pub fn look(cgroups: &CgroupTree, kill: Kill, cgroup: Option<&str>) -> Result<KillSeen, HostError> {
    let mut buffer = Vec::new();
    let (program, threads) = match ProcessDir::of(kill.killer, &mut buffer)? {
        Some((dir, stat)) => (
            scan::image(&dir, &mut buffer)?.map(|image| label(&image, &stat.comm)),
            thread_names(&dir, stat.comm, &mut buffer)?,
        ),
        None => (None, Vec::new()),
    };
    let path_of = |pid| match cgroups.path_of(pid)?.filter(|path| path != "/") {
        Some(path) => Ok(Some(path)),
        None => cgroups.memory_path_of(pid),
    };
    let killer_cgroup = path_of(kill.killer.pid)?.filter(|_| program.is_some());
    let is_there = ProcessDir::of(kill.target, &mut buffer)?.is_some();
    let own = if is_there { path_of(kill.target.pid)? } else { None };
    let cgroup = own.or_else(|| cgroup.map(str::to_owned));
    let mut pressure = Vec::new();
    for path in cgroup.iter().flat_map(|path| lineage(path)).filter(|path| *path != "/") {
        pressure.extend(cgroups.read(path, "memory.pressure")?.and_then(|text| parse(path, &text)));
    }
    Ok(KillSeen { program, threads, killer_cgroup, cgroup, pressure })
}

/// The name of the first thread, and those of others.
fn thread_names(dir: &ProcessDir, first: String, buffer: &mut Vec<u8>) -> Result<Vec<String>, HostError> {
    let mut names = vec![first];
    for thread in dir.threads()?.unwrap_or_default().into_iter().take(MAX_THREADS) {
        if dir.read_up_to(&format!("task/{thread}/comm"), 64, buffer)?.is_some() {
            let name = String::from_utf8_lossy(buffer).trim_end_matches('\n').to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// A memory.pressure: `some avg10=1.00 …`, `full avg10=0.50 …`.
fn parse(path: &str, text: &str) -> Option<CgroupPressure> {
    let average = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse::<f64>().ok()
    };
    Some(CgroupPressure { path: path.to_owned(), some_avg10: average("some")?, full_avg10: average("full")? })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process::this_process;
    use crate::testing::TestProcess;
    use watchdog_types::{ProcessId, Ticks};

    #[test]
    fn killer_is_named_by_its_program() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("killer");
        fs::write(&script, "echo ready\nread -r line\n").unwrap();
        let mut command = Command::new("/bin/sh");
        command.arg(&script).arg("secret").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut subject = TestProcess::spawn(&mut command);
        // Right after its start a process has no arguments yet.
        assert_eq!(subject.line(), "ready");
        let kill = Kill { killer: subject.process, target: this_process().unwrap() };
        let seen = look(&CgroupTree::of_host(), kill, None).unwrap();
        assert_eq!(seen.program.as_deref(), Some("killer"));
        assert_eq!(seen.threads, ["sh"]);
        assert!(seen.cgroup.is_some(), "{seen:?}");
    }

    #[test]
    fn pressure_of_targets_cgroup_is_read() {
        let top = tempfile::tempdir().unwrap();
        let unit = top.path().join("user.slice/app.scope");
        fs::create_dir_all(&unit).unwrap();
        let text = "some avg10=71.20 avg60=9.00 avg300=1.00 total=1\nfull avg10=55.00 avg60=8.00 avg300=1.00 total=1\n";
        fs::write(unit.join("memory.pressure"), text).unwrap();
        let nobody = ProcessId { start_time: Ticks(u64::MAX), ..this_process().unwrap() };
        let kill = Kill { killer: nobody, target: nobody };
        let seen = look(&CgroupTree::at(top.path()), kill, Some("/user.slice/app.scope")).unwrap();
        let expected = CgroupPressure { path: "/user.slice/app.scope".into(), some_avg10: 71.2, full_avg10: 55.0 };
        assert_eq!((seen.program, seen.pressure), (None, vec![expected]));
    }
}
