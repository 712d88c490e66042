//! Real MCP servers are paged out again and again, and answer each time.
//!
//! Needs node, npm, and npm's registry for the first run.

use std::path::Path;
use std::process::Command;

use watchdog_host::page_out;
use watchdog_host::testing::TestSwap;
use watchdog_tests::{McpServer, npm, seconds};
use watchdog_types::{
    Bytes, PageOut, PageOutOutcome, PageOutProcess, PagedOut, PagedOutProcess, Pid, ProcessId, SessionId, Ticks, Uid,
};

const ROUNDS: u64 = 6;

fn id(server: &McpServer) -> ProcessId {
    let key = server.process();
    ProcessId { pid: Pid(key.pid), start_time: Ticks(key.start_time) }
}

fn paged_out(round: u64, servers: &[McpServer]) -> PagedOut {
    let uid = Uid(rustix::process::geteuid().as_raw());
    let process = |server| PageOutProcess { id: id(server), uid, budget: Bytes::from_mib(1024) };
    let order = PageOut {
        number: round,
        session: SessionId(1),
        processes: servers.iter().map(process).collect(),
        rate: Bytes::from_mib(4096),
        reserve: Bytes(0),
    };
    page_out(&order, &|| true)
}

#[test]
fn servers_answer_after_each_page_out() {
    let Some(_swap) = TestSwap::new(512) else { return };
    let bin = npm::installed(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("real-programs"), &npm::SERVERS);
    let home = tempfile::tempdir().expect("a home");
    let start = |command: &[&str]| {
        let mut server = Command::new(bin.join(command[0]));
        server.args(&command[1..]).env("HOME", home.path());
        McpServer::start(server.env("MEMORY_FILE_PATH", home.path().join("memory.jsonl")))
    };
    let commands: [&[&str]; 3] =
        [&["mcp-server-everything", "stdio"], &["mcp-server-memory"], &["claude", "mcp", "serve"]];
    let mut servers: Vec<McpServer> = commands.into_iter().map(start).collect();
    let tools: Vec<usize> = servers.iter_mut().map(|server| server.tools(seconds(60.0))).collect();
    assert!(tools.iter().all(|tools| *tools > 0), "{tools:?}");
    let began: Vec<ProcessId> = servers.iter().map(id).collect();
    let (mut first, mut smallest) = (Bytes(0), Bytes(u64::MAX));
    for round in 1..=ROUNDS {
        let answer = paged_out(round, &servers);
        assert!(answer.processes.iter().all(|process| process.outcome == PageOutOutcome::Done), "{answer:?}");
        let anonymous = |memory: fn(&PagedOutProcess) -> Bytes| answer.processes.iter().map(memory).sum::<Bytes>();
        if round == 1 {
            first = anonymous(|process| process.before.anon);
        }
        // A garbage collector may run during one of the rounds.
        smallest = smallest.min(anonymous(|process| process.after.anon));
        let now: Vec<usize> = servers.iter_mut().map(|server| server.tools(seconds(60.0))).collect();
        assert_eq!(now, tools, "round {round}");
    }
    assert!(smallest < first.percent(25), "{first:?} to {smallest:?}");
    assert_eq!(servers.iter().map(id).collect::<Vec<_>>(), began);
}
