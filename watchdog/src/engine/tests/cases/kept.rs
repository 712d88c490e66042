//! What looked like a left-over and was meant to be there.

use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::api::ProcessState;
use crate::engine::input::{ExitStatus, Stdin};
use crate::engine::tests::world::SHELL;

/// T01, T10, T11, T12: work of a living session, however hot, old or idle.
#[test]
fn work_of_a_living_session_is_no_orphan() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let bash = shell(&mut world, agent, "python -m pytest /tmp/claude-1000/x &");
    let pytest = world.spawn(bash, &["/usr/bin/python3", "-m", "pytest", "/tmp/claude-1000/x"]);
    world.end(bash, ExitStatus::Code(0));
    let job = world.spawn(pytest, &["/usr/bin/python3", "/tmp/claude-1000/x/job.py"]);
    world.wait(Duration::from_secs(7 * 24 * 3_600 / 100));

    assert_no_orphan_ever(&world);
    assert_eq!(world.tree().sessions.len(), 1, "a path that names an agent is no agent");
    assert_eq!(world.row(job).state, ProcessState::Running);
    assert_eq!(world.open(FindingKind::Detached)[0].proposed_action, "report");
}

/// T03, T32: neither the browser's helper nor a command that mentions an agent is one.
#[rstest]
#[case::native_host("/home/u/.local/bin/claude", &["/home/u/.local/bin/claude", "--chrome-native-host"])]
#[case::editor("/usr/bin/vim", &["vim", "mcp-server.py"])]
#[case::search("/usr/bin/grep", &["grep", "claude", "some.log"])]
#[case::watcher("/usr/bin/node", &["node", "/p/claude-watch/index.js"])]
#[case::runner("/opt/runner/Runner.Worker", &["Runner.Worker", "spawnclient"])]
fn what_is_no_agent_begins_no_session(#[case] path: &str, #[case] argv: &[&str]) {
    let mut world = World::new();
    let process = world.agent_with(path, argv);
    let child = world.fork(process);
    world.kill(process);
    world.wait(Duration::from_secs(60));

    assert!(world.tree().sessions.is_empty(), "{child}");
    assert_no_orphan_ever(&world);
}

/// T04: a server whose stdin another living agent holds, and the wrapper that would take the server with it.
#[test]
fn a_shared_server_is_kept_until_the_last_of_its_agents_dies() {
    let mut world = World::new();
    let (first, second) = (claude(&mut world), claude(&mut world));
    let chain = npx(&mut world, first, "@modelcontextprotocol/server-memory", "mcp-server-memory");
    world.shows(chain[2], |seen| seen.stdin = Stdin::Peer(vec![second]));
    world.kill(first);
    world.wait(Duration::from_secs(60));

    assert_eq!(world.row(chain[2]).state, ProcessState::Kept);
    assert_eq!(listed(&world.open(FindingKind::Orphan)[0]), pids(&chain[..2]));
    assert_eq!(proposal(&world), "report", "npm would hand the signal on");

    world.kill(second);
    world.wait(Duration::from_secs(60));
    assert_one_group(&world, first, &chain);
    assert_eq!(proposal(&world), "terminate");
}

/// T05, T06, T07, C39: the tmux server is a fork of whatever asked for it first; its panes are people's.
#[test]
fn panes_below_a_tmux_server_are_nobodys_helpers() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let client = world.spawn(agent, &["/usr/bin/tmux", "new-session", "-d", "-s", "x"]);
    let server = world.fork(client);
    world.shows(server, |seen| {
        seen.comm = "tmux: server".into();
        seen.sid = server.pid.0;
    });
    world.end(client, ExitStatus::Code(0));
    let zsh = world.spawn(server, &["/usr/bin/zsh"]);
    let subshell = world.fork(zsh);
    let editor = world.spawn(subshell, &["/usr/bin/vim"]);
    let inner = world.spawn(zsh, &["/home/u/.local/bin/claude", "--session-id", "1"]);
    // The user backgrounds something.
    world.end(subshell, ExitStatus::Code(0));
    world.wait(Duration::from_secs(60));
    assert!(world.open(FindingKind::Detached).is_empty(), "{:#?}", world.open(FindingKind::Detached));

    world.kill(agent);
    world.wait(Duration::from_secs(60));
    assert_no_orphan_ever(&world);
    assert_eq!(world.row(editor).state, ProcessState::Running);
    assert_eq!(world.session(inner).parent_session, None);
}

/// T05's sister: screen's server writes its title over its arguments, and nothing that was executed says so.
#[test]
fn a_screen_server_is_kept() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let client = world.spawn(agent, &["/usr/bin/screen", "-dmS", "x"]);
    let server = world.fork(client);
    world.end(client, ExitStatus::Code(0));
    let shell = world.spawn(server, &["/bin/bash"]);
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_no_orphan_ever(&world);
    assert_eq!(world.row(server).state, ProcessState::Kept);
    assert_eq!(world.row(shell).state, ProcessState::Running);
}

/// What was opened in front of a person, holds what others use, or must not be cut short is reported, and nothing more, with the
/// shell that waits for it.
#[rstest]
#[case::browser(&["/opt/google/chrome/chrome", "https://example.org"])]
#[case::containers(&["/usr/bin/docker", "compose", "-f", "dev.yml", "up"])]
#[case::database(&["/usr/bin/docker", "run", "-p", "5432:5432", "postgres"])]
#[case::infrastructure(&["/usr/bin/terraform", "apply", "-auto-approve"])]
#[case::packages(&["/usr/bin/dpkg", "--configure", "-a"])]
fn what_a_person_may_need_is_in_doubt(#[case] argv: &[&str]) {
    let mut world = World::new();
    let agent = claude(&mut world);
    let bash = shell(&mut world, agent, "x");
    let needed = world.spawn(bash, argv);
    let part = world.fork(needed);
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_one_group(&world, agent, &[bash, needed, part]);
    for process in [bash, needed, part] {
        assert_eq!(verdict(&world, process), "unknown");
    }
    assert_eq!(proposal(&world), "report");
}

/// The same browser and the same client where a program is at the other end.
#[rstest]
#[case::driven(&["/opt/google/chrome/chrome", "--headless", "--remote-debugging-port=0"])]
#[case::wired(&["/usr/bin/docker", "run", "-i", "--rm", "mcp/fetch"])]
fn what_a_program_drives_is_a_helper(#[case] argv: &[&str]) {
    let mut world = World::new();
    let agent = claude(&mut world);
    let driven = world.spawn(agent, argv);
    let part = world.fork(driven);
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_one_group(&world, agent, &[driven, part]);
    assert_eq!(proposal(&world), "terminate");
}

/// Without an option too, where a server started it.
#[test]
fn a_browser_that_a_server_started_is_driven_by_it() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let chain = npx(&mut world, agent, "@playwright/mcp", "playwright-mcp");
    let chrome = world.spawn(chain[2], &["/opt/google/chrome/chrome"]);
    let renderer = world.spawn(chrome, &["/opt/google/chrome/chrome", "--type=renderer"]);
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    for process in [chrome, renderer] {
        assert_eq!(verdict(&world, process), "clear");
    }
}

/// What a command opened on the desktop is a person's, also when the command has ended.
#[test]
fn what_was_opened_on_the_desktop_is_in_doubt() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let opener = world.spawn(agent, &["/usr/bin/xdg-open", "report.pdf"]);
    let viewer = world.spawn(opener, &["/usr/bin/evince", "report.pdf"]);
    world.end(opener, ExitStatus::Code(0));
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_eq!(verdict(&world, viewer), "unknown");
    assert_eq!(proposal(&world), "report");
}

/// A terminal of its own that is still open has somebody at its other end. Of a living agent's commands, the agent.
#[test]
fn a_window_with_a_shell_in_it_is_in_doubt() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let window = world.spawn(agent, &["/usr/bin/alacritty"]);
    let zsh = world.spawn(window, &["/usr/bin/zsh"]);
    world.shows(zsh, |seen| (seen.sid, seen.tty) = (zsh.pid.0, true));
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_eq!((verdict(&world, zsh), verdict(&world, window)), ("unknown".into(), "unknown".into()));
    assert_eq!(proposal(&world), "report");
}

/// T08: the daemon of the agent view, started from a session, and the sessions that it holds.
#[test]
fn an_agent_daemon_outlives_the_session_that_started_it() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let daemon = world.fork(agent);
    world.exec(daemon, CLAUDE, &["claude", "daemon", "run", "--origin", "transient"]);
    let host = world.fork(daemon);
    world.exec(host, CLAUDE, &["claude", "--bg-pty-host", "/tmp/s.sock", "--", "claude", "--resume", "1"]);
    let worker = world.fork(host);
    world.exec(worker, CLAUDE, &["claude", "--resume", "1"]);
    let helpers = npx(&mut world, worker, "@upstash/context7-mcp", "context7-mcp");
    world.kill(agent);
    world.wait(Duration::from_secs(600));

    assert_no_orphan_ever(&world);
    assert_eq!(world.row(daemon).state, ProcessState::Kept);
    for process in [host, worker, helpers[2]] {
        assert_eq!(world.row(process).state, ProcessState::Running);
    }
}

/// T09: bots that a user had the agent start. nohup keeps; setsid leaves it open, and what runs below with it.
#[test]
fn bots_that_were_meant_to_stay_are_not_ended() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let bash = shell(&mut world, agent, "nohup npm start & setsid npm run worker &");
    let bot = world.fork(bash);
    world.exec(bot, "/usr/bin/nohup", &["nohup", "npm", "start"]);
    world.exec(bot, "/usr/bin/node", &["node", "/usr/bin/npm", "start"]);
    world.shows(bot, |seen| seen.ignores_hup = true);
    let bot_node = world.spawn(bot, &["/usr/bin/node", "dist/bot/index.js"]);
    let worker = world.fork(bash);
    world.exec(worker, "/usr/bin/setsid", &["setsid", "npm", "run", "worker"]);
    world.exec(worker, "/usr/bin/node", &["node", "/usr/bin/npm", "run", "worker"]);
    let worker_node = world.spawn(worker, &["/usr/bin/node", "dist/worker.js"]);
    world.end(bash, ExitStatus::Code(0));
    world.kill(agent);
    world.wait(Duration::from_secs(600));

    assert_eq!(world.row(bot).state, ProcessState::Kept);
    assert_eq!(world.row(bot_node).state, ProcessState::Running);
    assert_one_group(&world, agent, &[worker, worker_node]);
    assert_eq!(verdict(&world, worker_node), "unknown");
    assert_eq!(proposal(&world), "report");
}

/// T09: setsid forks when it leads its group; the child executes the program.
#[test]
fn setsid_that_forks_is_setsid_too() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let setsid = world.spawn(agent, &["/usr/bin/setsid", "node", "bot.js"]);
    let bot = world.spawn(setsid, &["/usr/bin/node", "bot.js"]);
    world.end(setsid, ExitStatus::Code(0));
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_eq!(verdict(&world, bot), "unknown");
}

/// C35, T23, T24, T25, T26, T28, T30: daemons of builds, of editors and of the user's session.
#[rstest]
#[case::fsmonitor("/usr/bin/git", &["git", "fsmonitor--daemon", "run", "--detach", "--ipc-threads=8"])]
#[case::msbuild("/usr/share/dotnet/dotnet", &["/usr/share/dotnet/dotnet", "/usr/share/dotnet/sdk/8/MSBuild.dll", "/nologo", "/nodemode:1", "/nodeReuse:true"])]
#[case::roslyn("/usr/share/dotnet/dotnet", &["dotnet", "exec", "/usr/share/dotnet/sdk/8/Roslyn/bincore/VBCSCompiler.dll", "-pipename:x"])]
#[case::bazel("/usr/bin/java", &["bazel(proj)", "--add-opens=x", "-jar", "/home/u/.cache/bazel/A-server.jar"])]
#[case::nx("/usr/bin/node", &["/usr/bin/node", "/p/node_modules/nx/src/daemon/server/start.js"])]
#[case::gradle("/usr/bin/java", &["/usr/bin/java", "-cp", "/g.jar", "org.gradle.launcher.daemon.bootstrap.GradleDaemon", "8.9"])]
#[case::kotlin("/usr/bin/java", &["java", "-cp", "/k.jar", "org.jetbrains.kotlin.daemon.KotlinCompileDaemon"])]
#[case::editor("/home/u/.vscode-server/node", &["/home/u/.vscode-server/node", "/home/u/.vscode-server/out/server-main.js"])]
#[case::editor_window("/usr/share/code/code", &["/usr/share/code/code", "/p/file.rs"])]
#[case::gpg_agent("/usr/bin/gpg-agent", &["gpg-agent", "--homedir", "/home/u/.gnupg", "--daemon"])]
#[case::credentials("/usr/lib/git-core/git-credential-cache--daemon", &["git-credential-cache--daemon", "/home/u/.cache/s"])]
fn daemons_of_builds_and_users_stay(#[case] path: &str, #[case] argv: &[&str], #[values(false, true)] by_fork: bool) {
    let mut world = World::new();
    let agent = claude(&mut world);
    let bash = shell(&mut world, agent, "build");
    let first = world.fork(bash);
    world.exec(first, path, argv);
    let mut daemon = first;
    if by_fork {
        daemon = world.fork(first);
        world.end(first, ExitStatus::Code(0));
    }
    world.end(bash, ExitStatus::Code(0));
    let worker = world.spawn(daemon, &["/usr/bin/sleep", "9"]);
    world.kill(agent);
    world.wait(Duration::from_secs(600));

    assert_no_orphan_ever(&world);
    assert_eq!(world.row(daemon).state, ProcessState::Kept);
    assert_eq!(world.row(worker).state, ProcessState::Running);
}

/// C35: the monitor of a worktree that was removed. It is reported, and nothing is done to it.
#[test]
fn a_build_server_of_a_removed_directory_is_reported() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let monitors: Vec<ProcessId> = (0..2)
        .map(|_| {
            let git = world.spawn(agent, &["/usr/bin/git", "status"]);
            let monitor = world.spawn(git, &["/usr/bin/git", "fsmonitor--daemon", "run", "--detach"]);
            world.end(git, ExitStatus::Code(0));
            monitor
        })
        .collect();
    world.shows(monitors[0], |seen| seen.cwd_deleted = true);
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert_one_group(&world, agent, &monitors[..1]);
    assert_eq!((verdict(&world, monitors[0]), proposal(&world)), ("unknown".into(), "report".into()));
    assert_eq!(world.row(monitors[1]).state, ProcessState::Kept);
}

/// T30: ssh's master is a fork of the first connection, in a session of its own, with a socket.
#[test]
fn the_master_of_a_shared_connection_is_kept() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let git = world.spawn(agent, &["/usr/bin/git", "fetch"]);
    let ssh = world.spawn(git, &["/usr/bin/ssh", "git@host", "git-upload-pack 'x'"]);
    let middle = world.fork(ssh);
    let master = world.fork(middle);
    world.shows(master, |seen| {
        seen.sid = master.pid.0;
        seen.listens = vec!["unix /home/u/.ssh/cm-x.abc".into()];
    });
    [middle, ssh, git].into_iter().for_each(|process| world.end(process, ExitStatus::Code(0)));
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert!(world.open(FindingKind::Orphan).is_empty());
    assert_eq!(world.row(master).state, ProcessState::Kept);
}

/// T13: a server for several sessions, on a port, in a session of its own.
#[test]
fn a_shared_http_server_is_kept() {
    let mut world = World::new();
    let agent = claude(&mut world);
    let server = world.spawn(agent, &["/usr/bin/python3", "-m", "my_mcp", "--port", "8931"]);
    world.shows(server, |seen| {
        seen.sid = server.pid.0;
        seen.listens = vec!["tcp 127.0.0.1:8931".into()];
    });
    world.kill(agent);
    world.wait(Duration::from_secs(60));

    assert!(world.open(FindingKind::Orphan).is_empty());
    assert_eq!(world.row(server).state, ProcessState::Kept);
}

/// T27, T29: helpers that end by themselves a moment after what they serve are no news until the grace is over.
#[rstest]
#[case::esbuild("/p/node_modules/esbuild/bin/esbuild", &["esbuild", "--service=0.21.5", "--ping"])]
#[case::telemetry("/usr/bin/node", &["/usr/bin/node", "/x/chrome-devtools-mcp/build/src/telemetry/watchdog/main.js", "--parent-pid=7"])]
fn helpers_that_end_by_themselves_are_given_the_grace(#[case] path: &str, #[case] argv: &[&str]) {
    for ends in [true, false] {
        let mut world = World::new();
        let agent = claude(&mut world);
        let helper = world.fork(agent);
        world.exec(helper, path, argv);
        world.kill(agent);
        world.wait(Duration::from_secs(20));
        assert_no_orphan_ever(&world);
        if ends {
            world.end(helper, ExitStatus::Code(0));
        }
        world.wait(Duration::from_secs(60));
        assert_eq!(world.all(FindingKind::Orphan).len(), usize::from(!ends));
    }
}

/// C18, L11: while the launcher lives, the agent behind it may die and be started anew.
#[test]
fn an_agent_that_its_launcher_starts_anew_is_the_agent_again() {
    let mut world = World::new();
    let script = "/x/node_modules/.bin/gemini";
    let launcher = world.agent_with("/usr/bin/node", &["node", script]);
    let first = world.spawn(launcher, &["/usr/bin/node", "--max-old-space-size=12052", script]);
    let helper = world.spawn(first, &["/usr/bin/node", "/x/.bin/mcp-server-memory"]);
    world.end(first, ExitStatus::Code(42));
    let second = world.spawn(launcher, &["/usr/bin/node", "--max-old-space-size=12052", script]);
    world.wait(Duration::from_secs(1));

    assert_eq!(world.row(second).kind, crate::api::ProcessKind::Agent);
    assert_eq!(world.row(second).state, ProcessState::Running);
    // What the first one left is told by the name of the first one, not of the launcher that lives.
    assert_one_group(&world, first, &[helper]);
}

/// C23, T28: an agent that never had a terminal, below a program whose login has ended, lost nothing. C05: one that was
/// found without, and that nobody speaks to, may have.
#[test]
fn an_agent_that_started_without_a_terminal_is_not_abandoned() {
    let leaderless = |world: &mut World| {
        world.ordinary.tty = false;
        world.ordinary.leader = None;
        world.ordinary.leader_alive = false;
    };
    let mut world = World::new();
    leaderless(&mut world);
    world.agent_with(CLAUDE, &["claude", "--output-format", "stream-json", "--resume", "1"]);
    world.wait(Duration::from_secs(60));
    assert!(world.all(FindingKind::Abandoned).is_empty());

    for served in [true, false] {
        let mut world = World::new();
        leaderless(&mut world);
        if served {
            world.ordinary.stdin = Stdin::Peer(vec![]);
        }
        let agent = world.unseen(SHELL, "/home/u/.local/bin/claude");
        world.wait(Duration::from_secs(3_600));
        world.tell(world.scan(false));
        world.wait(Duration::from_secs(1));
        let found: Vec<u32> = world.open(FindingKind::Abandoned).iter().map(|finding| finding.pid).collect();
        assert_eq!(found, if served { vec![] } else { vec![agent.pid.0] });
    }
}
