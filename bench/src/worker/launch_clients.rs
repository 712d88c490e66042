//! Very many clients that request a launch and keep the connection while they wait. The outcome of each is printed as one
//! byte, as soon as it is known.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::processes::{end_below_parent, end_with_stdin, fork, sleep_below_parent};

/// Number of users among the clients, with unused uids.
const USERS: u32 = 10;
const FIRST_USER: u32 = 61_100;

/// The outcome of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// In the queue.
    Waits,
    /// Refused by the gate: the queue is full.
    Refused,
    /// Refused by the connection limit.
    TurnedAway,
    /// Another response, or none.
    Broken,
}

impl Fate {
    const ALL: [Self; 4] = [Self::Waits, Self::Refused, Self::TurnedAway, Self::Broken];

    const fn byte(self) -> u8 {
        match self {
            Self::Waits => b'w',
            Self::Refused => b'r',
            Self::TurnedAway => b't',
            Self::Broken => b'x',
        }
    }

    pub(crate) fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|fate| fate.byte() == byte)
    }
}

/// Forks the clients.
pub(super) fn run(socket: &Path, count: u32) -> Result<()> {
    // Refused clients exit at once and are not reaped one by one.
    // SAFETY: with SIGCHLD ignored the kernel reaps children; no memory is involved.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    for number in 0..count {
        fork(|| client(socket, FIRST_USER + number % USERS))?;
    }
    end_with_stdin()
}

fn client(socket: &Path, user: u32) {
    // SAFETY: no memory is involved; the kernel changes the user of this process alone.
    let changed = unsafe { libc::setresuid(user, user, user) } == 0;
    end_below_parent();
    let (fate, connection) = match changed.then(|| ask(socket)) {
        Some(Ok((fate, connection))) => (fate, Some(connection)),
        Some(Err(_)) | None => (Fate::Broken, None),
    };
    let mut out = std::io::stdout();
    // If this fails, the parent counts one client less and fails.
    let _ = out.write_all(&[fate.byte()]).and_then(|()| out.flush());
    if fate == Fate::Waits {
        sleep_below_parent();
    }
    drop(connection);
}

fn ask(socket: &Path) -> Result<(Fate, UnixStream)> {
    let body = r#"{"profile":"bench","path":"/bin/true","argv":["true"]}"#;
    let mut connection = UnixStream::connect(socket).context("connecting to the control socket")?;
    let head = "POST /v1/launch HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    // A refusal may arrive before the request is sent.
    let asked = connection.write_all(request.as_bytes());
    let mut answer = BufReader::new(connection.try_clone().context("reading the answer")?);
    let mut line = String::new();
    answer.read_line(&mut line).context("reading the answer")?;
    if line.contains(" 503 ") {
        return Ok((Fate::TurnedAway, connection));
    }
    asked.context("asking for a launch")?;
    ensure!(line.contains(" 200 "), "unexpected response: {line}");
    loop {
        line.clear();
        ensure!(answer.read_line(&mut line).context("reading the answer")? > 0, "the answer ended");
        if line.contains(r#""type":"waiting""#) {
            return Ok((Fate::Waits, connection));
        }
        if line.contains(r#""reason":"queue_full""#) {
            return Ok((Fate::Refused, connection));
        }
    }
}
