//! Limits, their order and their view while the store works, restarts or is lost.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::Value;
use watchdog_api::{HostState, StoreState};
use watchdog_tests::{Daemon, DaemonOptions, ProcessKey, RedisServer, Stage, is_alive, limit, poll, seconds};

use crate::hosts::{LONG, TTL, await_fleet, config, held, launch, lose, running, two_hosts, waits_for, waits_saying};

#[test]
fn limit_holds_over_both_hosts() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let [a, b] = two_hosts(&stage, &store, LONG, "max_sessions = 3");
    let script = "report began await go sleep 0.2 report ended exit";
    let launched: Vec<ProcessKey> =
        (0..12).map(|nth| launch(&mut stage, if nth % 2 == 0 { &a } else { &b }, &[], script)).collect();
    stage.all_reported("began", 3);
    let waiting =
        poll(limit(Duration::from_secs(20)), || (a.queue().waiting.len() + b.queue().waiting.len() == 9).then_some(()));
    assert!(waiting.is_some(), "{:#?}\n{:#?}\n{}", a.queue(), b.queue(), a.log());
    let leases = a.queue().leases.len() + b.queue().leases.len();
    assert_eq!((leases, held(&a, "all")), (3, 3));
    waits_saying(&a, |detail| {
        let holders = detail.strip_prefix("waits for a fleet slot: 3 of 3 in use (");
        holders.is_some_and(|holders| holders.contains("a ") || holders.contains("b "))
    });
    // Of all that the log of grants and exits says, no more than three ran at once: each begins after an earlier one ended.
    stage.mark("go");
    let ended = poll(limit(Duration::from_secs(60)), || stage.reports().remove("ended").filter(|all| all.len() == 12));
    assert!(ended.is_some(), "{:#?}\n{:#?}\n{}\n{}", a.queue(), b.queue(), a.log(), b.log());
    assert!(launched.iter().all(|process| poll(seconds(3.0), || (!is_alive(*process)).then_some(())).is_some()));
    let (most, timeline) = most_at_once(&[&a, &b]);
    assert_eq!(most, 3, "{timeline:#?}\n{}\n{}", a.log(), b.log());
    await_fleet(&a, "all places are free", |fleet| fleet.pools.iter().all(|pool| pool.held == 0));
}

/// The most agents that ran at once on all hosts, by the daemons' own events.
fn most_at_once(daemons: &[&Daemon]) -> (i64, Vec<(Timestamp, i64, u32)>) {
    let mut changes: Vec<(Timestamp, i64, u32)> = Vec::new();
    for daemon in daemons {
        let granted: Vec<u32> = daemon
            .events()
            .iter()
            .filter(|event| event.detail.kind() == "launch_granted")
            .filter_map(|event| event.pid)
            .collect();
        for event in daemon.events().iter().filter(|event| event.pid.is_some_and(|pid| granted.contains(&pid))) {
            // As text, 0.41 s would follow 0.419 s.
            let at: Timestamp = event.at.parse().unwrap();
            match event.detail.kind() {
                "launch_granted" => changes.push((at, 1, event.pid.unwrap_or(0))),
                "exit" => changes.push((at, -1, event.pid.unwrap_or(0))),
                _ => {}
            }
        }
    }
    // An exit precedes the grant of the same millisecond.
    changes.sort();
    let (mut now, mut most) = (0, 0);
    for (_, change, _) in &changes {
        now += change;
        most = most.max(now);
    }
    (most, changes)
}

#[test]
fn freed_slot_wakes_other_host() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let [a, b] = two_hosts(&stage, &store, LONG, "max_sessions = 1");
    let mut times = Vec::new();
    let mut holder = running(&mut stage, &a, "first");
    for round in 0..5 {
        let name = format!("next{round}");
        let (host, to) = if round % 2 == 0 { ("a", &b) } else { ("b", &a) };
        launch(&mut stage, to, &[], &format!("report {name} hold"));
        waits_saying(to, |detail| detail == format!("waits for a fleet slot: 1 of 1 in use ({host} 1)"));
        let freed = Instant::now();
        stage.kill(holder);
        holder = stage.reported(&name);
        times.push(freed.elapsed());
    }
    eprintln!("from the kill of the holder to the report of the next agent: {times:?}");
    // Without a notification, a host asks again after 4 s at the earliest.
    assert!(times.iter().any(|time| *time < Duration::from_secs(3)), "{times:?}");
}

#[test]
fn killed_daemon_keeps_its_slots() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let [mut a, b] = two_hosts(&stage, &store, LONG, "max_sessions = 2");
    let agents = [running(&mut stage, &a, "one"), running(&mut stage, &a, "two")];
    await_fleet(&b, "both places are held", |fleet| fleet.pools.iter().any(|pool| pool.held == 2));
    a.end(Signal::KILL);
    a.restart();
    assert!(agents.iter().all(|agent| is_alive(*agent)), "running agents are not touched");
    launch(&mut stage, &b, &[], "report late hold");
    waits_for(&b);
    // The restarted daemon restates both, however long that takes.
    let fleet = await_fleet(&b, "host a is back", |fleet| {
        fleet.hosts.iter().filter(|host| host.state == HostState::Up).count() == 2
            && fleet.pools.iter().any(|pool| pool.by_host.get("a") == Some(&2))
    });
    assert!(!stage.reports().contains_key("late"), "{fleet:#?}");
    stage.kill(agents[0]);
    stage.reported("late");
    assert_eq!(held(&b, "all"), 2);
}

#[test]
fn silent_host_is_unreachable_and_frees() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let [mut a, b] = two_hosts(&stage, &store, TTL, "max_sessions = 1");
    let agent = running(&mut stage, &a, "one");
    await_fleet(&b, "the place is held", |fleet| fleet.pools.iter().any(|pool| pool.held == 1));
    a.end(Signal::KILL);
    let died = Instant::now();
    launch(&mut stage, &b, &[], "report late hold");
    stage.reported("late");
    eprintln!("a dead host's place came back after {:?}, the TTL is {TTL:?}", died.elapsed());
    let fleet = await_fleet(&b, "host a is unreachable", |fleet| {
        fleet.hosts.iter().any(|host| host.host == "a" && host.state == HostState::Unreachable)
    });
    let row = fleet.hosts.iter().find(|host| host.host == "a").unwrap();
    assert!(row.last_seen_seconds > TTL.as_secs_f64(), "{row:?}");
    let text = b.ctl_text(&["fleet"]).stdout;
    assert!(text.lines().any(|line| line.starts_with('a') && line.contains("last seen ")), "{text}");
    assert!(is_alive(agent), "a silent host's agent is not touched");
}

#[test]
fn restarted_store_pauses_then_grants() {
    let Some(mut store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let [a, b] = two_hosts(&stage, &store, TTL, "max_sessions = 2");
    let agent = running(&mut stage, &a, "one");
    store.kill();
    for daemon in [&a, &b] {
        await_fleet(daemon, "the store is lost", |fleet| fleet.store == StoreState::Lost && fleet.lost_at.is_some());
    }
    assert!(a.metrics().contains("agent_watchdog_fleet_store_up 0"));
    let doctor = a.ctl(&["doctor"]).json();
    assert!(capability(&doctor, "fleet_store").is_some_and(|row| row["on"] == false), "{doctor:#}");
    assert!(is_alive(agent));
    store.restart();
    for daemon in [&a, &b] {
        await_fleet(daemon, "the store is back", |fleet| fleet.store == StoreState::Up);
    }
    running(&mut stage, &b, "two");
    launch(&mut stage, &b, &[], "report three hold");
    waits_for(&b);
    await_fleet(&b, "both places are held", |fleet| fleet.pools.iter().any(|pool| pool.held == 2));
    assert!(is_alive(agent));
    assert!(a.metrics().contains("agent_watchdog_fleet_store_up 1"));
}

fn capability<'a>(doctor: &'a Value, name: &str) -> Option<&'a Value> {
    doctor["capabilities"].as_array()?.iter().find(|row| row["name"] == name)
}

#[test]
fn lost_store_shares_denies_or_allows() {
    let Some(mut store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let [share, other] = two_hosts(&stage, &store, TTL, "max_sessions = 4\nwhen_lost = \"share\"");
    let denying = Daemon::configured(&stage, &config(&store, TTL, "c", "max_sessions = 4\nwhen_lost = \"deny\""));
    let allowing = Daemon::configured(&stage, &config(&store, TTL, "d", "max_sessions = 4\nwhen_lost = \"allow\""));
    await_fleet(&share, "four hosts", |fleet| {
        fleet.hosts.iter().filter(|host| host.state == HostState::Up).count() == 4
    });
    // Each host learns the number of hosts with its own renewal, and its share after one TTL.
    for daemon in [&share, &other, &denying, &allowing] {
        let four = poll(limit(Duration::from_secs(20)), || {
            (daemon.status().fleet.is_some_and(|fleet| fleet.hosts == 4)).then_some(())
        });
        assert!(four.is_some(), "{:?}", daemon.status());
    }
    let agent = running(&mut stage, &share, "before");
    lose(&mut store, &[&share, &denying, &allowing], 4);
    // One place of four for each of four hosts, and this host holds it.
    launch(&mut stage, &share, &[], "report beyond hold");
    waits_saying(&share, |detail| detail.contains("this host's share is 1 (4 for 4 hosts)"));
    launch(&mut stage, &denying, &[], "report denied hold");
    waits_saying(&denying, |detail| detail.contains("is unreachable, and [fleet] when_lost is \"deny\""));
    for number in 0..6 {
        running(&mut stage, &allowing, &format!("allowed{number}"));
    }
    let refused = denying.launch(&stage, &["--no-wait"], "report never exit");
    let refused = std::process::Command::new(&refused[0]).args(&refused[1..]).output().unwrap();
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let reports = stage.reports();
    assert!(["beyond", "denied", "never"].iter().all(|name| !reports.contains_key(*name)), "{reports:?}");
    // A session that ended leaves the share to the next.
    stage.kill(agent);
    stage.reported("beyond");
    store.restart();
    await_fleet(&share, "the store counts what was granted without it", |fleet| {
        fleet.pools.iter().any(|pool| pool.by_host.get("d") == Some(&6))
    });
    assert!(!stage.reports().contains_key("denied"), "seven of four places are held");
}

#[test]
fn users_and_profiles_have_pools() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let more = "max_sessions = 9\nmax_sessions_per_user = 2\nlabels = [\"gpu\"]\nmax_sessions_per_label = { gpu = 3 }";
    let [a, b] = two_hosts(&stage, &store, LONG, more);
    running(&mut stage, &a, "one");
    running(&mut stage, &b, "two");
    launch(&mut stage, &b, &[], "report three hold");
    waits_saying(&b, |detail| detail.starts_with("waits for a fleet slot: 2 of 2 of this user in use ("));
    // A grant takes its place in the limited pools. The other pools follow when the host states itself.
    await_fleet(&b, "both sessions in the pool of their profile", |fleet| {
        fleet.pools.iter().any(|pool| pool.name == "profile:test" && pool.held == 2)
    });
    let document = poll(seconds(15.0), || Some(b.ctl(&["fleet"]).json()).filter(|fleet| fleet["store"] == "up"));
    let document = document.unwrap_or_else(|| panic!("{:?}", b.ctl(&["fleet"])));
    for host in document["hosts"].as_array().unwrap() {
        for member in ["agents", "waiting", "memory_available_bytes", "last_seen_seconds"] {
            assert!(host[member].is_number(), "{member} in {host}");
        }
        assert_eq!((&host["state"], &host["labels"][0]), (&"up".into(), &"gpu".into()));
    }
    let pools = document["pools"].as_array().unwrap();
    let pool =
        |name: &str| pools.iter().find(|pool| pool["name"] == name).unwrap_or_else(|| panic!("{name}: {pools:#?}"));
    assert_eq!((&pool("all")["limit"], &pool("all")["held"]), (&9.into(), &2.into()));
    assert_eq!(pool("all")["by_host"], serde_json::json!({"a": 1, "b": 1}));
    assert_eq!((&pool("label:gpu")["limit"], &pool("label:gpu")["held"]), (&3.into(), &2.into()));
}

#[test]
fn recording_replays_without_store() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let text = config(&store, TTL, "a", "max_sessions = 1");
    let mut daemon = Daemon::with(&stage, &DaemonOptions { config: &text, record: true, ..DaemonOptions::default() });
    await_fleet(&daemon, "the host", |fleet| fleet.hosts.iter().any(|host| host.state == HostState::Up));
    let first = running(&mut stage, &daemon, "first");
    launch(&mut stage, &daemon, &[], "report second fork [ report helper hold ] hold");
    waits_for(&daemon);
    stage.kill(first);
    let second = stage.reported("second");
    stage.reported("helper");
    stage.kill(second);
    daemon.eventually(seconds(5.0), "an orphan", |snapshot| snapshot.findings.first().map(drop));
    let sessions = daemon.snapshot().tree.sessions.len();
    daemon.end(Signal::TERM);
    drop(store);
    let file = daemon.recording().display().to_string();
    let replays = [(); 2].map(|()| daemon.ctl(&["replay", &file]));
    // A daemon that stops does not wait long for its recorder, so the end marker may be missing.
    let is_complete = replays[0].stderr.lines().all(|line| line.contains(" has no end marker: "));
    assert!(replays[0].code == 0 && is_complete, "{:?}", replays[0]);
    assert_eq!(replays[0].stdout, replays[1].stdout, "the same bytes each time");
    let orphans =
        replays[0].json()["findings"].as_array().unwrap().iter().filter(|one| one["kind"] == "orphan").count();
    assert_eq!((orphans, sessions), (1, 2));
}

#[test]
fn host_without_fleet_has_no_threads() {
    let (_stage, daemon) = Daemon::on_stage();
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let names: Vec<String> =
        threads.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap()).collect();
    assert!(names.iter().all(|name| !name.starts_with("fleet")), "{names:?}");
    let answer = daemon.ctl(&["fleet"]);
    assert_eq!(answer.code, 1);
    assert!(answer.stderr.contains("belongs to no fleet"), "{answer:?}");
    assert_eq!(daemon.status().fleet, None);
}
