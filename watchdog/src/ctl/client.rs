//! The other end of the control socket: one request on one connection, then the answer in full or line by line.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use super::failure::Failure;
use crate::api::Problem;

/// How long the daemon may take for a whole answer, and for the beginning of a stream.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two requests to a daemon that is starting.
const STARTING_PAUSE: Duration = Duration::from_millis(200);
/// How long a daemon is asked again that says when it will be less busy.
const BUSY_PATIENCE: Duration = Duration::from_secs(30);
/// No answer is larger: ten thousand processes with all their arguments are about 20 MB.
const LARGEST_ANSWER: usize = 64 << 20;
/// No line of a stream is longer: the kernel's events hold a bounded part of argv.
const LONGEST_LINE: usize = 1 << 20;

/// A daemon, by the path of its socket.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    patience: Duration,
}

/// An answer as the daemon wrote it, and what it says.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// What this version understands of it.
    pub(crate) document: T,
    /// The whole JSON document: it may hold what only a newer daemon knows.
    pub(crate) text: String,
}

/// An answer that comes line by line for as long as the daemon lives.
pub(crate) struct Lines {
    client: Client,
    request: String,
    body: Incoming,
    pending: BytesMut,
    /// Bytes at the front of `pending` that are known to hold no line break.
    searched: usize,
}

impl Client {
    /// A daemon whose socket is there. Nothing is tried yet.
    #[must_use]
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket, patience: PATIENCE }
    }

    /// The same daemon, waited for no longer than this.
    #[must_use]
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same daemon, waited for no longer than this, nor than usual.
    #[must_use]
    pub(crate) fn within(&self, longest: Duration) -> Self {
        Self { socket: self.socket.clone(), patience: self.patience.min(longest) }
    }

    /// The path of the socket.
    #[must_use]
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// How long it is waited for.
    #[must_use]
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// `GET path`
    ///
    /// # Errors
    /// When the daemon is not reachable, refuses, or answers with something else than a `T`.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Failure> {
        self.exchange(Method::GET, path, Bytes::new()).await
    }

    /// `POST path` with `body` as JSON
    ///
    /// # Errors
    /// When the daemon is not reachable, refuses, or answers with something else than a `T`.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer<T>, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::Usage(error.to_string()))?;
        self.exchange(Method::POST, path, body.into()).await
    }

    /// `GET path`, whose answer goes on
    ///
    /// # Errors
    /// When the daemon is not reachable or refuses.
    pub(crate) async fn follow(&self, path: &str) -> Result<Lines, Failure> {
        let request = format!("GET {path}");
        let beginning = || async {
            let answer = self.send(Method::GET, path, Bytes::new()).await?;
            if answer.status().is_success() {
                return Ok(answer.into_body());
            }
            Err(self.read_refusal(&request, answer).await)
        };
        let body = self.while_busy(beginning).await?;
        Ok(Lines { client: self.clone(), request, body, pending: BytesMut::new(), searched: 0 })
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Answer<T>, Failure> {
        let request = format!("{method} {path}");
        let attempt = || async {
            let answer = self.send(method.clone(), path, body.clone()).await?;
            if !answer.status().is_success() {
                return Err(self.read_refusal(&request, answer).await);
            }
            let body = self.read(&request, answer).await?;
            let unusable = |why: String| Failure::Answer { request: request.clone(), why };
            let text = String::from_utf8(body.into()).map_err(|error| unusable(error.to_string()))?;
            let document = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
            Ok(Answer { document, text })
        };
        self.while_busy(attempt).await
    }

    /// Tries again for a while when the daemon says that it is busy, and when to come back.
    async fn while_busy<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        attempt: impl Fn() -> F,
    ) -> Result<T, Failure> {
        let end = Instant::now() + BUSY_PATIENCE.min(self.patience * 3);
        loop {
            match self.in_time(attempt()).await {
                Err(Failure::Busy { retry_after: Some(pause), .. }) if Instant::now() + pause < end => {
                    sleep(pause).await
                }
                other => return other,
            }
        }
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        timeout(self.patience, work).await.unwrap_or_else(|_| Err(self.late()))
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.no_connection(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(&error))?;
        // It ends with the answer; its error is also the request's.
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(HOST, "agent-watchdog");
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|error| Failure::Usage(error.to_string()))?;
        sender.send_request(request).await.map_err(|error| self.broken(&error))
    }

    async fn read(&self, request: &str, answer: Response<Incoming>) -> Result<Bytes, Failure> {
        match Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(Failure::Answer {
                request: request.to_owned(),
                why: format!("it is larger than {} MiB", LARGEST_ANSWER >> 20),
            }),
            Err(error) => match error.downcast::<hyper::Error>() {
                Ok(error) => Err(self.broken(&error)),
                Err(error) => Err(Failure::Answer { request: request.to_owned(), why: error.to_string() }),
            },
        }
    }

    async fn read_refusal(&self, request: &str, answer: Response<Incoming>) -> Failure {
        let status = answer.status();
        let after = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
        match self.read(request, answer).await.map(|body| self.refusal(request, status, &body)) {
            Ok(Failure::Busy { why, refused, retry_after }) => {
                Failure::Busy { why, refused, retry_after: after.map(Duration::from_secs).or(retry_after) }
            }
            Ok(failure) | Err(failure) => failure,
        }
    }

    /// An answer that is not a success, by the number of its status.
    pub(crate) fn refused(&self, request: &str, status: u16, body: &[u8]) -> Failure {
        StatusCode::from_u16(status).map_or_else(|_| self.no_http(), |status| self.refusal(request, status, body))
    }

    fn refusal(&self, request: &str, status: StatusCode, body: &[u8]) -> Failure {
        let Problem { error: reason, starting } = serde_json::from_slice(body).unwrap_or_else(|_| {
            let error = format!("the daemon answered {request} with {status} and gave no reason; its log may");
            Problem { error, starting: false }
        });
        match status {
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => Failure::Forbidden(reason),
            StatusCode::BAD_REQUEST => Failure::Usage(reason),
            StatusCode::NOT_FOUND => Failure::Unknown(reason),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let retry_after = starting.then_some(STARTING_PAUSE);
                Failure::Busy { why: reason, refused: serde_json::from_slice(body).ok(), retry_after }
            }
            _ => Failure::No(reason),
        }
    }

    fn unreachable(&self, why: String, next: String) -> Failure {
        Failure::Unreachable { socket: self.socket.clone(), why, next, was_there: false }
    }

    fn gone(&self, why: String, next: String) -> Failure {
        Failure::Unreachable { socket: self.socket.clone(), why, next, was_there: true }
    }

    /// The connection ended, or what came is no HTTP.
    fn broken(&self, error: &hyper::Error) -> Failure {
        if error.is_parse() {
            let why = format!("what answers there does not speak HTTP ({error})");
            return self.unreachable(why, ELSEWHERE.into());
        }
        let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        self.cut_short(&cause)
    }

    /// The connection ended before the answer did.
    pub(crate) fn cut_short(&self, cause: &str) -> Failure {
        let why = format!("it went away before its answer was complete ({cause})");
        self.gone(why, "Its log, or `journalctl -u agent-watchdog`, may tell why; then try again.".into())
    }

    /// An answer ended that has no end while the daemon lives.
    pub(crate) fn ended(&self) -> Failure {
        let why = "it ended the stream of events".into();
        self.gone(why, "It was stopped, or restarted: run the command again.".into())
    }

    /// What came is no HTTP.
    pub(crate) fn no_http(&self) -> Failure {
        self.unreachable("what answers there does not speak HTTP".into(), ELSEWHERE.into())
    }

    /// Nothing came for too long.
    pub(crate) fn late(&self) -> Failure {
        let why = format!("it took the connection, and gave no whole answer within {:?}", self.patience);
        self.unreachable(why, "See what the daemon does: its log, and `ps` for its state.".into())
    }

    /// The daemon is not to be reached at all.
    pub(crate) fn no_connection(&self, error: &io::Error) -> Failure {
        let start = format!("Start the daemon with `sudo watchdogd`. {ELSEWHERE}");
        match error.kind() {
            io::ErrorKind::NotFound => self.unreachable("there is no such file".into(), start),
            io::ErrorKind::PermissionDenied => Failure::Forbidden(format!(
                "this user may not open the socket {}\nUse sudo, or a user who may search its directory and write to it.",
                self.socket.display()
            )),
            io::ErrorKind::ConnectionRefused => match self.socket.metadata() {
                Ok(found) if !found.file_type().is_socket() => {
                    self.unreachable("the file is there, and is no socket".into(), ELSEWHERE.into())
                }
                _ => {
                    self.unreachable("the socket is there, left by a daemon that is gone: nobody listens".into(), start)
                }
            },
            _ => self.unreachable(error.to_string(), start),
        }
    }
}

const ELSEWHERE: &str = "If its socket is elsewhere, name it with --socket or WATCHDOG_SOCKET.";

impl Lines {
    /// The next line without its line break. There is always a next one, unless the daemon goes away.
    ///
    /// # Errors
    /// When the daemon goes away, or sends a line without an end.
    pub(crate) async fn next(&mut self) -> Result<String, Failure> {
        self.read_line().await?.ok_or_else(|| self.client.ended())
    }

    /// The next line without its line break, or `None` at the end of an answer that has one.
    ///
    /// # Errors
    /// When the daemon goes away before that, sends nothing for long, or sends a line without an end.
    pub(crate) async fn next_or_end(&mut self) -> Result<Option<String>, Failure> {
        let client = self.client.clone();
        client.in_time(self.read_line()).await
    }

    async fn read_line(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(end) = self.pending[self.searched..].iter().position(|&byte| byte == b'\n') {
                let line = self.pending.split_to(self.searched + end + 1);
                self.searched = 0;
                let line = line.trim_ascii();
                if line.is_empty() {
                    continue;
                }
                return String::from_utf8(line.to_vec()).map(Some).map_err(|error| self.unusable(error.to_string()));
            }
            self.searched = self.pending.len();
            if self.pending.len() > LONGEST_LINE {
                return Err(self.unusable(format!("a line is longer than {} MiB", LONGEST_LINE >> 20)));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(self.client.broken(&error)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.pending.extend_from_slice(data);
                    }
                }
            }
        }
    }

    fn unusable(&self, why: String) -> Failure {
        Failure::Answer { request: self.request.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Status;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixListener;

    /// What a client of little patience says of a daemon that sends this much, and then is silent.
    async fn asked_of_one_that_stalls_after(beginning: &[u8], follow: bool) -> Failure {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let client = Client { socket, patience: Duration::from_millis(50) };
        let daemon = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(beginning).await.unwrap();
            std::future::pending::<()>().await;
        };
        let asked = async {
            if follow {
                client.follow("/v1/events?follow=true").await.err()
            } else {
                client.get::<Status>("/v1/status").await.err()
            }
        };
        tokio::select! {
            failure = asked => failure.unwrap(),
            () = daemon => unreachable!("it stalls for ever"),
        }
    }

    #[tokio::test]
    async fn a_silent_daemon_is_not_waited_for_without_end() {
        let half = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".as_slice();
        for (beginning, follow) in [(b"".as_slice(), false), (half, false), (b"".as_slice(), true)] {
            let failure = asked_of_one_that_stalls_after(beginning, follow).await;
            assert_eq!(failure.code(), 69);
            assert!(failure.message().contains("no whole answer within 50ms"), "{failure}");
        }
    }
}
