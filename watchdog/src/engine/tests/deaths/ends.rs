//! How processes end by themselves, and by the kernel.

use super::*;

#[test]
fn a_node_that_fills_the_heap_that_it_was_given_is_no_victim_of_the_oom_killer() {
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
    insta::assert_snapshot!(death.facts.summary, @"leak.js (pid 1002, a tool of session 1, claude-code) filled its V8 heap and aborted (SIGABRT): the heap may have 200 MiB (as its arguments or NODE_OPTIONS state), and the process had 262 MiB at its peak. The kernel's OOM killer had no part in it. It lived for 7s, held 240 MiB at last and 262 MiB at its peak; it had grown by 180 MiB in 7s. The host had 20 GiB of 24 GiB available, with a memory pressure of 0 %: it was not short of memory.");
}

#[test]
fn v8_has_a_limit_where_nobody_states_one() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, 20 * GIB);
    let agent = world.claude();
    let node = node(&mut world, agent, &[]);
    abort(&mut world, node, 42 * GIB / 10);
    let heap = death(&world, node).facts.heap.unwrap();
    assert_eq!((heap.limit_bytes, heap.stated), (4 * GIB, false));
}

#[test]
fn a_shell_that_passes_on_a_full_heap_says_whose() {
    let mut world = World::new();
    let agent = world.claude();
    let shell = world.spawn(agent, &["/bin/sh", "-c", "node --max-old-space-size=200 leak.js; exit $?"]);
    let node = node(&mut world, shell, &["--max-old-space-size=200"]);
    abort(&mut world, node, 262 * MIB);
    world.end(shell, ExitStatus::Code(134));

    let death = death(&world, shell);
    assert_eq!(death.facts.cause, Cause::PassedOn);
    let child = death.facts.passed_on_from.unwrap();
    assert_eq!((child.pid, child.cause), (node.pid.0, Cause::HeapLimit));
    assert!(death.facts.summary.contains("it filled its V8 heap and aborted (SIGABRT)"), "{}", death.facts.summary);
}

#[test]
fn an_abort_is_a_full_heap_only_near_its_limit_and_only_of_node() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, 20 * GIB);
    let agent = world.claude();
    let small = node(&mut world, agent, &["--max-old-space-size=2000"]);
    abort(&mut world, small, 300 * MIB);
    let bun = world.spawn(agent, &["/usr/bin/bun", "--max-old-space-size=200", "/x/a.js"]);
    abort(&mut world, bun, 262 * MIB);
    // Its heap is not V8's, whatever NODE_OPTIONS say.
    world.tell(Input::Limits(agent, Limits { cgroup: None, v8_heap: Some(Bytes(4 * GIB)) }));
    abort(&mut world, agent, 4 * GIB);
    for process in [small, bun, agent] {
        assert_eq!(death(&world, process).facts.cause, Cause::Aborted);
    }
}

#[test]
fn who_is_aborted_by_another_did_not_fill_its_heap() {
    let mut world = World::new();
    let agent = world.claude();
    let node = node(&mut world, agent, &["--max-old-space-size=200"]);
    signal(&mut world, (STRANGER, "systemd"), node, SIGABRT, SI_USER);
    world.end_after(node, ExitStatus::Signal(SIGABRT), Some(Bytes(262 * MIB)));
    let death = death(&world, node);
    assert_eq!((death.facts.cause, death.facts.sender.unwrap().relation), (Cause::Killed, Relation::Stranger));
}

#[test]
fn a_hangup_is_the_kernels_whoever_ran_then() {
    let mut world = World::new();
    let agent = world.claude();
    signal(&mut world, (STRANGER, "gnome-terminal-"), agent, SIGHUP, SI_KERNEL);
    world.end(agent, ExitStatus::Signal(SIGHUP));
    let facts = death(&world, agent).facts;
    assert_eq!(facts.cause, Cause::KernelSignal);
    assert!(facts.summary.contains("its terminal, or the leader of its session, went away"), "{}", facts.summary);
}

#[test]
fn a_crash_is_a_fault_and_not_a_kill() {
    let mut world = World::new();
    let agent = world.claude();
    let server = world.spawn(agent, &["/opt/bin/rust-analyzer"]);
    signal(&mut world, (server, "rust-analyzer"), server, SIGSEGV, 1);
    world.end(server, ExitStatus::Signal(SIGSEGV));
    let facts = death(&world, server).facts;
    assert_eq!(facts.cause, Cause::Fault);
    assert!(facts.summary.contains("a bad pointer, or a stack that ran over"), "{}", facts.summary);
}

#[test]
fn a_version_number_is_named_by_its_program() {
    let mut world = World::new();
    let agent = world.agent_with("/home/u/.local/share/claude/versions/2.1.224", &["claude"]);
    host(&mut world, 31 * GIB, GIB / 8);
    oom_kill(&mut world, agent, 21 * GIB);
    let facts = death(&world, agent).facts;
    assert_eq!((facts.name.as_str(), facts.kind), ("claude", Some(ProcessKind::Agent)));
}
