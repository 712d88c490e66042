//! The daemon under test: the real program, in a runtime directory of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use watchdog::api::{Queue, Status, Tree};

use super::stage::Stage;

/// A running daemon. Dropping it kills it.
pub(super) struct Daemon {
    child: Child,
    runtime_dir: TempDir,
    metrics: String,
    /// From its start to the line that says `ready`.
    pub(super) ready_after: Duration,
}

impl Daemon {
    /// Starts it, and waits until it is ready.
    pub(super) fn start(stage: &Stage) -> Result<Self> {
        Self::configured(stage, "")
    }

    /// The same with some more tables in its configuration.
    pub(super) fn configured(stage: &Stage, tables: &str) -> Result<Self> {
        let runtime_dir = stage.runtime_dir()?;
        let config = runtime_dir.path().join("bench.toml");
        fs::write(&config, format!("{}{tables}", stage.config("auto"))).context("writing the configuration")?;
        let began = Instant::now();
        let mut child = Command::new(program("watchdogd")?)
            .arg("--config")
            .arg(config)
            .arg("--runtime-dir")
            .arg(runtime_dir.path())
            .arg("--state-dir")
            .arg(runtime_dir.path().join("state"))
            .args(["--listen", "127.0.0.1:0"])
            .env_remove("RUST_LOG")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting watchdogd")?;
        let log = child.stderr.take().context("its stderr was not piped")?;
        let mut daemon = Self { child, runtime_dir, metrics: String::new(), ready_after: Duration::ZERO };
        let mut lines = BufReader::new(log).lines();
        let mut said = Vec::new();
        loop {
            let Some(line) = lines.next().transpose().context("reading the daemon's log")? else {
                bail!("the daemon ended before it was ready; it said:\n{}", said.join("\n"));
            };
            if let Some((_, rest)) = line.split_once("http://")
                && line.contains("ready")
            {
                daemon.metrics = rest.split('/').next().unwrap_or_default().to_owned();
                break;
            }
            said.push(line);
        }
        daemon.ready_after = began.elapsed();
        // What it says later is of interest, and must not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("  watchdogd: {line}")));
        let status = daemon.status()?;
        ensure!(!status.degraded, "the daemon has no kernel events here");
        Ok(daemon)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn status(&self) -> Result<Status> {
        self.get("/v1/status")
    }

    pub(super) fn tree(&self) -> Result<Tree> {
        self.get("/v1/tree")
    }

    /// The text of `/metrics`.
    pub(super) fn scrape(&self) -> Result<String> {
        fetch(TcpStream::connect(&self.metrics).context("connecting to the metrics")?, "/metrics")
    }

    /// The metrics without labels, and those with, by the whole of what stands before the value.
    pub(super) fn metrics(&self) -> Result<BTreeMap<String, f64>> {
        let text = self.scrape()?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Ok(lines
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect())
    }

    /// A stream of events as they happen, one JSON object a line.
    pub(super) fn follow(&self) -> Result<impl BufRead + use<>> {
        let mut stream = self.connect()?;
        stream.write_all(b"GET /v1/events?follow=true HTTP/1.0\r\n\r\n").context("asking for events")?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            ensure!(reader.read_line(&mut line).context("reading events")? > 0, "the daemon sent no events");
        }
        Ok(reader)
    }

    /// The gate, with its queue.
    pub(super) fn queue(&self) -> Result<Queue> {
        self.get("/v1/queue")
    }

    /// `watchdogctl launch` of the bench's profile, up to the command.
    pub(super) fn launcher(&self) -> Result<Command> {
        let mut command = Command::new(program("watchdogctl")?);
        command.arg("--socket").arg(self.socket()).args(["launch", "--profile", "bench", "--"]);
        Ok(command)
    }

    /// The control socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.runtime_dir.path().join("control.sock")
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let body = fetch(self.connect()?, path)?;
        serde_json::from_str(&body).with_context(|| format!("{path} is not what it should be"))
    }

    fn connect(&self) -> Result<UnixStream> {
        UnixStream::connect(self.socket()).context("connecting to the control socket")
    }

    /// CPU time of all its threads so far, by name.
    pub(super) fn cpu_by_thread(&self) -> Result<BTreeMap<String, Duration>> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid())).context("listing the daemon's threads")? {
            let dir = thread.context("listing the daemon's threads")?.path();
            let name = fs::read_to_string(dir.join("comm")).context("reading a thread's name")?;
            let schedstat = fs::read_to_string(dir.join("schedstat")).context("reading a thread's CPU time")?;
            let nanos = schedstat.split_whitespace().next().and_then(|field| field.parse().ok());
            *threads.entry(name.trim().to_owned()).or_default() += Duration::from_nanos(nanos.unwrap_or(0));
        }
        Ok(threads)
    }

    /// CPU time of all its threads so far.
    pub(super) fn cpu(&self) -> Result<Duration> {
        Ok(self.cpu_by_thread()?.values().sum())
    }

    /// A field of /proc/PID/status in KiB, such as `VmRSS`.
    pub(super) fn memory_kib(&self, field: &str) -> Result<u64> {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.pid())).context("reading the daemon's status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).with_context(|| format!("no {field}"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A program that was built together with this one.
fn program(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program's own path")?;
    Ok(this.with_file_name(name))
}

fn fetch(mut stream: impl Read + Write, path: &str) -> Result<String> {
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).context("asking the daemon")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("reading the daemon's answer")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the daemon's answer has no body")?;
    ensure!(head.contains(" 200 "), "{path}: {head}");
    Ok(body.to_owned())
}
