//! Deaths by a container runtime, runc. Skipped without it, except in CI.
#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use watchdog_tests::{Daemon, ProcessKey, Stage, limit, poll, seconds, skip_without};

const RUNC: &str = "runc";

/// A container whose first process is the agent of a stage; removed when it is dropped.
struct AgentContainer {
    id: String,
    bundle: PathBuf,
    /// `runc run`.
    process: Child,
}

impl AgentContainer {
    fn start(stage: &Stage, script: &str) -> Self {
        let bundle = stage.directory().join("bundle");
        let mut mounts = vec![json!({"destination": "/proc", "type": "proc", "source": "proc"})];
        // The fixture may be linked dynamically.
        let there = ["/usr", "/lib", "/lib64"].into_iter().map(PathBuf::from).filter(|path| path.is_dir());
        for path in there.chain([stage.directory().to_owned()]) {
            mounts.push(json!({"destination": path, "type": "bind", "source": path, "options": ["rbind"]}));
        }
        let agent = stage.directory().join(stage.agent_name()).display().to_string();
        let arguments: Vec<&str> = std::iter::once(agent.as_str()).chain(script.split_whitespace()).collect();
        let id = format!("watchdog-{}", stage.agent_name());
        let config = json!({
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": arguments,
                "env": [format!("FIXTURE_DIR={}", stage.directory().display())],
                "cwd": "/",
            },
            "root": {"path": "root"},
            "mounts": mounts,
            "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}], "cgroupsPath": format!("/{id}")},
        });
        fs::create_dir_all(bundle.join("root")).expect("a directory");
        fs::write(bundle.join("config.json"), config.to_string()).expect("a file");
        let log = fs::File::create(bundle.join("log")).expect("a log");
        let process = Command::new(RUNC)
            .arg("--root")
            .arg(bundle.join("state"))
            .args(["run", "--bundle"])
            .arg(&bundle)
            .arg(&id)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("runc is installed");
        Self { id, bundle, process }
    }

    fn runc(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new(RUNC);
        command.arg("--root").arg(self.bundle.join("state")).args(arguments);
        command.output().expect("runc is installed")
    }

    /// Its first process.
    fn agent(&self) -> ProcessKey {
        let running = || {
            let state: Value = serde_json::from_slice(&self.runc(&["state", &self.id]).stdout).ok()?;
            let pid = state["pid"].as_u64().filter(|_| state["status"] == "running")?;
            ProcessKey::now(u32::try_from(pid).ok()?)
        };
        let log = || fs::read_to_string(self.bundle.join("log")).unwrap_or_default();
        poll(limit(Duration::from_secs(20)), running).unwrap_or_else(|| panic!("no container: {}", log()))
    }
}

impl Drop for AgentContainer {
    fn drop(&mut self) {
        let _ = self.runc(&["delete", "--force", &self.id]);
        let _ = self.process.wait();
    }
}

fn is_installed() -> bool {
    let found = ["/usr/bin", "/usr/sbin", "/usr/local/bin"].iter().any(|path| Path::new(path).join(RUNC).exists());
    if !found {
        skip_without(RUNC, RUNC);
    }
    found
}

#[test]
fn container_stop_names_runtime() {
    if !is_installed() {
        return;
    }
    let stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let container = AgentContainer::start(&stage, "spawn helper [ hold ] hold");
    let agent = container.agent();
    let helper = daemon.eventually(seconds(10.0), "the helper", |snapshot| {
        let processes = &snapshot.session_with(agent)?.processes;
        processes.iter().find(|process| process.pid != agent.pid && process.name == "helper").map(|helper| helper.pid)
    });

    let killed = container.runc(&["kill", &container.id, "KILL"]);

    assert!(killed.status.success(), "{killed:?}");
    let death = daemon.death(agent.pid, limit(Duration::from_secs(20)));
    assert_eq!((&death["cause"], &death["signal"]), (&"killed".into(), &9.into()), "{death:#}");
    let sender = &death["sender"];
    assert_eq!((&sender["comm"], &sender["role"]), (&RUNC.into(), &"container_runtime".into()), "{death:#}");
    assert_eq!(sender["relation"], "stranger", "{death:#}");
    let text = daemon.ctl_text(&["explain", &agent.pid.to_string()]).stdout;
    assert!(text.contains("a container runtime, which stops containers"), "{text}");
    // Its pid namespace ends with its first process.
    let death = daemon.death(helper, seconds(10.0));
    assert_eq!(
        (&death["cause"], &death["kernel_reason"]),
        (&"kernel_signal".into(), &"namespace_end".into()),
        "{death:#}"
    );
}
