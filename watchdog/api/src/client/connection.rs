//! One request on a connection, and the framing of its response.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::error::ClientError;
use super::framing::{Framing, NotHttp, ResponseHead, parse_chunk, parse_head};

const MAX_HEAD: usize = 16 << 10;
/// The kernel takes a timeout of zero as none.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
const BUFFER: usize = 16 << 10;

/// A connection whose request was sent.
pub(super) struct Connection {
    socket: PathBuf,
    timeout: Duration,
    deadline: Instant,
    request: String,
    stream: UnixStream,
    /// Received and not yet decoded.
    raw: Vec<u8>,
    framing: Framing,
    /// The daemon accepts another request on this connection after the response.
    reusable: bool,
    /// Decoded part of the body. The caller takes from it.
    pub(super) body: Vec<u8>,
}

/// What [`Connection::receive`] saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Data,
    End,
    TimedOut,
}

/// What is sent, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientRequest<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) body: &'a [u8],
    pub(super) timeout: Duration,
    /// Ask the daemon to keep the connection open.
    pub(super) keep: bool,
}

impl Connection {
    /// Sends a request on a new connection.
    pub(super) fn send(socket: &Path, request: ClientRequest<'_>) -> Result<Self, ClientError> {
        let stream = open(socket, request.timeout).map_err(|error| ClientError::connect(socket, &error))?;
        Self::send_on(stream, socket, request)
    }

    /// Sends a request on an open connection.
    pub(super) fn send_on(stream: UnixStream, socket: &Path, request: ClientRequest<'_>) -> Result<Self, ClientError> {
        let ClientRequest { method, path, body, timeout, keep } = request;
        let deadline = Instant::now() + timeout;
        let close = if keep { "" } else { "connection: close\r\n" };
        let mut message = format!("{method} {path} HTTP/1.1\r\nhost: agent-watchdog\r\n{close}");
        if !body.is_empty() {
            message += &format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        }
        let mut message = (message + "\r\n").into_bytes();
        message.extend_from_slice(body);
        let request = format!("{method} {path}");
        let (raw, framing) = (Vec::new(), Framing::UntilClose);
        let socket = socket.to_owned();
        let (reusable, body) = (false, Vec::new());
        let mut connection = Self { socket, timeout, deadline, request, stream, raw, framing, reusable, body };
        match connection.stream.write_all(&message) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(connection.timed_out()),
            // A daemon that closes the connection early may have sent the reason.
            _ => Ok(connection),
        }
    }

    /// Method and path.
    pub(super) fn request(&self) -> &str {
        &self.request
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn time_limit(&self) -> Duration {
        self.timeout
    }

    pub(super) fn read_head(&mut self) -> Result<ResponseHead, ClientError> {
        loop {
            let parsed = if self.raw.is_empty() { Ok(None) } else { parse_head(&self.raw) };
            match parsed {
                Ok(Some((length, head))) => {
                    self.raw.drain(..length);
                    self.framing = head.framing;
                    self.reusable = head.keep_alive;
                    return Ok(head);
                }
                Ok(None) if self.raw.len() <= MAX_HEAD => {}
                _ => return Err(ClientError::not_http(&self.socket)),
            }
            match self.receive(Some(self.deadline))? {
                Received::Data => {}
                Received::End => return Err(self.truncated("the connection was closed")),
                Received::TimedOut => return Err(self.timed_out()),
            }
        }
    }

    /// Waits for more data, at most until `deadline`.
    pub(super) fn receive(&mut self, deadline: Option<Instant>) -> Result<Received, ClientError> {
        let mut buffer = [0; BUFFER];
        loop {
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()).max(MIN_TIMEOUT));
            let read = self.stream.set_read_timeout(left).and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(0) => return Ok(Received::End),
                Ok(length) => {
                    self.raw.extend_from_slice(&buffer[..length]);
                    return Ok(Received::Data);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::TimedOut),
                // This process was stopped and continued.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.truncated(&error.to_string())),
            }
        }
    }

    /// Moves what was received into `body`. True at the end of the response.
    pub(super) fn decode(&mut self) -> Result<bool, ClientError> {
        self.decode_body().map_err(|NotHttp| ClientError::not_http(&self.socket))
    }

    fn decode_body(&mut self) -> Result<bool, NotHttp> {
        loop {
            let left = match &mut self.framing {
                Framing::UntilClose => {
                    self.body.append(&mut self.raw);
                    return Ok(false);
                }
                Framing::Length(left) | Framing::Chunked(left) => left,
            };
            let available = self.raw.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            self.body.extend(self.raw.drain(..available));
            *left -= available as u64;
            match self.framing {
                Framing::Chunked(0) => match parse_chunk(&self.raw)? {
                    Some((_, 0)) => return Ok(true),
                    Some((length, size)) => {
                        self.raw.drain(..length);
                        self.framing = Framing::Chunked(size);
                    }
                    None => return Ok(false),
                },
                framing => return Ok(framing == Framing::Length(0)),
            }
        }
    }

    /// The stream, if another request can be sent on it: the response was read to its end, and nothing follows it.
    pub(super) fn into_reusable(self) -> Option<UnixStream> {
        (self.reusable && self.framing == Framing::Length(0) && self.raw.is_empty()).then_some(self.stream)
    }

    /// The daemon marks the end of the body by closing the connection.
    pub(super) fn ends_with_the_connection(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    pub(super) fn truncated(&self, cause: &str) -> ClientError {
        ClientError::truncated(&self.socket, cause)
    }

    pub(super) fn timed_out(&self) -> ClientError {
        ClientError::timeout(&self.socket, self.timeout)
    }

    pub(super) fn stream_ended(&self) -> ClientError {
        ClientError::stream_ended(&self.socket)
    }

    pub(super) fn invalid(&self, why: String) -> ClientError {
        ClientError::InvalidResponse { request: self.request.clone(), why }
    }
}

/// Connects with a time limit: connect(2) blocks while the backlog is full, and std has no timeout for it.
fn open(path: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(timeout.max(MIN_TIMEOUT)))?;
    connect(&socket, &address)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The lines of a body that arrives in pieces of this size, and whether it ended.
    fn decoded(framing: Framing, body: &[u8], piece: usize) -> (Vec<String>, Result<bool, NotHttp>) {
        let (stream, mut daemon) = UnixStream::pair().unwrap();
        let (deadline, timeout) = (Instant::now(), Duration::from_secs(10));
        let (raw, body_out) = (Vec::new(), Vec::new());
        let mut connection = Connection {
            socket: PathBuf::new(),
            timeout,
            deadline,
            request: String::new(),
            stream,
            raw,
            framing,
            reusable: false,
            body: body_out,
        };
        let mut end = Ok(false);
        for piece in body.chunks(piece) {
            daemon.write_all(piece).unwrap();
            assert_eq!(connection.receive(None).unwrap(), Received::Data);
            end = connection.decode_body();
        }
        (String::from_utf8(connection.body).unwrap().lines().map(str::to_owned).collect(), end)
    }

    #[rstest]
    #[case::chunks(Framing::Chunked(0), b"4\r\none\n\r\n8;x=y\r\ntwo\nand \r\na\r\nthree\nfour\r\n0\r\n\r\n", Ok(true))]
    #[case::length(Framing::Length(22), b"one\ntwo\nand three\nfour", Ok(true))]
    #[case::incomplete(Framing::Length(23), b"one\ntwo\nand three\nfour", Ok(false))]
    #[case::until_close(Framing::UntilClose, b"one\ntwo\nand three\nfour", Ok(false))]
    fn fragmentation_does_not_change_the_body(
        #[case] framing: Framing,
        #[case] body: &[u8],
        #[case] end: Result<bool, NotHttp>,
    ) {
        for piece in 1..=body.len() {
            let lines = ["one", "two", "and three", "four"].map(str::to_owned).to_vec();
            assert_eq!(decoded(framing, body, piece), (lines, end.as_ref().copied().map_err(|_| NotHttp)), "{piece}");
        }
    }

    #[test]
    fn invalid_chunk_size_is_refused() {
        assert_eq!(decoded(Framing::Chunked(0), b"one\r\n", 5).1, Err(NotHttp));
        assert_eq!(decoded(Framing::Chunked(0), &[b'1'; 300], 300).1, Err(NotHttp));
    }
}
