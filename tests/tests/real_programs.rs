//! Given MCP servers as people run them, at pinned versions, below what a profile takes for an agent: the whole tree
//! is seen, and what the agent's death leaves behind is told from what ends by itself.
//!
//! Needs node and npm, and npm's registry for the first run; what is installed stays in the target directory.

#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use watchdog::api::{Finding, FindingKind, Process, ProcessKind, ProcessState};
use watchdog_tests::{Daemon, Look, ProcessId, Stage, descendants, is_alive, poll, seconds};

const PACKAGES: [&str; 4] = [
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "flow-nexus@0.1.128",
    "@anthropic-ai/claude-code@2.1.197",
];

/// The servers' names: each one's standard input has this name too.
const SERVERS: [&str; 4] = ["everything", "memory", "nexus", "claude"];

/// Processes that run when all servers do: the first is started through npx, which makes three of it.
const HELPERS: usize = 6;

/// The directory in which the packages are installed.
fn installed() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real-programs");
        let complete = directory.join("complete");
        let wanted = PACKAGES.join("\n");
        if std::fs::read_to_string(&complete).is_ok_and(|installed| installed == wanted) {
            return directory;
        }
        std::fs::create_dir_all(&directory).expect("a directory");
        let began = Instant::now();
        let npm = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--loglevel", "error", "--prefix"])
            .arg(&directory)
            .arg("--cache")
            .arg(directory.join("cache"))
            .args(PACKAGES)
            .stdin(Stdio::null())
            .status();
        assert!(npm.expect("npm is needed: install node, or `--skip real_programs`").success(), "npm install failed");
        eprintln!("npm install took {:?}", began.elapsed());
        std::fs::write(complete, wanted).expect("a mark");
        directory
    })
}

/// A daemon, and an agent that runs all servers.
struct Scene {
    stage: Stage,
    daemon: Daemon,
    agent: ProcessId,
    helpers: Vec<ProcessId>,
}

impl Scene {
    /// The findings about this scene's orphans: the other test's claude is an agent of this daemon's too.
    fn orphans<'a>(&self, look: &'a Look) -> Vec<&'a Finding> {
        let ours = |process: &Process| self.helpers.iter().any(|helper| helper.pid == process.pid);
        let sessions = look.tree.sessions.iter().filter(|session| session.processes.iter().any(ours));
        let sessions: Vec<u64> = sessions.map(|session| session.id).collect();
        let findings = look.findings_of(FindingKind::Orphan).into_iter();
        findings.filter(|finding| finding.session.is_some_and(|session| sessions.contains(&session))).collect()
    }
}

fn scene(grace: &str) -> Scene {
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
    Scene { stage, daemon, agent, helpers }
}

/// Waits until all servers run, and the number of processes has not changed for a second.
fn settle(stage: &Stage, agent: ProcessId) -> Vec<ProcessId> {
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
fn real_servers_are_seen_and_told_apart_and_orphans_when_their_agent_is_killed() {
    let scene = scene("30s");
    // Somebody else holds their standard inputs open too, as a terminal or a leaked descriptor does.
    let held: Vec<_> = SERVERS
        .iter()
        .map(|name| std::fs::File::options().write(true).open(scene.stage.directory().join(name)).expect("the fifo"))
        .collect();

    let look = scene.daemon.eventually(seconds(2.0), "the whole tree", |look| {
        scene.helpers.iter().all(|helper| look.process(*helper).is_some()).then(|| look.clone())
    });
    let described = scene.daemon.describe(Some(&look));
    let of = |server: &str| {
        let helpers = scene.helpers.iter().filter_map(|helper| look.process(*helper));
        let found = helpers.filter(|process| process.argv.iter().any(|argument| argument.contains(server)));
        found.map(|process| (process.depth, process.kind)).collect::<Vec<_>>()
    };
    let server = ProcessKind::McpServer;
    assert_eq!(of("mcp-server-everything"), [(1, server), (2, server), (3, server)], "npm exec, sh, node\n{described}");
    for name in ["mcp-server-memory", "flow-nexus", "bin/claude"] {
        assert_eq!(of(name), [(1, server)], "{name}\n{described}");
    }

    scene.stage.kill(scene.agent);

    scene.daemon.eventually(Duration::from_secs(1), "every survivor is an orphan, in one group", |look| {
        let orphaned = |helper: &ProcessId| look.process(*helper).map(|process| process.state);
        let all = scene.helpers.iter().all(|helper| orphaned(helper) == Some(ProcessState::Orphaned));
        (all && scene.orphans(look).iter().filter(|finding| finding.closed_at.is_none()).count() == 1).then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    let left: Vec<_> = scene.helpers.iter().filter(|helper| is_alive(**helper)).collect();
    assert_eq!(left.len(), HELPERS, "with their input held open all stay\n{}", scene.stage.log());
    drop(held);
}

#[test]
fn real_servers_that_end_with_their_input_are_never_proposed() {
    let scene = scene("30s");
    scene.daemon.eventually(seconds(2.0), "the whole tree", |look| {
        scene.helpers.iter().all(|helper| look.process(*helper).is_some()).then_some(())
    });

    scene.stage.kill(scene.agent);

    let mut most = None;
    let killed = Instant::now();
    scene.daemon.eventually(Duration::from_secs(10), "most end by themselves", |look| {
        let proposed = scene.orphans(look).into_iter().find(|finding| finding.proposed_action != "report");
        assert!(proposed.is_none(), "{proposed:?}");
        let left = scene.helpers.iter().filter(|helper| is_alive(**helper)).count();
        (left <= HELPERS / 2).then(|| most = Some(killed.elapsed()))
    });
    eprintln!("half of the servers were gone after {most:?}");
    scene.daemon.eventually(Duration::from_secs(2), "an orphan finding was opened; it closes with the last", |look| {
        let left = scene.helpers.iter().filter(|helper| is_alive(**helper)).count();
        let findings = scene.orphans(look);
        let open = findings.iter().filter(|finding| finding.closed_at.is_none()).count();
        (findings.len() == 1 && (open == 0) == (left == 0)).then_some(())
    });
}
