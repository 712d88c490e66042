//! Reads one request, within limits of size and time.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use httparse::{EMPTY_HEADER, Status};

/// Browsers send about 20 headers of 2 KiB in all.
const MAX_HEADERS: usize = 64;
pub(crate) const MAX_HEAD: usize = 16 << 10;
/// A confirmed action lists its targets. The daemon takes as much.
pub(crate) const MAX_BODY: usize = 1 << 20;
/// Time limit of a whole request.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The kernel takes a timeout of zero as none.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// A request whose headers are unambiguous.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WebRequest {
    pub(crate) method: String,
    /// The path as it was sent: it is compared, and never decoded.
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) host: Option<String>,
    pub(crate) origin: Option<String>,
    pub(crate) cookie: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) fetch_site: Option<String>,
    pub(crate) last_event_id: Option<String>,
}

/// Why a request is not answered with what it asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadFailure {
    /// The client has disconnected, or was too slow: there is no one to answer.
    Gone,
    /// The status of the answer, and the reason.
    Refused(u16, &'static str),
}

impl WebRequest {
    /// Reads the head of a request. [`PendingBody::read`] then reads its body.
    pub(crate) fn read_head(stream: &mut TcpStream, deadline: Instant) -> Result<(Self, PendingBody), ReadFailure> {
        let mut raw = Vec::new();
        loop {
            if let Some((length, request, body_length)) = parse(&raw)? {
                let received = raw.split_off(length);
                return Ok((request, PendingBody { received, length: body_length }));
            }
            if raw.len() > MAX_HEAD {
                return Err(ReadFailure::Refused(431, "the head of the request is too large"));
            }
            receive(stream, &mut raw, deadline)?;
        }
    }

    /// The first value of a parameter, decoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value)).next()
    }
}

/// The part of a body that has arrived, and its announced length.
#[derive(Debug)]
pub(crate) struct PendingBody {
    received: Vec<u8>,
    length: usize,
}

impl PendingBody {
    pub(crate) fn read(self, stream: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, ReadFailure> {
        let Self { mut received, length } = self;
        if length > MAX_BODY {
            return Err(ReadFailure::Refused(413, "the body of the request is too large"));
        }
        while received.len() < length {
            receive(stream, &mut received, deadline)?;
        }
        // One request a connection: what follows is ignored.
        received.truncate(length);
        Ok(received)
    }
}

fn receive(stream: &mut TcpStream, raw: &mut Vec<u8>, deadline: Instant) -> Result<(), ReadFailure> {
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left < MIN_TIMEOUT {
            return Err(ReadFailure::Gone);
        }
        match stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer)) {
            Ok(0) => return Err(ReadFailure::Gone),
            Ok(length) => {
                raw.extend_from_slice(&buffer[..length]);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(ReadFailure::Gone),
        }
    }
}

/// The length of the head, the request and the length of its body; `None` if the head is incomplete.
fn parse(raw: &[u8]) -> Result<Option<(usize, WebRequest, usize)>, ReadFailure> {
    const MALFORMED: ReadFailure = ReadFailure::Refused(400, "malformed request");
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(raw) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(ReadFailure::Refused(431, "too many headers")),
        Err(_) => return Err(MALFORMED),
    };
    let (Some(method), Some(target), Some(1)) = (head.method, head.path, head.version) else { return Err(MALFORMED) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request =
        WebRequest { method: method.into(), path: path.into(), query: query.into(), ..WebRequest::default() };
    let mut body = None;
    for header in head.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| MALFORMED)?.trim().to_owned();
        let known = match header.name.to_ascii_lowercase().as_str() {
            "host" => &mut request.host,
            "origin" => &mut request.origin,
            "cookie" => &mut request.cookie,
            "content-type" => &mut request.content_type,
            "sec-fetch-site" => &mut request.fetch_site,
            "last-event-id" => &mut request.last_event_id,
            "content-length" => &mut body,
            "transfer-encoding" => return Err(ReadFailure::Refused(411, "the body needs a content-length")),
            _ => continue,
        };
        // Two values could be read differently by two readers.
        if known.replace(value).is_some() {
            return Err(MALFORMED);
        }
    }
    let body = body.map_or(Ok(0), |digits| digits.parse()).map_err(|_| MALFORMED)?;
    Ok(Some((length, request, body)))
}

/// Percent-decodes a value of a query. What is no UTF-8 is replaced.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("GET / HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", 400)]
    #[case("GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n", 400)]
    #[case("GET / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400)]
    #[case("GET / HTTP/1.0\r\n\r\n", 400)]
    #[case("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411)]
    #[case("\u{16}\u{3}\u{1}", 400)]
    fn ambiguous_head_is_refused(#[case] head: &str, #[case] status: u16) {
        let refused = parse(head.as_bytes()).unwrap_err();
        assert!(matches!(refused, ReadFailure::Refused(code, _) if code == status), "{refused:?}");
    }

    #[test]
    fn parameters_are_decoded_once() {
        let request = WebRequest { query: "a=x%2Fy+z&b=%25zz&c=%&a=2".into(), ..WebRequest::default() };
        assert_eq!(request.parameter("a").as_deref(), Some("x/y z"));
        assert_eq!(request.parameter("b").as_deref(), Some("%zz"));
        assert_eq!(request.parameter("c").as_deref(), Some("%"));
        assert_eq!(request.parameter("d"), None);
    }
}
