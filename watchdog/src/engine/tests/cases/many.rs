//! Many of a kind: children that a living parent forgot, the same server for everybody, and bursts.

use std::time::Duration;

use super::*;
use crate::api::ProcessState;
use crate::engine::id::Bytes;
use crate::engine::input::ExitStatus;
use crate::engine::tests::world::{MINUTE, SHELL};

const STREAM: [&str; 4] = ["claude", "--output-format", "stream-json", "--resume"];

fn stream(world: &mut World, parent: ProcessId) -> ProcessId {
    let child = world.fork(parent);
    world.exec(child, CLAUDE, &STREAM);
    world.memory(child, Bytes::from_mib(250));
    child
}

fn assert_nothing_stale(world: &World) {
    let all = world.all(FindingKind::Stale);
    assert!(all.is_empty(), "{all:#?}");
}

/// One group below this parent, with so many of which none is proposed for anything.
fn assert_stale(world: &World, parent: ProcessId, count: usize) {
    let findings = world.open(FindingKind::Stale);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].evidence["parent_pid"], parent.pid.0);
    assert_eq!(findings[0].evidence["count"], count);
    assert_eq!(findings[0].proposed_action, "report");
    assert_no_orphan_ever(world);
}

/// C08, C10: a whole tree for each connection, in batches, below a server that lives.
#[test]
fn trees_of_closed_connections_are_stale() {
    let mut world = World::new();
    let server = world.agent_with("/usr/local/bin/codex", &["codex", "app-server", "--listen", "unix:///run/c.sock"]);
    for _ in 0..6 {
        npx(&mut world, server, "chrome-devtools-mcp", "chrome-devtools-mcp");
        npx(&mut world, server, "@upstash/context7-mcp", "context7-mcp");
        world.rest(20 * MINUTE);
    }
    world.rest(40 * MINUTE);

    let findings = world.open(FindingKind::Stale);
    let found: Vec<(&str, u64, u64)> = findings
        .iter()
        .map(|finding| &finding.evidence)
        .map(|e| (e["name"].as_str().unwrap(), e["count"].as_u64().unwrap(), e["process_count"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("chrome-devtools-mcp", 5, 15), ("context7-mcp", 5, 15)]);
    assert_eq!(findings[0].evidence["started_per_hour"], 3.0);
}

/// C23: one more claude for every reconnection, below an extension host. None of them ever had a terminal.
#[test]
fn agents_of_earlier_connections_are_stale_and_the_last_is_not() {
    let mut world = World::new();
    let script = "/home/u/.vscode-server/out/bootstrap-fork";
    let host = world.agent_with("/home/u/.vscode-server/node", &["node", script, "--type=extensionHost"]);
    let children: Vec<ProcessId> = (0..7)
        .map(|_| {
            let child = stream(&mut world, host);
            world.rest(8 * MINUTE);
            child
        })
        .collect();
    // The last is in use.
    world.does(children[6], Duration::from_secs(5), 9_000, 1 << 20);
    world.rest(40 * MINUTE);

    assert_stale(&world, host, 6);
    assert_eq!(world.row(children[6]).state, ProcessState::Running);
    assert!(children[..6].iter().all(|child| world.row(*child).state == ProcessState::Stale));
}

/// C12, C25, C34: a daemon that keeps every job it ever started; the daemon itself is meant to stay.
#[test]
fn finished_jobs_of_a_daemon_are_stale() {
    let mut world = World::new();
    let daemon = world.agent_with(CLAUDE, &["claude", "daemon", "run", "--origin", "transient"]);
    for _ in 0..22 {
        stream(&mut world, daemon);
        world.rest(10 * MINUTE);
    }
    world.rest(40 * MINUTE);
    assert_stale(&world, daemon, 21);
    assert_eq!(world.open(FindingKind::Stale)[0].severity.name(), "warning");
}

/// C12: a plugin's worker, which is meant to stay, keeps 121 finished agents.
#[test]
fn finished_agents_of_a_plugins_worker_are_stale() {
    let mut world = World::new();
    world.ordinary.tty = false;
    let agent = claude(&mut world);
    let hook = shell(&mut world, agent, "worker-cli start");
    let script = "/home/u/.claude/plugins/m/worker-service.cjs";
    let worker = world.spawn(hook, &["/home/u/.bun/bin/bun", script, "--daemon"]);
    world.end(hook, ExitStatus::Code(0));
    for _ in 0..122 {
        stream(&mut world, worker);
        world.rest(3 * MINUTE);
    }
    world.rest(40 * MINUTE);
    assert_stale(&world, worker, 121);
    assert_eq!(world.row(worker).state, ProcessState::Kept);
}

/// C11: a plugin's worker starts a server for every operation, through something that ends, and never ends the server.
#[test]
fn servers_that_a_plugins_worker_forgot_are_stale_whoever_adopted_them() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let hook = shell(&mut world, agent, "worker-cli start");
    let script = "/home/u/.claude/plugins/m/worker-service.cjs";
    let worker = world.spawn(hook, &["/home/u/.bun/bin/bun", script, "--daemon"]);
    world.end(hook, ExitStatus::Code(0));
    for _ in 0..40 {
        let between = world.fork(worker);
        let uvx = world.spawn(between, &["/home/u/.local/bin/uv", "tool", "uvx", "--python", "3.13", "chroma-mcp"]);
        world.spawn(uvx, &["/home/u/.cache/uv/bin/python", "/home/u/.cache/uv/bin/chroma-mcp"]);
        world.end(between, ExitStatus::Code(0));
        world.rest(MINUTE);
    }
    world.rest(40 * MINUTE);
    assert_stale(&world, worker, 39);
    let evidence = &world.open(FindingKind::Stale)[0].evidence;
    assert_eq!((&evidence["name"], &evidence["process_count"]), (&"chroma-mcp".into(), &78.into()));
    assert!(evidence["started_per_hour"].as_f64() > Some(55.0), "{evidence:#?}");
}

/// C38: the children of a desktop application that nobody tracks.
#[test]
fn agents_that_an_application_keeps_are_stale() {
    let mut world = World::new();
    world.ordinary.tty = false;
    world.ordinary.ppid = SHELL.pid.0;
    world.ordinary.parent_comm = "paseo".into();
    for _ in 0..25 {
        claude(&mut world);
        world.rest(20 * MINUTE);
    }
    world.rest(40 * MINUTE);
    assert_stale(&world, SHELL, 24);
}

/// C38's opposite: what a service manager starts are services.
#[test]
fn agents_below_a_service_manager_are_no_equals() {
    let mut world = World::new();
    world.ordinary.tty = false;
    world.ordinary.parent_comm = "systemd".into();
    for _ in 0..3 {
        claude(&mut world);
        world.rest(20 * MINUTE);
    }
    world.rest(120 * MINUTE);
    assert_nothing_stale(&world);
}

/// T12, C39: sessions in terminals, a week old or idle for the night, are a person's.
#[test]
fn agents_in_terminals_are_not_stale_however_long_they_are_idle() {
    let mut world = World::new();
    for _ in 0..4 {
        claude(&mut world);
        world.rest(60 * MINUTE);
    }
    world.rest(600 * MINUTE);
    assert_nothing_stale(&world);
}

/// C32: a status line's children wait for the end of a stdin that is never closed.
#[test]
fn children_that_wait_for_their_input_are_stale() {
    let mut world = World::new();
    let agent = claude(&mut world);
    for _ in 0..35 {
        world.spawn(agent, &["/usr/bin/node", "/x/node_modules/.bin/ccstatusline"]);
        world.rest(MINUTE);
    }
    world.rest(40 * MINUTE);
    assert_stale(&world, agent, 34);
}

/// T08: workers of a background daemon that hold a terminal of their own are live sessions without a window.
#[test]
fn sessions_without_a_window_are_not_stale() {
    let mut world = World::new();
    let daemon = world.agent_with(CLAUDE, &["claude", "daemon", "run", "--origin", "transient"]);
    for _ in 0..3 {
        let host = world.fork(daemon);
        world.exec(host, CLAUDE, &["claude", "--bg-pty-host", "/tmp/s", "--", "--resume", "1"]);
        let worker = world.fork(host);
        world.exec(worker, CLAUDE, &["claude", "--resume", "1"]);
        world.shows(worker, |seen| {
            seen.sid = worker.pid.0;
            seen.tty = true;
        });
        world.rest(20 * MINUTE);
    }
    world.rest(120 * MINUTE);
    assert_nothing_stale(&world);
}

/// T27: a service that its parent holds for its own life. T24, T25: a build server for each worktree.
#[test]
fn what_serves_its_parent_is_not_stale() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let vite = shell(&mut world, agent, "vite");
    for _ in 0..3 {
        world.spawn(vite, &["/p/node_modules/esbuild/bin/esbuild", "--service=0.21.5", "--ping"]);
        world.rest(10 * MINUTE);
    }
    world.rest(120 * MINUTE);
    assert_nothing_stale(&world);
}

/// T17: what is held for half an hour by design is given back in time. T10: one alone has no equals.
#[test]
fn what_is_held_for_half_an_hour_is_not_stale() {
    let mut world = World::new();
    let daemon = world.agent_with(CLAUDE, &["claude", "daemon", "run"]);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(stream(&mut world, daemon));
        world.rest(MINUTE);
    }
    for child in held {
        world.rest(20 * MINUTE / 10);
        world.end(child, ExitStatus::Code(0));
    }
    stream(&mut world, daemon);
    world.rest(120 * MINUTE);
    assert_nothing_stale(&world);
}

/// C03 with three sessions: the same ten servers for each.
#[test]
fn the_same_servers_for_three_sessions_are_duplicates() {
    let mut world = World::new();
    for _ in 0..3 {
        let agent = claude(&mut world);
        npx(&mut world, agent, "@playwright/mcp@latest", "playwright-mcp");
        npx(&mut world, agent, "@upstash/context7-mcp", "context7-mcp");
    }
    world.rest(3 * MINUTE);
    let findings = world.open(FindingKind::Duplicate);
    let found: Vec<(&str, u64)> = findings
        .iter()
        .map(|f| (f.evidence["name"].as_str().unwrap(), f.evidence["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("playwright-mcp", 3), ("context7-mcp", 3)]);
    assert!(findings.iter().all(|finding| finding.severity.name() == "info"));
}

/// L13: a language server for every worktree that one session touched; each is as it should be.
#[test]
fn language_servers_of_many_worktrees_are_counted_together() {
    let mut world = World::new();
    let agent = claude(&mut world);
    for _ in 0..82 {
        let server = world.spawn(agent, &["/home/u/.cargo/bin/rust-analyzer"]);
        world.memory(server, Bytes::from_mib(750));
        let macros = world.spawn(server, &["/home/u/.rustup/libexec/rust-analyzer-proc-macro-srv"]);
        world.memory(macros, Bytes::from_mib(20));
        world.rest(MINUTE);
    }
    let findings = world.open(FindingKind::Duplicate);
    assert_eq!((findings.len(), findings[0].session), (1, Some(world.session(agent).id)));
    assert_eq!(findings[0].evidence["count"].as_u64(), Some(81));
    assert_eq!(findings[0].evidence["memory_bytes"], (81_u64 * 770) << 20);
}

/// T24: ten worktrees have ten Bazel servers.
#[test]
fn build_servers_of_many_worktrees_are_counted_together() {
    let mut world = World::new();
    let agent = claude(&mut world);
    for tree in 0..10 {
        let client = shell(&mut world, agent, "bazel build //...");
        let title = format!("bazel(tree{tree})");
        let server = world.fork(client);
        world.exec(server, "/j/java", &[&title, "-jar", "/b/A-server.jar"]);
        world.memory(server, Bytes::from_mib(2_000));
        world.end(client, ExitStatus::Code(0));
        world.rest(MINUTE);
    }
    world.rest(3 * MINUTE);
    let findings = world.open(FindingKind::Duplicate);
    assert_eq!((findings.len(), &findings[0].evidence["name"]), (1, &"the Bazel server".into()));
    assert_eq!(findings[0].evidence["memory_bytes"], 20_000_u64 << 20);
    assert_no_orphan_ever(&world);
}

/// Q01: six subagents, and a dozen hooks of each, within a minute; every parent lives.
#[test]
fn subagents_with_their_hooks_are_a_burst() {
    let mut world = World::new();
    world.host(Bytes::from_mib(30_000), Bytes(0));
    let agent = claude(&mut world);
    let subagents: Vec<ProcessId> = (0..6).map(|_| stream(&mut world, agent)).collect();
    for subagent in &subagents {
        for _ in 0..12 {
            let hook = world.spawn(*subagent, &["/usr/bin/node", "/p/node_modules/.bin/eslint", "x.ts"]);
            world.memory(hook, Bytes::from_mib(620));
        }
    }
    world.wait(Duration::from_secs(5));

    let findings = world.open(FindingKind::Fanout);
    assert_eq!((findings.len(), findings[0].pid), (1, agent.pid.0));
    let evidence = &findings[0].evidence;
    assert_eq!((&evidence["agents"], &evidence["helpers"]), (&6.into(), &78.into()));
    assert_eq!(findings[0].severity.name(), "critical", "43 GB where there are 30");
    assert!(world.all(FindingKind::Leak).is_empty());
}

/// C31: a status line starts npm every 300 ms, and they overlap.
#[test]
fn a_status_line_that_starts_faster_than_it_ends_is_a_burst() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let mut running = std::collections::VecDeque::new();
    for _ in 0..100 {
        let sh = world.spawn(agent, &["/bin/sh", "-c", "npx -y ccstatusline@latest"]);
        let npm = world.spawn(sh, &["/usr/bin/node", "/usr/bin/npx", "-y", "ccstatusline@latest"]);
        running.push_back([npm, sh]);
        world.wait(Duration::from_millis(280));
        if running.len() > 16 {
            running.pop_front().into_iter().flatten().for_each(|process| world.end(process, ExitStatus::Code(0)));
        }
    }
    let findings = world.open(FindingKind::Fanout);
    assert_eq!((findings.len(), findings[0].pid), (1, agent.pid.0));
    assert!(findings[0].evidence["started"].as_u64() > Some(30), "{findings:#?}");
}

/// T25: twenty cold starts at once make twenty Nx daemons.
#[test]
fn build_servers_that_start_together_are_a_burst() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let bash = shell(&mut world, agent, "make all");
    for _ in 0..20 {
        let nx = world.spawn(bash, &["/usr/bin/node", "/p/node_modules/.bin/nx", "build"]);
        world.spawn(nx, &["/usr/bin/node", "/p/node_modules/nx/src/daemon/server/start.js"]);
        world.end(nx, ExitStatus::Code(0));
    }
    world.wait(Duration::from_secs(5));
    let findings = world.open(FindingKind::Fanout);
    assert_eq!((findings.len(), &findings[0].evidence["helpers"]), (1, &21.into()));
}

/// T05, T06: a tmux server that an agent happened to start holds a person's panes, old and new.
#[test]
fn panes_of_a_person_are_neither_stale_nor_a_burst() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let first = shell(&mut world, agent, "tmux new-session -d");
    let server = world.spawn(first, &["/usr/bin/tmux", "new-session", "-d"]);
    world.shows(server, |seen| seen.comm = "tmux: server".into());
    world.tell(crate::engine::input::Input::Inspected(server, Some(world.facts[&server].clone())));
    world.end(first, ExitStatus::Code(0));
    assert_eq!(world.row(server).state, ProcessState::Kept);
    for _ in 0..4 {
        world.spawn(server, &["/usr/bin/zsh"]);
        world.rest(20 * MINUTE);
    }
    for _ in 0..15 {
        world.spawn(server, &["/usr/bin/zsh"]);
    }
    world.wait(Duration::from_secs(5));
    world.rest(120 * MINUTE);
    assert_nothing_stale(&world);
    assert!(world.all(FindingKind::Fanout).is_empty());
}
