//! A socket that answers as a test specifies, validly or not.
#![allow(dead_code, reason = "each test program uses its own part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

use tempfile::TempDir;

/// Seconds until a client is killed.
const TIME_LIMIT: u32 = 300;

/// Calls `answer` with each request and its connection.
pub(crate) struct FakeDaemon {
    directory: TempDir,
}

impl FakeDaemon {
    pub(crate) fn start(answer: impl Fn(&str, &mut UnixStream) + Send + 'static) -> Self {
        let server = Self { directory: tempfile::tempdir().unwrap() };
        let listener = UnixListener::bind(server.socket()).unwrap();
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let request = read_request(&stream);
                answer(&request, &mut stream);
            }
        });
        server
    }

    /// Sends these bytes to every request, and closes the connection.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |_, stream| {
            // The client may have closed the connection.
            let _ = stream.write_all(&bytes);
        })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }
}

/// The request line, a space, and the body.
fn read_request(stream: &UnixStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    reader.read_line(&mut request).unwrap();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let header = header.trim_end().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    format!("{} {}", request.trim_end(), String::from_utf8(body).unwrap()).trim_end().to_owned()
}

pub(crate) fn http(status: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
}

/// The head of a stream, and each line as a chunk.
pub(crate) fn stream_of(lines: &[&str]) -> String {
    let chunks = lines.iter().map(|line| format!("{:x}\r\n{line}\n\r\n", line.len() + 1));
    format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}", chunks.collect::<String>())
}

/// A client with default signal dispositions, whatever the tests inherited, and with a time limit.
pub(crate) fn ctl(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchdogctl"));
    command.arg("--socket").arg(socket).args(arguments).stdin(Stdio::null());
    command.env_remove("WATCHDOG_SOCKET").env("TZ", "UTC");
    // SAFETY: plain system calls, which are allowed between fork and exec. The alarm outlives the exec.
    unsafe {
        command.pre_exec(|| {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGALRM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::alarm(TIME_LIMIT);
            Ok(())
        });
    }
    command
}

pub(crate) fn run(socket: &Path, arguments: &[&str]) -> (i32, String, String) {
    parts(ctl(socket, arguments).output().unwrap())
}

pub(crate) fn parts(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}
