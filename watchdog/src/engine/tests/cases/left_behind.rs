//! What agents really left behind, and what only looked so.

use std::time::Duration;

use super::*;
use crate::api::{ProcessKind, ProcessState};
use crate::engine::id::{BootTime, Pid, Ticks};
use crate::engine::input::{Container, ExitStatus, Input};

const STREAM: [&str; 6] = ["claude", "--output-format", "stream-json", "--verbose", "--input-format", "stream-json"];

/// C01, C02: subagents are the same program once more; they outlive the session by the dozen.
#[test]
fn subagents_that_outlive_their_session_are_one_group() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let subagents: Vec<ProcessId> = (0..43)
        .map(|_| {
            let subagent = world.fork(agent);
            world.exec(subagent, CLAUDE, &STREAM);
            subagent
        })
        .collect();
    assert!(subagents.iter().all(|process| world.row(*process).kind == ProcessKind::Subagent));
    world.end(agent, ExitStatus::Code(0));

    assert_one_group(&world, agent, &subagents);
    assert_eq!(proposal(&world), "report");
    world.wait(Duration::from_secs(31));
    assert_eq!(proposal(&world), "terminate");
}

/// C03, C04, C15: ten servers behind `npm exec`; the user's service manager adopts the wrappers, or pid 1 does.
#[test]
fn servers_behind_npm_are_one_group_whoever_adopts_the_wrapper() {
    for manager in [1, 2_345] {
        let mut world = World::new();
        let agent = claude(&mut world);
        let mut helpers = Vec::new();
        for (package, server) in [("@playwright/mcp", "playwright-mcp"), ("@upstash/context7-mcp", "context7-mcp")] {
            helpers.extend(npx(&mut world, agent, package, server));
        }
        world.ordinary.parent_comm = "systemd".into();
        for wrapper in [helpers[0], helpers[3]] {
            world.shows(wrapper, |seen| seen.ppid = manager);
        }
        world.end(agent, ExitStatus::Signal(9));

        assert_one_group(&world, agent, &helpers);
        assert_eq!(world.row(helpers[0]).ppid, manager);
        assert!(helpers.iter().all(|process| world.row(*process).state == ProcessState::Orphaned));
    }
}

/// C07: a plugin's broker with an app-server and its servers, busy all the time. CPU time keeps nobody.
#[test]
fn a_nested_agents_chain_is_left_behind_with_its_broker() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let broker = world.spawn(agent, &["/usr/bin/node", "/home/u/.claude/plugins/codex/scripts/broker.mjs"]);
    let server = world.spawn(broker, &["/usr/local/bin/codex", "app-server"]);
    let helpers = npx(&mut world, server, "@modelcontextprotocol/server-memory", "mcp-server-memory");
    assert_eq!(world.session(server).parent_session, Some(world.session(agent).id));
    world.kill(agent);

    assert_one_group(&world, agent, &[broker, server, helpers[0], helpers[1], helpers[2]]);
}

/// C08, C10, C13, C20, C24, C25, C32, C38: many children under one living parent are nobody's orphans.
#[test]
fn children_of_a_living_agent_are_no_orphans_however_many_and_old() {
    let mut world = World::new();
    let agent = world.agent_with("/usr/local/bin/codex", &["codex", "app-server", "--listen", "unix:///run/c.sock"]);
    for _ in 0..20 {
        npx(&mut world, agent, "chrome-devtools-mcp", "chrome-devtools-mcp");
    }
    world.wait(Duration::from_secs(7_200));

    assert_no_orphan_ever(&world);
    assert!(world.all(FindingKind::Detached).is_empty());
}

/// C09, T22: zombies of a living agent cost nothing and are no orphans; trees of dead owners beside them are.
#[test]
fn zombies_are_no_orphans() {
    let mut world = World::new();
    let agent = world.agent_with("/usr/local/bin/codex", &["codex"]);
    let server = world.spawn(agent, &["/opt/py/bin/python3", "/opt/py/bin/mcp-server-time"]);
    let zombies: Vec<ProcessId> = (0..41).map(|_| world.spawn(server, &["/usr/bin/git", "status"])).collect();
    zombies.iter().for_each(|zombie| world.end(*zombie, ExitStatus::Code(0)));
    world.tell(Input::Zombies(zombies.clone()));
    world.wait(Duration::from_secs(60));
    assert_eq!(world.session(agent).zombies, 41);

    world.kill(agent);
    assert_one_group(&world, agent, &[server]);
}

/// C12: a worker daemon is kept, and the claude children that it keeps are agents of their own.
#[test]
fn a_plugins_daemon_is_kept_and_its_children_are_its_own_business() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let hook = shell(&mut world, agent, "worker-cli start");
    let daemon =
        world.spawn(hook, &["/home/u/.bun/bin/bun", "/home/u/.claude/plugins/m/worker-service.cjs", "--daemon"]);
    world.end(hook, ExitStatus::Code(0));
    let child = world.fork(daemon);
    world.exec(child, CLAUDE, &STREAM);
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_no_orphan_ever(&world);
    assert_eq!(world.row(daemon).state, ProcessState::Kept);
    assert_eq!(world.row(child).state, ProcessState::Running);
}

/// C11, C19: wrappers with a python server each; C14, C15, C17: a browser that forked twice into a session of its own.
#[test]
fn what_left_the_process_group_is_still_its_agents() {
    let mut world = World::new();
    let agent = world.agent_with("/usr/local/bin/goose", &["goose", "session"]);
    let uvx = world.spawn(agent, &["/home/u/.local/bin/uv", "tool", "uvx", "--python", "3.13", "chroma-mcp"]);
    let python = world.spawn(uvx, &["/home/u/.cache/uv/bin/python", "/home/u/.cache/uv/bin/chroma-mcp"]);
    let cli = shell(&mut world, agent, "agent-browser open x");
    let middle = world.fork(cli);
    let daemon = world.spawn(middle, &["/opt/agent-browser-linux-x64", "daemon"]);
    world.end(middle, ExitStatus::Code(0));
    world.end(cli, ExitStatus::Code(0));
    let chrome = world.spawn(daemon, &["/opt/chrome/chrome", "--headless", "--use-angle=swiftshader"]);
    for process in [daemon, chrome] {
        world.shows(process, |seen| {
            seen.sid = process.pid.0;
            seen.listens = vec!["tcp 127.0.0.1:9222".into()];
        });
    }
    world.kill(agent);
    world.wait(Duration::from_secs(31));

    assert_one_group(&world, agent, &[uvx, python, daemon, chrome]);
    assert_eq!(verdict(&world, chrome), "clear");
    assert_eq!(proposal(&world), "terminate");
}

/// C16, T13b: a browser's daemon detaches so that the next command finds it: in order while its agent lives, and never
/// ended afterwards, nor its browser.
#[test]
fn a_browser_daemon_and_its_browser_are_reported_and_left_alone() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let cli = shell(&mut world, agent, "playwright-cli open");
    let daemon = world.spawn(cli, &["/usr/bin/node", "/x/node_modules/@playwright/cli/lib/cliDaemon.js", "s1"]);
    world.end(cli, ExitStatus::Code(0));
    let chrome = world.spawn(daemon, &["/home/u/.cache/ms-playwright/chromium-1/chrome", "--headless"]);
    world.wait(Duration::from_secs(600));
    assert_no_orphan_ever(&world);

    world.kill(agent);
    world.wait(Duration::from_secs(600));
    assert_one_group(&world, agent, &[daemon, chrome]);
    assert_eq!((verdict(&world, daemon), verdict(&world, chrome)), ("unknown".into(), "unknown".into()));
    assert_eq!(proposal(&world), "report");
}

/// C21: the container is no child of the client that asked for it.
#[test]
fn a_container_that_outlives_its_client_is_external() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let client =
        world.spawn(agent, &["/usr/bin/docker", "run", "-i", "--rm", "ghcr.io/github/github-mcp-server", "stdio"]);
    let server = ProcessId { pid: Pid(9_000), start_time: Ticks(client.start_time.0 + 50) };
    let container =
        Container { process: server, id: "a".repeat(64), runtime: "docker".into(), comm: "github-mcp".into() };
    world.tell(Input::Containers(client, vec![container.clone()]));
    world.kill(client);
    world.kill(agent);
    world.tell(Input::Containers(client, vec![container]));
    world.wait(Duration::from_secs(60));

    let findings = world.open(FindingKind::External);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].evidence["containers_started_meanwhile"][0]["pid"], 9_000);
    assert_eq!(findings[0].proposed_action, "report");
    assert_no_orphan_ever(&world);
    world.tell(Input::Containers(client, vec![]));
    assert!(world.open(FindingKind::External).is_empty());
}

/// C21: a command in a container that is there anyway started none, and leaves none.
#[test]
fn a_command_in_somebody_elses_container_is_linked_to_none() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let client = world.spawn(agent, &["/usr/bin/docker", "exec", "-i", "db", "psql"]);
    world.wait(Duration::from_secs(20));
    world.end(client, ExitStatus::Code(0));

    assert!(world.open(FindingKind::External).is_empty());
    let looked =
        world.effects.iter().any(|effect| matches!(effect, crate::engine::effect::Effect::FindContainers { .. }));
    assert!(!looked, "whatever started in that time is not its own");
}

/// C27: the host of a spare slot outlives its daemon; the daemon was meant to stay, its children alone are not.
#[test]
fn children_of_a_dead_agent_daemon_are_its_orphans() {
    let mut world = World::new();
    let daemon = world.agent_with(CLAUDE, &["claude", "daemon", "run", "--origin", "transient"]);
    let host = world.fork(daemon);
    world.exec(host, CLAUDE, &["claude", "--bg-pty-host", "/tmp/cc-daemon-1000/1/spare/a.sock"]);
    world.wait(Duration::from_secs(60));
    assert_no_orphan_ever(&world);
    world.kill(daemon);

    assert_one_group(&world, daemon, &[host]);
}

/// C28: a dev server of an ended session. It listens, so nobody knows; its npm and its compiler are part of it.
#[test]
fn a_dev_server_is_reported_with_its_wrappers_and_never_ended() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let zsh = world
        .spawn(agent, &["/usr/bin/zsh", "-c", "source /home/u/.claude/shell-snapshots/s.sh && eval 'npm run dev'"]);
    let npm = world.spawn(zsh, &["/usr/bin/node", "/usr/bin/npm", "run", "dev"]);
    let sh = world.spawn(npm, &["/bin/sh", "-c", "vite"]);
    let vite = world.spawn(sh, &["/usr/bin/node", "/p/node_modules/.bin/vite"]);
    let esbuild = world.spawn(vite, &["/p/node_modules/esbuild/bin/esbuild", "--service=0.21.5", "--ping"]);
    world.shows(vite, |seen| seen.listens = vec!["tcp 127.0.0.1:5173".into()]);
    world.kill(agent);
    world.wait(Duration::from_secs(600));

    let chain = [zsh, npm, sh, vite, esbuild];
    assert_one_group(&world, agent, &chain);
    for process in chain {
        assert_eq!(verdict(&world, process), "unknown");
    }
    assert_eq!(proposal(&world), "report");
}

/// C28 beside C03: doubt about one chain does not protect another.
#[test]
fn doubt_about_a_dev_server_does_not_spread_to_an_mcp_server() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let npm = world.spawn(agent, &["/usr/bin/node", "/usr/bin/npm", "run", "dev"]);
    let vite = world.spawn(npm, &["/usr/bin/node", "/p/node_modules/.bin/vite"]);
    world.shows(vite, |seen| seen.listens = vec!["tcp 127.0.0.1:5173".into()]);
    let chain = npx(&mut world, agent, "@modelcontextprotocol/server-memory", "mcp-server-memory");
    world.kill(agent);
    world.wait(Duration::from_secs(31));

    let verdicts = [npm, vite, chain[0], chain[1], chain[2]].map(|process| verdict(&world, process));
    assert_eq!(verdicts, ["unknown", "unknown", "clear", "clear", "clear"]);
    assert_eq!(world.open(FindingKind::Orphan)[0].evidence["clear"], 3);
    assert_eq!(proposal(&world), "terminate");
}

/// C29: the runner dies of its closed pipe and its workers go on, inside a living session.
#[test]
fn workers_of_a_dead_runner_are_detached_while_the_agent_lives() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let bash = shell(&mut world, agent, "npx vitest run 2>&1 | head -3");
    let runner = world.spawn(bash, &["/usr/bin/node", "/p/node_modules/.bin/vitest", "run"]);
    let workers: Vec<ProcessId> = (0..4)
        .map(|_| world.spawn(runner, &["/usr/bin/node", "/p/node_modules/vitest/dist/workers/forks.js"]))
        .collect();
    world.end(runner, ExitStatus::Signal(13));
    world.end(bash, ExitStatus::Code(0));
    world.wait(Duration::from_secs(1));

    let detached: Vec<u32> = world.open(FindingKind::Detached).iter().map(|finding| finding.pid).collect();
    assert_eq!(detached, pids(&workers));
    assert_no_orphan_ever(&world);
}

/// C30, C36: what re-parents itself from its first second is an orphan only when its agent is dead.
#[test]
fn a_double_fork_is_no_orphan_before_its_agents_death() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let sh = shell(&mut world, agent, "ruflo mcp start");
    let ruflo = world.spawn(sh, &["/usr/bin/node", "/usr/local/bin/ruflo", "mcp", "start"]);
    let yes: Vec<ProcessId> = (0..34)
        .map(|_| {
            let bash = shell(&mut world, agent, "yes > /dev/null &");
            let yes = world.spawn(bash, &["/usr/bin/yes"]);
            world.end(bash, ExitStatus::Code(0));
            yes
        })
        .collect();
    world.end(sh, ExitStatus::Code(0));
    world.shows(yes[0], |seen| seen.cwd_deleted = true);
    world.wait(Duration::from_secs(60));
    assert_no_orphan_ever(&world);
    assert_eq!(world.row(ruflo).state, ProcessState::Detached);

    world.kill(agent);
    world.wait(Duration::from_secs(1));
    let mut all = yes.clone();
    all.push(ruflo);
    assert_one_group(&world, agent, &all);
    let shown = world.open(FindingKind::Orphan)[0].evidence["processes"].to_string();
    assert!(shown.contains("\"cwd_deleted\":true"), "{shown}");
}

/// C33, C34: a daemon's jobs are agents below it.
#[test]
fn jobs_of_a_living_agent_daemon_are_in_order() {
    let mut world = World::new();
    let script = "/x/node_modules/@claude-flow/cli/bin/cli.js";
    let daemon = world.agent_with("/usr/bin/node", &["/usr/bin/node", script, "daemon", "start", "--foreground"]);
    let job = world.fork(daemon);
    world.exec(job, CLAUDE, &["claude", "--print", "analyse everything"]);
    world.wait(Duration::from_secs(3_600));
    assert_no_orphan_ever(&world);
    assert_eq!(world.session(job).parent_session, Some(world.session(daemon).id));

    world.kill(daemon);
    assert_one_group(&world, daemon, &[job]);
}

/// C05, C06: the window closes, the connection drops, and the agent goes on with its helpers, which lost nothing.
#[test]
fn an_agent_without_its_terminal_is_abandoned_and_its_helpers_are_in_order() {
    let mut world = World::new();
    let agent = world.agent_with("/home/u/.opencode/bin/opencode", &["opencode"]);
    let chain = npx(&mut world, agent, "@upstash/context7-mcp", "context7-mcp");
    world.shows(agent, |seen| {
        seen.tty = false;
        seen.leader_alive = false;
        seen.leader = None;
    });
    let shell = crate::engine::tests::world::SHELL;
    let exit = crate::engine::input::Exit { at: world.now, process: shell, status: None, peak: None };
    world.tell(Input::Kernel(crate::engine::input::KernelEvent::Exit(exit)));
    world.wait(Duration::from_secs(1));

    let findings = world.open(FindingKind::Abandoned);
    assert_eq!((findings.len(), findings[0].pid), (1, agent.pid.0));
    assert_eq!(findings[0].proposed_action, "report");
    assert_no_orphan_ever(&world);
    assert_eq!(world.row(chain[0]).state, ProcessState::Running);

    // When it dies at last, its helpers are left behind, and it is abandoned no longer.
    world.kill(agent);
    world.wait(Duration::from_secs(1));
    assert_one_group(&world, agent, &chain);
    assert!(world.open(FindingKind::Abandoned).is_empty());
}

/// C22: below the namespace's init, while the gateway lives.
#[test]
fn workers_of_a_living_gateway_are_detached_at_most() {
    let mut world = World::new();
    let gateway = world.agent_with("/usr/bin/node", &["node", "/app/openclaw/openclaw.mjs", "gateway"]);
    let run = world.spawn(gateway, &["/bin/sh", "-c", "node server.js"]);
    let worker = world.spawn(run, &["/usr/bin/node", "server.js"]);
    world.shows(worker, |seen| seen.parent_comm = "tini".into());
    world.end(run, ExitStatus::Code(0));
    world.wait(Duration::from_secs(60));
    assert_no_orphan_ever(&world);
    assert_eq!(world.row(worker).state, ProcessState::Detached);

    world.kill(gateway);
    assert_one_group(&world, gateway, &[worker]);
}

/// T34: a root that lived for less than two seconds leaves orphans like any other. C37: so does a headless one.
#[test]
fn a_short_lived_agent_leaves_orphans_too() {
    let mut world = World::new();
    let agent = world.agent_with(CLAUDE, &["claude", "mcp", "list"]);
    let make = world.spawn(agent, &["/usr/bin/make", "-s", "mcp"]);
    let server = world.spawn(make, &["/opt/py/bin/python3", "server.py"]);
    world.end(agent, ExitStatus::Code(0));

    assert_one_group(&world, agent, &[make, server]);
    let BootTime(opened) = world.now;
    assert!(opened - BootTime::from(agent.start_time).0 < 1_000_000_000, "within a second");
}
