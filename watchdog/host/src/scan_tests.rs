//! Processes of known kinds, started here and found by a scan.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rstest::rstest;

use super::super::testing::{TestProcess, eventually};
use super::*;
use watchdog_types::{Bytes, Ticks, Uid};

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

fn find(scan: &Scan, process: ProcessId) -> Option<&ScannedProcess> {
    scan.processes.iter().find(|scanned| scanned.process == process)
}

#[test]
fn scan_finds_program_and_user() {
    let before = clock::now();
    let mut command = Command::new("sleep");
    let subject = TestProcess::spawn(command.arg("60").arg0("a sleeper"));
    let scan = scan(&HashMap::new()).unwrap();
    let found = find(&scan, subject.process).unwrap();
    assert_eq!((found.comm.as_str(), found.ppid), ("sleep", Pid(std::process::id())));
    assert_eq!(found.image.argv, ["a sleeper", "60"]);
    assert!(found.image.path.starts_with('/') && !found.image.truncated, "{found:?}");
    assert_eq!(found.uid, Uid(rustix::process::getuid().as_raw()));
    assert_eq!((found.zombie, found.lineage, found.memory), (false, None, Memory::default()));
    assert!(scan.began >= before && scan.began <= clock::now());
}

#[test]
fn kernel_threads_are_left_out() {
    let scan = scan(&HashMap::new()).unwrap();
    // kthreadd is pid 2 wherever kernel threads are seen at all.
    let kthreadd = std::fs::read_to_string("/proc/2/comm").is_ok_and(|comm| comm.trim() == "kthreadd");
    let of_the_kernel =
        scan.processes.iter().filter(|found| found.process.pid == Pid(2) || found.ppid == Pid(2)).count();
    assert!(!kthreadd || of_the_kernel == 0, "{of_the_kernel}");
    assert!(scan.processes.iter().any(|found| found.process.pid == Pid(std::process::id())));
}

#[test]
fn threads_are_no_processes() {
    let program = "
import threading, time
for _ in range(50): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print('ready', flush=True)
time.sleep(60)
";
    let subject = TestProcess::python(program);
    let threads: Vec<u32> = std::fs::read_dir(format!("/proc/{}/task", subject.process.pid))
        .unwrap()
        .map(|task| task.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(threads.len(), 51);
    let scan = scan(&HashMap::new()).unwrap();
    let found = scan.processes.iter().filter(|found| threads.contains(&found.process.pid.0)).count();
    assert_eq!(found, 1);
}

#[test]
fn removed_executable_keeps_path() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("my-sleep");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let subject = TestProcess::spawn(Command::new(&program).arg("60"));
    std::fs::remove_file(&program).unwrap();
    let scan = scan(&HashMap::new()).unwrap();
    assert_eq!(
        find(&scan, subject.process).unwrap().image.path,
        program.canonicalize().unwrap_or(program).to_str().unwrap()
    );
}

#[test]
fn long_command_line_is_cut() {
    let subject =
        TestProcess::spawn(Command::new("sh").args(["-c", "read line", &"x".repeat(10_000)]).stdin(Stdio::piped()));
    let scan = scan(&HashMap::new()).unwrap();
    let image = &find(&scan, subject.process).unwrap().image;
    assert!(image.truncated);
    assert_eq!(image.argv[..3], ["sh", "-c", "read line"]);
    assert!(image.argv[3].len() < CMDLINE_MAX);
}

#[test]
fn entry_needs_matching_start_time() {
    let subject = TestProcess::spawn(Command::new("sleep").arg("60"));
    let process = subject.process;
    let lineage = Lineage { root: process, parent: None, depth: 0, provisional: false, forked: false, witness: false };
    let found = |entry: ProcessId| {
        let scan = scan(&HashMap::from([(process.pid, (entry, lineage))])).unwrap();
        let found = find(&scan, process).unwrap();
        (found.lineage, found.memory.rss() > Bytes(0))
    };
    assert_eq!(found(process), (Some(lineage), true));
    assert_eq!(found(ProcessId { start_time: Ticks(process.start_time.0 - 1), ..process }), (None, false));
}

#[test]
fn process_without_first_thread_lives() {
    // By the bare system call: pthread_exit wants a library to unwind with, which a guest does not have.
    let script = "import threading, time, ctypes, os\n\
                  threading.Thread(target=time.sleep, args=(1000,)).start()\n\
                  ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)\n";
    let subject = TestProcess::spawn(Command::new("/usr/bin/python3").args(["-c", script]));
    let stat = format!("/proc/{}/stat", subject.process.pid);
    eventually("the first thread's end", || std::fs::read_to_string(&stat).unwrap().contains(") Z "));
    assert!(!find(&scan(&HashMap::new()).unwrap(), subject.process).unwrap().zombie);
}

#[test]
fn scan_reports_zombie() {
    let mut subject = TestProcess::spawn(&mut Command::new("true"));
    eventually("the zombie", || {
        let scan = scan(&HashMap::new()).unwrap();
        find(&scan, subject.process).is_some_and(|found| found.zombie && found.image.argv.is_empty())
    });
    subject.child().wait().unwrap();
    assert_eq!(find(&scan(&HashMap::new()).unwrap(), subject.process), None);
}

#[test]
fn title_differs_from_arguments() {
    let titled = |cmdline: &[u8]| is_title(cmdline, &argv(cmdline));
    assert!(!titled(b"node\0/x/cli.js\0"));
    assert!(!titled(b"sleep\0"));
    assert!(!titled(b""));
    assert!(titled(b"claude\0\0\0\0\0\0"), "shorter than the arguments were");
    assert!(titled(b"npm exec server-memory\0"));
    assert!(titled(b"postgres:writer"));
}
