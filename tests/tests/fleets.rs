//! Real programs in numbers: a test run with many workers, an agent that a supervisor restarts, and a fleet of agents in tmux.
//!
//! Needs node, npm and python3 with venv, and the registries of npm and PyPI for the first run; packages are kept in the
//! target directory.

#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use watchdog_api::{FindingKind, UserAgents};
use watchdog_tests::{Daemon, Stage, Tmux, poll, seconds};

const PYTEST: [&str; 2] = ["pytest==9.2.0", "pytest-xdist==3.8.0"];
const VITEST: &str = "vitest@3.2.4";
const WORKERS: usize = 16;
const BURST: &str = "[fanout]\nmax_workers = 12\n";

fn run(command: &mut Command, what: &str) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(status.expect("it is installed").success(), "{what} failed");
}

/// The directory with these packages, which `install` fills once.
fn installed(name: &str, packages: &str, install: impl Fn(&Path)) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let complete = directory.join("complete");
    if std::fs::read_to_string(&complete).is_ok_and(|installed| installed == packages) {
        return directory;
    }
    std::fs::create_dir_all(&directory).expect("a directory");
    install(&directory);
    std::fs::write(complete, packages).expect("a mark");
    directory
}

fn pytest() -> PathBuf {
    installed("pytest", &PYTEST.join("\n"), |directory| {
        run(Command::new("python3").args(["-m", "venv"]).arg(directory), "python3 -m venv");
        let pip = directory.join("bin/pip");
        run(Command::new(pip).args(["install", "--quiet", "--no-cache-dir"]).args(PYTEST), "pip install");
    })
}

fn vitest() -> PathBuf {
    installed("vitest", VITEST, |directory| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--loglevel", "error", "--prefix"]).arg(directory);
        run(npm.arg(VITEST), "npm install");
    })
}

/// One finding names the command, and no worker is a leak.
fn burst_of(daemon: &Daemon, command: &str) {
    let finding = daemon.eventually(seconds(60.0), &format!("a burst of {command}"), |seen| {
        seen.findings_of(FindingKind::Fanout).first().map(|finding| (*finding).clone())
    });
    assert!(finding.summary.contains(command), "{finding:#?}");
    let seen = daemon.snapshot();
    assert_eq!(seen.findings_of(FindingKind::Fanout).len(), 1, "{}", daemon.describe(Some(&seen)));
    assert!(seen.findings_of(FindingKind::Leak).is_empty(), "{}", daemon.describe(Some(&seen)));
}

#[test]
fn pytest_workers_are_one_burst() {
    let python = pytest();
    let mut stage = Stage::new();
    let project = stage.directory().join("project");
    std::fs::create_dir(&project).expect("a directory");
    let text = format!(
        "import time, pytest\n@pytest.mark.parametrize('n', range({WORKERS}))\n\
         def test_one(n):\n    block = bytearray(24 << 20)\n    time.sleep(20)\n"
    );
    std::fs::write(project.join("test_all.py"), text).expect("a test");
    let daemon = Daemon::configured(&stage, BURST);
    let (bin, project) = (python.join("bin/pytest").display().to_string(), project.display().to_string());
    stage.agent(&format!("program - [ {bin} -q -p no:cacheprovider -n {WORKERS} {project} ] hold"));
    burst_of(&daemon, "pytest");
}

#[test]
fn vitest_workers_are_one_burst() {
    let node_modules = vitest().join("node_modules");
    let mut stage = Stage::new();
    let project = stage.directory().join("project");
    std::fs::create_dir(&project).expect("a directory");
    std::os::unix::fs::symlink(&node_modules, project.join("node_modules")).expect("a link");
    for number in 0..WORKERS {
        let text = "import { test } from 'vitest'\n\
                    test('one', async () => { await new Promise((done) => setTimeout(done, 30000)) }, 60000)\n";
        std::fs::write(project.join(format!("n{number}.test.mjs")), text).expect("a test");
    }
    let daemon = Daemon::configured(&stage, BURST);
    let (bin, project) = (node_modules.join(".bin/vitest").display().to_string(), project.display().to_string());
    let workers = format!("--maxWorkers={WORKERS} --minWorkers={WORKERS}");
    stage.agent(&format!("program - [ node {bin} run --pool=forks {workers} --root {project} ] hold"));
    burst_of(&daemon, "vitest");
}

#[test]
fn restarted_agent_is_one_series() {
    let mut stage = Stage::new();
    let script = stage.directory().join("heap-agent.mjs");
    let text = "const all = []\nsetInterval(() => all.push(new Array(200000).fill(0).map((_, n) => ({ n }))), 20)\n";
    std::fs::write(&script, text).expect("an agent");
    let profile = format!("[[profile]]\nname = \"node-agent\"\nscript = [\"{}\"]\n", script.display());
    let daemon = Daemon::configured(&stage, &profile);
    let supervisor = format!(
        "ulimit -c 0; for life in 1 2 3; do node --max-old-space-size=48 {} 2>/dev/null; done; sleep 1000",
        script.display()
    );
    stage.execute(["/bin/bash", "-c", &supervisor].map(str::to_owned).into());

    let lives = daemon.eventually(seconds(90.0), "three lives", |seen| {
        let of = seen.tree.sessions.iter().filter(|session| session.profile == "node-agent");
        let ended: Vec<u64> = of.filter(|session| session.processes.is_empty()).map(|session| session.id).collect();
        (ended.len() == 3).then_some(ended)
    });
    let last = format!("session:{}", lives[2]);
    let explained = poll(seconds(10.0), || {
        let answer = daemon.ctl_text(&["explain", &last]);
        answer.stdout.contains("3 times in").then_some(answer.stdout)
    });
    let text = explained.unwrap_or_else(|| panic!("{:?}", daemon.ctl_text(&["explain", &last])));
    assert!(text.replace('\n', " ").contains("it ran out of V8 heap"), "{text}");
}

/// The entry of this test's user.
fn agents(daemon: &Daemon, what: &str, within: Duration, is: impl Fn(&UserAgents) -> bool) -> UserAgents {
    let mut last = Vec::new();
    let found = poll(within, || {
        last = daemon.status().users;
        last.iter().find(|user| is(user)).cloned()
    });
    found.unwrap_or_else(|| panic!("not {what}: {last:#?}\n{}", daemon.describe(None)))
}

#[test]
fn fleet_in_tmux_is_summed_up() {
    let (stage, daemon) = Daemon::on_stage();
    let agent = stage.directory().join(stage.agent_name()).display().to_string();
    let fleet = Tmux::new(stage.directory(), 80, 24);
    for _ in 0..20 {
        fleet.new_session(&format!("env FIXTURE_DIR={} {agent} hold", stage.directory().display()));
    }
    let detached = agents(&daemon, "twenty detached agents", seconds(20.0), |user| user.detached == 20);
    assert_eq!((detached.agents, detached.attached, detached.without_terminal), (20, 0, 0), "{detached:?}");
    let server = detached.depends_on.expect("the server of tmux");
    assert_eq!((server.agents, server.name.as_str(), server.pid), (20, "tmux: server", fleet.server_pid()));
    assert!(server.oom_score_adj.is_some());
    let text = daemon.ctl_text(&["status"]).stdout;
    assert!(text.contains("20 depend on tmux: server"), "{text}");

    let person = Tmux::new(stage.directory(), 80, 24);
    person.type_line(&fleet.attach_command());
    assert!(poll(seconds(10.0), || fleet.has_clients().then_some(())).is_some(), "{}", person.screen());
    fleet.new_session(&format!("env FIXTURE_DIR={} {agent} hold", stage.directory().display()));
    let attached = agents(&daemon, "all attached", seconds(20.0), |user| user.attached == 21);
    assert_eq!(attached.detached, 0, "{attached:?}");
}
