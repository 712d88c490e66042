//! The OOM killer, its victims, and who filled the memory.

use super::*;

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
