//! The daemon under test: the real program, with its own runtime directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use watchdog_api::{Queue, Status, Tree};

use super::stage::BenchStage;

/// A running daemon, killed when dropped.
pub(super) struct BenchDaemon {
    child: Child,
    runtime_dir: TempDir,
    metrics: SocketAddr,
    /// From its start to the line `ready`.
    pub(super) ready_after: Duration,
}

impl BenchDaemon {
    /// Starts a daemon and waits until it is ready.
    pub(super) fn start(stage: &BenchStage) -> Result<Self> {
        Self::configured(stage, "")
    }

    /// The same with additional configuration tables.
    pub(super) fn configured(stage: &BenchStage, tables: &str) -> Result<Self> {
        Self::of_build(stage, &own_programs()?, tables)
    }

    /// The same with the programs of another directory.
    pub(super) fn of_build(stage: &BenchStage, programs: &Path, tables: &str) -> Result<Self> {
        let runtime_dir = stage.runtime_dir()?;
        let config = runtime_dir.path().join("bench.toml");
        fs::write(&config, format!("{}{tables}", stage.config("auto"))).context("writing the configuration")?;
        let began = Instant::now();
        let mut child = Command::new(programs.join("watchdogd"))
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
        let mut daemon =
            Self { child, runtime_dir, metrics: SocketAddr::from(([127, 0, 0, 1], 0)), ready_after: Duration::ZERO };
        let mut lines = BufReader::new(log).lines();
        let mut said = Vec::new();
        loop {
            let Some(line) = lines.next().transpose().context("reading the daemon's log")? else {
                bail!(
                    "the daemon exited before it was ready:
{}",
                    said.join("\n")
                );
            };
            if let Some((_, rest)) = line.split_once("http://")
                && line.contains("ready")
            {
                daemon.metrics = rest.split('/').next().unwrap_or_default().parse().context("the metrics address")?;
                break;
            }
            said.push(line);
        }
        daemon.ready_after = began.elapsed();
        // Later lines are printed, and must not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("  watchdogd: {line}")));
        let status = daemon.status()?;
        ensure!(!status.degraded, "the daemon is degraded: no kernel events");
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
        let response = watchdog_tests::raw_tcp(self.metrics, "/metrics").context("reading the metrics")?;
        ensure!(response.status == 200, "/metrics: {}", response.status);
        Ok(response.body)
    }

    /// The metrics, by name with labels.
    pub(super) fn metrics(&self) -> Result<BTreeMap<String, f64>> {
        let text = self.scrape()?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Ok(lines
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
            .collect())
    }

    /// A stream of events, one JSON object per line.
    pub(super) fn follow(&self) -> Result<impl BufRead + use<>> {
        let mut stream = UnixStream::connect(self.socket()).context("connecting to the control socket")?;
        stream.write_all(b"GET /v1/events?follow=true HTTP/1.0\r\n\r\n").context("asking for events")?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            ensure!(reader.read_line(&mut line).context("reading events")? > 0, "the daemon sent no events");
        }
        Ok(reader)
    }

    pub(super) fn queue(&self) -> Result<Queue> {
        self.get("/v1/queue")
    }

    /// `watchdogctl launch`, without the command.
    pub(super) fn launcher(&self) -> Result<Command> {
        let mut command = Command::new(own_programs()?.join("watchdogctl"));
        command.arg("--socket").arg(self.socket()).args(["launch", "--profile", "bench", "--"]);
        Ok(command)
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.runtime_dir.path().join("control.sock")
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let response = watchdog_tests::get(&self.socket(), path).with_context(|| format!("requesting {path}"))?;
        ensure!(response.status == 200, "{path}: {}", response.status);
        serde_json::from_str(&response.body).with_context(|| format!("invalid response to {path}"))
    }

    /// CPU time so far, by thread name.
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

    /// CPU time so far, of all threads.
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

impl Drop for BenchDaemon {
    fn drop(&mut self) {
        // Fails if it has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The directory of this program and of the others of its build.
pub(super) fn own_programs() -> Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program's own path")?;
    Ok(this.parent().context("a program has a directory")?.to_owned())
}
