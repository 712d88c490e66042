//! Kills that free memory, whichever process killed, and exits that follow from others.

use rstest::rstest;

use super::*;

const SIGXFSZ: u8 = 25;

#[test]
fn userspace_killer_names_holders() {
    let mut world = World::new();
    host(&mut world, 24 * GIB, GIB);
    let (victim, builder) = (world.claude(), world.claude());
    world.memory(victim, Bytes(300 * MIB));
    for _ in 0..12 {
        let rustc = world.spawn(builder, &["/usr/bin/rustc", "x.rs"]);
        world.memory(rustc, Bytes(1_800 * MIB));
    }
    signal(&mut world, (STRANGER, "earlyoom"), victim, SIGTERM, SI_USER);
    world.end_after(victim, ExitStatus::Code(143), None);

    let facts = death(&world, victim).facts;
    let memory = facts.memory_holders.unwrap();
    assert_eq!((memory.holders[0].session, memory.holders[0].processes), (Some(2), 13));
    assert_eq!(memory.holders[0].memory_bytes, 12 * 1_800 * MIB);
    assert!(
        facts.summary.contains("Sessions held 21 GiB: session 2 (claude-code) 21 GiB in 13 processes"),
        "{}",
        facts.summary
    );
    let other_user = explain_to(&world, Viewer::User(Uid(USER.0 + 1)), ExplainTarget::Pid(victim.pid));
    assert!(other_user.is_none());
}

#[test]
fn any_stranger_counts_when_memory_short() {
    let mut world = World::new();
    host(&mut world, 24 * GIB, GIB / 2);
    let agent = world.claude();
    world.memory(agent, Bytes(2 * GIB));
    signal(&mut world, (STRANGER, "kubelet"), agent, SIGKILL, SI_USER);
    world.end_after(agent, ExitStatus::Signal(SIGKILL), None);
    assert!(death(&world, agent).facts.memory_holders.is_some());
}

#[test]
fn ordinary_kill_names_no_holders() {
    let mut world = World::new();
    host(&mut world, 24 * GIB, 20 * GIB);
    let agent = world.claude();
    world.memory(agent, Bytes(2 * GIB));
    signal(&mut world, (STRANGER, "kill"), agent, SIGKILL, SI_USER);
    world.end_after(agent, ExitStatus::Signal(SIGKILL), None);
    assert!(death(&world, agent).facts.memory_holders.is_none());
}

#[test]
fn exit_follows_killed_helper() {
    let mut world = World::new();
    host(&mut world, 24 * GIB, 20 * GIB);
    let agent = world.claude();
    let server = world.spawn(agent, &["/usr/bin/rust-analyzer"]);
    world.wait(Duration::from_secs(60));
    in_cgroup(&mut world, server, "/user.slice/a.scope", GIB);
    signal(&mut world, (STRANGER, "earlyoom"), server, SIGKILL, SI_USER);
    world.kill(server);
    world.now = world.now.plus(Duration::from_millis(500));
    world.end_after(agent, ExitStatus::Code(1), None);
    insta::assert_snapshot!(death(&world, agent).facts.summary, @"claude (pid 1001, the agent of session 1, claude-code) exited with code 1. It ran 1m. rust-analyzer (pid 1002) was killed by SIGKILL from earlyoom (pid 77, uid 0, a userspace OOM killer by its name) 0.5s before it in cgroup /user.slice/a.scope. This exit may follow from it.");
}

#[test]
fn manager_kills_rest_after_oom() {
    let mut world = World::new();
    host(&mut world, 24 * GIB, 20 * GIB);
    let agent = world.claude();
    let helper = world.spawn(agent, &["/usr/bin/python3", "/x/p.py"]);
    world.wait(Duration::from_secs(60));
    oom(&mut world, helper, "p");
    world.kill(helper);
    world.now = world.now.plus(Duration::from_millis(100));
    signal(&mut world, (STRANGER, "manager"), agent, SIGKILL, SI_USER);
    world.end_after(agent, ExitStatus::Signal(SIGKILL), None);
    let summary = death(&world, agent).facts.summary;
    assert!(summary.contains("p.py (pid 1002) was killed by the kernel's OOM killer 0.1s before it"), "{summary}");
}

#[test]
fn thread_exit_sends_parent_death_signal() {
    let mut world = World::new();
    let agent = world.claude();
    let tool = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.feed(Input::Kernel(KernelEvent::Signal(Signal {
        at: world.now,
        process: tool,
        signal: SIGTERM,
        code: SI_USER,
        delivered: true,
        sender: agent,
        sender_comm: "claude".into(),
        sender_uid: Uid(0),
        sender_thread_exits: true,
    })));
    world.end_after(tool, ExitStatus::Signal(SIGTERM), None);
    let facts = death(&world, tool).facts;
    assert_eq!(facts.sender.map(|sender| (sender.by_its_death, sender.by_thread_exit)), Some((false, true)));
    assert!(facts.summary.contains("whose thread that had started it exited (PR_SET_PDEATHSIG)"), "{}", facts.summary);
}

#[rstest]
#[case::thread(Some("my-ide"), "whose thread that had started it exited (PR_SET_PDEATHSIG); the starter runs on")]
#[case::process(None, "which had started it and exited (PR_SET_PDEATHSIG)")]
fn stranger_exit_sends_parent_death_signal(#[case] program: Option<&str>, #[case] says: &str) {
    let mut world = World::new();
    let agent = world.claude();
    let killer = STRANGER;
    world.feed(Input::Kernel(KernelEvent::Signal(Signal {
        at: world.now,
        process: agent,
        signal: SIGKILL,
        code: SI_USER,
        delivered: true,
        sender: killer,
        sender_comm: "tokio-runtime-w".into(),
        sender_uid: Uid(1000),
        sender_thread_exits: true,
    })));
    let seen = KillSeen { program: program.map(str::to_owned), ..KillSeen::default() };
    world.feed(Input::KillSeen(Kill { killer, target: agent }, seen));
    world.end_after(agent, ExitStatus::Signal(SIGKILL), None);
    let summary = death(&world, agent).facts.summary;
    assert!(summary.contains(says), "{summary}");
}

#[test]
fn limits_of_kernel_are_named() {
    let mut world = World::new();
    let agent = world.claude();
    let (writer, computer) = (world.spawn(agent, &["/usr/bin/dd"]), world.spawn(agent, &["/usr/bin/seccomped"]));
    world.end_after(writer, ExitStatus::Signal(SIGXFSZ), None);
    world.end_after(computer, ExitStatus::Signal(SIGKILL), None);
    let facts = death(&world, writer).facts;
    assert_eq!(facts.cause, Cause::KernelSignal);
    assert!(facts.summary.contains("file size limit (RLIMIT_FSIZE)"), "{}", facts.summary);
    let summary = death(&world, computer).facts.summary;
    assert!(summary.contains("no sender was observed: for example, strict seccomp"), "{summary}");
}

/// 20 of 24 GiB are available: only the killer says that it killed for memory.
fn ample_host_with_holder() -> (World, ProcessId) {
    let mut world = World::new();
    host(&mut world, 24 * GIB, 20 * GIB);
    let holder = world.claude();
    world.memory(holder, Bytes(3 * GIB));
    (world, holder)
}

#[test]
fn forwarded_kill_names_holders() {
    let (mut world, _) = ample_host_with_holder();
    let agent = world.claude();
    let npm = world.spawn(agent, &["npm", "exec", "@x/server"]);
    let server = world.spawn(npm, &["node", "/x/server.js"]);
    signal(&mut world, (STRANGER, "earlyoom"), npm, SIGTERM, SI_USER);
    signal(&mut world, (npm, "npm"), server, SIGTERM, SI_USER);
    world.end_after(server, ExitStatus::Signal(SIGTERM), None);
    let facts = death(&world, server).facts;
    assert_eq!(facts.memory_holders.map(|memory| memory.sessions_bytes), Some(3 * GIB));
    assert!(facts.summary.contains("had received SIGTERM from earlyoom"), "{}", facts.summary);
    assert!(facts.summary.contains("session 1 (claude-code) 3.0 GiB"), "{}", facts.summary);
}

#[test]
fn killer_inside_session_names_holders() {
    let (mut world, holder) = ample_host_with_holder();
    let shell = world.spawn(holder, &["/bin/bash"]);
    let killer = world.spawn(shell, &["/usr/bin/python3", "/usr/sbin/nohang", "--monitor"]);
    let victim = world.claude();
    signal(&mut world, (killer, "python3"), victim, SIGKILL, SI_USER);
    world.kill(victim);
    let facts = death(&world, victim).facts;
    assert!(facts.memory_holders.is_some(), "{}", facts.summary);
    assert!(
        facts.summary.contains("nohang (pid 1003, a userspace OOM killer by its name) in session 1"),
        "{}",
        facts.summary
    );
}

/// An agent, npm, its shell and the server.
fn server_behind_npm() -> (World, [ProcessId; 4]) {
    let mut world = World::new();
    host(&mut world, 24 * GIB, 20 * GIB);
    let agent = world.claude();
    let npm = world.spawn(agent, &["npm", "exec", "@x/server-memory"]);
    let shell = world.spawn(npm, &["sh", "-c", "mcp-server-memory"]);
    let server = world.spawn(shell, &["node", "/x/bin/mcp-server-memory"]);
    (world, [agent, npm, shell, server])
}

#[test]
fn exit_follows_server_behind_npm() {
    let (mut world, [agent, npm, shell, server]) = server_behind_npm();
    world.wait(Duration::from_secs(60));
    signal(&mut world, (STRANGER, "earlyoom"), server, SIGKILL, SI_USER);
    world.kill(server);
    for (process, code) in [(shell, 137), (npm, 137)] {
        world.end_after(process, ExitStatus::Code(code), None);
    }
    world.wait(Duration::from_secs(4));
    world.end_after(agent, ExitStatus::Code(1), None);
    let summary = death(&world, agent).facts.summary;
    let says = "mcp-server-memory (pid 1004) was killed by SIGKILL from earlyoom";
    assert!(summary.contains(says) && summary.contains("This exit may follow from it."), "{summary}");
}

#[test]
fn servers_exit_follows_wrappers_kill() {
    let (mut world, [_, npm, _, server]) = server_behind_npm();
    world.wait(Duration::from_secs(90));
    signal(&mut world, (STRANGER, "nohang"), npm, SIGKILL, SI_USER);
    world.kill(npm);
    world.wait(Duration::from_secs(5));
    world.end_after(server, ExitStatus::Code(1), None);
    let summary = death(&world, server).facts.summary;
    assert!(summary.contains("(pid 1002) was killed by SIGKILL from nohang (pid 77"), "{summary}");
}

#[test]
fn killed_command_of_tool_is_no_cause() {
    let mut world = World::new();
    host(&mut world, 24 * GIB, 20 * GIB);
    let agent = world.claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "make"]);
    let make = world.spawn(shell, &["/usr/bin/make"]);
    world.wait(Duration::from_secs(60));
    signal(&mut world, (STRANGER, "kill"), make, SIGTERM, SI_USER);
    world.end(make, ExitStatus::Signal(SIGTERM));
    world.wait(Duration::from_secs(5));
    world.end_after(agent, ExitStatus::Code(1), None);
    let summary = death(&world, agent).facts.summary;
    assert!(!summary.contains("make"), "{summary}");
}
