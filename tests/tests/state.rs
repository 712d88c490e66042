//! What the daemon promised holds over restarts, and its files cannot be turned against it.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use watchdog::api::FindingKind;
use watchdog_tests::{Daemon, NOBODY, ProcessId, Stage, get, limit, poll, seconds};

const RESTARTS: u64 = 20;

/// A small generator of random numbers; a failure names its seed.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::env::var("WATCHDOG_SEED").ok().and_then(|seed| seed.parse().ok());
        let clock =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_secs());
        let seed = seed.unwrap_or_else(clock);
        eprintln!("WATCHDOG_SEED={seed}");
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// What the daemon must show.
#[derive(Debug, Default)]
struct Model {
    leases: Vec<ProcessId>,
    queue: Vec<ProcessId>,
    adopted: Vec<ProcessId>,
    /// Sessions by their agent. No id is ever another's.
    sessions: BTreeMap<ProcessId, u64>,
    /// The agents that were killed, by the id of the session.
    over: BTreeMap<u64, ProcessId>,
}

impl Model {
    /// The first difference between this and what the daemon shows.
    fn difference(&mut self, daemon: &Daemon) -> Option<String> {
        let queue = daemon.queue();
        let mut leases: Vec<u32> = queue.leases.iter().map(|lease| lease.pid).collect();
        leases.sort_unstable();
        let mut expected: Vec<u32> = self.leases.iter().map(|lease| lease.pid).collect();
        expected.sort_unstable();
        if leases != expected {
            return Some(format!("leases {leases:?}, not {expected:?}"));
        }
        let waiting: Vec<u32> = queue.waiting.iter().map(|waiter| waiter.pid).collect();
        let expected: Vec<u32> = self.queue.iter().map(|waiter| waiter.pid).collect();
        if waiting != expected {
            return Some(format!("queue {waiting:?}, not {expected:?}"));
        }
        let look = daemon.look();
        for process in &self.adopted {
            if look.process(*process).is_none_or(|shown| shown.kept_because.is_none()) {
                return Some(format!("{process} is not adopted"));
            }
        }
        for agent in &self.leases {
            let Some(session) = look.session(*agent) else { return Some(format!("{agent} is in no session")) };
            let known = *self.sessions.entry(*agent).or_insert(session.id);
            if known != session.id || self.over.contains_key(&session.id) {
                return Some(format!("the session {known} of {agent} is {} now", session.id));
            }
        }
        None
    }

    fn check(&mut self, daemon: &Daemon, when: &str) {
        let mut last = None;
        let same = poll(limit(Duration::from_secs(10)), || {
            last = self.difference(daemon);
            last.is_none().then_some(())
        });
        assert!(same.is_some(), "{when}: {last:?}\n{self:#?}\n{}", daemon.describe(Some(&daemon.look())));
    }
}

/// Ends the daemon in either way.
fn stop(daemon: &mut Daemon, random: &mut Random) {
    daemon.send(if random.below(2) == 0 { Signal::KILL } else { Signal::TERM });
    assert!(daemon.wait(seconds(5.0)).is_some());
}

#[test]
fn random_restarts_lose_nothing() {
    let mut random = Random::new();
    let mut stage = Stage::new();
    let config = "[gate]\nmax_sessions = 3\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n";
    let mut daemon = Daemon::configured(&stage, config);
    let mut model = Model::default();
    let script = "report agent spawn helper [ report helper hold ] hold";
    let launch =
        |stage: &mut Stage, daemon: &Daemon| stage.execute(daemon.launch(stage, &["--timeout", "10m"], script));
    for number in 1..=3 {
        model.leases.push(launch(&mut stage, &daemon));
        stage.all_reported("helper", number);
    }
    for _ in 0..3 {
        model.queue.push(launch(&mut stage, &daemon));
        model.check(&daemon, "before the first restart");
    }
    let first = stage.reported("helper");
    assert_eq!(daemon.ctl(&["adopt", &first.pid.to_string()]).code, 0);
    model.adopted.push(first);
    model.check(&daemon, "before the first restart");
    for round in 1..=RESTARTS {
        // An agent dies, and the next in the queue takes its place; sometimes another one comes.
        if random.below(3) == 0 && !model.queue.is_empty() {
            let dead = model.leases.remove(usize::try_from(random.below(3)).unwrap_or(0));
            let helpers = stage.all_reported("helper", 1).len();
            model.over.extend(model.sessions.remove(&dead).map(|session| (session, dead)));
            stage.kill(dead);
            model.leases.push(model.queue.remove(0));
            let new = stage.all_reported("helper", helpers + 1)[helpers];
            if random.below(2) == 0 {
                assert_eq!(daemon.ctl(&["adopt", &new.pid.to_string()]).code, 0);
                model.adopted.push(new);
            }
        }
        if random.below(3) == 0 {
            model.queue.push(launch(&mut stage, &daemon));
        }
        model.check(&daemon, &format!("in round {round}"));
        stop(&mut daemon, &mut random);
        for _ in 0..random.below(3) {
            daemon.relaunch();
            std::thread::sleep(Duration::from_millis(random.below(100)));
            stop(&mut daemon, &mut random);
        }
        daemon.restart();
        model.check(&daemon, &format!("after restart {round}"));
    }
    assert!(daemon.status().set_aside.is_empty(), "{:#?}", daemon.status().set_aside);
}

#[test]
fn ids_mean_one_thing_over_restarts() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    let agents: Vec<ProcessId> = (0..3)
        .map(|_| {
            let agent = stage.agent("spawn helper [ report helper hold ] hold");
            daemon.eventually(seconds(2.0), "a session", |look| look.session(agent).map(drop));
            agent
        })
        .collect();
    let ids = |daemon: &Daemon| -> Vec<Option<u64>> {
        let look = daemon.look();
        agents.iter().map(|agent| look.session(*agent).map(|session| session.id)).collect()
    };
    let before = ids(&daemon);
    let helpers = stage.all_reported("helper", 3);
    stage.kill(agents[1]);
    let orphan = daemon.eventually(seconds(6.0), "an orphan", |look| {
        look.open(FindingKind::Orphan).first().map(|finding| (*finding).clone())
    });
    for signal in [Signal::TERM, Signal::KILL, Signal::TERM] {
        daemon.send(signal);
        assert!(daemon.wait(seconds(5.0)).is_some());
        daemon.restart();
        let session = daemon.eventually(seconds(2.0), "its session", |look| {
            look.process(helpers[1]).and_then(|_| look.session_with(helpers[1])).map(|session| session.id)
        });
        assert_eq!(Some(session), before[1]);
        assert_eq!((ids(&daemon)[0], ids(&daemon)[2]), (before[0], before[2]));
        let again = daemon.eventually(seconds(6.0), "the orphan", |look| {
            look.open(FindingKind::Orphan).first().map(|finding| (*finding).clone())
        });
        assert_eq!((again.id, &again.opened_at), (orphan.id, &orphan.opened_at));
    }
    let new = stage.agent("hold");
    let id = daemon.eventually(seconds(2.0), "a new session", |look| look.session(new).map(|session| session.id));
    assert!(before.iter().all(|before| before.is_some_and(|before| id > before)), "{id} after {before:?}");
    assert_eq!(daemon.ctl(&["end", &before[0].map_or_else(String::new, |id| id.to_string()), "--yes"]).code, 0);
    let gone = poll(seconds(10.0), || daemon.look().session(agents[0]).is_none().then_some(()));
    assert!(gone.is_some() && daemon.look().session(agents[2]).is_some(), "the first session ends, and no other");
}

/// The files that the daemon reads when it starts.
fn state_files(daemon: &Daemon) -> Vec<PathBuf> {
    let runtime = daemon.socket().parent().map(Path::to_owned).unwrap_or_default();
    let of_runtime = ["gate.jsonl", "actions.jsonl", "watchdogd.pid"].map(|name| runtime.join(name));
    let of_state = ["history.log", "peaks.json", "ids"].map(|name| daemon.state_dir().join(name));
    of_runtime.into_iter().chain(of_state).collect()
}

#[test]
fn hostile_files_are_set_aside() {
    let stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
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

#[test]
fn starting_daemon_shows_no_zeros() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    let agent = stage.agent("hold");
    daemon.eventually(seconds(2.0), "a session", |look| look.session(agent).map(drop));
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
    let stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    daemon.send(Signal::KILL);
    assert!(daemon.wait(seconds(5.0)).is_some());
    std::fs::remove_file(daemon.socket()).expect("it was left behind");
    daemon.relaunch();
    let bound = poll(limit(Duration::from_secs(20)), || daemon.socket().exists().then_some(()));
    assert!(bound.is_some(), "{}", daemon.log());
    let status = daemon.ctl(&["status"]);
    // Between bind and listen nobody can connect yet.
    assert!(status.code == 0 || status.stderr.contains("nobody listens"), "{status:?}");
}
