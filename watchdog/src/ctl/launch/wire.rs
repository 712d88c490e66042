//! The request for a launch, and its answer line by line: by hand, and on this thread. Whatever is done here delays CMD, and
//! a runtime with a whole HTTP client would take longer than the daemon does.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::super::client::Client;
use super::super::failure::Failure;

const PATH: &str = "/v1/launch";
const REQUEST: &str = "POST /v1/launch";
/// No head of an answer is longer.
const LONGEST_HEAD: usize = 16 << 10;
/// No line of an answer is longer, nor the reason of a refusal.
const LONGEST_LINE: usize = 1 << 20;
/// The line before a chunk: a number, which may have something behind it.
const LONGEST_SIZE: usize = 256;
/// No read is made with less time than this: none at all is no limit to the kernel.
const LEAST_TIME: Duration = Duration::from_millis(1);

/// An answer that comes line by line for as long as the daemon lives.
pub(super) struct Lines<'a> {
    client: &'a Client,
    stream: UnixStream,
    /// What has come and is not decoded.
    raw: Vec<u8>,
    form: Form,
    /// What is decoded and was not handed out.
    text: Vec<u8>,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// So many bytes are to come.
    Counted(u64),
    /// So many bytes of a chunk are to come, and then perhaps another chunk.
    Chunks(u64),
    /// It lasts as long as the connection.
    Open,
}

/// What the head of an answer says.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    form: Form,
}

/// What answers does not speak HTTP.
#[derive(Debug, PartialEq, Eq)]
struct NoHttp;

impl<'a> Lines<'a> {
    /// Asks with `body` as JSON, and waits until the answer begins, no longer than the client's patience lasts.
    ///
    /// # Errors
    /// When the daemon is not reachable, refuses, or does not answer in time.
    pub(super) fn ask(client: &'a Client, body: &[u8]) -> Result<Self, Failure> {
        let until = Instant::now() + client.patience();
        let mut stream = open(client).map_err(|error| client.no_connection(&error))?;
        let mut request = format!(
            "POST {PATH} HTTP/1.1\r\nhost: agent-watchdog\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        match stream.write_all(&request) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(client.late()),
            // Who hangs up before all is written may have said why.
            _ => {}
        }
        let mut lines = Self { client, stream, raw: Vec::new(), form: Form::Open, text: Vec::new() };
        let head = lines.head(until)?;
        lines.form = head.form;
        if (200..300).contains(&head.status) {
            return Ok(lines);
        }
        while !lines.decode().map_err(|_| client.no_http())? && lines.text.len() <= LONGEST_LINE {
            match lines.read(Some(until)) {
                Ok(None) => return Err(client.late()),
                // What there is of the reason is told.
                Ok(Some(0)) | Err(_) => break,
                Ok(Some(_)) => {}
            }
        }
        Err(client.refused(REQUEST, head.status, &lines.text))
    }

    /// The next line without its line break; `None` when it did not come until then. There is always a next one, unless the
    /// daemon goes away.
    ///
    /// # Errors
    /// When the daemon goes away, or sends a line without an end.
    pub(super) fn next(&mut self, until: Option<Instant>) -> Result<Option<String>, Failure> {
        loop {
            let ended = self.decode().map_err(|_| self.client.no_http())?;
            while let Some(end) = self.text.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.text.drain(..=end).collect();
                let line = line.trim_ascii();
                if !line.is_empty() {
                    return String::from_utf8(line.to_vec()).map(Some).map_err(|error| unusable(error.to_string()));
                }
            }
            if ended {
                return Err(self.client.ended());
            }
            if self.text.len() > LONGEST_LINE {
                return Err(unusable(format!("a line is longer than {} MiB", LONGEST_LINE >> 20)));
            }
            match self.read(until) {
                Ok(None) => return Ok(None),
                Ok(Some(1..)) => {}
                Ok(Some(0)) if self.form == Form::Open => return Err(self.client.ended()),
                Ok(Some(0)) => return Err(self.client.cut_short("the connection ended")),
                Err(error) => return Err(self.client.cut_short(&error.to_string())),
            }
        }
    }

    fn head(&mut self, until: Instant) -> Result<Head, Failure> {
        loop {
            if let Some(end) = self.raw.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                let head: Vec<u8> = self.raw.drain(..end + 4).collect();
                return head_of(&head).map_err(|_| self.client.no_http());
            }
            let begins = b"HTTP/1.".iter().zip(&self.raw).all(|(expected, byte)| expected == byte);
            if !begins || self.raw.len() > LONGEST_HEAD {
                return Err(self.client.no_http());
            }
            match self.read(Some(until)) {
                Ok(None) => return Err(self.client.late()),
                Ok(Some(1..)) => {}
                Ok(Some(0)) => return Err(self.client.cut_short("the connection ended")),
                Err(error) => return Err(self.client.cut_short(&error.to_string())),
            }
        }
    }

    /// Waits for more: how much came, nothing at the end of the connection; `None` when it did not come until then.
    fn read(&mut self, until: Option<Instant>) -> io::Result<Option<usize>> {
        let mut buffer = [0; 4096];
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(LEAST_TIME));
            self.stream.set_read_timeout(left)?;
            match self.stream.read(&mut buffer) {
                Ok(length) => {
                    self.raw.extend_from_slice(&buffer[..length]);
                    return Ok(Some(length));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                // It was stopped, and goes on.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Decodes what has come; whether that is the end.
    fn decode(&mut self) -> Result<bool, NoHttp> {
        loop {
            let left = match &mut self.form {
                Form::Open => {
                    self.text.append(&mut self.raw);
                    return Ok(false);
                }
                Form::Counted(left) | Form::Chunks(left) => left,
            };
            let here = self.raw.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            self.text.extend(self.raw.drain(..here));
            *left -= here as u64;
            let whole = *left == 0;
            match self.form {
                Form::Chunks(_) if whole => match size_of_chunk(&self.raw)? {
                    Some((_, 0)) => return Ok(true),
                    Some((length, size)) => {
                        self.raw.drain(..length);
                        self.form = Form::Chunks(size);
                    }
                    None => return Ok(false),
                },
                _ => return Ok(whole),
            }
        }
    }
}

/// A connection on which nothing that is sent takes longer than the client's patience lasts.
fn open(client: &Client) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(client.socket())?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(client.patience().max(LEAST_TIME)))?;
    connect(&socket, &address)?;
    Ok(socket.into())
}

fn head_of(head: &[u8]) -> Result<Head, NoHttp> {
    let head = std::str::from_utf8(head).map_err(|_| NoHttp)?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()).ok_or(NoHttp)?;
    let mut form = Form::Open;
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            form = Form::Chunks(0);
        } else if name.eq_ignore_ascii_case("content-length") {
            form = Form::Counted(value.parse().map_err(|_| NoHttp)?);
        }
    }
    Ok(Head { status, form })
}

/// The size of the chunk that begins here, and the length of what says so, with the end of the chunk before it; `None` when
/// that is not there yet.
fn size_of_chunk(raw: &[u8]) -> Result<Option<(usize, u64)>, NoHttp> {
    let before = if raw.starts_with(b"\r\n") { 2 } else { 0 };
    let Some(end) = raw[before..].windows(2).position(|bytes| bytes == b"\r\n") else {
        return if raw.len() > LONGEST_SIZE { Err(NoHttp) } else { Ok(None) };
    };
    let line = std::str::from_utf8(&raw[before..before + end]).map_err(|_| NoHttp)?;
    let number = line.split(';').next().unwrap_or_default().trim();
    let size = u64::from_str_radix(number, 16).map_err(|_| NoHttp)?;
    Ok(Some((before + end + 2, size)))
}

fn unusable(why: String) -> Failure {
    Failure::Answer { request: REQUEST.into(), why }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Lines of an answer that comes in pieces of so many bytes, and how it ends.
    fn told(form: Form, body: &[u8], piece: usize) -> (Vec<String>, Result<bool, NoHttp>) {
        let client = Client::new("/nowhere".into());
        let (stream, mut daemon) = UnixStream::pair().unwrap();
        let mut lines = Lines { client: &client, stream, raw: Vec::new(), form, text: Vec::new() };
        let mut end = Ok(false);
        for piece in body.chunks(piece) {
            daemon.write_all(piece).unwrap();
            assert_eq!(lines.read(None).unwrap(), Some(piece.len()));
            end = lines.decode();
        }
        (String::from_utf8(lines.text).unwrap().lines().map(str::to_owned).collect(), end)
    }

    #[rstest]
    #[case::chunks(Form::Chunks(0), b"4\r\none\n\r\n8;x=y\r\ntwo\nand \r\na\r\nthree\nfour\r\n0\r\n\r\n", Ok(true))]
    #[case::counted(Form::Counted(22), b"one\ntwo\nand three\nfour", Ok(true))]
    #[case::more_to_come(Form::Counted(23), b"one\ntwo\nand three\nfour", Ok(false))]
    #[case::open(Form::Open, b"one\ntwo\nand three\nfour", Ok(false))]
    fn a_body_is_the_same_however_it_comes(#[case] form: Form, #[case] body: &[u8], #[case] end: Result<bool, NoHttp>) {
        for piece in 1..=body.len() {
            let lines = ["one", "two", "and three", "four"].map(str::to_owned).to_vec();
            assert_eq!(told(form, body, piece), (lines, end.as_ref().copied().map_err(|_| NoHttp)), "{piece}");
        }
    }

    #[test]
    fn what_is_no_chunk_is_not_taken_for_one() {
        assert_eq!(told(Form::Chunks(0), b"one\r\n", 5).1, Err(NoHttp));
        assert_eq!(told(Form::Chunks(0), &[b'1'; 300], 300).1, Err(NoHttp));
    }

    #[rstest]
    #[case("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Ok(Head { status: 200, form: Form::Chunks(0) }))]
    #[case("HTTP/1.0 503 Busy\r\ncontent-length: 7\r\n\r\n", Ok(Head { status: 503, form: Form::Counted(7) }))]
    #[case("HTTP/1.1 200 OK\r\n\r\n", Ok(Head { status: 200, form: Form::Open }))]
    #[case("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", Err(NoHttp))]
    #[case("HTTP/2 200\r\n\r\n", Err(NoHttp))]
    #[case("HTTP/1.1\r\n\r\n", Err(NoHttp))]
    fn a_head_says_how_the_body_ends(#[case] head: &str, #[case] expected: Result<Head, NoHttp>) {
        assert_eq!(head_of(head.as_bytes()), expected);
    }
}
