//! Very many clients that ask for a launch, and hold the connection for as long as they wait. What becomes of each is printed
//! as one byte, as soon as it is known.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::processes::{end_below_parent, end_with_stdin, fork, sleep_below_parent};

/// They belong to so many users, whose numbers nobody has.
const USERS: u32 = 10;
const FIRST_USER: u32 = 61_100;

/// What became of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::bench) enum Fate {
    /// It waits in the queue.
    Waits,
    /// The gate refused it: the queue is full.
    Refused,
    /// The daemon has no room for the connection.
    TurnedAway,
    /// Something else came, or nothing.
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

    /// The fate that a byte stands for.
    pub(in crate::bench) fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|fate| fate.byte() == byte)
    }
}

/// Forks the clients.
pub(super) fn crowd(socket: &Path, count: u32) -> Result<()> {
    // Those that are refused end at once; nobody waits for them one by one.
    // SAFETY: the kernel sees to the ends of children then; no memory is involved.
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
    // Whoever counts them misses one then.
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
    // Whoever is turned away may be told before it has asked.
    let asked = connection.write_all(request.as_bytes());
    let mut answer = BufReader::new(connection.try_clone().context("reading the answer")?);
    let mut line = String::new();
    answer.read_line(&mut line).context("reading the answer")?;
    if line.contains(" 503 ") {
        return Ok((Fate::TurnedAway, connection));
    }
    asked.context("asking for a launch")?;
    ensure!(line.contains(" 200 "), "the daemon answered {line}");
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
