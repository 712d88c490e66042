//! The Debian package on a machine that has nothing else of agent-watchdog: installation, upgrade, downgrade, removal.
//!
//! Runs only in the guest with dpkg, one test at a time: all share the machine.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use watchdog_api::{FindingKind, ProcessState, Queue};
use watchdog_tests::installed::{Installed, UNIT, property, run, systemctl};
use watchdog_tests::{MIB, ProcessKey, PtyProgram, Snapshot, Stage, WebPage, is_alive, poll, resident_bytes, seconds};

const PACKAGE: &str = "agent-watchdog";
const CONFIG: &str = "/etc/agent-watchdog/config.toml";
const STATE: &str = "/var/lib/agent-watchdog";
const PINS: &str = "/sys/fs/bpf/agent-watchdog";
/// The old version comes first.
const DIRECTORY: &str = "/guest/packages";

/// A user other than root, as agents have.
const USER: u32 = 1000;

/// The files of both versions; `None` where there is no dpkg.
fn versions() -> Option<[PathBuf; 2]> {
    let Ok(files) = std::fs::read_dir(DIRECTORY) else {
        eprintln!("skipped: only in a guest of its own may the package be installed");
        return None;
    };
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort_unstable();
    Some(files.try_into().expect("two versions"))
}

fn dpkg(arguments: &[&str]) {
    let output = Command::new("dpkg").args(arguments).output().expect("the guest has dpkg");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "dpkg {arguments:?}: {text}");
}

fn install(package: &Path) -> Installed {
    dpkg(&["--install", &package.display().to_string()]);
    let installed = Installed;
    installed.await_active();
    installed
}

/// Purges the package: the next test begins on an empty machine.
fn purge() {
    dpkg(&["--purge", PACKAGE]);
    let runtime = ["/run/agent-watchdog", "/run/agent-watchdog-bpf"];
    for left in runtime.into_iter().chain([STATE, "/etc/agent-watchdog", "/usr/bin/watchdogd"]) {
        assert!(!Path::new(left).exists(), "{left} is left behind");
    }
    assert_eq!(pins(), Vec::<PathBuf>::new());
}

fn pins() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(PINS).into_iter().flatten();
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

#[test]
fn installed_package_shows_and_reaps() {
    let Some([package, _]) = versions() else { return };
    let started = Instant::now();
    let installed = install(&package);
    assert_eq!(systemctl(&["is-enabled", UNIT]).trim(), "enabled");
    let checked = run("watchdogctl", &["config", "check", CONFIG]);
    assert!(!installed.log().contains(" WARN ") && !checked.contains("error"), "{checked}\n{}", installed.log());

    // A built-in profile recognises it: nothing was configured.
    let mut stage = Stage::new();
    stage.install("claude");
    let agent = stage.start("claude", "spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    installed.eventually(seconds(3.0), "the session", |snapshot| {
        snapshot.session_with(helper).filter(|session| session.profile == "claude-code").map(drop)
    });
    let first_tree = started.elapsed();
    let tree = run("watchdogctl", &["tree"]);
    assert!(tree.contains("claude-code") && tree.contains(&helper.pid.to_string()), "{tree}");
    let mut top = PtyProgram::start(Command::new("watchdogctl").arg("top"), 100, 30);
    top.until("both processes", |screen| {
        screen.contains("claude-code") && [agent, helper].iter().all(|it| screen.contains(&it.pid.to_string()))
    });
    let web = WebPage::open(Command::new("watchdogctl").arg("web"));
    assert!(web.get("").body.contains("<title>agent-watchdog</title>"));
    let _stream = web.follow();
    assert_eq!(sessions_on(&web), ["claude-code running"]);
    let id = installed.snapshot().session_with(helper).map(|session| session.id).expect("the session");
    let page = web.get(&format!("view/session?id={id}")).body;
    assert!(page.contains(&format!("\"{}\"", helper.pid)), "{page}");

    stage.kill(agent);
    installed.eventually(seconds(3.0), "the orphan", |snapshot| {
        snapshot.findings_of(FindingKind::Orphan).into_iter().find(|finding| finding.pid == helper.pid).cloned()
    });
    assert!(is_alive(helper), "as installed, the daemon only reports");
    top.until("the orphan", |screen| screen.contains("findings 1") && screen.contains("orphaned"));
    assert_eq!(sessions_on(&web), ["claude-code orphaned"]);
    let attached = [("watchdogd", installed.status().pid), ("top", top.pid()), ("web", web.pid())]
        .map(|(name, pid)| format!("{name} {:.1} MiB", resident_bytes(pid).expect("it runs") as f64 / MIB as f64));
    let reaped = run("watchdogctl", &["reap", &format!("pid:{}", helper.pid), "--yes"]);
    assert!(!is_alive(helper), "{reaped}\n{}", installed.log());
    top.until("no session", |screen| screen.contains("0 sessions"));
    assert_eq!(sessions_on(&web), <[String; 0]>::default());
    assert!(top.ends_upon("q").success());
    drop(web);

    assert!(!pins().is_empty(), "the kernel programs are pinned while it is installed");
    dpkg(&["--remove", PACKAGE]);
    assert_eq!(pins(), Vec::<PathBuf>::new());
    for kept in [CONFIG, STATE] {
        assert!(Path::new(kept).exists(), "a removal keeps {kept}");
    }
    purge();
    // Not printed by a macro: the harness would hide it.
    let attached = attached.join(", ");
    let _ = writeln!(std::io::stderr(), "from dpkg --install to the first tree: {first_tree:.1?}; RSS: {attached}");
}

/// Agent and state of each session on the overview.
fn sessions_on(web: &WebPage) -> Vec<String> {
    let overview = web.get("view/overview");
    assert_eq!(overview.status, 200, "{}", overview.body);
    let overview = overview.json();
    let blocks = overview["blocks"].as_array().expect("blocks");
    let table = blocks.iter().find(|block| block["title"] == "Sessions").expect("the table of sessions");
    let rows = table["rows"].as_array().expect("rows");
    let text = |row: &Value, column: usize| row["cells"][column]["text"].as_str().expect("a text").to_owned();
    rows.iter().map(|row| format!("{} {}", text(row, 1), text(row, 2))).collect()
}

/// An agent that holds the only place of the gate, a launch that waits for it, and an adopted helper.
struct Scene {
    session: u64,
    agent: ProcessKey,
    adopted: ProcessKey,
    waiting: u32,
}

impl Scene {
    fn on(stage: &mut Stage, installed: &Installed) -> Self {
        let claude = stage.install("claude").display().to_string();
        let launch =
            |script: &str| format!("uid {USER} program - [ /usr/bin/watchdogctl launch -- {claude} {script} ] wait");
        let late = |name: &str| format!("await {name} fork [ report {name} hold ]");
        let script = format!("report agent spawn helper [ report adopted hold ] {} {} hold", late("up"), late("down"));
        stage.start("helper", &launch(&script));
        let (agent, adopted) = (stage.reported("agent"), stage.reported("adopted"));
        let session = installed.eventually(seconds(3.0), "the session", |snapshot| {
            snapshot.session_with(adopted).map(|session| session.id)
        });
        run("watchdogctl", &["adopt", &format!("pid:{}", adopted.pid)]);
        stage.start("helper", &launch("report second hold"));
        let waiting = poll(seconds(5.0), || queue(installed).waiting.first().map(|waiter| waiter.pid));
        Self { session, agent, adopted, waiting: waiting.expect("the second launch waits") }
    }

    /// Installs another version while the agent forks, and asserts that nothing is lost.
    fn survives(&self, stage: &mut Stage, installed: &Installed, package: &Path, fork: &str) -> ProcessKey {
        let before = installed.status().pid;
        let name = package.display().to_string();
        let late = std::thread::scope(|scope| {
            let dpkg = scope.spawn(|| dpkg(&["--install", &name]));
            stage.mark(fork);
            let late = stage.reported(fork);
            dpkg.join().expect("dpkg succeeds");
            late
        });
        installed.await_active();
        assert_ne!(installed.status().pid, before, "the new version runs");
        installed.eventually(seconds(3.0), "all processes of the session", |snapshot| {
            let session = snapshot.session_with(late)?;
            assert_eq!(session.id, self.session);
            (state_of(snapshot, self.agent)? == ProcessState::Running
                && state_of(snapshot, self.adopted)? == ProcessState::Kept)
                .then_some(())
        });
        let again = poll(seconds(10.0), || {
            let queue = queue(installed);
            queue.waiting.iter().any(|waiter| waiter.pid == self.waiting && !waiter.away).then_some(())
        });
        assert!(again.is_some(), "{:#?}\n{}", queue(installed), installed.log());
        late
    }
}

fn state_of(snapshot: &Snapshot, process: ProcessKey) -> Option<ProcessState> {
    let session = snapshot.session_with(process)?;
    session.processes.iter().find(|it| it.pid == process.pid).map(|it| it.state)
}

fn queue(installed: &Installed) -> Queue {
    serde_json::from_value(installed.get("/v1/queue")).expect("a queue")
}

#[test]
fn upgrade_and_downgrade_lose_nothing() {
    let Some([old, new]) = versions() else { return };
    let installed = install(&old);
    let mut config = std::fs::read_to_string(CONFIG).expect("the package's configuration");
    config = config.replace("\n[gate]\n", "\n[gate]\nmax_sessions = 1\n");
    std::fs::write(CONFIG, &config).expect("root may change it");
    systemctl(&["reload", UNIT]);
    let reloaded = poll(seconds(3.0), || installed.log().contains("reloaded the configuration").then_some(()));
    assert!(reloaded.is_some(), "{}", installed.log());
    let mut stage = Stage::new();
    let scene = Scene::on(&mut stage, &installed);

    let first = scene.survives(&mut stage, &installed, &new, "up");
    let second = scene.survives(&mut stage, &installed, &old, "down");
    assert_eq!(std::fs::read_to_string(CONFIG).expect("it stays"), config, "an administrator's changes stay");

    stage.kill(scene.agent);
    stage.reported("second");
    installed.eventually(seconds(3.0), "the orphans without the adopted one", |snapshot| {
        let session = snapshot.session_with(first)?;
        let state = |process: ProcessKey| session.processes.iter().find(|it| it.pid == process.pid).map(|it| it.state);
        let orphaned = [first, second].iter().all(|process| state(*process) == Some(ProcessState::Orphaned));
        (orphaned && state(scene.adopted) == Some(ProcessState::Kept)).then_some(())
    });

    systemctl(&["disable", UNIT]);
    install_quietly(&new);
    assert_eq!(systemctl(&["is-enabled", UNIT]).trim(), "disabled", "an upgrade keeps what the administrator chose");
    dpkg(&["--remove", PACKAGE]);
    assert_eq!(property("ActiveState"), "inactive");
    assert!([first, second, scene.adopted].iter().all(|process| is_alive(*process)), "a removal ends no agent");
    purge();
}

#[test]
fn package_tracks_without_bpf_file_system() {
    let Some([package, _]) = versions() else { return };
    run("umount", &["/sys/fs/bpf"]);
    let installed = install(&package);
    let status = installed.status();
    assert!(status.tracking.kernel_events, "{status:#?}\n{}", installed.log());
    let bpffs = status.capabilities.iter().find(|capability| capability.name == "bpffs").expect("the capability");
    assert!(!bpffs.on && bpffs.why.contains("no BPF file system is mounted"), "{bpffs:?}");
    let mut stage = Stage::new();
    stage.install("claude");
    stage.start("claude", "spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    installed.eventually(seconds(3.0), "the session", |snapshot| snapshot.session_with(helper).map(drop));
    drop(stage);

    run("mount", &["-t", "bpf", "bpf", "/sys/fs/bpf"]);
    systemctl(&["restart", UNIT]);
    installed.await_active();
    assert!(!pins().is_empty(), "{}", installed.log());
    purge();
}

fn install_quietly(package: &Path) {
    dpkg(&["--install", &package.display().to_string()]);
}
