//! Real MCP servers, at pinned versions, below a stand-in agent: the whole tree is tracked, and orphans are distinguished
//! from servers that exit with the agent.
//!
//! Needs node and npm, and npm's registry for the first run; packages are kept in the target directory.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use watchdog_api::{Finding, FindingKind, Process, ProcessKind, ProcessState};
use watchdog_tests::{Daemon, ProcessKey, Snapshot, Stage, descendants, is_alive, npm, poll, seconds};

/// The servers' names: each one's standard input has this name too.
const SERVERS: [&str; 4] = ["everything", "memory", "nexus", "claude"];

/// Processes that run when all servers do: the first is started through npx, which makes three of it.
const HELPERS: usize = 6;

/// The directory in which the packages are installed.
fn installed() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real-programs");
        drop(npm::installed(&directory, &npm::SERVERS));
        directory
    })
}

/// A daemon, and an agent that runs all servers.
struct ServerScene {
    stage: Stage,
    daemon: Daemon,
    agent: ProcessKey,
    helpers: Vec<ProcessKey>,
}

impl ServerScene {
    /// The findings about this scene's orphans: the other test's claude is an agent of this daemon's too.
    fn orphans<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Finding> {
        let ours = |process: &Process| self.helpers.iter().any(|helper| helper.pid == process.pid);
        let sessions = snapshot.tree.sessions.iter().filter(|session| session.processes.iter().any(ours));
        let sessions: Vec<u64> = sessions.map(|session| session.id).collect();
        let findings = snapshot.findings_of(FindingKind::Orphan).into_iter();
        findings.filter(|finding| finding.session.is_some_and(|session| sessions.contains(&session))).collect()
    }
}

fn scene(grace: &str) -> ServerScene {
    let bin = installed().join("node_modules/.bin");
    let mut stage = Stage::new();
    let config = format!("[orphans]\ngrace = \"{grace}\"\n");
    let daemon = Daemon::configured(&stage, &config);
    for server in SERVERS {
        stage.fifo(server);
    }
    let (prefix, bin, home) = (installed().display(), bin.display(), stage.directory().display());
    // A home of their own: what they write goes with the stage.
    let environment = format!(
        "env HOME={home} npm_config_cache={prefix}/cache npm_config_update_notifier=false NODE_OPTIONS=--experimental-websocket"
    );
    let agent = stage.agent(&format!(
        "program everything [ {environment} npx --prefix {prefix} mcp-server-everything stdio ]
         program memory [ {environment} node {bin}/mcp-server-memory ]
         program nexus [ {environment} node {bin}/flow-nexus mcp start ]
         program claude [ {environment} {bin}/claude mcp serve ]
         hold"
    ));
    let helpers = settle(&stage, agent);
    ServerScene { stage, daemon, agent, helpers }
}

/// Waits until all servers run, and the number of processes has not changed for a second.
fn settle(stage: &Stage, agent: ProcessKey) -> Vec<ProcessKey> {
    let mut since = (Instant::now(), Vec::new());
    let settled = poll(Duration::from_secs(60), || {
        let now: Vec<_> = descendants(stage.pid()).into_iter().filter(|process| *process != agent).collect();
        if now != since.1 {
            since = (Instant::now(), now);
        }
        (since.1.len() == HELPERS && since.0.elapsed() > Duration::from_secs(1)).then(|| since.1.clone())
    });
    settled.unwrap_or_else(|| panic!("{HELPERS} helpers were to run, not {:?}\n{}", since.1, stage.log()))
}

#[test]
fn real_servers_become_orphans() {
    let scene = scene("30s");
    // Another process holds their standard inputs open too, as a terminal or a leaked descriptor does.
    let held: Vec<_> = SERVERS
        .iter()
        .map(|name| std::fs::File::options().write(true).open(scene.stage.directory().join(name)).expect("the fifo"))
        .collect();

    let snapshot = scene.daemon.eventually(seconds(2.0), "the whole tree", |snapshot| {
        scene.helpers.iter().all(|helper| snapshot.process(*helper).is_some()).then(|| snapshot.clone())
    });
    let described = scene.daemon.describe(Some(&snapshot));
    let of = |server: &str| {
        let helpers = scene.helpers.iter().filter_map(|helper| snapshot.process(*helper));
        let found = helpers.filter(|process| process.argv.iter().any(|argument| argument.contains(server)));
        found.map(|process| (process.depth, process.kind)).collect::<Vec<_>>()
    };
    let server = ProcessKind::McpServer;
    assert_eq!(of("mcp-server-everything"), [(1, server), (2, server), (3, server)], "npm exec, sh, node\n{described}");
    for name in ["mcp-server-memory", "flow-nexus", "bin/claude"] {
        assert_eq!(of(name), [(1, server)], "{name}\n{described}");
    }

    scene.stage.kill(scene.agent);

    scene.daemon.eventually(seconds(1.0), "every survivor is an orphan, in one group", |snapshot| {
        let orphaned = |helper: &ProcessKey| snapshot.process(*helper).map(|process| process.state);
        let all = scene.helpers.iter().all(|helper| orphaned(helper) == Some(ProcessState::Orphaned));
        (all && scene.orphans(snapshot).iter().filter(|finding| finding.closed_at.is_none()).count() == 1).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    let left: Vec<_> = scene.helpers.iter().filter(|helper| is_alive(**helper)).collect();
    assert_eq!(left.len(), HELPERS, "with their input held open all stay\n{}", scene.stage.log());
    drop(held);
}

#[test]
fn real_servers_exit_with_stdin() {
    let scene = scene("30s");
    scene.daemon.eventually(seconds(2.0), "the whole tree", |snapshot| {
        scene.helpers.iter().all(|helper| snapshot.process(*helper).is_some()).then_some(())
    });

    scene.stage.kill(scene.agent);

    let mut most = None;
    let killed = Instant::now();
    scene.daemon.eventually(seconds(10.0), "most end by themselves", |snapshot| {
        let proposed = scene.orphans(snapshot).into_iter().find(|finding| finding.proposed_action != "report");
        assert!(proposed.is_none(), "{proposed:?}");
        let left = scene.helpers.iter().filter(|helper| is_alive(**helper)).count();
        (left <= HELPERS / 2).then(|| most = Some(killed.elapsed()))
    });
    eprintln!("half of the servers had exited after {most:?}");
    scene.daemon.eventually(seconds(2.0), "an orphan finding was opened; it closes with the last", |snapshot| {
        let left = scene.helpers.iter().filter(|helper| is_alive(**helper)).count();
        let findings = scene.orphans(snapshot);
        let open = findings.iter().filter(|finding| finding.closed_at.is_none()).count();
        (findings.len() == 1 && (open == 0) == (left == 0)).then_some(())
    });
}
