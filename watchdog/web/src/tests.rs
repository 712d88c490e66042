//! The server over TCP, without a daemon.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rstest::rstest;
use watchdog_api::client::ControlClient;

use super::*;
use crate::request::{MAX_BODY, MAX_HEAD, READ_TIMEOUT};

const PROSE: Prose = Prose {
    command: |process| process.comm.clone(),
    facts: |_| Vec::new(),
    receipt: |_| String::new(),
    sent: |_| String::new(),
    outcome: |_, _| String::new(),
    page_out: |_| Vec::new(),
    fleet_store: |_| String::new(),
    record: |_| (String::new(), None, String::new()),
    plan: |_, _| Err("no plan".into()),
};

/// A server on its thread, which ends with the test process.
struct WebFixture {
    port: u16,
    token: String,
}

impl WebFixture {
    fn start(act: bool) -> Self {
        let client = ControlClient::new("/nonexistent/control.sock".into());
        let server = WebServer::bind(&client, PROSE, WebOptions { port: 0, act }).unwrap();
        let (_, rest) = server.url().split_once("127.0.0.1:").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let (port, token) = rest.split_once("/?token=").unwrap();
        let fixture = Self { port: port.parse().unwrap(), token: token.to_owned() };
        thread::spawn(move || server.serve());
        fixture
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    /// The whole answer to a request with these lines in its head.
    fn ask(&self, line: &str, headers: &str, body: &[u8]) -> String {
        let mut stream = self.connect();
        let head = format!("{line} HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n{headers}\r\n", self.port);
        stream.write_all(head.as_bytes()).unwrap();
        // The server may have answered already.
        let _ = stream.write_all(body);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The path of the pages and the header of the cookie.
    fn log_in(&self) -> (String, String) {
        let answer = self.ask(&format!("GET /?token={}", self.token), "", b"");
        let header = |name: &str| {
            let line = answer.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{answer}"));
            line[name.len()..].trim().to_owned()
        };
        assert!(answer.starts_with("HTTP/1.1 303 "), "{answer}");
        let cookie = header("set-cookie:").split(';').next().unwrap().to_owned();
        (header("location:"), format!("cookie: {cookie}\r\n"))
    }
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status in {answer:?}"))
}

#[test]
fn valid_token_opens_page() {
    let web = WebFixture::start(false);
    let (base, cookie) = web.log_in();
    let page = web.ask(&format!("GET {base}"), &cookie, b"");
    assert_eq!(status(&page), 200);
    assert!(page.contains("<title>agent-watchdog</title>"));
    assert!(!base.contains(&web.token) && !page.contains(&web.token), "the token does not stay in the address");
    assert_eq!(status(&web.ask(&format!("GET {base}"), "", b"")), 401);
    assert_eq!(status(&web.ask("GET /?token=0", &cookie, b"")), 403);
}

#[test]
fn every_response_has_security_headers() {
    let web = WebFixture::start(false);
    let (base, cookie) = web.log_in();
    for path in ["", "page.js", "view/overview", "view/none", "none"] {
        for cookie in [cookie.as_str(), ""] {
            let answer = web.ask(&format!("GET {base}{path}"), cookie, b"").to_ascii_lowercase();
            for header in [
                "content-security-policy: default-src 'self'; frame-ancestors 'none'",
                "x-content-type-options: nosniff",
                "referrer-policy: no-referrer",
                "cache-control: no-store",
            ] {
                assert!(answer.contains(header), "{path}: {answer}");
            }
            assert!(!answer.contains("access-control-"), "{path}: {answer}");
        }
    }
}

#[rstest]
#[case("../../../../etc/passwd")]
#[case("..%2f..%2f..%2fetc/passwd")]
#[case("%2e%2e/page.js")]
#[case("/etc/passwd")]
#[case("vendor/SHA256SUMS")]
#[case("view/../page.js")]
#[case("page.js/")]
#[case("live/../page.js")]
fn unknown_path_reads_no_file(#[case] path: &str) {
    let web = WebFixture::start(false);
    let (base, cookie) = web.log_in();
    assert_eq!(status(&web.ask(&format!("GET {base}{path}"), &cookie, b"")), 404);
}

#[test]
fn unreachable_daemon_is_502() {
    let web = WebFixture::start(false);
    let (base, cookie) = web.log_in();
    let answer = web.ask(&format!("GET {base}view/overview"), &cookie, b"");
    assert_eq!(status(&answer), 502);
    assert!(answer.contains("cannot reach the daemon at /nonexistent/control.sock"), "{answer}");
}

#[test]
fn large_requests_are_refused() {
    let web = WebFixture::start(true);
    let (base, cookie) = web.log_in();
    let long = format!("x: {}\r\n", "y".repeat(MAX_HEAD + 4096));
    assert_eq!(status(&web.ask(&format!("GET {base}"), &long, b"")), 431);
    let many = "x: y\r\n".repeat(65);
    assert_eq!(status(&web.ask(&format!("GET {base}"), &many, b"")), 431);
    let length = MAX_BODY + 1;
    let post = format!(
        "{cookie}origin: http://127.0.0.1:{}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n",
        web.port
    );
    let answer = web.ask(&format!("POST {base}act"), &post, &vec![b' '; length]);
    assert_eq!(status(&answer), 413);
    let small = post.replace(&length.to_string(), "2");
    assert_eq!(status(&web.ask(&format!("POST {base}act"), &small, b"{}")), 400);
    assert_eq!(status(&web.ask(&format!("POST {base}view/overview"), &small, b"{}")), 404);
}

#[test]
fn slow_clients_are_disconnected() {
    let web = WebFixture::start(false);
    let (base, cookie) = web.log_in();
    let began = Instant::now();
    let mut slow: Vec<TcpStream> = (0..150).map(|_| web.connect()).collect();
    for stream in &mut slow {
        // The oldest of them are disconnected already.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: ");
    }
    assert_eq!(status(&web.ask(&format!("GET {base}"), &cookie, b"")), 200, "others are answered meanwhile");
    let last = slow.last_mut().unwrap();
    // A byte now and then does not extend the time.
    while last.write_all(b"x").is_ok() && began.elapsed() < READ_TIMEOUT * 6 {
        thread::sleep(Duration::from_millis(200));
    }
    let took = began.elapsed();
    assert!(took >= READ_TIMEOUT && took < READ_TIMEOUT * 6, "{took:?}");
}

#[test]
fn stalled_client_blocks_no_other() {
    let web = WebFixture::start(false);
    let (base, cookie) = web.log_in();
    let head = format!("GET {base}uPlot.js HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n{cookie}\r\n", web.port);
    let deaf: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = web.connect();
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(status(&web.ask(&format!("GET {base}"), &cookie, b"")), 200);
    drop(deaf);
}

#[test]
fn stream_reports_unreachable_daemon() {
    let web = WebFixture::start(false);
    let (base, cookie) = web.log_in();
    let mut stream = web.connect();
    let head = format!("GET {base}live HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n{cookie}\r\n", web.port);
    stream.write_all(head.as_bytes()).unwrap();
    let mut got = String::new();
    while !got.contains("\"up\":false") {
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{got}");
        got += std::str::from_utf8(&buffer[..length]).unwrap();
    }
    assert!(got.contains("content-type: text/event-stream") && got.contains("event: daemon"), "{got}");
}
