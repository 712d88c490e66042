//! Real MCP servers from npm that are asked in turn.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::paging::millis;
use watchdog_tests::{McpServer, descendants, npm};
use watchdog_types::{Pid, ProcessId, Ticks};
use xtask::cargo::target_directory;

const COMMANDS: [&[&str]; 3] =
    [&["mcp-server-everything", "stdio"], &["mcp-server-memory"], &["claude", "mcp", "serve"]];
/// How long a server may take.
const ANSWER: Duration = Duration::from_secs(60);

/// Servers of three kinds in turn.
pub(super) struct BenchServers(Vec<BenchServer>);

struct BenchServer {
    name: &'static str,
    server: McpServer,
    id: ProcessId,
    /// How many tools it offers.
    tools: usize,
    /// It gave no answer, or a wrong one, and is not asked again.
    is_lost: bool,
}

impl BenchServers {
    /// Starts so many servers, with this home, each below an agent if there is one: a shell.
    pub(super) fn start(count: usize, home: &Path, agent: Option<&Path>) -> Result<Self> {
        let bin = npm::installed(&target_directory().join("tmp/real-programs"), &npm::SERVERS);
        let start = |words: &'static [&'static str]| {
            let [name, arguments @ ..] = words else { bail!("no program") };
            let mut command = match agent {
                None => Command::new(bin.join(name)),
                Some(agent) => {
                    let mut command = Command::new(agent);
                    command.args(["-c", "\"$0\" \"$@\"; exit $?"]).arg(bin.join(name));
                    command
                }
            };
            command.args(arguments).env("HOME", home).env("MEMORY_FILE_PATH", home.join("memory.jsonl"));
            let mut server = McpServer::start(&mut command);
            let tools =
                server.try_tools(ANSWER).map_err(anyhow::Error::msg).with_context(|| format!("asking {name}"))?;
            let started = server.process();
            let key = match agent {
                None => started,
                Some(_) => *descendants(started.pid).first().with_context(|| format!("{name} has exited"))?,
            };
            let id = ProcessId { pid: Pid(key.pid), start_time: Ticks(key.start_time) };
            Ok(BenchServer { name, server, id, tools, is_lost: false })
        };
        COMMANDS.into_iter().cycle().take(count).map(start).collect::<Result<_>>().map(Self)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn ids(&self) -> Vec<ProcessId> {
        self.0.iter().map(|server| server.id).collect()
    }

    pub(super) fn name(&self, round: u64) -> &'static str {
        self.0.get(self.at(round)).map_or("", |server| server.name)
    }

    /// The server of this round; `None` once it is lost.
    pub(super) fn running(&self, round: u64) -> Option<ProcessId> {
        self.0.get(self.at(round)).filter(|server| !server.is_lost).map(|server| server.id)
    }

    /// How long the server of this round takes to list its tools, in milliseconds; `None` without a correct answer.
    pub(super) fn answer(&mut self, round: u64) -> Option<f64> {
        let at = self.at(round);
        let server = self.0.get_mut(at).filter(|server| !server.is_lost)?;
        let began = Instant::now();
        let offered = server.server.try_tools(ANSWER);
        let took = began.elapsed();
        if offered == Ok(server.tools) {
            return Some(millis(took));
        }
        server.is_lost = true;
        eprintln!("round {round}: {}: {offered:?} instead of {} tools", server.name, server.tools);
        None
    }

    fn at(&self, round: u64) -> usize {
        usize::try_from(round).unwrap_or(0) % self.0.len().max(1)
    }
}
