//! Explanations: their viewers, and how long they are kept.

use super::*;

#[test]
fn only_notable_exits_are_reported() {
    let (mut world, agent) = World::with_claude();
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
    assert_eq!(recorded_deaths(&world), [killed, big, server, agent].map(|process| process.pid.0));
    assert_eq!(death(&world, writer).facts.cause, Cause::BrokenPipe, "all the same it can be asked for");
}

#[test]
fn ordinary_exits_do_not_delay_reports() {
    let (mut world, agent) = World::with_claude();
    for _ in 0..5_000 {
        let tool = world.fork(agent);
        world.end(tool, ExitStatus::Code(0));
    }
    let killed = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.kill(killed);
    world.wait(Duration::from_secs(2));
    assert_eq!(recorded_deaths(&world), [killed.pid.0]);
}

#[test]
fn kept_exits_are_bounded() {
    let (mut world, alive) = World::with_claude();
    let first = world.spawn(alive, &["/usr/bin/cargo", "test"]);
    world.kill(first);
    let ended = world.claude();
    for _ in 0..4_000 {
        let tool = world.fork(ended);
        world.kill(tool);
    }
    world.kill(ended);
    world.wait(Duration::from_secs(3));
    assert!(world.engine.exits.remembered() <= 3_000);
    assert_eq!(death(&world, first).facts.cause, Cause::Killed);
}

#[test]
fn reused_pid_has_several_exits() {
    let (mut world, agent) = World::with_claude();
    let first = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.kill(first);
    let second = ProcessId { start_time: Ticks(first.start_time.0 + 500), ..first };
    world.feed(Input::Kernel(KernelEvent::Fork(watchdog_types::Fork {
        at: world.now,
        process: second,
        lineage: watchdog_types::Lineage {
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
    world.feed(Input::Kernel(KernelEvent::Exit(Exit {
        at: world.now,
        process: second,
        status: Some(ExitStatus::Code(3)),
        peak: None,
    })));
    let codes: Vec<_> = explain(&world, first).deaths.iter().map(|death| death.facts.exit_code).collect();
    assert_eq!(codes, [Some(3), None]);
}

#[test]
fn running_process_lists_findings() {
    let (mut world, agent) = World::with_claude();
    let server = world.spawn(agent, &["/usr/bin/node", "/x/node_modules/.bin/mcp-server-memory"]);
    let calm = explain(&world, server);
    assert!(calm.summary.contains("is running") && calm.summary.contains("No open findings"), "{}", calm.summary);

    world.kill(agent);
    world.wait(Duration::from_secs(1));
    let orphan = explain(&world, server);
    assert_eq!(orphan.findings.len(), 1);
    assert!(orphan.process.is_some() && orphan.deaths.is_empty());
    assert!(orphan.summary.contains("Open finding (orphan"), "{}", orphan.summary);

    world.kill(server);
    world.wait(Duration::from_secs(1));
    let dead = explain(&world, server);
    assert!(dead.summary.contains("Earlier findings: orphan."), "{}", dead.summary);
}

#[test]
fn group_members_share_the_finding() {
    let (mut world, agent) = World::with_claude();
    let servers: Vec<ProcessId> =
        (0..300).map(|_| world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"])).collect();
    world.kill(agent);
    world.wait(Duration::from_secs(1));
    let found = |process| explain(&world, process).findings.len();
    let listed = explain(&world, servers[0]).findings[0].evidence.to_map()["processes"].as_array().unwrap().len();
    assert!(listed < servers.len(), "the evidence lists some of them only");
    assert!(servers.iter().all(|server| found(*server) == 1));
}

#[test]
fn session_states_its_agents_exit() {
    let (mut world, agent) = World::with_claude();
    let id = world.session(agent).id;
    let target = ExplainTarget::Session(watchdog_types::SessionId(id));
    let running = explain_to(&world, Viewer::Root, target).unwrap();
    assert!(running.summary.contains("is running, age"), "{}", running.summary);

    signal(&mut world, (STRANGER, "bash"), agent, SIGKILL, SI_USER);
    world.kill(agent);
    let ended = explain_to(&world, Viewer::Root, target).unwrap();
    assert!(
        ended.summary.contains(" ended; it started") && ended.summary.contains("from bash (pid 77"),
        "{}",
        ended.summary
    );
    world.wait(Duration::from_secs(600));
    let later = explain_to(&world, Viewer::Root, target).unwrap();
    assert!(
        later.session.is_none() && later.summary.contains("only exits of its processes are on record"),
        "{}",
        later.summary
    );
    assert_eq!(explain_to(&world, Viewer::Root, ExplainTarget::Session(watchdog_types::SessionId(99))), None);
}

#[test]
fn explanations_are_deterministic() {
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
        let died = world
            .effects
            .iter()
            .filter(|effect| matches!(effect, Effect::Died(_) | Effect::Scan(ScanRequest::Oom { .. })));
        format!("{:?}", died.collect::<Vec<_>>())
    };
    let first = night();
    assert!(first.contains("Died"));
    for _ in 0..5 {
        assert_eq!(night(), first);
    }
}

#[test]
fn running_process_tells_plateau_and_trend() {
    let (mut world, agent) = World::with_claude();
    let server = world.spawn(agent, &["/usr/bin/node", "/srv.js"]);
    for second in 0..1_000_u64 {
        world.memory(server, Bytes::from_mib(60 + second.min(30) * 8));
        world.pass(Duration::from_secs(1));
    }
    let flat = explain(&world, server).summary;
    assert!(flat.contains(" Memory plateau since 14m ago at 300 MiB, after +240 MiB within 2m."), "{flat}");
    for second in 0..300_u64 {
        world.memory(server, Bytes::from_mib(300 + second / 10));
        world.pass(Duration::from_secs(1));
    }
    let grows = explain(&world, server).summary;
    assert!(grows.contains(" Memory trend: +") && grows.contains("No open findings"), "{grows}");
}
