//! A client of an MCP server on its standard input and output: JSON-RPC 2.0, one message a line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde_json::{Value, json};

use crate::ProcessKey;

/// A server that runs, killed and waited for when dropped. It is also killed when the thread that started it exits.
pub struct McpServer {
    child: Child,
    input: ChildStdin,
    answers: Receiver<Value>,
    next: u64,
}

impl McpServer {
    /// Starts the server and initialises the connection.
    ///
    /// # Panics
    /// When it does not start, or gives no answer within a minute.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        // SAFETY: one system call after the fork, no allocation.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let documents = output.lines().map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok());
            // Fails when the client was dropped.
            documents.into_iter().try_for_each(|document| sender.send(document))
        });
        let mut server = Self { child, input, answers, next: 0 };
        let client = json!({"name": "watchdog-tests", "version": "1"});
        let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        let begun = server.ask("initialize", &about, Duration::from_secs(60));
        let begun = begun.and_then(|_| server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})));
        begun.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        server
    }

    /// How many tools it offers.
    ///
    /// # Panics
    /// When it gives no answer within this time.
    pub fn tools(&mut self, within: Duration) -> usize {
        self.try_tools(within).unwrap_or_else(|error| panic!("{error}"))
    }

    /// How many tools it offers.
    ///
    /// # Errors
    /// When it has exited, or gives no answer within this time.
    pub fn try_tools(&mut self, within: Duration) -> Result<usize, String> {
        let result = self.ask("tools/list", &json!({}), within)?;
        Ok(result["tools"].as_array().map_or(0, Vec::len))
    }

    /// # Panics
    /// When it has exited.
    pub fn process(&self) -> ProcessKey {
        ProcessKey::now(self.child.id()).expect("the server runs")
    }

    fn ask(&mut self, method: &str, params: &Value, within: Duration) -> Result<Value, String> {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let answer = self.answers.recv_timeout(within);
            let answer = answer.map_err(|error| format!("no answer to {method} within {within:?}: {error}"))?;
            if answer["id"] == json!(id) {
                let refused = !answer["error"].is_null();
                return if refused { Err(format!("{method}: {answer}")) } else { Ok(answer["result"].clone()) };
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<(), String> {
        let sent = writeln!(self.input, "{message}").and_then(|()| self.input.flush());
        sent.map_err(|error| format!("the server does not read: {error}"))
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
