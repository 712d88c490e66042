//! Responses, each with the headers that confine the page.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde::Serialize;
use watchdog_api::client::ClientError;

/// Time limit of a whole response, except of a stream.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// A client that takes nothing for this long is disconnected.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an unread request is read before the connection closes, so that the client sees the answer.
const MAX_DRAIN: usize = 2 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);
const PIECE: usize = 64 << 10;

/// No `script-src` with `unsafe-inline`, no other host, no frame around the page.
const CONFINEMENT: &str = "content-security-policy: default-src 'self'; frame-ancestors 'none'; base-uri 'none'; \
     form-action 'none'; object-src 'none'\r\n\
     x-content-type-options: nosniff\r\n\
     x-frame-options: DENY\r\n\
     referrer-policy: no-referrer\r\n\
     cross-origin-opener-policy: same-origin\r\n\
     cross-origin-resource-policy: same-origin\r\n\
     cache-control: no-store\r\n\
     connection: close\r\n";

#[derive(Debug)]
pub(crate) struct WebResponse {
    pub(crate) status: u16,
    content_type: &'static str,
    /// Further lines of the head, each with its line break.
    headers: String,
    body: Vec<u8>,
}

/// The body of every answer that is not a success.
#[derive(Debug, Serialize)]
struct WebProblem<'a> {
    error: &'a str,
}

impl WebResponse {
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, headers: String::new(), body: body.into() }
    }

    pub(crate) fn json(value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::new(200, "application/json", body),
            Err(error) => Self::problem(500, &error.to_string()),
        }
    }

    pub(crate) fn problem(status: u16, error: &str) -> Self {
        let body = serde_json::to_vec(&WebProblem { error }).unwrap_or_default();
        Self::new(status, "application/json", body)
    }

    /// The daemon's answer as one of ours. 502 stands for a daemon that does not answer.
    pub(crate) fn of(error: &ClientError) -> Self {
        let status = match error {
            ClientError::Unreachable { .. } | ClientError::InvalidResponse { .. } => 502,
            ClientError::Busy { .. } => 503,
            ClientError::Forbidden(_) => 403,
            ClientError::NotFound(_) => 404,
            ClientError::BadRequest(_) => 400,
            ClientError::Failed(_) => 500,
        };
        Self::problem(status, &error.to_string())
    }

    /// `name` and `value` come from this program, never from a request.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers += &format!("{name}: {value}\r\n");
        self
    }

    fn head(&self, length: Option<usize>) -> String {
        let Self { status, content_type, headers, .. } = self;
        let reason = match status {
            200 => "OK",
            303 => "See Other",
            _ => "Refused",
        };
        let length = length.map_or_else(String::new, |length| format!("content-length: {length}\r\n"));
        format!("HTTP/1.1 {status} {reason}\r\ncontent-type: {content_type}\r\n{CONFINEMENT}{headers}{length}\r\n")
    }

    /// Sends everything, then closes the connection. A client that has disconnected is no error.
    pub(crate) fn send(self, stream: &mut TcpStream) {
        let deadline = Instant::now() + WRITE_TIMEOUT;
        let head = self.head(Some(self.body.len()));
        let sent = stream
            .set_write_timeout(Some(STALL_TIMEOUT))
            .and_then(|()| stream.write_all(head.as_bytes()))
            .and_then(|()| {
                self.body.chunks(PIECE).try_for_each(|piece| match Instant::now() < deadline {
                    true => stream.write_all(piece),
                    false => Err(std::io::ErrorKind::TimedOut.into()),
                })
            });
        if sent.is_ok() {
            drain(stream);
        }
    }

    /// Sends the head of a stream, whose body ends with the connection.
    pub(crate) fn start_stream(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        stream.set_write_timeout(Some(STALL_TIMEOUT))?;
        stream.write_all(self.head(None).as_bytes())
    }
}

/// Closing a socket with unread data resets the connection, and the client may lose the answer.
fn drain(stream: &mut TcpStream) {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.set_read_timeout(Some(DRAIN_TIMEOUT));
    let (mut buffer, mut drained) = ([0; 4096], 0);
    while drained < MAX_DRAIN && Instant::now() < deadline {
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => drained += length,
            _ => return,
        }
    }
}
