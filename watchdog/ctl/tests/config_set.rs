//! `config set`, `unset`, `get` and `show` on real files, without a daemon.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

mod fake_daemon;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use fake_daemon::{FakeDaemon, ctl, http, run};

const NOWHERE: &str = "/nowhere";

fn config(file: &Path, arguments: &[&str]) -> (i32, String, String) {
    let file = file.to_str().unwrap();
    run(Path::new(NOWHERE), &[&["config"], arguments, &["--file", file]].concat())
}

#[test]
fn key_is_set_and_unset() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real.toml"), dir.path().join("config.toml"));
    let before = "# mine\n[gate]\n\n# queue\nmax_queue = 5 # few\n";
    fs::write(&real, before).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real.toml", &link).unwrap();
    let inode = fs::metadata(&real).unwrap().ino();
    let (code, out, err) = config(&link, &["set", "gate.max_queue", "7"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("gate.max_queue = 7 (was 5)") && out.contains("The daemon was not reloaded"), "{out}");
    assert_eq!(fs::read_to_string(&real).unwrap(), before.replace("5 #", "7 #"));
    let found = fs::metadata(&real).unwrap();
    assert!(link.is_symlink() && found.ino() != inode && found.mode() & 0o777 == 0o600);
    let (code, out, _) = config(&link, &["get", "gate.max_queue"]);
    assert_eq!((code, out.as_str()), (0, "7\n"));
    let (_, out, _) = config(&link, &["unset", "gate.max_queue"]);
    assert!(out.contains("gate.max_queue removed, default: 1000 (was 7)"), "{out}");
    assert_eq!(fs::read_to_string(&real).unwrap(), "# mine\n[gate]\n\n# queue\n");
    let (code, out, _) = config(&link, &["unset", "gate.max_queue"]);
    assert!(code == 0 && out.contains("not set; nothing was changed"), "{out}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn invalid_value_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "[orphans]\ngrace = \"30s\"\n").unwrap();
    for (key, value, expected) in [
        ("orphans.grace", "9x", "config.toml:2:9: grace: \"9x\" is not a duration"),
        ("orphans.grac", "9s", "grac: unknown key in [orphans] (did you mean grace?); allowed: grace"),
        ("actions.orphan", "explode", "orphan: \"explode\" is not"),
        ("leak.limit", "1GiB", "leak: unknown key"),
        ("profile.x.max_memory", "1GiB", "no pattern"),
    ] {
        let (code, out, err) = config(&file, &["set", key, value]);
        assert_eq!((code, out.as_str()), (1, ""), "{key}");
        assert!(err.contains(expected) && err.contains("Nothing was changed."), "{err}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "[orphans]\ngrace = \"30s\"\n");
    }
    let (code, _, err) = config(&file, &["get", "orphans.grac"]);
    assert!(code == 2 && err.contains("did you mean grace?"), "{err}");
    let (code, out, _) = config(&file, &["get", "gate.max_sessions"]);
    assert_eq!((code, out.as_str()), (1, "not set\n"));
    let (code, _, err) = config(&file, &["set", "actions", "1"]);
    assert!(code == 2 && err.contains("expected TABLE.KEY"), "{err}");
}

#[test]
fn untrusted_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let (code, _, err) = config(&file, &["set", "actions.enforce", "true"]);
    assert!(code == 1 && err.contains("other users can write to it"), "{err}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn concurrent_sets_are_all_kept() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new/config.toml");
    let keys = ["gate.max_queue", "gate.max_depth", "stale.min_count", "fanout.max_helpers", "fanout.max_agents"];
    let children: Vec<_> = keys
        .iter()
        .map(|key| {
            let arguments = ["config", "set", key, "9", "--file", file.to_str().unwrap()];
            ctl(Path::new(NOWHERE), &arguments).stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let (_, out, _) = config(&file, &["show"]);
    for key in keys {
        assert!(out.contains(&format!("{key} = 9  # default: ")), "{out}");
    }
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn daemon_with_other_file_not_signalled() {
    let dir = tempfile::tempdir().unwrap();
    let status = r#"{"version":"0.1.0","pid":812,"started_at":"2026-01-02T09:55:00.000Z","degraded":false,
        "tracking":{"kernel_events":true,"close_watch":false},"capabilities":[],"counts":{"sessions_running":1,
        "sessions_orphaned":0,"processes":2,"zombies":0,"findings_open":2,"memory_bytes":1048576},"host":{
        "memory_total_bytes":1,"memory_available_bytes":1,"swap_total_bytes":0,"swap_free_bytes":0,"shmem_bytes":0,
        "pressure_some_avg10":0.5,"pressure_full_avg10":0.0},"breaker_open":false,"lost_events":0,"reconciles":0,
        "config":{"file":"/other/config.toml","enforce":false,"reloads":0,"problem":null}}"#;
    let server = FakeDaemon::raw(http("200 OK", status));
    let file = dir.path().join("config.toml");
    let arguments = ["--json", "config", "set", "gate.max_queue", "3", "--file", file.to_str().unwrap()];
    let (code, out, _) = run(&server.socket(), &arguments);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["changed"], &report["value"]), (0, &true.into(), &"3".into()));
    assert_eq!(report["reload"], serde_json::json!({"result": "other_file", "file": "/other/config.toml"}));
}
