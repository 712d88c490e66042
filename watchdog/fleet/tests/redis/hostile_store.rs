//! A store that is something else: a program that sends garbage, too much, or too slowly, and a server with others' keys.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rstest::rstest;
use watchdog_fleet::{FleetEvent, FleetStore, FleetStoreError, FleetWorkers, Placement, RedisStore};
use watchdog_tests::RedisServer;
use watchdog_types::{Bytes, FleetAnswer};

use crate::guest::{FleetGuest, LONG, end_pause, is_lost, name, pool, server, until};

const INFO: &str = "$29\r\n# Server\r\nrun_id:0123456789\r\n\r\n";

/// A port where each connection is served by this function.
fn served(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, serve) = (client.unwrap(), serve.clone());
            thread::spawn(move || serve(client));
        }
    });
    format!("redis://127.0.0.1:{port}")
}

/// Answers INFO as a server does, and everything else with these bytes.
fn answering(bytes: &'static [u8]) -> String {
    served(move |client| {
        let mut commands = BufReader::new(client.try_clone().unwrap());
        let mut client = client;
        while let Some(command) = next_command(&mut commands) {
            let answer = if command == b"INFO" { INFO.as_bytes() } else { bytes };
            if client.write_all(answer).is_err() {
                return;
            }
        }
    })
}

/// The first word of a command.
fn next_command(commands: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut first = None;
    for _ in 0..next_length(commands)? {
        let mut word = vec![0; next_length(commands)? + 2];
        commands.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        first.get_or_insert(word);
    }
    first
}

fn next_length(commands: &mut impl BufRead) -> Option<usize> {
    let mut line = String::new();
    commands.read_line(&mut line).ok()?;
    line.trim().get(1..)?.parse().ok()
}

fn placement() -> Placement {
    let pools = vec![(pool("all"), 4)];
    Placement { host: name("h"), ticket: name("t"), pools, memory: Bytes(1), lifetime: Duration::from_secs(1) }
}

#[rstest]
#[case::no_list(b"+OK\r\n")]
#[case::nothing(b"*-1\r\n")]
#[case::empty(b"*0\r\n")]
#[case::no_fence(b"*2\r\n$7\r\ngranted\r\n$1\r\nx\r\n")]
#[case::fence_of_another_world(b"*3\r\n$7\r\ngranted\r\n:9223372036854775807\r\n:1\r\n")]
#[case::unknown_status(b"*2\r\n$9\r\nsurrender\r\n:1\r\n")]
#[case::cut_refusal(b"*3\r\n$7\r\nrefused\r\n:1\r\n$3\r\nall\r\n")]
#[case::refusal_of_other_pool(b"*7\r\n$7\r\nrefused\r\n:1\r\n$7\r\nuser:99\r\n:1\r\n:1\r\n:0\r\n:0\r\n")]
#[case::pool_with_escape(b"*7\r\n$7\r\nrefused\r\n:1\r\n$4\r\n\x1b[2J\r\n:1\r\n:1\r\n:0\r\n:0\r\n")]
#[case::lists_in_lists(b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n")]
#[case::map(b"%1\r\n+a\r\n+b\r\n")]
#[case::negative_length(b"$-9\r\n")]
#[case::huge_list(b"*9223372036854775807\r\n")]
#[case::huge_text(b"$9223372036854775807\r\n")]
#[case::web_server(b"HTTP/1.1 400 Bad Request\r\n\r\n")]
#[case::two_responses(b"*0\r\n*0\r\n")]
#[case::error(b"-ERR \x1b[31mno\x07\r\n")]
fn garbage_grants_nothing(#[case] bytes: &'static [u8]) {
    let mut guest = FleetGuest::of(&answering(bytes), "guest", LONG);
    let answer = guest.ask_once(&[("all", 4)]);
    assert!(is_lost(&answer), "{answer:?}");
    let errors = [
        guest.try_restate().unwrap_err(),
        guest.store.view().unwrap_err(),
        guest.store.reserve(&placement()).unwrap_err(),
    ];
    for error in errors.iter().map(ToString::to_string) {
        assert!(error.len() < 500 && !error.contains(|letter: char| letter.is_control()), "{error:?}");
    }
}

/// Requests must not follow each other without a pause, whatever the store says.
#[rstest]
#[case(b"*7\r\n$7\r\nrefused\r\n:1\r\n$3\r\nall\r\n:1\r\n:1\r\n:0\r\n:0\r\n")]
#[case(b"*3\r\n$6\r\npaused\r\n:1\r\n:0\r\n")]
fn refusal_without_delay_has_one(#[case] bytes: &'static [u8]) {
    let mut guest = FleetGuest::of(&answering(bytes), "guest", LONG);
    match guest.ask(&[("all", 4)]) {
        FleetAnswer::Refused { retry_after, .. } => {
            assert!(retry_after >= Duration::from_millis(40), "{retry_after:?}")
        }
        FleetAnswer::Paused { until } => assert!(until > watchdog_host::clock::now()),
        other => panic!("{other:?}"),
    }
}

/// A byte now and then: each read succeeds, and the response never ends.
#[test]
fn slow_responses_are_cut() {
    let url = served(|mut client| {
        let _ = client.write_all(b"$100000\r\n");
        while client.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let mut guest = FleetGuest::of(&url, "guest", LONG);
    let started = Instant::now();
    let error = guest.try_restate().unwrap_err();
    assert!(matches!(error, FleetStoreError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("no response within 2s"), "{error}");
    assert!(started.elapsed() < RedisStore::TIMEOUT + Duration::from_secs(20), "{:?}", started.elapsed());
}

/// As long as the connection takes bytes.
#[test]
fn endless_responses_are_cut() {
    let url = served(|mut client| {
        let _ = client.write_all(b"*1000000000\r\n");
        while client.write_all(&b":1\r\n".repeat(1_000)).is_ok() {}
    });
    let error = FleetGuest::of(&url, "guest", LONG).try_restate().unwrap_err();
    assert!(error.to_string().contains("too many parts"), "{error}");
}

#[test]
fn flood_of_messages_ends_watch() {
    let url = served(|mut client| {
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nother\r\n";
        while client.write_all(&message.repeat(1_000)).is_ok() {}
    });
    let mut guest = FleetGuest::of(&url, "guest", LONG);
    let mut left = 5_000;
    let watched = guest.store.watch(&mut |_| {
        left -= 1;
        if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!((watched, left), (Ok(()), 0));
}

/// A host is woken some hundred times per second at most, and its threads survive on their small stacks.
#[test]
fn flood_of_calls_is_slowed() {
    let url = served(|mut client| {
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nguest\r\n";
        while client.write_all(&message.repeat(1_000)).is_ok() {}
    });
    let guest = FleetGuest::of(&url, "guest", LONG);
    let ((sender, events), started) = (mpsc::channel(), Instant::now());
    let workers = FleetWorkers::start(&guest.store, LONG, move |event| {
        let _ = sender.send(event);
    })
    .unwrap();
    workers.restate(guest.row.clone());
    let mut received: Vec<FleetEvent> = Vec::new();
    until(Duration::from_secs(20), || {
        received.extend(events.try_iter());
        started.elapsed() > Duration::from_secs(1) && received.contains(&FleetEvent::Called)
    });
    let most = 550.0 * started.elapsed().as_secs_f64();
    let (calls, others): (Vec<_>, Vec<_>) = received.into_iter().partition(|event| *event == FleetEvent::Called);
    assert!(calls.len() as f64 <= most, "{} calls, at most {most}", calls.len());
    assert!(others.iter().all(|event| matches!(event, FleetEvent::Restated(Err(_)))), "{others:?}");
}

/// The keys of another program have other types. It is an error, and they are left as they are.
#[test]
fn foreign_keys_are_left_alone() {
    let Some(server) = server() else { return };
    let foreign: Vec<String> = ["meta", "state", "totals", "expiry", "rows", "seen", "waiting"]
        .iter()
        .map(|key| format!("{{agent-watchdog}}:{key}"))
        .collect();
    for key in &foreign {
        server.command(&["DEL", key]);
        server.command(&["SET", key, "theirs"]);
        let mut guest = FleetGuest::of(&server.url(), "guest", LONG);
        let error = guest.try_restate().err();
        let answer = guest.ask(&[("all", 4)]);
        assert!(!matches!(answer, FleetAnswer::Granted { .. }), "{key}: {answer:?}");
        if let Some(error) = error {
            assert!(matches!(error, FleetStoreError::Nonsense { .. }), "{key}: {error:?}");
        }
        let kept = server.command(&["GET", key]);
        let is_reset = server.command(&["TYPE", key]).trim() != "string";
        assert!(is_reset || kept.trim() == "theirs", "{key}: {kept}");
        server.command(&["DEL", key]);
        end_pause(&server);
    }
}

/// What others keep in the same server stays, and does not disturb.
#[test]
fn other_programs_share_server() {
    let Some(server) = RedisServer::start(&[]) else { return };
    for number in 0..500 {
        server.command(&["SET", &format!("session:{number}"), "theirs"]);
    }
    server.command(&["LPUSH", "agent-watchdog:meta", "theirs"]);
    end_pause(&server);
    let mut guest = FleetGuest::joined(&server, "guest");
    assert!(guest.gets(1));
    guest.counts(&["all"]);
    server.command(&["DEL", "session:0"]);
    assert!(!guest.gets(1));
    assert_eq!(server.command(&["LRANGE", "agent-watchdog:meta", "0", "-1"]).trim(), "theirs");
    assert_eq!(server.command(&["GET", "session:1"]).trim(), "theirs");
}
