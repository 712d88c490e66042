//! Keep-evidence that a process can forge: its name, and what it does.

use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::input::Input;
use watchdog_api::ProcessState;
use watchdog_types::{Bytes, Executable};

fn executes(path: &str, of_root: bool) -> Option<Executable> {
    Some(Executable { path: path.to_owned(), of_root })
}

/// What an agent left behind that executes this, bears this comm, and lies in such a file.
fn left(world: &mut World, path: &str, comm: &str, executable: Option<Executable>) -> ProcessId {
    let agent = claude(world);
    let mut helper = world.spawn(agent, &[path]);
    // The servers of multiplexers are forks that execute nothing.
    if comm != "ssh-agent" {
        helper = world.fork(helper);
    }
    world.shows(helper, |seen| (seen.comm, seen.executable) = (comm.to_owned(), executable.map(Box::new)));
    world.kill(agent);
    world.wait(Duration::from_secs(60));
    helper
}

#[rstest]
#[case::tmux("/usr/bin/tmux", "tmux: server", "/usr/bin/tmux")]
#[case::screen("/usr/bin/screen", "screen", "/usr/bin/screen-4.9.1")]
#[case::ssh_agent("/usr/bin/ssh-agent", "ssh-agent", "/usr/bin/ssh-agent")]
fn daemon_of_the_system_is_kept(#[case] path: &str, #[case] comm: &str, #[case] file: &str) {
    let mut world = World::new();
    let kept = left(&mut world, path, comm, executes(file, true));
    assert_eq!(world.row(kept).state, ProcessState::Kept);
}

#[rstest]
#[case::own_file("/home/u/ssh-agent", "ssh-agent", "/home/u/ssh-agent", false)]
#[case::own_tmux("/tmp/tmux", "tmux: server", "/tmp/tmux", false)]
#[case::link_to_an_interpreter("/home/u/ssh-agent", "ssh-agent", "/usr/bin/python3.13", true)]
#[case::own_screen("/home/u/screen", "screen", "/home/u/screen", false)]
fn forged_daemon_is_in_doubt(#[case] path: &str, #[case] comm: &str, #[case] file: &str, #[case] of_root: bool) {
    let mut world = World::new();
    let forger = left(&mut world, path, comm, executes(file, of_root));
    assert_eq!(world.row(forger).state, ProcessState::Orphaned);
    assert_eq!(proposal(&world), "report");
}

#[rstest]
#[case::sccache_argv(&["sccache"], "/usr/bin/python3.13", ProcessState::Orphaned)]
#[case::sccache_link(&["/home/u/sccache"], "/home/u/leak", ProcessState::Orphaned)]
#[case::sccache_of_user(&["/home/u/sccache"], "/home/u/.cargo/bin/sccache", ProcessState::Kept)]
#[case::script_named_buck2d(&["/usr/bin/python3", "/home/u/buck2d"], "/usr/bin/python3.13", ProcessState::Orphaned)]
#[case::editor(&["/usr/bin/node", "/home/u/server-main.js"], "/usr/bin/node", ProcessState::Orphaned)]
#[case::agent_daemon(&["claude", "daemon", "run"], "/usr/bin/python3.13", ProcessState::Orphaned)]
#[case::title_of_tmux(&["python3"], "/usr/bin/python3.13", ProcessState::Orphaned)]
fn service_is_confirmed_by_its_executable(#[case] argv: &[&str], #[case] file: &str, #[case] expected: ProcessState) {
    for path in [argv[0], ""] {
        let mut world = World::new();
        let agent = claude(&mut world);
        let helper = world.fork(agent);
        world.slow_proc = true;
        world.exec(helper, path, argv);
        let comm = if argv == ["python3"] { "tmux: server" } else { "x" };
        world
            .shows(helper, |seen| (seen.comm, seen.executable) = (comm.to_owned(), executes(file, true).map(Box::new)));
        assert_ne!(world.row(helper).state, ProcessState::Kept, "its executable has not been read yet");
        world.slow_proc = false;
        world.kill(agent);
        world.wait(Duration::from_secs(60));
        assert_eq!(world.row(helper).state, expected);
        if expected == ProcessState::Orphaned && argv != ["python3"] {
            assert_eq!(proposal(&world), "report");
        }
    }
}

#[rstest]
#[case::tmux("/home/u/grow", "tmux: server")]
#[case::bazel("/home/u/grow", "bazel(project)")]
#[case::spring("/usr/bin/node", "spring server")]
fn comm_alone_keeps_nothing(#[case] path: &str, #[case] comm: &str) {
    let mut world = World::new();
    let forger = left(&mut world, path, comm, executes(path, false));
    assert_eq!(world.row(forger).state, ProcessState::Orphaned);
    assert_eq!(proposal(&world), "terminate");
}

/// A daemon in a session of its own that listens.
fn service(world: &mut World, agent: ProcessId) -> ProcessId {
    let service = world.spawn(agent, &["/home/u/service"]);
    world.shows(service, |seen| (seen.sid, seen.listens) = (service.pid.0, vec!["tcp 127.0.0.1:3000".into()]));
    service
}

#[test]
fn kept_process_over_limit_becomes_uncertain() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let service = service(&mut world, agent);
    let worker = world.spawn(service, &["/home/u/service", "worker"]);
    world.kill(agent);
    world.wait(Duration::from_secs(60));
    assert_eq!(world.row(service).state, ProcessState::Kept);

    world.memory(service, Bytes::from_mib(600));
    world.memory(worker, Bytes::from_mib(600));
    world.wait(Duration::from_secs(60));

    let findings = world.open(FindingKind::Overlimit);
    assert_eq!((findings.len(), findings[0].pid, &findings[0].evidence["scope"]), (1, service.pid.0, &"kept".into()));
    assert_eq!(findings[0].evidence["limit_bytes"], 1 << 30);
    assert_eq!(world.row(service).state, ProcessState::Orphaned);
    assert_eq!(proposal(&world), "report", "it is in doubt, and never proposed");

    world.memory(worker, Bytes::from_mib(10));
    world.wait(Duration::from_secs(60));
    assert_eq!(world.row(service).state, ProcessState::Kept);
    assert!(world.open(FindingKind::Overlimit).is_empty());
}

#[test]
fn adopted_process_over_limit_stays_kept() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let adopted = world.spawn(agent, &["/home/u/service"]);
    world.feed(Input::Adopt(adopted));
    world.kill(agent);

    world.memory(adopted, Bytes::from_mib(1_200));
    world.wait(Duration::from_secs(60));

    assert_eq!(world.row(adopted).state, ProcessState::Kept);
    assert_eq!(world.open(FindingKind::Overlimit).len(), 1);
}

#[test]
fn leaking_kept_process_becomes_uncertain() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let service = service(&mut world, agent);
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    for second in 0..120 {
        world.memory(service, Bytes::from_mib(20 + second));
        world.wait(Duration::from_secs(1));
    }

    assert_eq!(world.open(FindingKind::Leak).len(), 1);
    assert_eq!(world.row(service).state, ProcessState::Orphaned);
    assert_eq!(proposal(&world), "report");
}
