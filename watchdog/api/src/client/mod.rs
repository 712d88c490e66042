//! A blocking HTTP/1.1 client for the control socket. Each request has its own connection, unless the client keeps one.
//!
//! No thread and no runtime: `launch` and `hook` delay an agent by whatever the client costs.

mod confirmed_action;
mod connection;
mod error;
mod framing;
mod kept_connection;
mod line_stream;
mod page_out;

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::confirmed_action::ConfirmedAction;
use self::connection::{ClientRequest, Connection, Received};
pub use self::error::{ClientError, RequestProgress};
use self::kept_connection::KeptConnection;
pub use self::line_stream::LineStream;

/// Time limit of a whole response, and of the head of a stream.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the retries while the daemon says that it is starting.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
/// Ten thousand processes with all their arguments take about 20 MB.
const MAX_RESPONSE: usize = 64 << 20;
/// Limit of the reason in an error response.
const MAX_REASON: usize = 1 << 20;

/// Access to one daemon, by the path of its socket. Creating it connects nothing.
#[derive(Clone, Debug)]
pub struct ControlClient {
    socket: PathBuf,
    timeout: Duration,
    kept: Option<KeptConnection>,
}

/// A successful response.
#[derive(Debug)]
pub struct JsonReply<T> {
    /// The part of the response that this version knows.
    pub document: T,
    /// The whole JSON document. A newer daemon may have added members.
    pub text: String,
}

impl ControlClient {
    /// A client with a time limit of 10 s.
    #[must_use]
    pub const fn new(socket: PathBuf) -> Self {
        Self { socket, timeout: TIMEOUT, kept: None }
    }

    /// The same with another time limit.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// A client whose time limit is at most `limit`.
    #[must_use]
    pub fn limited_to(&self, limit: Duration) -> Self {
        Self { timeout: self.timeout.min(limit), ..self.clone() }
    }

    /// A client that sends its [`Self::get`] requests on one connection, for pollers: a connection costs the daemon more
    /// than most responses.
    #[must_use]
    pub fn keeping_alive(self) -> Self {
        Self { kept: Some(KeptConnection::default()), ..self }
    }

    /// The path of the socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends `GET path`. Repeats it while the daemon is starting.
    ///
    /// # Errors
    /// The daemon is unreachable, refuses, or sends no valid `T`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<JsonReply<T>, ClientError> {
        self.retry_while_starting(|| self.get_once(path))
    }

    /// Sends `POST path` with `body` as JSON. Repeats it while the daemon is starting.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<JsonReply<T>, ClientError> {
        let body = to_json(body)?;
        self.retry_while_starting(|| read_body(&mut self.open("POST", path, &body)?))
    }

    /// Sends `GET path`, whose response is lines. Repeats it while the daemon is starting.
    ///
    /// # Errors
    /// The daemon is unreachable or refuses.
    pub fn get_lines(&self, path: &str) -> Result<LineStream, ClientError> {
        self.retry_while_starting(|| self.open("GET", path, &[]).map(LineStream::new))
    }

    /// Sends `POST path` once. Its response is lines.
    ///
    /// # Errors
    /// As [`Self::get_lines`].
    pub fn post_lines(&self, path: &str, body: &impl Serialize) -> Result<LineStream, ClientError> {
        self.open("POST", path, &to_json(body)?).map(LineStream::new)
    }

    fn get_once<T: DeserializeOwned>(&self, path: &str) -> Result<JsonReply<T>, ClientError> {
        let Some(kept) = &self.kept else { return read_body(&mut self.open("GET", path, &[])?) };
        let request = ClientRequest { method: "GET", path, body: &[], timeout: self.timeout, keep: true };
        let read = |mut connection| {
            read_head(&mut connection)?;
            let reply = read_body(&mut connection)?;
            if let Some(stream) = connection.into_reusable() {
                kept.keep(stream);
            }
            Ok(reply)
        };
        if let Some(stream) = kept.take() {
            match Connection::send_on(stream, &self.socket, request).and_then(read) {
                // The daemon closed it just now. Reading twice does no harm.
                Err(ClientError::Unreachable { progress: RequestProgress::Disconnected, .. }) => {}
                other => return other,
            }
        }
        Connection::send(&self.socket, request).and_then(read)
    }

    /// Sends the request and reads the head of the response.
    fn open(&self, method: &str, path: &str, body: &[u8]) -> Result<Connection, ClientError> {
        let request = ClientRequest { method, path, body, timeout: self.timeout, keep: false };
        let mut connection = Connection::send(&self.socket, request)?;
        read_head(&mut connection)?;
        Ok(connection)
    }

    fn retry_while_starting<T>(&self, attempt: impl Fn() -> Result<T, ClientError>) -> Result<T, ClientError> {
        let end = Instant::now() + BUSY_TIMEOUT.min(self.timeout.saturating_mul(3));
        loop {
            match attempt() {
                Err(ClientError::Busy { retry_after: Some(pause), .. }) if Instant::now() + pause < end => sleep(pause),
                other => return other,
            }
        }
    }
}

/// Reads the head of a response, and the reason of an error.
fn read_head(connection: &mut Connection) -> Result<(), ClientError> {
    let head = connection.read_head()?;
    if (200..300).contains(&head.status) {
        return Ok(());
    }
    let deadline = connection.deadline();
    while !connection.decode()? && connection.body.len() <= MAX_REASON {
        match connection.receive(Some(deadline)) {
            Ok(Received::Data) => {}
            Ok(Received::TimedOut) => return Err(connection.timed_out()),
            // Part of the reason is better than none.
            Ok(Received::End) | Err(_) => break,
        }
    }
    Err(ClientError::from_response(connection.request(), &head, &connection.body))
}

/// Reads the body of a successful response.
fn read_body<T: DeserializeOwned>(connection: &mut Connection) -> Result<JsonReply<T>, ClientError> {
    let deadline = connection.deadline();
    while !connection.decode()? {
        if connection.body.len() > MAX_RESPONSE {
            return Err(connection.invalid(format!("it is larger than {} MiB", MAX_RESPONSE >> 20)));
        }
        match connection.receive(Some(deadline))? {
            Received::Data => {}
            Received::End if connection.ends_with_the_connection() => break,
            Received::End => return Err(connection.truncated("the connection was closed")),
            Received::TimedOut => return Err(connection.timed_out()),
        }
    }
    let text = String::from_utf8(std::mem::take(&mut connection.body));
    let text = text.map_err(|error| connection.invalid(error.to_string()))?;
    let document = serde_json::from_str(&text).map_err(|error| connection.invalid(error.to_string()))?;
    Ok(JsonReply { document, text })
}

fn to_json(body: &impl Serialize) -> Result<Vec<u8>, ClientError> {
    serde_json::to_vec(body).map_err(|error| ClientError::BadRequest(error.to_string()))
}

#[cfg(test)]
#[path = "keep_alive_tests.rs"]
mod keep_alive_tests;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::Status;

    /// The error of a client with a time limit of 50 ms against a daemon that sends `response` and then nothing.
    fn error_after(response: &[u8], stream: bool) -> ClientError {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let client = ControlClient::new(socket).with_timeout(Duration::from_millis(50));
        std::thread::scope(|scope| {
            let request = scope.spawn(|| {
                if stream {
                    client.get_lines("/v1/events?follow=true").err()
                } else {
                    client.get::<Status>("/v1/status").err()
                }
            });
            let (mut daemon, _) = listener.accept().unwrap();
            daemon.write_all(response).unwrap();
            request.join().unwrap().unwrap()
        })
    }

    #[test]
    fn silent_daemon_times_out() {
        let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".as_slice();
        for (response, stream) in [(b"".as_slice(), false), (half, false), (b"".as_slice(), true)] {
            let error = error_after(response, stream);
            assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
            assert!(error.to_string().contains("no response within 50ms"), "{error}");
        }
    }
}
