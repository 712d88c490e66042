//! Deaths as they were reported, and what is to be said of them.

use std::time::Duration;

use super::world::{USER, World};
use crate::api::{Cause, Certainty, Death, Explanation, OomScope, ProcessKind, Relation};
use crate::engine::deaths::Subject;
use crate::engine::effect::Effect;
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, Ticks, Uid};
use crate::engine::input::{
    CgroupLimit, Exit, ExitStatus, HostMemory, Input, KernelEvent, Limits, Oom, OomCgroup, OomSeen, Signal,
};
use crate::engine::view::{Naming, Viewer};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const SIGHUP: u8 = 1;
const SIGABRT: u8 = 6;
const SIGKILL: u8 = 9;
const SIGSEGV: u8 = 11;
const SIGTERM: u8 = 15;
/// `si_code` of kill(2), of abort(3), and of the kernel's own signals.
const SI_USER: i32 = 0;
const SI_TKILL: i32 = -6;
const SI_KERNEL: i32 = 0x80;

const STRANGER: ProcessId = ProcessId { pid: Pid(77), start_time: Ticks(700) };

fn host(world: &mut World, total: u64, available: u64) {
    world.tell(Input::Host(HostMemory {
        total: Bytes(total),
        available: Bytes(available),
        pressure_some_avg10: Some(0.0),
        ..HostMemory::default()
    }));
}

fn signal(world: &mut World, from: (ProcessId, &str), to: ProcessId, signal: u8, code: i32) {
    let (sender, comm) = from;
    world.tell(Input::Kernel(KernelEvent::Signal(Signal {
        at: world.now,
        process: to,
        signal,
        code,
        delivered: true,
        sender,
        sender_comm: comm.into(),
        sender_uid: Uid(0),
    })));
}

fn abort(world: &mut World, process: ProcessId, peak: u64) {
    signal(world, (process, "node"), process, SIGABRT, SI_TKILL);
    world.end_after(process, ExitStatus::Signal(SIGABRT), Some(Bytes(peak)));
}

fn oom(world: &mut World, victim: ProcessId, comm: &str) {
    world.tell(Input::Kernel(KernelEvent::Oom(Oom {
        at: world.now,
        pid: victim.pid,
        process: Some(victim),
        comm: comm.into(),
        trigger: Pid(1),
        uid: Some(USER),
    })));
}

/// The OOM killer takes a process of a session.
fn oom_kill(world: &mut World, victim: ProcessId, peak: u64) {
    signal(world, (STRANGER, "trigger"), victim, SIGKILL, SI_KERNEL);
    oom(world, victim, "comm");
    world.end_after(victim, ExitStatus::Signal(SIGKILL), Some(Bytes(peak)));
}

fn in_cgroup(world: &mut World, process: ProcessId, path: &str, max: u64) {
    let cgroup = Some(CgroupLimit { path: path.into(), max: Bytes(max), current: Bytes(0) });
    world.tell(Input::Limits(process, Limits { cgroup, v8_heap: None }));
}

fn naming() -> Naming<'static> {
    Naming { boot: Duration::from_secs(1_700_000_000), user: &|uid| uid.0.to_string() }
}

fn explain_to(world: &World, viewer: Viewer, who: Subject) -> Option<Explanation> {
    world.engine.explain(viewer, &naming(), world.now, who)
}

fn explain(world: &World, process: ProcessId) -> Explanation {
    explain_to(world, Viewer::Root, Subject::Pid(process.pid)).unwrap_or_else(|| panic!("nothing of {process}"))
}

fn death(world: &World, process: ProcessId) -> Death {
    explain(world, process).deaths.remove(0)
}

/// The pids of the deaths that were told to whoever keeps a history.
fn told(world: &World) -> Vec<u32> {
    let died = |effect: &Effect| match effect {
        Effect::Died(death) => Some(death.facts.pid),
        _ => None,
    };
    world.effects.iter().filter_map(died).collect()
}

fn node(world: &mut World, agent: ProcessId, options: &[&str]) -> ProcessId {
    let argv: Vec<&str> = ["/usr/bin/node"].iter().chain(options).chain(&["/x/leak.js"]).copied().collect();
    world.spawn(agent, &argv)
}

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
fn an_agent_that_answers_a_strangers_sigterm_names_the_stranger_and_clears_memory() {
    let mut world = World::new();
    host(&mut world, 32 * GIB, 19 * GIB);
    let agent = world.claude();
    world.wait(Duration::from_secs(600));
    signal(&mut world, (STRANGER, "earlyoom"), agent, SIGTERM, SI_USER);
    world.now = world.now.plus(Duration::from_millis(40));
    world.end_after(agent, ExitStatus::Code(143), Some(Bytes(400 * MIB)));

    let death = death(&world, agent);
    assert_eq!(death.facts.cause, Cause::AskedToEnd);
    let sender = death.facts.sender.unwrap();
    assert_eq!((sender.pid, sender.comm.as_str(), sender.relation), (77, "earlyoom", Relation::Stranger));
    insta::assert_snapshot!(death.facts.summary, @"claude (pid 1001, the agent of session 1, claude-code) exited with code 143, 0.04s after it was sent SIGTERM by earlyoom (pid 77, uid 0), by its name a program that kills when memory is short. It lived for 10m, had 400 MiB at its peak. The host had 19 GiB of 32 GiB available, with a memory pressure of 0 %: it was not short of memory.");
}

#[test]
fn a_code_long_after_a_signal_has_nothing_to_do_with_it() {
    let mut world = World::new();
    let agent = world.claude();
    signal(&mut world, (STRANGER, "bash"), agent, SIGTERM, SI_USER);
    world.wait(Duration::from_secs(60));
    world.end(agent, ExitStatus::Code(1));
    assert_eq!(death(&world, agent).facts.cause, Cause::Failed);
}

#[test]
fn the_signal_that_kills_is_told_and_not_those_before_it() {
    let mut world = World::new();
    let agent = world.claude();
    signal(&mut world, (STRANGER, "systemd"), agent, SIGTERM, SI_USER);
    world.wait(Duration::from_secs(10));
    let killer = ProcessId { pid: Pid(78), ..STRANGER };
    signal(&mut world, (killer, "kill"), agent, SIGKILL, SI_USER);
    world.kill(agent);
    let facts = death(&world, agent).facts;
    assert_eq!((facts.cause, facts.signal, facts.sender.unwrap().pid), (Cause::Killed, Some(SIGKILL), 78));
}

#[test]
fn a_launcher_that_passes_a_signal_on_leads_to_who_sent_it() {
    let mut world = World::new();
    let launcher = world.agent_with("/usr/bin/node", &["node", "/usr/lib/node_modules/@openai/codex/bin/codex.js"]);
    let codex = world.spawn(launcher, &["/usr/lib/node_modules/@openai/codex/vendor/codex"]);
    signal(&mut world, (STRANGER, "mainthread-reap"), launcher, SIGTERM, SI_USER);
    signal(&mut world, (launcher, "MainThread"), codex, SIGTERM, SI_USER);
    world.end(codex, ExitStatus::Signal(SIGTERM));

    let facts = death(&world, codex).facts;
    assert_eq!(facts.sender.map(|sender| (sender.pid, sender.relation)), Some((launcher.pid.0, Relation::Parent)));
    assert_eq!(facts.origin.map(|origin| (origin.pid, origin.relation)), Some((77, Relation::Stranger)));
    assert!(facts.summary.contains("by its parent codex.js"), "{}", facts.summary);
    assert!(facts.summary.contains("had been sent SIGTERM by mainthread-reap (pid 77, uid 0)"), "{}", facts.summary);
}

#[test]
fn a_hook_that_kills_its_own_agent_is_of_the_same_tree() {
    let mut world = World::new();
    let agent = world.claude();
    let shell = world.spawn(agent, &["/bin/sh", "-c", "/x/hook.sh"]);
    let hook = world.spawn(shell, &["/bin/bash", "/x/hook.sh"]);
    signal(&mut world, (hook, "hook.sh"), agent, SIGTERM, SI_USER);
    world.end(agent, ExitStatus::Code(143));
    let facts = death(&world, agent).facts;
    assert_eq!(facts.sender.unwrap().relation, Relation::SameTree);
    assert!(facts.summary.contains("by hook.sh (pid"), "{}", facts.summary);
}

#[test]
fn agents_inside_agents_are_one_tree_and_others_are_not() {
    let mut world = World::new();
    let outer = world.claude();
    let inner = world.spawn(outer, &["/usr/local/bin/codex"]);
    let other = world.claude();
    assert_ne!(world.session(outer).id, world.session(inner).id, "the inner agent has a session of its own");
    signal(&mut world, (other, "claude"), outer, SIGTERM, SI_USER);
    signal(&mut world, (inner, "codex"), outer, SIGKILL, SI_USER);
    world.kill(outer);
    assert_eq!(death(&world, outer).facts.sender.unwrap().relation, Relation::SameTree);
    signal(&mut world, (other, "claude"), inner, SIGKILL, SI_USER);
    world.kill(inner);
    let sender = death(&world, inner).facts.sender.unwrap();
    assert_eq!((sender.relation, sender.session), (Relation::OtherTree, Some(world.session(other).id)));
}

#[test]
fn the_watchdog_knows_itself() {
    let mut world = World::new();
    world.tell(Input::Watchdog(STRANGER));
    let agent = world.claude();
    signal(&mut world, (STRANGER, "watchdogd"), agent, SIGKILL, SI_USER);
    world.kill(agent);
    let facts = death(&world, agent).facts;
    assert_eq!(facts.sender.unwrap().relation, Relation::Watchdog);
    assert!(facts.summary.contains("sent by agent-watchdog"), "{}", facts.summary);
}

#[test]
fn a_child_that_asked_to_die_with_its_parent_is_told_so() {
    let mut world = World::new();
    let agent = world.claude();
    let tool = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.kill(agent);
    signal(&mut world, (agent, "claude"), tool, SIGTERM, SI_USER);
    world.end(tool, ExitStatus::Signal(SIGTERM));
    let sender = death(&world, tool).facts.sender.unwrap();
    assert_eq!((sender.relation, sender.by_its_death), (Relation::Parent, true));
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
fn an_innocent_victim_is_explained_by_the_orphans_that_filled_the_host() {
    let mut world = World::new();
    host(&mut world, 29 * GIB, GIB / 2);
    let agent = world.claude();
    for _ in 0..230 {
        let helper = world.spawn(agent, &["/usr/bin/python3", "/x/chroma-mcp"]);
        world.memory(helper, Bytes(54 * MIB));
    }
    world.kill(agent);
    world.wait(Duration::from_secs(60));
    let build = ProcessId { pid: Pid(500), start_time: Ticks(5_000) };
    oom(&mut world, build, "cc1plus");
    seen_by_the_host(&mut world, Vec::new(), true, Vec::new());
    world.wait(Duration::from_secs(2));

    let death = death(&world, build);
    assert_eq!((death.facts.cause, death.facts.session), (Cause::Oom, None));
    let oom = death.facts.oom.unwrap();
    assert_eq!((oom.scope, oom.scope_is), (OomScope::Global, Certainty::Told));
    assert_eq!((oom.orphans, oom.orphaned_bytes), (230, 230 * 54 * MIB));
    assert_eq!(oom.holders[0].processes, 230);
    insta::assert_snapshot!(death.facts.summary, @"cc1plus (pid 500), a process of no agent, was killed by the kernel's OOM killer, because the host ran out of memory. It lived for 1m. Then agents held 12 GiB: session 1 (claude-code) 12 GiB in 230 processes; of that 230 orphans held 12 GiB. The largest: chroma-mcp (pid 1002) with 54 MiB; chroma-mcp (pid 1003) with 54 MiB; chroma-mcp (pid 1004) with 54 MiB. The host had 512 MiB of 29 GiB available, with a memory pressure of 0 %.");
    assert!(told(&world).contains(&500), "and it is told to the history");
    let own = explain_to(&world, Viewer::User(USER), Subject::Pid(build.pid));
    assert!(own.is_some(), "its user may know");
}

fn seen_by_the_host(world: &mut World, cgroups: Vec<OomCgroup>, complete: bool, scores: Vec<(Pid, i32)>) {
    let number = world.effects.iter().rev().find_map(|effect| match effect {
        Effect::LookIntoOom { number, .. } => Some(*number),
        _ => None,
    });
    let number = number.expect("the engine asks for every choice");
    world.tell(Input::OomSeen(OomSeen { number, comm: None, cgroups, complete, scores }));
}

/// An agent in a scope of 6 GiB, with a tool that is larger than itself, and another agent outside of it.
fn scope(world: &mut World) -> [ProcessId; 3] {
    host(world, 31 * GIB, 20 * GIB);
    let (agent, outside) = (world.claude(), world.claude());
    let tool = world.spawn(agent, &["/usr/bin/cc1plus", "a.cc"]);
    in_cgroup(world, agent, "/user.slice/run-1.scope", 6 * GIB);
    in_cgroup(world, tool, "/user.slice/run-1.scope", 6 * GIB);
    in_cgroup(world, outside, "/user.slice", 30 * GIB);
    world.memory(agent, Bytes(516 * MIB));
    world.memory(tool, Bytes(3_700 * MIB));
    world.memory(outside, Bytes(9 * GIB));
    [agent, tool, outside]
}

#[test]
fn the_agent_dies_instead_of_its_tool_in_their_cgroup() {
    let mut world = World::new();
    let [agent, tool, outside] = scope(&mut world);
    oom_kill(&mut world, agent, 520 * MIB);
    let hit = OomCgroup { path: "/user.slice/run-1.scope".into(), max: Some(Bytes(6 * GIB)), hit: Some(true) };
    let above = OomCgroup { path: "/user.slice".into(), max: Some(Bytes(30 * GIB)), hit: Some(false) };
    seen_by_the_host(&mut world, vec![hit, above], true, vec![(agent.pid, 200), (tool.pid, 0)]);

    let death = death(&world, agent);
    let oom = death.facts.oom.unwrap();
    assert_eq!((oom.scope, oom.scope_is), (OomScope::Cgroup, Certainty::Told));
    assert_eq!(oom.cgroup.as_deref(), Some("/user.slice/run-1.scope"));
    assert_eq!(oom.cgroup_max_bytes, Some(6 * GIB));
    assert_eq!(oom.holders.len(), 1, "the other agent is outside: {:?}", oom.holders);
    assert_eq!(oom.largest[0].pid, tool.pid.0);
    assert!(oom.largest.iter().all(|large| large.pid != outside.pid.0));
    assert_eq!(oom.oom_score_adj, Some(200));
    insta::assert_snapshot!(death.facts.summary, @"claude (pid 1001, the agent of session 1, claude-code) was killed by the kernel's OOM killer, because its cgroup /user.slice/run-1.scope reached its limit of 6.0 GiB. It lived for 0.02s, held 516 MiB at last and 520 MiB at its peak. Then in that cgroup agents held 4.1 GiB: session 1 (claude-code) 4.1 GiB in 2 processes. The largest: cc1plus (pid 1003) with 3.6 GiB, oom_score_adj 0; claude (pid 1001) with 520 MiB, oom_score_adj 200. The victim was not the largest of them: the OOM killer weighs by size and oom_score_adj. The host had 20 GiB of 31 GiB available, with a memory pressure of 0 %.");
}

#[test]
fn a_cgroup_that_went_with_its_last_process_is_inferred() {
    let mut world = World::new();
    let [agent, ..] = scope(&mut world);
    oom_kill(&mut world, agent, 520 * MIB);
    let above = OomCgroup { path: "/user.slice".into(), max: Some(Bytes(30 * GIB)), hit: Some(false) };
    seen_by_the_host(&mut world, vec![above], false, Vec::new());
    let oom = death(&world, agent).facts.oom.unwrap();
    assert_eq!((oom.scope, oom.scope_is), (OomScope::Cgroup, Certainty::Inferred));
    assert_eq!(oom.cgroup.as_deref(), Some("/user.slice/run-1.scope"));
}

#[test]
fn a_host_that_ran_out_is_told_from_a_cgroup_though_the_victim_has_a_limit() {
    let mut world = World::new();
    let [agent, ..] = scope(&mut world);
    host(&mut world, 31 * GIB, GIB / 4);
    oom_kill(&mut world, agent, 520 * MIB);
    let own = OomCgroup { path: "/user.slice/run-1.scope".into(), max: Some(Bytes(6 * GIB)), hit: Some(false) };
    seen_by_the_host(&mut world, vec![own], true, Vec::new());
    let oom = death(&world, agent).facts.oom.unwrap();
    assert_eq!((oom.scope, oom.scope_is, oom.holders.len()), (OomScope::Global, Certainty::Told, 2));
}

#[test]
fn where_nothing_decides_the_scope_is_unknown() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, 20 * GIB);
    let agent = world.claude();
    oom_kill(&mut world, agent, 520 * MIB);
    let facts = death(&world, agent).facts;
    assert_eq!(facts.oom.unwrap().scope, OomScope::Unknown);
    assert!(facts.summary.contains("could not be told"), "{}", facts.summary);
}

#[test]
fn what_a_burst_held_is_the_victims_peak_and_not_its_last_sample() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, GIB);
    let agent = world.claude();
    let tool = world.spawn(agent, &["/usr/bin/rg", "x"]);
    world.memory(tool, Bytes(100 * MIB));
    oom_kill(&mut world, tool, 9 * GIB);
    let oom = death(&world, tool).facts.oom.unwrap();
    assert_eq!(oom.holders[0].memory_bytes, 9 * GIB);
    assert_eq!((oom.largest[0].pid, oom.largest[0].memory_bytes), (tool.pid.0, 9 * GIB));
}

#[test]
fn a_kernel_that_tells_only_a_pid_has_it_named_by_who_looks() {
    let mut world = World::new();
    world.claude();
    world.tell(Input::Kernel(KernelEvent::Oom(Oom {
        at: world.now,
        pid: Pid(500),
        process: None,
        comm: String::new(),
        trigger: Pid(1),
        uid: None,
    })));
    let number = 1;
    world.tell(Input::OomSeen(OomSeen { number, comm: Some("make".into()), ..OomSeen::default() }));
    let explanation = explain_to(&world, Viewer::Root, Subject::Pid(Pid(500))).unwrap();
    assert_eq!(explanation.deaths[0].facts.name, "make");
    assert_eq!(explanation.deaths[0].started_at, None);
    assert_eq!(explain_to(&world, Viewer::User(USER), Subject::Pid(Pid(500))), None, "nobody knows whose it was");
}

#[test]
fn a_scope_that_is_killed_as_one_died_together() {
    let mut world = World::new();
    let agents = [world.claude(), world.claude()];
    let mut all = Vec::from(agents);
    for agent in agents {
        all.extend((0..20).map(|_| world.spawn(agent, &["/bin/bash", "-c", "sleep 1000"])));
    }
    world.wait(Duration::from_secs(30));
    for process in &all {
        signal(&mut world, (STRANGER, "systemd-oomd"), *process, SIGKILL, SI_USER);
        world.kill(*process);
    }
    let facts = death(&world, agents[0]).facts;
    assert_eq!(facts.died_with_count, 41);
    assert!(facts.died_with.len() <= 10);
    assert!(
        facts.summary.contains("by systemd-oomd (pid 77, uid 0), by its name a program that kills"),
        "{}",
        facts.summary
    );
    assert!(facts.summary.contains("and 38 more"), "{}", facts.summary);
}

#[test]
fn a_user_reads_how_much_others_held_and_not_who_they_are() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, GIB / 4);
    let (own, others) = (world.claude(), world.claude());
    world.memory(own, Bytes(GIB));
    world.memory(others, Bytes(20 * GIB));
    oom_kill(&mut world, own, GIB);
    // Both are of one user here; to another one, that is both others'.
    let seen = explain_to(&world, Viewer::User(Uid(7)), Subject::Pid(own.pid));
    assert_eq!(seen, None);
    let seen = explain_to(&world, Viewer::User(USER), Subject::Pid(own.pid)).unwrap();
    assert_eq!(seen.deaths[0].facts.oom.as_ref().unwrap().holders.len(), 2);
    let root = ProcessId { pid: Pid(500), start_time: Ticks(5_000) };
    world.tell(Input::Kernel(KernelEvent::Oom(Oom {
        at: world.now,
        pid: root.pid,
        process: Some(root),
        comm: "make".into(),
        trigger: Pid(1),
        uid: Some(Uid(7)),
    })));
    let seen = explain_to(&world, Viewer::User(Uid(7)), Subject::Pid(root.pid)).unwrap();
    let oom = seen.deaths[0].facts.oom.as_ref().unwrap();
    assert_eq!((oom.holders[0].session, oom.holders[0].memory_bytes), (None, 20 * GIB));
    assert!(oom.largest.is_empty() && seen.deaths[0].facts.died_with.is_empty());
    assert!(!seen.summary.contains("claude"), "{}", seen.summary);
}

#[test]
fn of_thousands_of_tools_only_what_ended_badly_is_told() {
    let mut world = World::new();
    let agent = world.claude();
    for code in [0, 0, 1, 2, 127] {
        let tool = world.spawn(agent, &["/usr/bin/rg", "x"]);
        world.end(tool, ExitStatus::Code(code));
    }
    let writer = world.spawn(agent, &["/usr/bin/yes"]);
    world.end(writer, ExitStatus::Signal(13));
    let killed = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.kill(killed);
    let big = world.spawn(agent, &["/usr/bin/tsc"]);
    world.end_after(big, ExitStatus::Code(0), Some(Bytes(3 * GIB)));
    let server = world.spawn(agent, &["/usr/bin/node", "/x/server.js"]);
    world.wait(Duration::from_secs(120));
    world.end(server, ExitStatus::Code(1));
    world.end(agent, ExitStatus::Code(0));
    world.wait(Duration::from_secs(2));
    assert_eq!(told(&world), [killed, big, server, agent].map(|process| process.pid.0));
    assert_eq!(death(&world, writer).facts.cause, Cause::BrokenPipe, "all the same it can be asked for");
}

#[test]
fn memory_of_deaths_is_bounded_and_those_of_living_sessions_stay_longest() {
    let mut world = World::new();
    let alive = world.claude();
    let first = world.spawn(alive, &["/usr/bin/cargo", "test"]);
    world.kill(first);
    let ended = world.claude();
    for _ in 0..4_000 {
        let tool = world.fork(ended);
        world.kill(tool);
    }
    world.kill(ended);
    world.wait(Duration::from_secs(3));
    assert!(world.engine.deaths.remembered() <= 3_000);
    assert_eq!(death(&world, first).facts.cause, Cause::Killed);
}

#[test]
fn a_pid_that_was_used_again_has_several_deaths() {
    let mut world = World::new();
    let agent = world.claude();
    let first = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.kill(first);
    let second = ProcessId { start_time: Ticks(first.start_time.0 + 500), ..first };
    world.tell(Input::Kernel(KernelEvent::Fork(crate::engine::input::Fork {
        at: world.now,
        process: second,
        lineage: crate::engine::input::Lineage {
            root: agent,
            parent: Some(agent),
            depth: 1,
            provisional: false,
            forked: true,
            witness: false,
        },
        uid: USER,
        comm: "claude".into(),
    })));
    world.now = BootTime::from(Ticks(second.start_time.0 + 100));
    world.tell(Input::Kernel(KernelEvent::Exit(Exit {
        at: world.now,
        process: second,
        status: Some(ExitStatus::Code(3)),
        peak: None,
    })));
    let codes: Vec<_> = explain(&world, first).deaths.iter().map(|death| death.facts.exit_code).collect();
    assert_eq!(codes, [Some(3), None]);
}

#[test]
fn the_living_are_explained_by_what_was_found() {
    let mut world = World::new();
    let agent = world.claude();
    let server = world.spawn(agent, &["/usr/bin/node", "/x/node_modules/.bin/mcp-server-memory"]);
    let calm = explain(&world, server);
    assert!(
        calm.summary.contains("is alive") && calm.summary.contains("Nothing is found against it"),
        "{}",
        calm.summary
    );

    world.kill(agent);
    world.wait(Duration::from_secs(1));
    let orphan = explain(&world, server);
    assert_eq!(orphan.findings.len(), 1);
    assert!(orphan.process.is_some() && orphan.deaths.is_empty());
    assert!(orphan.summary.contains("Found orphan"), "{}", orphan.summary);

    world.kill(server);
    world.wait(Duration::from_secs(1));
    let dead = explain(&world, server);
    assert!(dead.summary.contains("Before that it had been found: orphan."), "{}", dead.summary);
}

#[test]
fn a_session_is_explained_by_its_agents_death() {
    let mut world = World::new();
    let agent = world.claude();
    let id = world.session(agent).id;
    let who = Subject::Session(crate::engine::id::SessionId(id));
    let running = explain_to(&world, Viewer::Root, who).unwrap();
    assert!(running.summary.contains("has been running for"), "{}", running.summary);

    signal(&mut world, (STRANGER, "bash"), agent, SIGKILL, SI_USER);
    world.kill(agent);
    let ended = explain_to(&world, Viewer::Root, who).unwrap();
    assert!(ended.summary.contains("has ended") && ended.summary.contains("sent by bash (pid 77"), "{}", ended.summary);
    world.wait(Duration::from_secs(600));
    let later = explain_to(&world, Viewer::Root, who).unwrap();
    assert!(later.session.is_none() && later.summary.contains("only deaths in it are remembered"), "{}", later.summary);
    assert_eq!(explain_to(&world, Viewer::Root, Subject::Session(crate::engine::id::SessionId(99))), None);
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

#[test]
fn the_same_night_is_told_in_the_same_words() {
    let night = || {
        let mut world = World::new();
        let [agent, tool, outside] = scope(&mut world);
        for _ in 0..50 {
            let helper = world.spawn(outside, &["/usr/bin/node", "/x/a.js"]);
            world.memory(helper, Bytes(100 * MIB));
        }
        oom_kill(&mut world, tool, 5 * GIB);
        for process in [agent, outside] {
            signal(&mut world, (STRANGER, "bash"), process, SIGKILL, SI_USER);
            world.kill(process);
        }
        world.wait(Duration::from_secs(3));
        let died =
            world.effects.into_iter().filter(|effect| matches!(effect, Effect::Died(_) | Effect::LookIntoOom { .. }));
        serde_json::to_string(&died.collect::<Vec<_>>()).unwrap()
    };
    let first = night();
    assert!(first.contains("Died"));
    for _ in 0..5 {
        assert_eq!(night(), first);
    }
}
