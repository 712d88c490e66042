//! HTTP as plain as it gets: one request, one answer, one connection, so that nothing of the daemon's own client is
//! trusted, and broken requests can be sent too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::limit;

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// What follows the head.
    pub body: String,
}

impl Response {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.body))
    }
}

/// `GET path`
///
/// # Errors
/// When the daemon is not there, or does not answer in time.
pub fn get(socket: &Path, path: &str) -> std::io::Result<Response> {
    raw(socket, format!("GET {path} HTTP/1.0\r\nHost: watchdog\r\n\r\n").as_bytes())
}

/// `POST path` with a JSON body.
///
/// # Errors
/// As [`get`].
pub fn post(socket: &Path, path: &str, body: &serde_json::Value) -> std::io::Result<Response> {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: watchdog\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    raw(socket, (head + &body).as_bytes())
}

/// Sends these bytes and reads the answer to its end.
///
/// # Errors
/// As [`get`].
pub fn raw(socket: &Path, request: &[u8]) -> std::io::Result<Response> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(limit(Duration::from_secs(5))))?;
    stream.set_write_timeout(Some(limit(Duration::from_secs(5))))?;
    exchange(stream, request)
}

/// `GET path` over TCP.
///
/// # Errors
/// As [`get`].
pub fn raw_tcp(address: SocketAddr, path: &str) -> std::io::Result<Response> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(limit(Duration::from_secs(5))))?;
    exchange(stream, format!("GET {path} HTTP/1.0\r\nHost: watchdog\r\n\r\n").as_bytes())
}

fn exchange(mut stream: impl Read + Write, request: &[u8]) -> std::io::Result<Response> {
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let invalid = || std::io::Error::new(std::io::ErrorKind::InvalidData, format!("no HTTP answer: {answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(invalid)?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(invalid)?;
    Ok(Response { status, body: body.to_owned() })
}
