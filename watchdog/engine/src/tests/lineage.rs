use super::shown_world::{listed, naming};
use super::world::{USER, World};
use crate::effect::{BpfCommand, Effect};
use crate::input::Input;
use watchdog_api::{FindingKind, ProcessKind, ProcessState};
use watchdog_types::{Exit, KernelEvent, Stdin};

#[test]
fn rejected_candidate_is_untracked_with_children() {
    let mut world = World::new();
    let candidate = world.agent("/usr/bin/node");
    assert!(world.tree().sessions.is_empty());
    assert!(world.effects.contains(&Effect::Bpf(BpfCommand::Untrack(candidate))));

    // Its child was forked before the kernel heard of that.
    world.tracked.insert(
        candidate,
        watchdog_types::Lineage {
            root: candidate,
            parent: None,
            depth: 0,
            provisional: true,
            forked: false,
            witness: false,
        },
    );
    let child = world.fork(candidate);
    assert!(world.effects.contains(&Effect::Bpf(BpfCommand::Untrack(child))));
}

#[test]
fn script_through_env_is_one_agent() {
    let mut world = World::new();
    let agent = world.agent("/x/node_modules/.bin/claude");
    world.exec(agent, "/usr/bin/node", &["node", "/x/node_modules/.bin/claude"]);
    let tree = world.tree();
    assert_eq!(tree.sessions.len(), 1);
    assert_eq!(tree.sessions[0].profile, "claude-code");
    assert_eq!(world.row(agent).kind, ProcessKind::Agent);
}

#[test]
fn executed_argv_survives_rewritten_title() {
    let (mut world, agent) = World::with_claude();
    let npm = world.spawn(agent, &["/usr/bin/node", "/usr/bin/npx", "-y", "pkg"]);
    world.shows(npm, |seen| seen.comm = "npm exec pkg".into());
    world.feed(crate::input::Input::Inspected(npm, Some(world.facts[&npm].clone())));

    let row = world.row(npm);
    assert_eq!(row.comm, "npm exec pkg");
    assert_eq!(row.argv, ["/usr/bin/node", "/usr/bin/npx", "-y", "pkg"]);
}

#[test]
fn fork_without_exec_is_no_subagent() {
    let (mut world, agent) = World::with_claude();
    let fork = world.fork(agent);
    assert_ne!(world.row(fork).kind, ProcessKind::Subagent);
    assert_eq!(world.row(fork).depth, 1);
    assert_eq!(world.row(fork).parent_pid, agent.pid.0);
}

#[test]
fn agent_under_tool_has_parent_session() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "claude -p hi"]);
    let inner = world.spawn(shell, &["/home/u/.local/bin/claude", "-p", "hi"]);
    let helper = world.spawn(inner, &["/usr/bin/node", "/x/.bin/mcp-server-time"]);

    let (outer, nested) = (world.session(agent), world.session(inner));
    assert_eq!(nested.parent_session, Some(outer.id));
    assert_eq!(outer.processes.len(), 2);
    assert_eq!(
        nested.processes.iter().map(|p| (p.pid, p.depth)).collect::<Vec<_>>(),
        [(inner.pid.0, 0), (helper.pid.0, 1)]
    );
    let entry = world.tracked[&inner];
    assert_eq!((entry.root, entry.depth), (inner, 0), "the kernel hears of the new root");
    assert!(world.open(FindingKind::Orphan).is_empty());
}

#[test]
fn agent_server_is_helper_or_agent() {
    let mut world = World::new();
    let agent = world.agent("/usr/bin/goose");
    let server = world.spawn(agent, &["/usr/bin/claude", "mcp", "serve"]);
    let inner = world.spawn(agent, &["/usr/bin/codex", "mcp-server"]);

    assert_eq!((world.row(server).kind, world.row(server).depth), (ProcessKind::McpServer, 1));
    assert_eq!(world.session(inner).parent_session, Some(world.session(agent).id));
    world.kill(agent);
    assert_eq!(listed(&world.open(FindingKind::Orphan)[0]), [server.pid.0, inner.pid.0]);
}

#[test]
fn nested_agents_connection_keeps_nothing() {
    let (mut world, agent) = World::with_claude();
    let inner = world.spawn(agent, &["/usr/bin/codex", "exec", "hi"]);
    world.shows(inner, |seen| seen.stdin = Stdin::Peer(vec![agent]));
    world.feed(Input::Inspected(inner, Some(world.facts[&inner].clone())));

    assert_eq!(world.row(inner).state, ProcessState::Running);
}

#[test]
fn other_user_sees_no_argv() {
    use watchdog_types::{Uid, Viewer};
    let mut world = World::new();
    world.claude();
    let stranger = world.engine.tree(Viewer::User(Uid(4_242)), &naming());
    let owner = world.engine.tree(Viewer::User(USER), &naming());
    assert!(stranger.sessions.is_empty());
    assert_eq!(owner.sessions.len(), 1);
}

#[test]
fn only_exits_with_consequences_are_urgent() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/sh", "-c", "make"]);
    let tool = world.spawn(shell, &["/bin/true"]);
    let urgent = |world: &World, process| {
        let exit = Exit { at: world.now, process, status: None, peak: None };
        world.engine.is_urgent(&KernelEvent::Exit(exit))
    };
    assert!(urgent(&world, agent), "an agent may leave orphans");
    assert!(urgent(&world, shell), "it leaves a living child");
    assert!(!urgent(&world, tool));
    world.kill(tool);
    assert!(!urgent(&world, shell), "its child is dead");
}
