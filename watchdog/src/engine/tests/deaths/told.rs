//! What is told, to whom, and for how long.

use super::*;

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
fn a_death_is_told_in_time_though_thousands_of_tools_end_before_it() {
    let mut world = World::new();
    let agent = world.claude();
    for _ in 0..5_000 {
        let tool = world.fork(agent);
        world.end(tool, ExitStatus::Code(0));
    }
    let killed = world.spawn(agent, &["/usr/bin/cargo", "test"]);
    world.kill(killed);
    world.wait(Duration::from_secs(2));
    assert_eq!(told(&world), [killed.pid.0]);
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
fn every_member_of_a_group_is_explained_by_what_was_found_of_it() {
    let mut world = World::new();
    let agent = world.claude();
    let servers: Vec<ProcessId> =
        (0..300).map(|_| world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"])).collect();
    world.kill(agent);
    world.wait(Duration::from_secs(1));
    let found = |process| explain(&world, process).findings.len();
    let listed = explain(&world, servers[0]).findings[0].evidence["processes"].as_array().unwrap().len();
    assert!(listed < servers.len(), "the evidence lists some of them only");
    assert!(servers.iter().all(|server| found(*server) == 1));
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
        let died = world.effects.iter().filter(|effect| matches!(effect, Effect::Died(_) | Effect::LookIntoOom { .. }));
        serde_json::to_string(&died.collect::<Vec<_>>()).unwrap()
    };
    let first = night();
    assert!(first.contains("Died"));
    for _ in 0..5 {
        assert_eq!(night(), first);
    }
}
