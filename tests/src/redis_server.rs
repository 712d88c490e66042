//! A Redis server of a test's own, from Debian's package, on loopback.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::set_clock::SetClock;

const START: Duration = Duration::from_secs(20);

/// A server with its own directory and port. It is killed when it is dropped.
pub struct RedisServer {
    process: Child,
    directory: tempfile::TempDir,
    port: u16,
    namespace: Option<RedisNamespace>,
    arguments: Vec<String>,
    clock: Option<SetClock>,
}

/// Where a server listens that has a network of its own.
#[derive(Clone)]
pub struct RedisNamespace {
    /// For `ip netns exec`.
    pub name: String,
    /// Of the server.
    pub address: String,
}

impl RedisServer {
    /// Starts one; `None`, aloud, where the program is missing. Its append-only file is written at each change.
    ///
    /// # Panics
    /// In CI without the program, or when it does not start.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Option<Self> {
        Self::start_in(None, arguments)
    }

    /// As [`start`](Self::start), in a network namespace.
    ///
    /// # Panics
    /// In CI without the program, or when it does not start.
    #[must_use]
    pub fn start_in(namespace: Option<RedisNamespace>, arguments: &[&str]) -> Option<Self> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            crate::skip_without("redis-server", "redis-server");
            return None;
        }
        // It syncs its file at each change, and on a disk that is busy with builds this takes seconds.
        let parent = Path::new(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" });
        let directory = tempfile::Builder::new().prefix("watchdog-redis-").tempdir_in(parent).expect("a directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let process = Self::spawn(&directory, port, namespace.as_ref(), &arguments, None);
        let server = Self { process, directory, port, namespace, arguments, clock: None };
        server.wait_until_ready();
        Some(server)
    }

    fn spawn(
        directory: &tempfile::TempDir,
        port: u16,
        namespace: Option<&RedisNamespace>,
        arguments: &[String],
        clock: Option<&SetClock>,
    ) -> Child {
        let mut command = match namespace {
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &namespace.name, "redis-server"]);
                command
            }
            None => Command::new("redis-server"),
        };
        if let Some(clock) = clock {
            clock.give(&mut command);
        }
        command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        command.args(["--protected-mode", "no", "--loglevel", "warning"]);
        command.args(["--bind", namespace.map_or("127.0.0.1", |namespace| &namespace.address)]);
        command.arg("--dir").arg(directory.path()).arg("--unixsocket").arg(directory.path().join("redis.sock"));
        let log = fs::File::create(directory.path().join("log")).expect("a log");
        command.args(arguments).stdin(Stdio::null()).stdout(log).stderr(Stdio::null());
        command.spawn().expect("redis-server starts")
    }

    fn wait_until_ready(&self) {
        let started = Instant::now();
        while !self.command(&["PING"]).contains("PONG") {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(started.elapsed() < START, "redis-server does not answer: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Restarts it with a clock that can be set.
    ///
    /// # Panics
    /// Without a C compiler.
    pub fn with_set_clock(&mut self) {
        self.kill();
        self.clock = Some(SetClock::new());
        self.restart();
    }

    /// Its clock, after [`with_set_clock`](Self::with_set_clock).
    ///
    /// # Panics
    /// Before that.
    pub fn clock(&self) -> &SetClock {
        self.clock.as_ref().expect("the server has a clock of its own")
    }

    /// `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        let address = self.namespace.as_ref().map_or("127.0.0.1", |namespace| &namespace.address);
        format!("redis://{address}:{}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// What redis-cli prints for a command, over the server's socket.
    ///
    /// # Panics
    /// Without redis-cli.
    pub fn command(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(self.directory.path().join("redis.sock")).args(arguments);
        let output = command.stdin(Stdio::null()).output().expect("redis-cli runs");
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    /// Kills it as a power failure does.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn kill(&mut self) {
        self.process.kill().expect("our child");
        self.process.wait().expect("our child");
    }

    /// Starts it again, with the data it had.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&mut self) {
        let (namespace, clock) = (self.namespace.as_ref(), self.clock.as_ref());
        self.process = Self::spawn(&self.directory, self.port, namespace, &self.arguments, clock);
        self.wait_until_ready();
    }

    /// Stops it, so that connections stay open and no answer comes.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, signal).expect("our child");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
