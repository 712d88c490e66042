//! Slow, broken and hostile clients do not affect tracking.

#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use watchdog_tests::{Daemon, NOBODY, Stage, as_user, get, limit, poll, raise_descriptor_limit, raw, seconds};

/// Asserts that a helper that is forked now is shown within a second.
fn tracking_goes_on(daemon: &Daemon, stage: &mut Stage, name: &str) {
    let agent = stage.agent(&format!("spawn helper [ report {name} hold ] hold"));
    let helper = stage.reported(name);
    daemon.eventually(seconds(1.0), "a new helper", |snapshot| {
        (snapshot.session_with(helper)?.processes.len() == 2 && snapshot.session(agent).is_some()).then_some(())
    });
}

#[test]
fn half_a_request_holds_nothing_up() {
    let (mut stage, daemon) = Daemon::on_stage();
    let mut slow = UnixStream::connect(daemon.socket()).expect("the socket");
    slow.write_all(b"GET /v1/tree HT").expect("half a request");

    tracking_goes_on(&daemon, &mut stage, "during");

    // And it is not waited for endlessly.
    slow.set_read_timeout(Some(limit(Duration::from_secs(40)))).expect("a time limit");
    let mut rest = Vec::new();
    let began = Instant::now();
    let ended = slow.read_to_end(&mut rest);
    assert!(ended.is_ok(), "still open after {:?}: {ended:?}", began.elapsed());
}

#[test]
fn endless_request_head_is_cut_off() {
    let (mut stage, daemon) = Daemon::on_stage();
    let mut stream = UnixStream::connect(daemon.socket()).expect("the socket");
    stream.set_write_timeout(Some(limit(Duration::from_secs(10)))).expect("a time limit");
    stream.write_all(b"GET /v1/tree HTTP/1.1\r\nX: ").expect("a beginning");
    let block = [b'a'; 64 * 1024];

    let mut sent = 0_usize;
    while sent < 100 * 1024 * 1024 && stream.write_all(&block).is_ok() {
        sent += block.len();
    }

    assert!(sent < 2 * 1024 * 1024, "{sent} bytes of a head were taken");
    tracking_goes_on(&daemon, &mut stage, "after");
    assert!(resident_mib(&daemon) < 100, "{} MiB", resident_mib(&daemon));
}

#[test]
fn huge_body_is_refused() {
    let (_stage, daemon) = Daemon::on_stage();
    let head = format!(
        "POST /v1/adopt HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        100 * 1024 * 1024
    );
    let mut stream = UnixStream::connect(daemon.socket()).expect("the socket");
    stream.set_write_timeout(Some(limit(Duration::from_secs(10)))).expect("a time limit");
    stream.write_all(head.as_bytes()).expect("a head");
    let block = [b' '; 64 * 1024];

    let mut sent = 0_usize;
    while sent < 100 * 1024 * 1024 && stream.write_all(&block).is_ok() {
        sent += block.len();
    }

    assert!(sent < 10 * 1024 * 1024, "{sent} bytes of a body were taken");
    assert!(resident_mib(&daemon) < 100, "{} MiB", resident_mib(&daemon));
}

/// A thousand connections that never say a word.
fn thousand(socket: &Path) -> Vec<UnixStream> {
    let open: Vec<_> = (0..1_000).map_while(|_| UnixStream::connect(socket).ok()).collect();
    assert!(open.len() >= 500, "only {} connections", open.len());
    open
}

#[test]
fn idle_connections_keep_root_served() {
    raise_descriptor_limit();
    let (mut stage, daemon) = Daemon::on_stage();
    let socket = daemon.socket();

    let idle = as_user(NOBODY, move || thousand(&socket));

    tracking_goes_on(&daemon, &mut stage, "during");
    drop(idle);
}

#[test]
fn idle_connections_are_evicted() {
    raise_descriptor_limit();
    let (mut stage, daemon) = Daemon::on_stage();

    let idle = thousand(&daemon.socket());
    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");

    // They are cut off when no request comes; what was tracked meanwhile is complete.
    let answered =
        poll(limit(Duration::from_secs(20)), || get(&daemon.socket(), "/v1/tree").ok().filter(|it| it.status == 200));
    assert!(answered.is_some(), "{}", daemon.log());
    drop(idle);
    daemon.eventually(seconds(1.0), "agent and helper", |snapshot| {
        snapshot.session(agent).and(snapshot.process(helper)).map(drop)
    });
}

#[test]
fn garbage_is_answered_or_cut_off() {
    let (mut stage, daemon) = Daemon::on_stage();
    let requests: [&[u8]; 8] = [
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/tree/../../etc/passwd HTTP/1.0\r\n\r\n",
        b"GET /v1/events?since=-1&limit=99999999999999999999 HTTP/1.0\r\n\r\n",
        b"POST /v1/adopt HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"pid\":0}",
        b"POST /v1/adopt HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n\xff\xfe\xfd\xfc",
        b"DELETE /v1/tree HTTP/1.0\r\n\r\n",
    ];

    for request in requests {
        // An answer that says no, or none.
        if let Ok(response) = raw(&daemon.socket(), request) {
            assert!((400..500).contains(&response.status), "{request:?} was answered with {response:?}");
        }
    }

    tracking_goes_on(&daemon, &mut stage, "after");
}

#[test]
fn slow_event_reader_blocks_nothing() {
    let (mut stage, daemon) = Daemon::on_stage();
    let mut follower = daemon.follow(&["events", "--follow"]);

    // The follower's output is not read, while thousands of events happen.
    stage.agent("bury times 3000 [ fork [ exit ] ] report over hold");
    stage.reported("over");

    tracking_goes_on(&daemon, &mut stage, "after");
    assert!(resident_mib(&daemon) < 150, "{} MiB", resident_mib(&daemon));
    follower.kill().expect("our child");
    follower.wait().expect("our child");
}

#[test]
fn broken_requests_stop_no_scrape() {
    let (_stage, daemon) = Daemon::on_stage();
    let mut half = TcpStream::connect(daemon.metrics_address()).expect("the metrics' address");
    half.write_all(b"GET /met").expect("half a request");

    assert!(daemon.metrics().contains("agent_watchdog_build_info"));
}

fn resident_mib(daemon: &Daemon) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", daemon.pid())).expect("the daemon runs");
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096 / 1024 / 1024
}
