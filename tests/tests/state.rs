//! State across restarts, and hostile state files. `model` restarts at random.

#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, NOBODY, ProcessKey, get, limit, poll, seconds};

#[test]
fn ids_mean_one_thing_over_restarts() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    let agents: Vec<ProcessKey> = (1..=3)
        .map(|started| {
            let agent = stage.agent("spawn helper [ report helper hold ] hold");
            // The helpers report in the order of their agents.
            stage.all_reported("helper", started);
            daemon.eventually(seconds(2.0), "a session", |snapshot| snapshot.session(agent).map(drop));
            agent
        })
        .collect();
    let ids = |daemon: &Daemon| -> Vec<Option<u64>> {
        let snapshot = daemon.snapshot();
        agents.iter().map(|agent| snapshot.session(*agent).map(|session| session.id)).collect()
    };
    let before = ids(&daemon);
    let helpers = stage.all_reported("helper", 3);
    stage.kill(agents[1]);
    let orphan = daemon.eventually(seconds(6.0), "an orphan", |snapshot| {
        snapshot.open(FindingKind::Orphan).first().map(|finding| (*finding).clone())
    });
    for signal in [Signal::TERM, Signal::KILL, Signal::TERM] {
        daemon.send(signal);
        assert!(daemon.wait(seconds(5.0)).is_some());
        daemon.restart();
        let session = daemon.eventually(seconds(2.0), "its session", |snapshot| {
            snapshot.process(helpers[1]).and_then(|_| snapshot.session_with(helpers[1])).map(|session| session.id)
        });
        assert_eq!(Some(session), before[1]);
        assert_eq!((ids(&daemon)[0], ids(&daemon)[2]), (before[0], before[2]));
        let again = daemon.eventually(seconds(6.0), "the orphan", |snapshot| {
            snapshot.open(FindingKind::Orphan).first().map(|finding| (*finding).clone())
        });
        assert_eq!((again.id, &again.opened_at), (orphan.id, &orphan.opened_at));
    }
    let new = stage.agent("hold");
    let id =
        daemon.eventually(seconds(2.0), "a new session", |snapshot| snapshot.session(new).map(|session| session.id));
    assert!(before.iter().all(|before| before.is_some_and(|before| id > before)), "{id} after {before:?}");
    assert_eq!(daemon.ctl(&["end", &before[0].map_or_else(String::new, |id| id.to_string()), "--yes"]).code, 0);
    let ended = poll(seconds(10.0), || daemon.snapshot().session(agents[0]).is_none().then_some(()));
    assert!(ended.is_some() && daemon.snapshot().session(agents[2]).is_some(), "the first session ends, and no other");
}

/// The files that the daemon reads when it starts.
fn state_files(daemon: &Daemon) -> Vec<PathBuf> {
    let runtime = daemon.socket().parent().map(Path::to_owned).unwrap_or_default();
    let names = ["gate.jsonl", "actions.jsonl", "watchdogd.pid", "members.json", "ids"];
    let of_runtime = names.map(|name| runtime.join(name));
    let of_state = ["history.log", "peaks.json", "yields.json", "ids"].map(|name| daemon.state_dir().join(name));
    of_runtime.into_iter().chain(of_state).collect()
}

#[test]
fn hostile_files_are_set_aside() {
    let (stage, mut daemon) = Daemon::on_stage();
    let victim = stage.directory().join("victim");
    std::fs::write(&victim, "untouched").expect("a file");
    let fifo = |path: &Path| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a FIFO");
    };
    let garbage = |path: &Path, content: &[u8]| {
        std::fs::write(path, content).expect("a file");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("its mode");
    };
    type Plant<'a> = &'a dyn Fn(&Path);
    let foreign = |path: &Path| {
        garbage(path, b"{}");
        chown(path, Some(NOBODY), None).expect("root may");
    };
    let writable = |path: &Path| {
        garbage(path, b"{}");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).expect("its mode");
    };
    let plants: [(&str, Plant<'_>); 7] = [
        ("FIFO", &fifo),
        ("link", &|path| symlink(&victim, path).expect("a link")),
        ("directory", &|path| std::fs::create_dir(path).expect("a directory")),
        ("foreign", &foreign),
        ("writable", &writable),
        ("garbage", &|path| garbage(path, &[0x5a; 4_000])),
        ("other version", &|path| garbage(path, b"{\"version\":99,\"boot_id\":\"x\"}\n{}\n")),
    ];
    for (name, plant) in plants {
        daemon.send(Signal::TERM);
        assert!(daemon.wait(seconds(5.0)).is_some());
        // The pid file is never read as state: whatever is in it is replaced.
        let content = matches!(name, "garbage" | "other version");
        let places: Vec<PathBuf> =
            state_files(&daemon).into_iter().filter(|path| !(content && path.ends_with("watchdogd.pid"))).collect();
        for path in &places {
            let _ = std::fs::remove_file(path);
            plant(path);
        }
        daemon.restart();
        let all = poll(seconds(5.0), || {
            let aside = daemon.status().set_aside;
            places.iter().all(|path| aside.iter().any(|note| Path::new(&note.path) == path)).then_some(aside)
        });
        let aside = all.unwrap_or_else(|| panic!("{name}: {:#?}\n{}", daemon.status().set_aside, daemon.log()));
        for note in &aside {
            assert!(note.kept_as.as_ref().is_some_and(|kept| Path::new(kept).symlink_metadata().is_ok()), "{note:?}");
            assert!(daemon.log().contains(&note.path), "{note:?} is not logged");
        }
        let doctor = daemon.ctl(&["doctor"]).json();
        assert_eq!(doctor["daemon"]["set_aside"].as_array().map(Vec::len), Some(aside.len()), "{doctor}");
    }
    assert_eq!(std::fs::read_to_string(&victim).expect("it is there"), "untouched");
    daemon.send(Signal::TERM);
    assert!(daemon.wait(seconds(5.0)).is_some());
    daemon.restart();
    assert!(daemon.status().set_aside.is_empty(), "nothing is left to set aside");
}

/// A tmpfs of 64 KiB on a directory, until it is dropped.
struct SmallTmpfs(PathBuf);

impl SmallTmpfs {
    fn on(directory: PathBuf) -> Self {
        mount("none", &directory, "tmpfs", MountFlags::empty(), Some(c"size=64k,mode=755")).expect("root may mount");
        Self(directory)
    }

    fn fill(&self) {
        let full = std::fs::write(self.0.join("filler"), vec![1; 1 << 20]).expect_err("it is larger");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    }
}

impl Drop for SmallTmpfs {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn full_runtime_directory_stops_no_start() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    daemon.end(Signal::TERM);
    let runtime = SmallTmpfs::on(daemon.socket().parent().expect("a directory").to_owned());
    runtime.fill();
    daemon.restart();
    let agent = stage.agent("hold");
    daemon.eventually(seconds(2.0), "a session", |snapshot| snapshot.session(agent).map(drop));
    daemon.end(Signal::TERM);
}

#[test]
fn starting_daemon_shows_no_zeros() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    let agent = stage.agent("hold");
    daemon.eventually(seconds(2.0), "a session", |snapshot| snapshot.session(agent).map(drop));
    let pressure = Path::new("/proc/pressure/memory").exists();
    for _ in 0..3 {
        daemon.send(Signal::KILL);
        assert!(daemon.wait(seconds(5.0)).is_some());
        daemon.relaunch();
        let status = poll(limit(Duration::from_secs(40)), || {
            let answer = get(&daemon.socket(), "/v1/status").ok()?;
            if answer.status == 503 {
                assert_eq!(answer.json()["starting"], true, "{answer:?}");
                return None;
            }
            Some(answer.json())
        });
        let status = status.unwrap_or_else(|| panic!("no status\n{}", daemon.log()));
        assert!(status["host"]["memory_total_bytes"].as_u64() > Some(0), "{status}");
        assert_eq!(status["host"]["pressure_some_avg10"].is_number(), pressure, "{status}");
        assert_eq!(status["counts"]["sessions_running"], 1, "{status}");
    }
}

#[test]
fn client_waits_for_a_starting_daemon() {
    let (_stage, mut daemon) = Daemon::on_stage();
    daemon.send(Signal::KILL);
    assert!(daemon.wait(seconds(5.0)).is_some());
    std::fs::remove_file(daemon.socket()).expect("it was left behind");
    daemon.relaunch();
    let bound = poll(limit(Duration::from_secs(20)), || daemon.socket().exists().then_some(()));
    assert!(bound.is_some(), "{}", daemon.log());
    let status = daemon.ctl(&["status"]);
    // Between bind and listen no client can connect yet.
    assert!(status.code == 0 || status.stderr.contains("no daemon is listening"), "{status:?}");
}
