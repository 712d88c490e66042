//! A control socket whose launches the test answers, and its clients.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::LAUNCH;
use crate::connection_limit::{ConnectionLimiter, ConnectionLimits};
use crate::control::ControlSocket;
use crate::history_writer::RunContext;
use crate::launch_waiters::LaunchWaiters;
use crate::metrics::Metrics;
use crate::request::{self, EngineRequest};
use crate::set_aside::StateNotes;
use watchdog_api::LaunchUpdate;
use watchdog_engine::gate::Launch;
use watchdog_types::ProcessId;

/// A control socket whose requests the test answers.
pub(super) struct GateFixture {
    dir: tempfile::TempDir,
    inbox: mpsc::Receiver<EngineRequest>,
    pub(super) waiters: LaunchWaiters,
}

/// A client that has requested a launch.
pub(super) struct LaunchClient(BufReader<UnixStream>);

impl GateFixture {
    pub(super) fn start() -> Self {
        Self::with_queue(10)
    }

    pub(super) fn with_queue(max_queue: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (engine, inbox) = request::channel();
        let run = RunContext::now(dir.path(), StateNotes::default());
        let socket = ControlSocket::bind(&dir.path().join("control.sock")).unwrap();
        let metrics = Arc::new(Metrics::new().unwrap());
        let limiter =
            ConnectionLimiter::new(ConnectionLimits::for_queue(max_queue, 1 << 20), ConnectionLimits::CONTROL);
        tokio::spawn(async move { socket.serve(limiter, engine, metrics, Arc::new(run)).await });
        Self { dir, inbox, waiters: LaunchWaiters::default() }
    }

    pub(super) async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.dir.path().join("control.sock")).await.unwrap()
    }

    pub(super) async fn send(&self, method: &str, path: &str, body: &str) -> LaunchClient {
        let mut stream = self.connect().await;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).await.unwrap();
        LaunchClient(BufReader::new(stream))
    }

    pub(super) async fn ask_for(&self, body: &serde_json::Value) -> LaunchClient {
        self.send("POST", LAUNCH, &body.to_string()).await
    }

    pub(super) async fn next(&mut self) -> EngineRequest {
        tokio::time::timeout(Duration::from_secs(20), self.inbox.recv()).await.expect("a request").unwrap()
    }

    /// Adds a launch to the queue.
    pub(super) async fn admit(&mut self) -> Launch {
        match self.next().await {
            EngineRequest::Launch(launch, reply) => {
                reply.send(Ok(self.waiters.join(launch.process))).unwrap();
                *launch
            }
            other => panic!("{other:?} is no launch"),
        }
    }

    /// Waits for the report that a client has disconnected.
    pub(super) async fn next_departure(&mut self) -> ProcessId {
        match self.next().await {
            EngineRequest::Disconnected(process, ticket) => {
                assert!(self.waiters.remove(process, ticket), "it waited");
                process
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    pub(super) async fn no_more_requests(&mut self) {
        let asked = tokio::time::timeout(Duration::from_millis(200), self.inbox.recv()).await;
        assert!(asked.is_err(), "{asked:?}");
    }
}

impl LaunchClient {
    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_secs(10), self.0.read_line(&mut line));
        read.await.expect("a line").unwrap();
        line
    }

    /// The status, and where the body starts.
    pub(super) async fn status(&mut self) -> u16 {
        let status = self.line().await[9..12].parse().unwrap();
        while self.line().await != "\r\n" {}
        status
    }

    /// The next line of a chunked stream.
    pub(super) async fn update(&mut self) -> LaunchUpdate {
        let size = self.line().await;
        let line = self.line().await;
        assert_eq!(usize::from_str_radix(size.trim(), 16).unwrap(), line.len(), "a chunk is a line");
        assert_eq!(self.line().await, "\r\n");
        serde_json::from_str(&line).unwrap()
    }

    /// The rest of a stream, which must be its end.
    pub(super) async fn end(mut self) {
        let mut rest = String::new();
        tokio::time::timeout(Duration::from_secs(10), self.0.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert_eq!(rest, "0\r\n\r\n");
    }

    pub(super) async fn body<T: DeserializeOwned>(&mut self) -> (u16, T) {
        let status = self.line().await[9..12].parse().unwrap();
        let mut length = 0;
        loop {
            let line = self.line().await;
            match line.strip_prefix("content-length: ") {
                Some(number) => length = number.trim().parse().unwrap(),
                None if line == "\r\n" => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }
}
