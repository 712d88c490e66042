//! The OOM killer, its victims, and the sessions that filled the memory.

use super::*;

#[test]
fn oom_victim_lists_orphans() {
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
    assert_eq!((oom.scope, oom.scope_is), (OomScope::Global, Certainty::Reported));
    assert_eq!((oom.memory.orphans, oom.memory.orphaned_bytes), (230, 230 * 54 * MIB));
    assert_eq!(oom.memory.holders[0].processes, 230);
    insta::assert_snapshot!(death.facts.summary, @"cc1plus (pid 500, outside any session) was killed by the kernel's OOM killer: the host ran out of memory. It ran 1m. Sessions held 12 GiB: session 1 (claude-code) 12 GiB in 230 processes; 230 orphans held 12 GiB of it. Largest processes: chroma-mcp (pid 1002) 54 MiB; chroma-mcp (pid 1003) 54 MiB; chroma-mcp (pid 1004) 54 MiB. Host: 512 MiB/29 GiB available, pressure 0 %.");
    assert!(recorded_deaths(&world).contains(&500), "and it is sent to the history");
    let own = explain_to(&world, Viewer::User(USER), ExplainTarget::Pid(build.pid));
    assert!(own.is_some(), "its user may know");
}

fn seen_by_the_host(world: &mut World, cgroups: Vec<OomCgroup>, complete: bool, scores: Vec<(Pid, i32)>) {
    let number = world.effects.iter().rev().find_map(|effect| match effect {
        Effect::Scan(ScanRequest::Oom { number, .. }) => Some(*number),
        _ => None,
    });
    let number = number.expect("the engine asks for every choice");
    world.feed(Input::OomSeen(OomSeen { number, comm: None, cgroups, complete, scores }));
}

#[test]
fn cgroup_oom_lists_larger_process() {
    let mut world = World::new();
    let [agent, tool, outside] = scope(&mut world);
    oom_kill(&mut world, agent, 520 * MIB);
    let hit = OomCgroup { path: "/user.slice/run-1.scope".into(), max: Some(Bytes(6 * GIB)), hit: Some(true) };
    let above = OomCgroup { path: "/user.slice".into(), max: Some(Bytes(30 * GIB)), hit: Some(false) };
    seen_by_the_host(&mut world, vec![hit, above], true, vec![(agent.pid, 200), (tool.pid, 0)]);

    let death = death(&world, agent);
    let oom = death.facts.oom.unwrap();
    assert_eq!((oom.scope, oom.scope_is), (OomScope::Cgroup, Certainty::Reported));
    assert_eq!(oom.cgroup.as_deref(), Some("/user.slice/run-1.scope"));
    assert_eq!(oom.cgroup_max_bytes, Some(6 * GIB));
    assert_eq!(oom.memory.holders.len(), 1, "the other agent is outside: {:?}", oom.memory.holders);
    assert_eq!(oom.memory.largest[0].pid, tool.pid.0);
    assert!(oom.memory.largest.iter().all(|large| large.pid != outside.pid.0));
    assert_eq!(oom.oom_score_adj, Some(200));
    insta::assert_snapshot!(death.facts.summary, @"claude (pid 1001, the agent of session 1, claude-code) was killed by the kernel's OOM killer: its cgroup /user.slice/run-1.scope reached its limit of 6.0 GiB. It ran 0.02s; 516 MiB at exit, 520 MiB peak. Sessions held 4.1 GiB in that cgroup: session 1 (claude-code) 4.1 GiB in 2 processes. Largest processes: cc1plus (pid 1003) 3.6 GiB, oom_score_adj 0; claude (pid 1001) 520 MiB, oom_score_adj 200. The victim was not the largest: the OOM killer also weighs oom_score_adj. Host: 20/31 GiB available, pressure 0 %. It left 1 process running with 3.6 GiB.");
}

#[test]
fn removed_cgroup_is_inferred() {
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
fn host_oom_despite_cgroup_limit() {
    let mut world = World::new();
    let [agent, ..] = scope(&mut world);
    host(&mut world, 31 * GIB, GIB / 4);
    oom_kill(&mut world, agent, 520 * MIB);
    let own = OomCgroup { path: "/user.slice/run-1.scope".into(), max: Some(Bytes(6 * GIB)), hit: Some(false) };
    seen_by_the_host(&mut world, vec![own], true, Vec::new());
    let oom = death(&world, agent).facts.oom.unwrap();
    assert_eq!((oom.scope, oom.scope_is, oom.memory.holders.len()), (OomScope::Global, Certainty::Reported, 2));
}

#[test]
fn oom_with_free_host_blames_cgroup() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, 28 * GIB);
    let agent = world.claude();
    oom_kill(&mut world, agent, 520 * MIB);
    let facts = death(&world, agent).facts;
    let oom = facts.oom.unwrap();
    assert_eq!((oom.scope, oom.scope_is, oom.cgroup), (OomScope::Cgroup, Certainty::Inferred, None));
    assert!(facts.summary.contains(": a cgroup reached its limit, which is unknown (inferred"), "{}", facts.summary);
}

#[test]
fn undecided_scope_is_unknown() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, 14 * GIB);
    let agent = world.claude();
    oom_kill(&mut world, agent, 9 * GIB);
    let facts = death(&world, agent).facts;
    assert_eq!(facts.oom.unwrap().scope, OomScope::Unknown);
    assert!(facts.summary.contains("unknown whether the host or a cgroup"), "{}", facts.summary);
}

#[test]
fn victim_counts_with_its_peak() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, GIB);
    let agent = world.claude();
    let tool = world.spawn(agent, &["/usr/bin/rg", "x"]);
    world.memory(tool, Bytes(100 * MIB));
    oom_kill(&mut world, tool, 9 * GIB);
    let oom = death(&world, tool).facts.oom.unwrap();
    assert_eq!(oom.memory.holders[0].memory_bytes, 9 * GIB);
    assert_eq!((oom.memory.largest[0].pid, oom.memory.largest[0].memory_bytes), (tool.pid.0, 9 * GIB));
}

#[test]
fn pid_only_victim_is_named_later() {
    let mut world = World::new();
    world.claude();
    world.feed(Input::Kernel(KernelEvent::Oom(Oom {
        at: world.now,
        pid: Pid(500),
        process: None,
        comm: String::new(),
        trigger: Pid(1),
        uid: None,
    })));
    let number = 1;
    world.feed(Input::OomSeen(OomSeen { number, comm: Some("make".into()), ..OomSeen::default() }));
    let explanation = explain_to(&world, Viewer::Root, ExplainTarget::Pid(Pid(500))).unwrap();
    assert_eq!(explanation.deaths[0].facts.name, "make");
    assert_eq!(explanation.deaths[0].started_at, None);
    assert_eq!(explain_to(&world, Viewer::User(USER), ExplainTarget::Pid(Pid(500))), None, "its owner is unknown");
}

#[test]
fn other_users_holders_are_redacted() {
    let mut world = World::new();
    host(&mut world, 31 * GIB, GIB / 4);
    let (own, others) = (world.claude(), world.claude());
    world.memory(own, Bytes(GIB));
    world.memory(others, Bytes(20 * GIB));
    oom_kill(&mut world, own, GIB);
    // Both are of one user here; to another one, that is both others'.
    let seen = explain_to(&world, Viewer::User(Uid(7)), ExplainTarget::Pid(own.pid));
    assert_eq!(seen, None);
    let seen = explain_to(&world, Viewer::User(USER), ExplainTarget::Pid(own.pid)).unwrap();
    assert_eq!(seen.deaths[0].facts.oom.as_ref().unwrap().memory.holders.len(), 2);
    let root = ProcessId { pid: Pid(500), start_time: Ticks(5_000) };
    world.feed(Input::Kernel(KernelEvent::Oom(Oom {
        at: world.now,
        pid: root.pid,
        process: Some(root),
        comm: "make".into(),
        trigger: Pid(1),
        uid: Some(Uid(7)),
    })));
    let seen = explain_to(&world, Viewer::User(Uid(7)), ExplainTarget::Pid(root.pid)).unwrap();
    let oom = seen.deaths[0].facts.oom.as_ref().unwrap();
    assert_eq!((oom.memory.holders[0].session, oom.memory.holders[0].memory_bytes), (None, 20 * GIB));
    assert!(oom.memory.largest.is_empty() && seen.deaths[0].facts.died_with.is_empty());
    assert!(!seen.summary.contains("claude"), "{}", seen.summary);
}
