//! Processes of known habits, started here and looked at closely.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use super::super::testing::{Subject, eventually, identity};
use super::*;
use crate::engine::id::Ticks;

const SLEEP: &str = "import time; print('ready', flush=True); time.sleep(60)";

/// Starts a command that prints the pid of a child of its own.
fn parent_and_child(command: &mut Command) -> (Subject, ProcessId) {
    let mut parent = Subject::spawn(command.stdout(Stdio::piped()));
    let child = Pid(parent.line().parse().unwrap());
    (parent, identity(child))
}

fn look(subject: &Subject) -> Inspection {
    inspect(subject.process, &[]).unwrap().unwrap()
}

#[test]
fn a_plain_child_is_described_by_its_parent_and_session() {
    let subject = Subject::python(SLEEP);
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
fn a_pid_with_another_start_is_not_looked_at() {
    let subject = Subject::python(SLEEP);
    let reused = ProcessId { start_time: Ticks(subject.process.start_time.0 + 1), ..subject.process };
    assert_eq!(inspect(reused, &[]).unwrap(), None);
    assert!(inspect(subject.process, &[]).unwrap().is_some());
}

#[test]
fn a_dead_process_is_gone_and_an_unreaped_one_a_zombie() {
    let mut subject = Subject::spawn(&mut Command::new("true"));
    eventually("a zombie", || inspect(subject.process, &[]).unwrap().is_some_and(|seen| seen.zombie));
    subject.child().wait().unwrap();
    assert_eq!(inspect(subject.process, &[]).unwrap(), None);
}

#[test]
fn nohup_is_seen_as_an_ignored_hangup() {
    let mut command = Command::new("nohup");
    let subject = Subject::python_with(SLEEP, command.arg("python3").stdin(Stdio::null()));
    assert!(look(&subject).ignores_hup);
}

#[test]
fn a_session_of_its_own_has_itself_as_leader() {
    let subject = Subject::python("import os, time; os.setsid(); print('ready', flush=True); time.sleep(60)");
    let seen = look(&subject);
    assert_eq!((seen.sid, seen.pgid), (subject.process.pid.0, subject.process.pid.0));
    assert_eq!((seen.leader_alive, seen.leader, seen.tty), (true, None, false));
}

#[test]
fn a_session_whose_leader_died_has_none() {
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
fn listening_sockets_are_named_and_others_are_not() {
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
    let mut subject = Subject::spawn(command.arg("-c").arg(program).stdout(Stdio::piped()));
    let port = subject.line();
    assert_eq!(look(&subject).listens, [format!("tcp 127.0.0.1:{port}"), format!("unix {}", path.display())]);
}

#[test]
fn a_removed_working_directory_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("python3");
    let subject = Subject::python_with(SLEEP, command.current_dir(dir.path()));
    assert!(!look(&subject).cwd_deleted);
    dir.close().unwrap();
    assert!(look(&subject).cwd_deleted);
}

#[test]
fn a_stopped_process_says_so() {
    let subject =
        Subject::python("import os, signal; print('ready', flush=True); os.kill(os.getpid(), signal.SIGSTOP)");
    eventually("the stop", || look(&subject).stopped);
}

#[test]
fn stdin_from_dev_null_leads_nowhere() {
    let mut command = Command::new("python3");
    let subject = Subject::python_with(SLEEP, command.stdin(Stdio::null()));
    assert_eq!(look(&subject).stdin, Stdin::Other);
}

#[test]
fn stdin_from_a_terminal_is_a_terminal() {
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
    eventually("the terminal", || inspect(child, &[]).unwrap().unwrap().tty);
    assert_eq!(inspect(child, &[]).unwrap().unwrap().stdin, Stdin::Terminal);
}

#[test]
fn the_writer_of_a_pipe_is_found_and_its_end_noticed() {
    let own = identity(Pid(std::process::id()));
    let mut command = Command::new("python3");
    let mut subject = Subject::python_with(SLEEP, command.stdin(Stdio::piped()));
    let bystander = Subject::python(SLEEP);
    let peers = [bystander.process, subject.process, own];
    assert_eq!(inspect(subject.process, &peers).unwrap().unwrap().stdin, Stdin::Peer(vec![own]));
    assert_eq!(look(&subject).stdin, Stdin::Peer(Vec::new()), "nobody that was looked at");
    drop(subject.child().stdin.take());
    eventually("the end of stdin", || inspect(subject.process, &peers).unwrap().unwrap().stdin == Stdin::Closed);
}

/// Starts a python whose stdin is one end of a socket pair, as node's children have it; the other end is ours.
fn with_socket_stdin(command: &mut Command) -> (UnixStream, Subject) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let subject = Subject::python_with(SLEEP, command.stdin(OwnedFd::from(theirs)));
    (ours, subject)
}

#[test]
fn the_other_end_of_a_socket_pair_is_found_and_its_end_noticed() {
    let own = identity(Pid(std::process::id()));
    let (ours, subject) = with_socket_stdin(&mut Command::new("python3"));
    let bystander = Subject::python(SLEEP);
    let peers = [bystander.process, subject.process, own];
    assert_eq!(inspect(subject.process, &peers).unwrap().unwrap().stdin, Stdin::Peer(vec![own]));
    drop(ours);
    eventually("the end of stdin", || inspect(subject.process, &peers).unwrap().unwrap().stdin == Stdin::Closed);
}

#[test]
fn socket_pairs_are_followed_in_other_network_namespaces() {
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
fn a_fifo_of_the_file_system_is_searched_for_its_writers() {
    let own = identity(Pid(std::process::id()));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let both = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut command = Command::new("python3");
    let subject = Subject::python_with(SLEEP, command.stdin(std::fs::File::open(&path).unwrap()));
    assert_eq!(inspect(subject.process, &[own]).unwrap().unwrap().stdin, Stdin::Peer(vec![own]));
    drop(both);
    assert_eq!(inspect(subject.process, &[own]).unwrap().unwrap().stdin, Stdin::Peer(Vec::new()));
}
