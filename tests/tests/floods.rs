//! Floods of requests, connections and deaths do not affect other users or their records.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test reports by a panic")]

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use watchdog_history::{Store, codec};
use watchdog_tests::{Daemon, DaemonOptions, NOBODY, Stage, as_user, get, poll, raise_descriptor_limit, seconds};

/// Threads that read the history: four for all users, and two of root's own.
const READING_THREADS: usize = 6;

/// Users who own nothing, besides [`NOBODY`].
const SECOND: u32 = 65_533;
const THIRD: u32 = 65_532;

fn thread_count(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("the daemon runs").count()
}

/// CPU time of the daemon, in clock ticks of 10 ms.
fn cpu_ticks(daemon: &Daemon) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).expect("the daemon runs");
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Sends a request without reading the answer.
fn ask(socket: &Path, path: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("the socket");
    // A daemon that has no room may close first.
    let _ = stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: watchdog\r\n\r\n").as_bytes());
    stream
}

/// A history that takes a while to read, of a run that has ended.
fn write_long_history(state: &Path) {
    let (mut store, _) = Store::open(state).unwrap();
    let record = |number: u32| {
        let kind = if number == 0 { "daemon_started" } else { "oom" };
        let record = json!({
            "at": "2026-01-02T00:00:00Z", "run": "before", "owner_uid": NOBODY, "type": kind, "pid": number,
            "start_time": 1, "session": 1, "comm": "x".repeat(200), "version": "0", "boot_id": "b",
        });
        codec::encode(&serde_json::from_value(record).unwrap())
    };
    store.append(&(0..8_000).flat_map(record).collect::<Vec<u8>>()).unwrap();
}

fn with_long_history(stage: &Stage) -> Daemon {
    let state = stage.directory().join("long");
    write_long_history(&state);
    let config = "[history]\nretention = \"3650d\"\n";
    Daemon::with(stage, &DaemonOptions { state: Some(&state), config, ..DaemonOptions::default() })
}

#[test]
fn postmortem_flood_costs_few_threads() {
    let stage = Stage::new();
    let daemon = with_long_history(&stage);
    let before = thread_count(&daemon);
    let socket = daemon.socket();

    let flood = std::thread::spawn({
        let socket = socket.clone();
        move || as_user(NOBODY, move || (0..600).for_each(|_| drop(ask(&socket, "/v1/postmortem"))))
    });
    let mut most = 0;
    while !flood.is_finished() {
        most = most.max(thread_count(&daemon));
        std::thread::sleep(Duration::from_millis(2));
    }
    flood.join().unwrap();
    let patient = as_user(NOBODY, {
        let socket = socket.clone();
        move || (0..20).map(|_| ask(&socket, "/v1/postmortem")).collect::<Vec<_>>()
    });
    let began = Instant::now();
    let answer = daemon.ctl_as(SECOND, &["postmortem"]);
    let took = began.elapsed();
    most = most.max(thread_count(&daemon));
    drop(patient);

    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(took < seconds(30.0), "another user waited for {took:?}");
    assert!(most <= before + READING_THREADS, "{most} threads, {before} before");
    let idle = poll(seconds(5.0), || {
        let ticks = cpu_ticks(&daemon);
        std::thread::sleep(Duration::from_millis(500));
        (cpu_ticks(&daemon) - ticks < 10).then_some(())
    });
    idle.expect("the daemon still reads for clients that have left");
}

#[test]
fn slow_history_readers_block_nothing() {
    let stage = Stage::new();
    let daemon = with_long_history(&stage);
    let socket = daemon.socket();
    let before = thread_count(&daemon);

    let slow: Vec<UnixStream> = [NOBODY, SECOND]
        .into_iter()
        .flat_map(|uid| {
            let socket = socket.clone();
            as_user(uid, move || (0..20).map(|_| ask(&socket, "/v1/history")).collect::<Vec<_>>())
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let answer = daemon.ctl_as(THIRD, &["history"]);

    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(thread_count(&daemon) <= before + READING_THREADS, "{} threads, {before} before", thread_count(&daemon));
    drop(slow);
}

#[test]
fn two_hogs_lock_no_user_out() {
    raise_descriptor_limit();
    let (_stage, daemon) = Daemon::on_stage();
    let socket = daemon.socket();
    for request in ["/v1/events?follow=true", ""] {
        let hogs: Vec<Vec<UnixStream>> = [NOBODY, SECOND]
            .into_iter()
            .map(|uid| {
                let socket = socket.clone();
                let hog = move || match request {
                    "" => (0..1_200).map_while(|_| UnixStream::connect(&socket).ok()).collect(),
                    request => (0..80).map(|_| ask(&socket, request)).collect(),
                };
                as_user(uid, hog)
            })
            .collect();
        // The connections that came before are let in before: on a busy machine that takes a while.
        let root = poll(seconds(10.0), || get(&socket, "/v1/status").ok().filter(|answer| answer.status == 200));
        assert!(root.is_some(), "{}", daemon.log());
        for uid in [THIRD, 0, NOBODY] {
            let socket = socket.clone();
            let began = Instant::now();
            let answer = as_user(uid, move || get(&socket, "/v1/status"));
            let status = answer.expect("an answer").status;
            // A user whose own streams fill the share may be refused.
            let refused = uid == NOBODY && !request.is_empty() && status == 503;
            assert!(status == 200 || refused, "{uid} beside {request:?}: {status}");
            assert!(began.elapsed() < seconds(15.0), "{uid} waited for {:?}", began.elapsed());
        }
        drop(hogs);
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn idle_clients_stop_no_scrape() {
    raise_descriptor_limit();
    let (_stage, daemon) = Daemon::on_stage();
    let connect = |request: &[u8]| {
        let mut stream = TcpStream::connect(daemon.metrics_address()).expect("the metrics' address");
        let _ = stream.write_all(request);
        stream
    };
    let mut crowd = Vec::new();
    for (count, request) in [(16, ""), (184, ""), (100, "GET /metr")] {
        crowd.extend((0..count).map(|_| connect(request.as_bytes())));
        let began = Instant::now();
        assert!(daemon.metrics().contains("agent_watchdog_build_info"), "beside {} connections", crowd.len());
        assert!(began.elapsed() < seconds(15.0), "beside {} it took {:?}", crowd.len(), began.elapsed());
    }
    // Clients that ask again and again, and take no answer.
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(200);
    crowd.extend((0..80).map(|_| {
        let stream = connect(b"");
        stream.set_nonblocking(true).unwrap();
        let _ = (&stream).write(request.as_bytes());
        stream
    }));
    std::thread::sleep(seconds(1.0));
    let began = Instant::now();
    assert!(daemon.metrics().contains("evicted_connections_total{door=\"metrics\"}"));
    assert!(began.elapsed() < seconds(15.0), "beside slow readers it took {:?}", began.elapsed());
}

#[test]
fn deaths_displace_no_other_record() {
    const DEATHS: u64 = 1_500;
    let (mut stage, daemon) = Daemon::on_stage();
    let noise = stage.directory().join("noise.sh");
    let script = format!(
        "#!/bin/sh\ni=0\nwhile [ $i -lt {DEATHS} ]; do sh -c 'kill -9 $$'; i=$((i + 1)); done\n: > {}.over\n",
        noise.display()
    );
    std::fs::write(&noise, script).unwrap();
    std::fs::set_permissions(&noise, std::fs::Permissions::from_mode(0o755)).unwrap();
    stage.start("helper", &format!("uid {SECOND} exec AGENT [ spawn helper [ report victim hold ] hold ]"));
    let victim = stage.reported("victim");
    daemon.eventually(seconds(2.0), "the other user's helper", |snapshot| snapshot.process(victim).map(drop));

    stage.start("helper", &format!("uid {NOBODY} exec AGENT [ report noisy program - [ {} ] hold ]", noise.display()));
    let noisy = stage.reported("noisy");
    let over = stage.directory().join("noise.sh.over");
    poll(seconds(180.0), || over.exists().then_some(())).expect("the noise ends");
    stage.kill(victim);
    stage.kill(noisy);

    let deaths = |name: &str| -> Vec<Value> {
        let history = get(&daemon.socket(), "/v1/history").expect("an answer").body;
        let records = history.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        records.filter(|record| record["type"] == "death" && record["name"] == name).collect()
    };
    let count = |deaths: &[Value]| deaths.iter().map(|death| death["count"].as_u64().unwrap_or(1)).sum::<u64>();
    poll(seconds(15.0), || (count(&deaths("sh")) >= DEATHS).then_some(()))
        .unwrap_or_else(|| panic!("{:#?}", deaths("sh")));
    let of_shells = deaths("sh");
    assert_eq!(count(&of_shells), DEATHS);
    assert!(of_shells.len() < 20, "{} records", of_shells.len());
    let of_victim = deaths("helper");
    assert!(of_victim.iter().any(|death| death["pid"] == victim.pid && death.get("count").is_none()), "{of_victim:#?}");
    let history = daemon.status().history.unwrap();
    assert!(history.bytes < 1 << 20 && history.lost_records == 0, "{history:?}");
    let shown = daemon.ctl_text(&["history"]).stdout;
    assert!(shown.contains("(x "), "{shown}");
}
