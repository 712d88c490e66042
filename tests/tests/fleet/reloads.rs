//! The configuration changes while launches wait, and a store that is none.

use std::io::Write;
use std::net::TcpListener;
use std::thread;

use rustix::process::Signal;
use watchdog_api::StoreState;
use watchdog_tests::{Daemon, RedisServer, Stage};

use crate::hosts::{TTL, await_fleet, config, launch, running, waits_for};

fn reload(daemon: &Daemon, stage: &Stage, config: &str) {
    daemon.configure(stage, config);
    daemon.send(Signal::HUP);
}

#[test]
fn reload_frees_waiting_launches() {
    let Some(store) = RedisServer::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let mut stage = Stage::new();
    let mut daemon = Daemon::configured(&stage, &config(&store, TTL, "a", "max_sessions = 1"));
    running(&mut stage, &daemon, "one");
    launch(&mut stage, &daemon, &[], "report two hold");
    waits_for(&daemon);
    reload(&daemon, &stage, &config(&store, TTL, "a", "max_sessions = 2"));
    stage.reported("two");
    launch(&mut stage, &daemon, &[], "report three hold");
    waits_for(&daemon);
    // The table is removed. Its threads keep running until the next start, and nothing waits for them.
    reload(&daemon, &stage, "[gate]\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n");
    stage.reported("three");
    assert!(daemon.log().contains("take effect at the next start"), "{}", daemon.log());
    await_fleet(&daemon, "all three count", |fleet| fleet.pools.iter().any(|pool| pool.held == 3));
    daemon.end(Signal::TERM);
    daemon.restart();
    assert_eq!(daemon.status().fleet, None);
    // The table is added: the launch does not wait for a fleet that has no threads yet.
    reload(&daemon, &stage, &config(&store, TTL, "a", "max_sessions = 1"));
    running(&mut stage, &daemon, "four");
    daemon.end(Signal::TERM);
    daemon.restart();
    await_fleet(&daemon, "four sessions count", |fleet| fleet.pools.iter().any(|pool| pool.held == 4));
    launch(&mut stage, &daemon, &[], "report five hold");
    waits_for(&daemon);
    assert!(!stage.reports().contains_key("five"));
}

/// A web server has this port.
#[test]
fn foreign_server_counts_as_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let _ = client.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let mut stage = Stage::new();
    let text = format!(
        "[gate]\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n[fleet]\nstore = \"redis://127.0.0.1:{port}\"\n\
         ttl = \"3s\"\nmax_sessions = 1\nwhen_lost = \"allow\"\n"
    );
    let daemon = Daemon::configured(&stage, &text);
    await_fleet(&daemon, "the store is lost", |fleet| fleet.store == StoreState::Lost);
    let problem = daemon.status().fleet.and_then(|fleet| fleet.problem).unwrap();
    assert!(problem.contains("sent an invalid response"), "{problem}");
    running(&mut stage, &daemon, "one");
    running(&mut stage, &daemon, "two");
}
