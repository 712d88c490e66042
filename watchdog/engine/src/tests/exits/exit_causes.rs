//! How processes end by themselves, and by the kernel.

use super::*;

#[test]
fn full_v8_heap_is_recognised() {
    let mut world = World::new();
    host(&mut world, 24 * GIB, 20 * GIB);
    let agent = world.claude();
    let node = node(&mut world, agent, &["--max-old-space-size=200"]);
    world.memory(node, Bytes(60 * MIB));
    world.wait(Duration::from_secs(7));
    world.memory(node, Bytes(240 * MIB));
    abort(&mut world, node, 262 * MIB);

    let death = death(&world, node);
    assert_eq!(death.facts.cause, Cause::HeapLimit);
    let heap = death.facts.heap.unwrap();
    assert_eq!((heap.limit_bytes, heap.stated), (200 * MIB, true));
    assert_eq!(death.facts.sender.map(|sender| sender.relation), Some(Relation::Itself));
    insta::assert_snapshot!(death.facts.summary, @"leak.js (pid 1002, a tool of session 1, claude-code) ran out of V8 heap and aborted (SIGABRT): heap limit 200 MiB (from --max-old-space-size), peak 262 MiB; not an OOM kill. It ran 7s; 240 MiB at exit, 262 MiB peak, grew 180 MiB in 7s. Host: 20/24 GiB available, pressure 0 %.");
}

#[test]
fn default_v8_limit_is_known() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, 20 * GIB);
    let agent = world.claude();
    let node = node(&mut world, agent, &[]);
    abort(&mut world, node, 42 * GIB / 10);
    let heap = death(&world, node).facts.heap.unwrap();
    assert_eq!((heap.limit_bytes, heap.stated), (4 * GIB, false));
}

#[test]
fn shell_status_names_its_child() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/sh", "-c", "node --max-old-space-size=200 leak.js; exit $?"]);
    let node = node(&mut world, shell, &["--max-old-space-size=200"]);
    abort(&mut world, node, 262 * MIB);
    world.end(shell, ExitStatus::Code(134));

    let death = death(&world, shell);
    assert_eq!(death.facts.cause, Cause::PassedOn);
    let child = death.facts.passed_on_from.unwrap();
    assert_eq!((child.pid, child.cause), (node.pid.0, Cause::HeapLimit));
    assert!(death.facts.summary.contains("ran out of V8 heap and aborted (SIGABRT)"), "{}", death.facts.summary);
}

#[test]
fn heap_limit_needs_node_near_limit() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, 20 * GIB);
    let agent = world.claude();
    let small = node(&mut world, agent, &["--max-old-space-size=2000"]);
    abort(&mut world, small, 300 * MIB);
    let bun = world.spawn(agent, &["/usr/bin/bun", "--max-old-space-size=200", "/x/a.js"]);
    abort(&mut world, bun, 262 * MIB);
    // Its heap is not V8's, whatever NODE_OPTIONS say.
    world.feed(Input::Limits(agent, Limits { cgroup: None, v8_heap: Some(Bytes(4 * GIB)), ..Limits::default() }));
    abort(&mut world, agent, 4 * GIB);
    for process in [small, bun, agent] {
        assert_eq!(death(&world, process).facts.cause, Cause::Aborted);
    }
}

#[test]
fn foreign_sigabrt_is_a_kill() {
    let (mut world, agent) = World::with_claude();
    let node = node(&mut world, agent, &["--max-old-space-size=200"]);
    signal(&mut world, (STRANGER, "systemd"), node, SIGABRT, SI_USER);
    world.end_after(node, ExitStatus::Signal(SIGABRT), Some(Bytes(262 * MIB)));
    let death = death(&world, node);
    assert_eq!((death.facts.cause, death.facts.sender.unwrap().relation), (Cause::Killed, Relation::Stranger));
}

#[test]
fn sighup_comes_from_kernel() {
    let (mut world, agent) = World::with_claude();
    signal(&mut world, (STRANGER, "gnome-terminal-"), agent, SIGHUP, SI_KERNEL);
    world.end(agent, ExitStatus::Signal(SIGHUP));
    let facts = death(&world, agent).facts;
    assert_eq!(facts.cause, Cause::KernelSignal);
    assert!(facts.summary.contains("its terminal closed or its session leader exited"), "{}", facts.summary);
}

#[test]
fn crash_is_a_fault() {
    let (mut world, agent) = World::with_claude();
    let server = world.spawn(agent, &["/opt/bin/rust-analyzer"]);
    signal(&mut world, (server, "rust-analyzer"), server, SIGSEGV, 1);
    world.end(server, ExitStatus::Signal(SIGSEGV));
    let facts = death(&world, server).facts;
    assert_eq!(facts.cause, Cause::Fault);
    assert!(facts.summary.contains("bad pointer or stack overflow"), "{}", facts.summary);
}

#[test]
fn versioned_binary_has_program_name() {
    let mut world = World::new();
    let agent = world.agent_with("/home/u/.local/share/claude/versions/2.1.224", &["claude"]);
    host(&mut world, 31 * GIB, GIB / 8);
    oom_kill(&mut world, agent, 21 * GIB);
    let facts = death(&world, agent).facts;
    assert_eq!((facts.name.as_str(), facts.kind), ("claude", Some(ProcessKind::Agent)));
}

#[test]
fn full_heap_of_deno_is_recognised() {
    let mut world = World::new();
    host(&mut world, 24 * GIB, 20 * GIB);
    let agent = world.claude();
    let limited =
        world.spawn(agent, &["/usr/bin/deno", "run", "-A", "--v8-flags=--max-old-space-size=200", "/x/leak.ts"]);
    abort(&mut world, limited, 262 * MIB);
    let heap = death(&world, limited).facts.heap.unwrap();
    assert_eq!((heap.limit_bytes, heap.stated), (200 * MIB, true));
    // Nothing is known of its default.
    let other = world.spawn(agent, &["/usr/bin/deno", "run", "-A", "/x/leak.ts"]);
    abort(&mut world, other, 42 * GIB / 10);
    assert_eq!(death(&world, other).facts.cause, Cause::Aborted);
}
