//! A connection whose calls end in time, with responses of bounded size.

use std::io::{self, BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use redis::{ConnectionInfo, ConnectionLike, ErrorKind, RedisError, RedisResult, Value, cmd};

use crate::response::{invalid, read_response};
use crate::transport::Transport;

pub(crate) struct StoreConnection {
    stream: BufReader<Transport>,
    database: i64,
    timeout: Duration,
    /// A call failed: its response may still arrive.
    broken: bool,
}

impl StoreConnection {
    /// Connects and authenticates. The timeout is for this and the first command together.
    pub(crate) fn open(info: &ConnectionInfo, timeout: Duration) -> RedisResult<Self> {
        let settings = info.redis_settings();
        let stream = BufReader::new(Transport::connect(info.addr(), Instant::now() + timeout)?);
        let mut connection = Self { stream, database: settings.db(), timeout, broken: false };
        if let Some(password) = settings.password() {
            let mut auth = cmd("AUTH");
            if let Some(user) = settings.username() {
                auth.arg(user);
            }
            auth.arg(password).exec(&mut connection).map_err(|error| match error.kind() {
                ErrorKind::Io | ErrorKind::Parse => error,
                _ => RedisError::from((ErrorKind::AuthenticationFailed, "AUTH", error.to_string())),
            })?;
        }
        if connection.database != 0 {
            cmd("SELECT").arg(connection.database).exec(&mut connection)?;
        }
        Ok(connection)
    }

    /// The next commands have one timeout together.
    pub(crate) fn begin(&mut self) {
        self.stream.get_mut().set_deadline(Instant::now() + self.timeout);
    }

    /// Sends a command without reading its response.
    pub(crate) fn send(&mut self, command: &[u8]) -> io::Result<()> {
        let transport = self.stream.get_mut();
        transport.write_all(command)?;
        transport.flush()
    }

    /// The next message after SUBSCRIBE; `None` if there is none within this time.
    pub(crate) fn next_message(&mut self, within: Duration) -> RedisResult<Option<Value>> {
        self.stream.get_mut().set_deadline(Instant::now() + within);
        match self.stream.fill_buf() {
            Ok([]) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(_) => {
                self.begin();
                read_response(&mut self.stream).map(Some)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn exchange(&mut self, commands: &[u8], responses: usize) -> RedisResult<Vec<Value>> {
        if !self.stream.buffer().is_empty() {
            return Err(invalid("expected nothing before the next command"));
        }
        self.send(commands)?;
        (0..responses).map(|_| read_response(&mut self.stream)).collect()
    }
}

impl ConnectionLike for StoreConnection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.req_packed_commands(command, 0, 1)?.pop().ok_or_else(|| invalid("expected a response"))
    }

    fn req_packed_commands(&mut self, commands: &[u8], offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        let result = self.exchange(commands, offset + count);
        self.broken |= result.is_err();
        result.map(|mut values| values.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        self.database
    }

    fn check_connection(&mut self) -> bool {
        cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        !self.broken
    }
}
