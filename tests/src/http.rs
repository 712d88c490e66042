//! Minimal HTTP client: one request per connection. Independent of the project's own client, and able to send invalid
//! requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::{limit, poll};

/// Longer than the daemon's own time limit for a response, after which it responds with status 503.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub struct HttpResponse {
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    pub body: String,
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(':'));
        pairs.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    ///
    /// # Panics
    /// When it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }
}

/// `GET path`
///
/// # Errors
/// When the daemon is unreachable, or does not respond in [`TIMEOUT`].
pub fn get(socket: &Path, path: &str) -> std::io::Result<HttpResponse> {
    raw(socket, format!("GET {path} HTTP/1.0\r\nHost: watchdog\r\n\r\n").as_bytes())
}

/// Sends a request again while the daemon responds with status 503.
pub(crate) fn asked_again(ask: impl Fn() -> HttpResponse) -> HttpResponse {
    poll(limit(Duration::from_secs(20)), || Some(ask()).filter(|response| response.status != 503)).unwrap_or_else(&ask)
}

/// `POST path` with a JSON body.
pub fn post(socket: &Path, path: &str, body: &serde_json::Value) -> std::io::Result<HttpResponse> {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: watchdog\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    raw(socket, (head + &body).as_bytes())
}

/// Sends these bytes and reads the whole response.
pub fn raw(socket: &Path, request: &[u8]) -> std::io::Result<HttpResponse> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    exchange(stream, request)
}

/// `GET path` over TCP.
pub fn raw_tcp(address: SocketAddr, path: &str) -> std::io::Result<HttpResponse> {
    exchange(connect(address)?, format!("GET {path} HTTP/1.0\r\nHost: watchdog\r\n\r\n").as_bytes())
}

pub(crate) fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

pub(crate) fn exchange(mut stream: impl Read + Write, request: &[u8]) -> std::io::Result<HttpResponse> {
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidData, format!("invalid HTTP response: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(invalid)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(invalid)?;
    Ok(HttpResponse { status, head: head.to_owned(), body: body.to_owned() })
}
