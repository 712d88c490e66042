//! Heads and chunk sizes of responses.

use std::time::Duration;

use httparse::{EMPTY_HEADER, Response, Status, parse_chunk_size};

const MAX_HEADERS: usize = 64;
/// Limit of the line before a chunk: its size and extensions.
const MAX_CHUNK_LINE: usize = 256;

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// Bytes that remain.
    Length(u64),
    /// Bytes that remain of the current chunk.
    Chunked(u64),
    UntilClose,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    /// The text after the status.
    pub(super) reason: String,
    pub(super) retry_after: Option<Duration>,
    pub(super) framing: Framing,
    /// The connection stays open after the response.
    pub(super) keep_alive: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotHttp;

/// The head and its length; `None` if it is incomplete.
pub(super) fn parse_head(raw: &[u8]) -> Result<Option<(usize, ResponseHead)>, NotHttp> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut response = Response::new(&mut headers);
    let Status::Complete(length) = response.parse(raw).map_err(|_| NotHttp)? else { return Ok(None) };
    let mut framing = Framing::UntilClose;
    let mut retry_after = None;
    let mut keep_alive = response.version == Some(1);
    for header in response.headers.iter() {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        if header.name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            framing = Framing::Chunked(0);
        } else if header.name.eq_ignore_ascii_case("content-length") {
            framing = Framing::Length(value.parse().map_err(|_| NotHttp)?);
        } else if header.name.eq_ignore_ascii_case("retry-after") {
            retry_after = value.parse().ok().map(Duration::from_secs);
        } else if header.name.eq_ignore_ascii_case("connection") {
            keep_alive &= !value.eq_ignore_ascii_case("close");
        }
    }
    let status = response.code.ok_or(NotHttp)?;
    let reason = response.reason.unwrap_or_default().to_owned();
    Ok(Some((length, ResponseHead { status, reason, retry_after, framing, keep_alive })))
}

/// The size of the chunk that begins here, and the length of its size line with the end of the chunk before it; `None`
/// if the line is incomplete.
pub(super) fn parse_chunk(raw: &[u8]) -> Result<Option<(usize, u64)>, NotHttp> {
    let before = if raw.starts_with(b"\r\n") { 2 } else { 0 };
    match parse_chunk_size(&raw[before..]) {
        Ok(Status::Complete((length, size))) => Ok(Some((before + length, size))),
        Ok(Status::Partial) if raw.len() <= MAX_CHUNK_LINE => Ok(None),
        _ => Err(NotHttp),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn head(status: u16, reason: &str, framing: Framing, keep_alive: bool) -> Result<ResponseHead, NotHttp> {
        Ok(ResponseHead { status, reason: reason.into(), framing, retry_after: None, keep_alive })
    }

    #[rstest]
    #[case("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", head(200, "OK", Framing::Chunked(0), true))]
    #[case("HTTP/1.0 503 Busy\r\ncontent-length: 7\r\n\r\n", head(503, "Busy", Framing::Length(7), false))]
    #[case(
        "HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 7\r\n\r\n",
        head(200, "OK", Framing::Length(7), false)
    )]
    #[case("HTTP/1.1 200 OK\r\n\r\n", head(200, "OK", Framing::UntilClose, true))]
    #[case("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", Err(NotHttp))]
    #[case("HTTP/2 200\r\n\r\n", Err(NotHttp))]
    #[case("HTTP/1.1\r\n\r\n", Err(NotHttp))]
    fn head_states_the_framing(#[case] text: &str, #[case] expected: Result<ResponseHead, NotHttp>) {
        assert_eq!(parse_head(text.as_bytes()).map(|head| head.unwrap().1), expected);
    }
}
