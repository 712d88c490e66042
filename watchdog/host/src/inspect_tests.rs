//! Processes of known habits, started here and looked at closely.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use super::super::testing::{TestProcess, eventually, identity};
use super::*;
use watchdog_types::Ticks;

const SLEEP: &str = "import time; print('ready', flush=True); time.sleep(60)";

/// Starts a command that prints the pid of a child of its own.
fn parent_and_child(command: &mut Command) -> (TestProcess, ProcessId) {
    let mut parent = TestProcess::spawn(command.stdout(Stdio::piped()));
    let child = Pid(parent.line().parse().unwrap());
    (parent, identity(child))
}

fn look(subject: &TestProcess) -> Inspection {
    inspect(subject.process, &[]).unwrap().unwrap()
}

#[test]
fn child_has_parent_and_session() {
    let subject = TestProcess::python(SLEEP);
    let seen = look(&subject);
    let own = identity(Pid(std::process::id()));
    assert_eq!(seen.ppid, own.pid.0);
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(seen.parent_comm, comm.trim());
    assert!(seen.comm.starts_with("python"), "{seen:?}");
    assert_eq!((seen.zombie, seen.stopped, seen.ignores_hup, seen.cwd_deleted), (false, false, false, false));
    assert_eq!(seen.listens, Vec::<String>::new());
}

#[test]
fn oom_score_adj_is_read() {
    let subject = TestProcess::python(SLEEP);
    let own: i32 = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap().trim().parse().unwrap();
    assert_eq!(look(&subject).oom_score_adj, Some(own));
    let raised = (own + 1).min(1_000);
    std::fs::write(format!("/proc/{}/oom_score_adj", subject.process.pid), raised.to_string()).unwrap();
    assert_eq!(look(&subject).oom_score_adj, Some(raised));
}

#[test]
fn other_start_time_is_not_inspected() {
    let subject = TestProcess::python(SLEEP);
    let reused = ProcessId { start_time: Ticks(subject.process.start_time.0 + 1), ..subject.process };
    assert_eq!(inspect(reused, &[]).unwrap(), None);
    assert!(inspect(subject.process, &[]).unwrap().is_some());
}

#[test]
fn unreaped_process_is_zombie() {
    let mut subject = TestProcess::spawn(&mut Command::new("true"));
    eventually("a zombie", || inspect(subject.process, &[]).unwrap().is_some_and(|seen| seen.zombie));
    subject.child().wait().unwrap();
    assert_eq!(inspect(subject.process, &[]).unwrap(), None);
}

#[test]
fn nohup_ignores_hangup() {
    let mut command = Command::new("nohup");
    let subject = TestProcess::python_with(SLEEP, command.arg("python3").stdin(Stdio::null()));
    assert!(look(&subject).ignores_hup);
}

#[test]
fn own_session_has_no_other_leader() {
    let subject = TestProcess::python("import os, time; os.setsid(); print('ready', flush=True); time.sleep(60)");
    let seen = look(&subject);
    assert_eq!((seen.sid, seen.pgid), (subject.process.pid.0, subject.process.pid.0));
    assert_eq!((seen.leader_alive, seen.leader, seen.tty), (true, None, false));
}

#[test]
fn dead_session_leader_is_none() {
    // The grandchild outlives the leader, and ends when its stdin does.
    let program = "
import os, sys
os.setsid()
child = os.fork()
if child == 0:
    sys.stdin.read()
else:
    print(child, flush=True)
    sys.stdin.readline()
    os._exit(0)
";
    let mut command = Command::new("python3");
    let (mut leader, grandchild) = parent_and_child(command.args(["-c", program]).stdin(Stdio::piped()));
    let before = inspect(grandchild, &[]).unwrap().unwrap();
    assert_eq!((before.leader_alive, before.leader), (true, Some(leader.process)));
    leader.child().stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    leader.child().wait().unwrap();
    let after = inspect(grandchild, &[]).unwrap().unwrap();
    assert_eq!((after.leader_alive, after.leader, after.sid), (false, None, leader.process.pid.0));
    assert_ne!(after.ppid, leader.process.pid.0);
    drop(leader);
    eventually("the grandchild's end", || inspect(grandchild, &[]).unwrap().is_none_or(|seen| seen.zombie));
}

#[test]
fn only_listening_sockets_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.sock");
    let program = format!(
        "
import socket, time
four = socket.create_server(('127.0.0.1', 0))
unix = socket.socket(socket.AF_UNIX); unix.bind('{}'); unix.listen()
idle = socket.socket(); idle.bind(('127.0.0.1', 0))
print(four.getsockname()[1], flush=True)
time.sleep(60)
",
        path.display()
    );
    let mut command = Command::new("python3");
    let mut subject = TestProcess::spawn(command.arg("-c").arg(program).stdout(Stdio::piped()));
    let port = subject.line();
    assert_eq!(look(&subject).listens, [format!("tcp 127.0.0.1:{port}"), format!("unix {}", path.display())]);
}

#[test]
fn removed_working_directory_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    let subject = TestProcess::python_with(SLEEP, command.current_dir(dir.path()));
    assert!(!look(&subject).cwd_deleted);
    dir.close().unwrap();
    assert!(look(&subject).cwd_deleted);
}

#[test]
fn stopped_process_is_reported() {
    let subject =
        TestProcess::python("import os, signal; print('ready', flush=True); os.kill(os.getpid(), signal.SIGSTOP)");
    eventually("the stop", || look(&subject).stopped);
}

#[test]
fn stdin_from_dev_null_leads_nowhere() {
    let mut command = Command::new("python3");
    let subject = TestProcess::python_with(SLEEP, command.stdin(Stdio::null()));
    assert_eq!(look(&subject).stdin, Stdin::Other);
}

#[test]
fn terminal_stdin_is_recognised() {
    let program = "
import os, pty, time
pid, master = pty.fork()
if pid == 0:
    time.sleep(60)
    os._exit(0)
print(pid, flush=True)
time.sleep(60)
";
    let (_owner, child) = parent_and_child(Command::new("python3").args(["-c", program]));
    eventually("the terminal", || {
        let seen = inspect(child, &[]).unwrap().unwrap();
        seen.tty && seen.stdin == Stdin::Terminal
    });
}

#[test]
fn pipe_writer_is_found() {
    let own = identity(Pid(std::process::id()));
    let mut command = Command::new("python3");
    let mut subject = TestProcess::python_with(SLEEP, command.stdin(Stdio::piped()));
    let bystander = TestProcess::python(SLEEP);
    let peers = [bystander.process, subject.process, own];
    assert_eq!(inspect(subject.process, &peers).unwrap().unwrap().stdin, Stdin::Peer(vec![own]));
    assert_eq!(look(&subject).stdin, Stdin::Peer(Vec::new()), "no process that was inspected");
    drop(subject.child().stdin.take());
    eventually("the end of stdin", || inspect(subject.process, &peers).unwrap().unwrap().stdin == Stdin::Closed);
}

/// Starts a python whose stdin is one end of a socket pair, as node's children have it; the other end is ours.
fn with_socket_stdin(command: &mut Command) -> (UnixStream, TestProcess) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let subject = TestProcess::python_with(SLEEP, command.stdin(OwnedFd::from(theirs)));
    (ours, subject)
}

#[test]
fn socket_pair_peer_is_found() {
    let own = identity(Pid(std::process::id()));
    let (ours, subject) = with_socket_stdin(&mut Command::new("python3"));
    let bystander = TestProcess::python(SLEEP);
    let peers = [bystander.process, subject.process, own];
    assert_eq!(inspect(subject.process, &peers).unwrap().unwrap().stdin, Stdin::Peer(vec![own]));
    drop(ours);
    eventually("the end of stdin", || inspect(subject.process, &peers).unwrap().unwrap().stdin == Stdin::Closed);
}

#[test]
fn unread_stdin_is_counted() {
    let mut command = Command::new("python3");
    let mut subject = TestProcess::python_with(SLEEP, command.stdin(Stdio::piped()));
    assert_eq!(look(&subject).stdin_unread, Bytes(0));
    subject.child().stdin.as_mut().unwrap().write_all(b"0123456789").unwrap();
    assert_eq!(look(&subject).stdin_unread, Bytes(10), "a pipe");

    let (mut ours, subject) = with_socket_stdin(&mut Command::new("python3"));
    assert_eq!(look(&subject).stdin_unread, Bytes(0));
    ours.write_all(b"0123456").unwrap();
    assert_eq!(look(&subject).stdin_unread, Bytes(7), "a socket");
}

#[test]
fn socket_pair_found_across_namespaces() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: a network namespace cannot be made");
        return;
    }
    let own = identity(Pid(std::process::id()));
    // Made here, held there.
    let (_ours, subject) = with_socket_stdin(Command::new("unshare").args(["--net", "python3"]));
    assert_eq!(inspect(subject.process, &[own]).unwrap().unwrap().stdin, Stdin::Peer(vec![own]));
    // Made there.
    let program = "
import os, socket, time
parent, child = socket.socketpair()
pid = os.fork()
if pid == 0:
    parent.close()
    os.dup2(child.fileno(), 0)
    time.sleep(60)
    os._exit(0)
print(pid, flush=True)
time.sleep(60)
";
    let mut command = Command::new("unshare");
    let (subject, child) = parent_and_child(command.args(["--net", "python3", "-c", program]));
    let expected = Stdin::Peer(vec![subject.process]);
    eventually("the peer", || inspect(child, &[subject.process]).unwrap().unwrap().stdin == expected);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(i32::try_from(child.pid.0).unwrap()).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[test]
fn fifo_writers_are_found() {
    let own = identity(Pid(std::process::id()));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let both = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut command = Command::new("python3");
    let subject = TestProcess::python_with(SLEEP, command.stdin(std::fs::File::open(&path).unwrap()));
    assert_eq!(inspect(subject.process, &[own]).unwrap().unwrap().stdin, Stdin::Peer(vec![own]));
    drop(both);
    assert_eq!(inspect(subject.process, &[own]).unwrap().unwrap().stdin, Stdin::Peer(Vec::new()));
}

/// Mounts a FUSE file system for one user, and runs in it as that user. Its server is a child of the process.
const IN_PRIVATE_MOUNT: &str = r#"
import ctypes, os, struct, sys, time
USER = 65534
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result:
        raise OSError(ctypes.get_errno(), "mount")
check(libc.unshare(0x20000))
check(libc.mount(None, b"/", None, 0x44000, None))
fuse = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=%d,group_id=%d" % (fuse, USER, USER)
check(libc.mount(b"fuse", sys.argv[1].encode(), b"fuse", 0, options))
if os.fork() == 0:
    libc.prctl(1, 9)
    while True:
        opcode, unique = struct.unpack_from("<IQ", os.read(fuse, 1 << 17), 4)
        body, error = b"", -38
        if opcode == 26:
            body, error = struct.pack("<IIIIHHII36x", 7, 31, 0, 0, 0, 0, 4096, 1), 0
        if opcode == 3:
            body, error = struct.pack("<QQ6Q3I7I", *[0, 0, 1] + [0] * 8, 0o40777, 2, USER, USER, 0, 4096, 0), 0
        if opcode not in (2, 42):
            os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
os.close(fuse)
os.setresgid(USER, USER, USER)
os.setresuid(USER, USER, USER)
os.chdir(sys.argv[1])
held = os.open(".", os.O_PATH)
print("ready", flush=True)
time.sleep(60)
"#;

#[test]
fn private_mount_hides_no_evidence() {
    use std::os::unix::fs::PermissionsExt;
    if !rustix::process::geteuid().is_root() || std::fs::File::open("/dev/fuse").is_err() {
        return;
    }
    let mount = tempfile::tempdir().unwrap();
    std::fs::set_permissions(mount.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("python3");
    command.arg("-c").arg(IN_PRIVATE_MOUNT).arg(mount.path()).stdout(Stdio::piped());
    let mut subject = TestProcess::spawn(&mut command);
    assert_eq!(subject.line(), "ready");
    let link = format!("/proc/{}/cwd", subject.process.pid);
    assert_eq!(std::fs::metadata(link).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);

    let seen = inspect(subject.process, &[]).unwrap().unwrap();

    assert_eq!((seen.directory, seen.listens), (None, Vec::new()));
    assert!(seen.executable.is_some());
}
