use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const REPLY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
const LAST: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}";
const OLD: &str = "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}";
const FAILED: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}";
/// Its first bytes would be the head of the next response.
const TOO_LONG: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n";

/// A directory with a socket, and a client that keeps its connection.
struct Kept {
    _directory: tempfile::TempDir,
    socket: PathBuf,
    client: ControlClient,
}

impl Kept {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let client = ControlClient::new(socket.clone()).keeping_alive();
        Self { _directory: directory, socket, client }
    }

    /// A daemon that sends the responses of each connection in turn, and then closes it. The result has the requests.
    fn daemon(&self, connections: &[&[&'static str]]) -> thread::JoinHandle<Vec<Vec<String>>> {
        let connections: Vec<Vec<&str>> = connections.iter().map(|responses| responses.to_vec()).collect();
        let _ = std::fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).unwrap();
        thread::spawn(move || {
            let serve = |responses: &Vec<&str>| {
                let (mut stream, _) = listener.accept().unwrap();
                responses.iter().map(|response| serve_one(&mut stream, response)).collect()
            };
            connections.iter().map(serve).collect()
        })
    }

    fn get(&self) -> Result<Value, ClientError> {
        self.client.get("/v1/status").map(|reply| reply.document)
    }
}

/// The head of the request that arrives; no request has a body here.
fn serve_one(stream: &mut UnixStream, response: &str) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    stream.write_all(response.as_bytes()).unwrap();
    String::from_utf8(head).unwrap()
}

#[test]
fn requests_share_one_connection() {
    let kept = Kept::new();
    let daemon = kept.daemon(&[&[REPLY, REPLY, REPLY]]);
    for client in [kept.client.clone(), kept.client.limited_to(Duration::from_secs(5)), kept.client.clone()] {
        assert_eq!(client.get::<Value>("/v1/status").unwrap().document, json!({}));
    }
    let requests = daemon.join().unwrap();
    assert!(requests[0].iter().all(|head| !head.contains("connection:")), "{requests:?}");
}

#[rstest]
#[case::chunked(CHUNKED)]
#[case::last(LAST)]
#[case::http_1_0(OLD)]
#[case::too_long(TOO_LONG)]
fn unfit_connection_is_not_reused(#[case] first: &'static str) {
    let kept = Kept::new();
    let daemon = kept.daemon(&[&[first], &[REPLY]]);
    assert_eq!(kept.get().unwrap(), json!({}));
    assert_eq!(kept.get().unwrap(), json!({}));
    assert_eq!(daemon.join().unwrap().len(), 2);
}

#[test]
fn error_closes_the_connection() {
    let kept = Kept::new();
    let daemon = kept.daemon(&[&[REPLY, FAILED], &[REPLY]]);
    assert!(kept.get().is_ok());
    assert!(matches!(kept.get(), Err(ClientError::NotFound(_))));
    assert!(kept.get().is_ok());
    daemon.join().unwrap();
}

#[test]
fn restarted_daemon_is_reached_again() {
    let kept = Kept::new();
    let first = kept.daemon(&[&[REPLY]]);
    assert!(kept.get().is_ok());
    // It has closed the connection.
    first.join().unwrap();
    assert!(matches!(kept.get(), Err(ClientError::Unreachable { .. })));
    let second = kept.daemon(&[&[REPLY]]);
    assert_eq!(kept.get().unwrap(), json!({}));
    second.join().unwrap();
}

#[test]
fn connection_lost_mid_request_is_replaced() {
    let kept = Kept::new();
    // The second response is cut off, as by a daemon that is killed.
    let daemon = kept.daemon(&[&[REPLY, "HTTP/1.1 200 OK\r\ncontent-le"], &[REPLY]]);
    assert!(kept.get().is_ok());
    assert_eq!(kept.get().unwrap(), json!({}));
    daemon.join().unwrap();
}

#[test]
fn broken_new_connection_fails() {
    let kept = Kept::new();
    let daemon = kept.daemon(&[&["HTTP/1.1 200 OK\r\ncontent-le"]]);
    assert!(matches!(kept.get(), Err(ClientError::Unreachable { progress: RequestProgress::Disconnected, .. })));
    daemon.join().unwrap();
}
