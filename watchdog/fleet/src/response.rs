//! Reads a response of the Redis protocol (RESP2), with limits because the server is not trusted. The parser of the crate
//! `redis` reads as much as a server sends.

use std::io::{self, BufRead, Read};

use redis::{ErrorKind, RedisError, RedisResult, Value};

/// Some times the largest part of the view.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Each takes 50 bytes or more.
const MAX_VALUES: usize = 64 * 1024;
/// Lists in lists: the script returns one list.
const MAX_DEPTH: usize = 4;
const MAX_LINE: usize = 16 * 1024;

/// What may still be read of a response.
struct ResponseReader<'a, R> {
    source: &'a mut R,
    bytes: usize,
    values: usize,
}

pub(crate) fn read_response(source: &mut impl BufRead) -> RedisResult<Value> {
    ResponseReader { source, bytes: MAX_BYTES, values: MAX_VALUES }.value(MAX_DEPTH)
}

pub(crate) fn invalid(detail: &str) -> RedisError {
    (ErrorKind::Parse, "invalid response", detail.to_owned()).into()
}

impl<R: BufRead> ResponseReader<'_, R> {
    fn value(&mut self, depth: usize) -> RedisResult<Value> {
        self.values = self.values.checked_sub(1).ok_or_else(|| invalid("it has too many parts"))?;
        let line = self.line()?;
        let Some((kind, rest)) = line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first) else {
            return Err(invalid("expected a line of the Redis protocol"));
        };
        match kind {
            b'+' if rest == b"OK" => Ok(Value::Okay),
            b'+' => Ok(Value::SimpleString(String::from_utf8_lossy(rest).into_owned())),
            b'-' => redis::parse_redis_value(&line),
            b':' => number(rest).map(Value::Int),
            b'$' => match length(rest)? {
                Some(size) => self.bulk(size),
                None => Ok(Value::Nil),
            },
            b'*' => match length(rest)? {
                Some(count) => self.list(count, depth),
                None => Ok(Value::Nil),
            },
            _ => Err(invalid("expected a response of the Redis protocol")),
        }
    }

    fn bulk(&mut self, size: usize) -> RedisResult<Value> {
        let mut bytes = self.take(size)?;
        if self.take(2)? != b"\r\n" || bytes.len() != size {
            return Err(invalid("expected text of the stated length"));
        }
        bytes.shrink_to_fit();
        Ok(Value::BulkString(bytes))
    }

    fn list(&mut self, count: usize, depth: usize) -> RedisResult<Value> {
        let depth = depth.checked_sub(1).ok_or_else(|| invalid("lists are nested too deeply"))?;
        let values = (0..count).map(|_| self.value(depth)).collect::<RedisResult<Vec<_>>>()?;
        Ok(Value::Array(values))
    }

    /// Memory grows with what has arrived, not with what the server states.
    fn take(&mut self, size: usize) -> RedisResult<Vec<u8>> {
        self.spend(size)?;
        let mut bytes = Vec::new();
        self.source.by_ref().take(size as u64).read_to_end(&mut bytes)?;
        if bytes.len() < size { Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()) } else { Ok(bytes) }
    }

    /// With its end.
    fn line(&mut self) -> RedisResult<Vec<u8>> {
        let mut line = Vec::new();
        self.source.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        self.spend(line.len())?;
        Ok(line)
    }

    fn spend(&mut self, size: usize) -> RedisResult<()> {
        self.bytes = self.bytes.checked_sub(size).ok_or_else(|| invalid("it is larger than 4 MiB"))?;
        Ok(())
    }
}

fn number(text: &[u8]) -> RedisResult<i64> {
    str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| invalid("expected a number"))
}

/// `None` is a missing value.
fn length(text: &[u8]) -> RedisResult<Option<usize>> {
    match number(text)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| invalid("expected a length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RedisResult<Value> {
        read_response(&mut text.as_bytes())
    }

    #[test]
    fn values_of_protocol_are_read() {
        let text = |text: &str| Value::BulkString(text.into());
        assert_eq!(read("+OK\r\n").unwrap(), Value::Okay);
        assert_eq!(read("$5\r\na\r\nbc\r\n").unwrap(), text("a\r\nbc"));
        let list = Value::Array(vec![text("ask"), Value::Int(-7), Value::Nil, Value::Array(vec![]), text("")]);
        assert_eq!(read("*5\r\n$3\r\nask\r\n:-7\r\n$-1\r\n*0\r\n$0\r\n\r\n").unwrap(), list);
        let Value::ServerError(error) = read("-NOSCRIPT No matching script\r\n").unwrap() else { panic!("an error") };
        assert_eq!(error.code(), "NOSCRIPT");
    }

    #[test]
    fn hostile_responses_are_errors() {
        let nested = "*1\r\n".repeat(100_000);
        let many = format!("*{}\r\n{}", i64::MAX, ":1\r\n".repeat(70_000));
        let (long_line, huge) = ("+".repeat(1_000_000), format!("${}\r\n", i64::MAX));
        for (text, reason) in [
            (nested.as_str(), "nested"),
            (&many, "too many"),
            (&long_line, "a line"),
            (&huge, "4 MiB"),
            ("$3\r\nabcde\r\n", "stated length"),
            ("$-2\r\n", "a length"),
            (":x\r\n", "a number"),
            ("%1\r\n", "Redis protocol"),
            ("HTTP/1.1 400 Bad Request\r\n", "Redis protocol"),
            ("\r\n", "a line"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Parse, "{reason}");
            assert!(error.detail().is_some_and(|detail| detail.contains(reason)), "{reason}: {error}");
        }
        for cut in ["", "$4\r\nab", "*2\r\n:1\r\n"] {
            assert!(read(cut).unwrap_err().is_connection_dropped(), "{cut:?}");
        }
    }
}
