use std::time::Duration;

use super::shown_world::listed;
use super::world::World;
use watchdog_api::{FindingKind, ProcessKind, ProcessState, SessionState};
use watchdog_types::{Bytes, ExitStatus, ProcessId, Stdin, Viewer};

fn npx_chain(world: &mut World, agent: ProcessId) -> [ProcessId; 3] {
    let npm = world.spawn(agent, &["/usr/bin/node", "/usr/bin/npx", "-y", "@modelcontextprotocol/server-memory"]);
    let sh = world.spawn(npm, &["/bin/sh", "-c", "mcp-server-memory"]);
    let node = world.spawn(sh, &["/usr/bin/node", "/home/u/.npm/_npx/1/node_modules/.bin/mcp-server-memory"]);
    [npm, sh, node]
}

#[test]
fn chain_below_dead_agent_shares_finding() {
    let (mut world, agent) = World::with_claude();
    let chain = npx_chain(&mut world, agent);
    let other = npx_chain(&mut world, agent);

    world.kill(agent);

    let findings = world.open(FindingKind::Orphan);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    let mut all: Vec<u32> = chain.iter().chain(&other).map(|process| process.pid.0).collect();
    all.sort_unstable();
    assert_eq!(listed(&findings[0]), all);
    assert_eq!(findings[0].evidence["agent_pid"], agent.pid.0);
    assert_eq!(findings[0].pid, chain[0].pid.0, "the oldest top stands for the group");
    for process in chain {
        assert_eq!(world.row(process).state, ProcessState::Orphaned);
    }
    assert_eq!(world.tree().sessions[0].state, SessionState::Orphaned);
}

#[test]
fn slow_proc_does_not_delay_finding() {
    let (mut world, agent) = World::with_claude();
    npx_chain(&mut world, agent);
    world.slow_proc = true;

    world.kill(agent);
    assert!(world.open(FindingKind::Orphan).is_empty(), "what may be kept is looked at first");
    world.wait(Duration::from_millis(250));

    assert_eq!(world.open(FindingKind::Orphan).len(), 1);
}

#[test]
fn nothing_is_proposed_inside_the_grace() {
    let (mut world, agent) = World::with_claude();
    npx_chain(&mut world, agent);
    world.kill(agent);

    assert_eq!(world.open(FindingKind::Orphan)[0].proposed_action, "report");
    world.wait(Duration::from_secs(29));
    assert_eq!(world.open(FindingKind::Orphan)[0].proposed_action, "report");
    world.wait(Duration::from_secs(2));
    assert_eq!(world.open(FindingKind::Orphan)[0].proposed_action, "terminate");
}

#[test]
fn voluntary_exits_close_finding() {
    let (mut world, agent) = World::with_claude();
    let chain = npx_chain(&mut world, agent);
    world.kill(agent);
    world.wait(Duration::from_millis(200));
    for process in chain.into_iter().rev() {
        world.end(process, ExitStatus::Code(0));
    }
    world.wait(Duration::from_millis(250));

    assert!(world.open(FindingKind::Orphan).is_empty());
    let all = world.all(FindingKind::Orphan);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].closed_because.as_deref(), Some("gone"));
    assert_eq!(world.tree().sessions[0].state, SessionState::Ended);
}

#[test]
fn swapped_memory_still_counts() {
    let (mut world, agent) = World::with_claude();
    let chain = npx_chain(&mut world, agent);
    world.memory(chain[2], Bytes::from_mib(40));
    world.kill(agent);
    world.memory(chain[2], Bytes(0));
    world.wait(Duration::from_secs(5));

    assert_eq!(world.open(FindingKind::Orphan).len(), 1);
}

#[test]
fn double_forked_helper_stays_with_agent() {
    let (mut world, agent) = World::with_claude();
    let shell = world.spawn(agent, &["/bin/bash", "-c", "start"]);
    let middle = world.fork(shell);
    let daemon = world.spawn(middle, &["/opt/agent-browser/daemon"]);
    world.end(middle, ExitStatus::Code(0));
    world.end(shell, ExitStatus::Code(0));
    world.kill(agent);

    assert_eq!(listed(&world.open(FindingKind::Orphan)[0]), [daemon.pid.0]);
}

#[test]
fn orphan_belongs_to_its_dead_subagent() {
    let (mut world, agent) = World::with_claude();
    let subagent = world.spawn(agent, &["/home/u/.local/bin/claude", "--output-format", "stream-json"]);
    assert_eq!(world.row(subagent).kind, ProcessKind::Subagent);
    let chain = npx_chain(&mut world, subagent);
    let own = npx_chain(&mut world, agent);
    world.kill(subagent);

    let findings = world.open(FindingKind::Orphan);
    assert_eq!(findings.len(), 1);
    assert_eq!(listed(&findings[0]), chain.map(|process| process.pid.0));
    assert_eq!(world.row(own[2]).state, ProcessState::Running);
    assert_eq!(world.session(agent).state, SessionState::Running);

    // When the agent goes too, there is one dead agent to speak of.
    world.kill(agent);
    let findings = world.open(FindingKind::Orphan);
    assert_eq!(findings.iter().filter(|finding| finding.evidence["agent_pid"] == agent.pid.0).count(), 1);
    world.wait(Duration::from_millis(250));
    let findings = world.open(FindingKind::Orphan);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(listed(&findings[0]).len(), 6);
}

#[test]
fn subagents_are_orphaned_with_helpers() {
    let (mut world, agent) = World::with_claude();
    let subagent = world.spawn(agent, &["/home/u/.local/bin/claude", "--resume", "id"]);
    let chain = npx_chain(&mut world, subagent);
    world.kill(agent);

    let findings = world.open(FindingKind::Orphan);
    assert_eq!(findings.len(), 1);
    assert_eq!(listed(&findings[0]).len(), 4);
    assert_eq!(world.row(chain[2]).state, ProcessState::Orphaned);
}

#[test]
fn nested_agent_is_orphaned_with_session() {
    let (mut world, agent) = World::with_claude();
    let nested = world.spawn(agent, &["/usr/local/bin/codex", "exec", "hi"]);
    let helper = world.spawn(nested, &["/usr/bin/node", "/x/.bin/mcp-server-time"]);
    let outer = world.session(agent);
    let inner = world.session(nested);
    assert_eq!(inner.parent_session, Some(outer.id));
    assert_eq!(inner.profile, "codex");
    assert_eq!(world.row(helper).depth, 1);

    world.kill(agent);

    let findings = world.open(FindingKind::Orphan);
    assert_eq!(findings.len(), 1);
    assert_eq!(listed(&findings[0]), [nested.pid.0, helper.pid.0]);
    assert_eq!(world.session(nested).state, SessionState::Orphaned);
}

#[test]
fn user_totals_count_running_sessions() {
    let mut world = World::new();
    let (agent, adopted, _other) = (world.claude(), world.claude(), world.claude());
    world.spawn(agent, &["/usr/local/bin/codex", "exec", "hi"]);
    world.feed(crate::input::Input::Adopt(adopted));
    let totals = |world: &World| {
        let users = world.engine.user_agents(Viewer::Root, world.now, |uid| uid.0.to_string());
        let agents: u64 = users.iter().map(|user| user.agents).sum();
        (agents, world.engine.counts(Viewer::Root).sessions_running)
    };
    assert_eq!(totals(&world), (4, 4));

    world.kill(agent);

    assert_eq!(totals(&world), (2, 2));
}

#[test]
fn multiplexer_and_descendants_are_kept() {
    let (mut world, agent) = World::with_claude();
    let client = world.spawn(agent, &["/usr/bin/tmux", "new-session", "-d"]);
    let server = world.fork(client);
    world.shows(server, |seen| seen.comm = "tmux: server".into());
    world.end(client, ExitStatus::Code(0));
    let pane = world.spawn(server, &["/bin/bash"]);
    let inner = world.spawn(pane, &["/home/u/.local/bin/claude"]);
    let helpers = npx_chain(&mut world, inner);
    world.wait(Duration::from_secs(1));
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert!(world.open(FindingKind::Orphan).is_empty(), "{:#?}", world.open(FindingKind::Orphan));
    assert_eq!(world.row(server).state, ProcessState::Kept);
    assert_eq!(world.row(pane).state, ProcessState::Running);
    let session = world.session(inner);
    assert_eq!((session.state, session.parent_session), (SessionState::Running, None));

    // What runs in there has an agent of its own to lose.
    world.kill(inner);
    assert_eq!(listed(&world.open(FindingKind::Orphan)[0]), helpers.map(|process| process.pid.0));
}

#[test]
fn nohup_of_agent_is_no_evidence() {
    for agent_too in [false, true] {
        let mut world = World::new();
        let agent = world.claude();
        world.shows(agent, |seen| seen.ignores_hup = agent_too);
        world.feed(crate::input::Input::Inspected(agent, Some(world.facts[&agent].clone())));
        let bot = world.spawn(agent, &["/usr/bin/sleep", "1000"]);
        world.shows(bot, |seen| seen.ignores_hup = true);
        world.kill(agent);

        assert_eq!(world.open(FindingKind::Orphan).len(), usize::from(agent_too));
    }
}

#[test]
fn nohup_counts_despite_reset_signals() {
    let (mut world, agent) = World::with_claude();
    let bot = world.fork(agent);
    world.exec(bot, "/usr/bin/nohup", &["nohup", "node", "bot.js"]);
    world.exec(bot, "/usr/bin/node", &["node", "bot.js"]);
    world.kill(agent);

    assert!(world.open(FindingKind::Orphan).is_empty());
    assert_eq!(world.row(bot).kept_because.as_deref(), Some("started through nohup"));
}

#[test]
fn own_session_plus_listener_is_evidence() {
    let (mut world, agent) = World::with_claude();
    let server = world.spawn(agent, &["/usr/bin/python3", "/opt/shared.py"]);
    let dev = world.spawn(agent, &["/usr/bin/node", "/p/node_modules/.bin/vite"]);
    let loner = world.spawn(agent, &["/usr/bin/sleep", "1000"]);
    let listening = |seen: &mut watchdog_types::Inspection| seen.listens = vec!["tcp 127.0.0.1:8931".into()];
    world.shows(server, |seen| {
        seen.sid = server.pid.0;
        listening(seen);
    });
    world.shows(dev, listening);
    world.shows(loner, |seen| (seen.sid, seen.tty) = (loner.pid.0, false));
    world.kill(agent);
    world.wait(Duration::from_secs(40));

    let findings = world.open(FindingKind::Orphan);
    assert_eq!(listed(&findings[0]), [dev.pid.0, loner.pid.0], "{findings:#?}");
    assert_eq!(world.row(server).state, ProcessState::Kept);
    // A listening socket alone leaves it open; a session of its own alone says nothing.
    let verdicts: Vec<&str> = findings[0].evidence["processes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|p| p["verdict"].as_str())
        .collect();
    assert_eq!(verdicts, ["unknown", "clear"]);
}

#[test]
fn open_verdicts_prevent_proposal() {
    let (mut world, agent) = World::with_claude();
    let dev = world.spawn(agent, &["/usr/bin/node", "/p/node_modules/.bin/vite"]);
    world.shows(dev, |seen| seen.listens = vec!["tcp 0.0.0.0:3000".into()]);
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_eq!(world.open(FindingKind::Orphan)[0].proposed_action, "report");
}

#[test]
fn server_used_by_living_agent_kept() {
    let mut world = World::new();
    let (first, second) = (world.claude(), world.claude());
    let server = world.spawn(first, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.shows(server, |seen| seen.stdin = Stdin::Peer(vec![second]));
    world.kill(first);
    assert!(world.open(FindingKind::Orphan).is_empty());
    assert_eq!(world.row(server).state, ProcessState::Kept);
}

#[test]
fn adopting_closes_the_finding_and_lasts() {
    let (mut world, agent) = World::with_claude();
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.kill(agent);
    assert_eq!(world.open(FindingKind::Orphan).len(), 1);

    world.feed(crate::input::Input::Adopt(helper));
    world.wait(Duration::from_secs(1));

    assert!(world.open(FindingKind::Orphan).is_empty());
    assert_eq!(world.all(FindingKind::Orphan)[0].closed_because.as_deref(), Some("kept"));
    assert_eq!(world.row(helper).state, ProcessState::Kept);
    let child = world.spawn(helper, &["/usr/bin/sleep", "9"]);
    world.wait(Duration::from_secs(1));
    assert_eq!(world.row(child).state, ProcessState::Running);
    assert!(world.open(FindingKind::Orphan).is_empty());
}

#[test]
fn orphans_new_children_are_orphans() {
    let (mut world, agent) = World::with_claude();
    let helper = world.spawn(agent, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.kill(agent);
    let child = world.spawn(helper, &["/usr/bin/sleep", "9"]);
    world.wait(Duration::from_millis(250));

    assert_eq!(listed(&world.open(FindingKind::Orphan)[0]), [helper.pid.0, child.pid.0]);
}

#[test]
fn zombies_are_counted_and_cost_nothing() {
    let (mut world, agent) = World::with_claude();
    let child = world.spawn(agent, &["/usr/bin/git", "status"]);
    world.memory(child, Bytes::from_mib(10));
    world.end(child, ExitStatus::Code(0));
    world.feed(crate::input::Input::Zombies(vec![child]));
    world.wait(Duration::from_secs(60));

    let session = world.session(agent);
    assert_eq!(session.zombies, 1);
    assert_eq!(world.row(child).state, ProcessState::Zombie);
    assert_eq!((world.row(child).rss_bytes, session.memory_bytes), (0, 0));
    world.kill(agent);
    world.wait(Duration::from_secs(1));
    assert!(world.open(FindingKind::Orphan).is_empty(), "a zombie is no orphan");

    world.feed(crate::input::Input::Zombies(vec![]));
    world.wait(Duration::from_secs(5));
    assert!(world.tree().sessions.iter().all(|session| session.processes.is_empty()));
}
