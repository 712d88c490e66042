use super::world::{USER, World, listed, naming};
use crate::api::{FindingKind, ProcessKind, ProcessState};
use crate::engine::effect::Effect;
use crate::engine::input::{Exit, Input, KernelEvent, Stdin};

#[test]
fn a_candidate_that_is_no_agent_is_let_go_with_what_it_forked() {
    let mut world = World::new();
    let candidate = world.agent("/usr/bin/node");
    assert!(world.tree().sessions.is_empty());
    assert!(world.effects.contains(&Effect::Untrack(candidate)));

    // Its child was forked before the kernel heard of that.
    world.tracked.insert(
        candidate,
        crate::engine::input::Lineage {
            root: candidate,
            parent: None,
            depth: 0,
            provisional: true,
            forked: false,
            witness: false,
        },
    );
    let child = world.fork(candidate);
    assert!(world.effects.contains(&Effect::Untrack(child)));
}

#[test]
fn a_script_that_env_starts_is_one_agent_through_both_execs() {
    let mut world = World::new();
    let agent = world.agent("/x/node_modules/.bin/claude");
    world.exec(agent, "/usr/bin/node", &["node", "/x/node_modules/.bin/claude"]);
    let tree = world.tree();
    assert_eq!(tree.sessions.len(), 1);
    assert_eq!(tree.sessions[0].profile, "claude-code");
    assert_eq!(world.row(agent).kind, ProcessKind::Agent);
}

#[test]
fn what_was_executed_is_shown_whatever_the_program_writes_over_it() {
    let mut world = World::new();
    let agent = world.claude();
    let npm = world.spawn(agent, &["/usr/bin/node", "/usr/bin/npx", "-y", "pkg"]);
    world.shows(npm, |seen| seen.comm = "npm exec pkg".into());
    world.tell(crate::engine::input::Input::Inspected(npm, Some(world.facts[&npm].clone())));

    let row = world.row(npm);
    assert_eq!(row.comm, "npm exec pkg");
    assert_eq!(row.argv, ["/usr/bin/node", "/usr/bin/npx", "-y", "pkg"]);
}

#[test]
fn a_fork_that_has_not_executed_is_no_subagent() {
    let mut world = World::new();
    let agent = world.claude();
    let fork = world.fork(agent);
    assert_ne!(world.row(fork).kind, ProcessKind::Subagent);
    assert_eq!(world.row(fork).depth, 1);
    assert_eq!(world.row(fork).parent_pid, agent.pid.0);
}

#[test]
fn an_agent_started_through_a_tool_has_a_session_with_a_parent() {
    let mut world = World::new();
    let agent = world.claude();
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
fn an_agent_program_that_lends_its_tools_is_a_helper_and_one_that_runs_an_agent_is_an_agent() {
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
fn an_agent_inside_another_is_not_kept_for_talking_to_it() {
    let mut world = World::new();
    let agent = world.claude();
    let inner = world.spawn(agent, &["/usr/bin/codex", "exec", "hi"]);
    world.shows(inner, |seen| seen.stdin = Stdin::Peer(vec![agent]));
    world.tell(Input::Inspected(inner, Some(world.facts[&inner].clone())));

    assert_eq!(world.row(inner).state, ProcessState::Running);
}

#[test]
fn argv_is_not_shown_to_another_user() {
    use crate::engine::id::Uid;
    use crate::engine::view::Viewer;
    let mut world = World::new();
    world.claude();
    let stranger = world.engine.tree(Viewer::User(Uid(4_242)), &naming());
    let owner = world.engine.tree(Viewer::User(USER), &naming());
    assert!(stranger.sessions.is_empty());
    assert_eq!(owner.sessions.len(), 1);
}

#[test]
fn only_exits_with_consequences_are_urgent() {
    let mut world = World::new();
    let agent = world.claude();
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
