//! `GET /v1/tree`: sessions with their processes.

use serde::{Deserialize, Serialize};

/// All sessions that the asking user may see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// In the order in which they began.
    pub sessions: Vec<Session>,
}

/// An agent and everything forked below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// Counted up by the daemon, never used again.
    pub id: u64,
    /// The profile that recognised the agent.
    pub profile: String,
    /// Whether the agent lives.
    pub state: SessionState,
    /// Launched through the gate.
    pub gated: bool,
    /// The agent's user, by name; the number where it has no name.
    pub user: String,
    /// The agent's user, by number.
    pub uid: u32,
    /// When the agent was forked, RFC 3339.
    pub started_at: String,
    /// anon + shmem + swap of all its processes, with what they share counted once, but for what serves every session (a
    /// build server that outlived its command): that is charged to nobody.
    pub memory_bytes: u64,
    /// The session inside which this agent was started, if any.
    pub parent_session: Option<u64>,
    /// Its zombies: dead processes that their parent has not waited for.
    pub zombies: u64,
    /// A parent stands before its children; siblings stand in the order of their start.
    pub processes: Vec<Process>,
}

/// Whether a session's agent lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Its agent lives.
    Running,
    /// Its agent is dead, and helpers are left behind.
    Orphaned,
    /// Its agent is dead, and what is left is meant to stay, if anything is.
    Ended,
}

/// A process of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its number in the initial pid namespace.
    pub pid: u32,
    /// Field 22 of /proc/PID/stat: clock ticks since boot.
    pub start_time: u64,
    /// Today's parent.
    pub ppid: u32,
    /// The parent that forked it; of a process whose fork nobody saw, its parent when it was first seen.
    pub parent_pid: u32,
    /// Forks below the agent.
    pub depth: u32,
    /// What it is to the agent.
    pub kind: ProcessKind,
    /// Its name now, cut at 15 bytes by the kernel. Says nothing about what it is.
    pub comm: String,
    /// The arguments that it was executed with, whatever it later wrote over them. Empty for another user's process.
    pub argv: Vec<String>,
    /// Whether its place in the session is in order.
    pub state: ProcessState,
    /// Resident memory of every kind.
    pub rss_bytes: u64,
    /// Anonymous resident memory.
    pub anon_bytes: u64,
    /// Resident shared memory.
    pub shmem_bytes: u64,
    /// Swapped-out memory.
    pub swap_bytes: u64,
    /// The highest resident set so far.
    pub peak_bytes: u64,
    /// Why it is kept, where it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept_because: Option<String>,
}

/// What a process is to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// The agent itself, its launcher and its own background daemon included.
    Agent,
    /// The same agent program once more, started by the agent.
    Subagent,
    /// A server of the Model Context Protocol, with the wrappers (npx, uvx, sh) in front of it.
    McpServer,
    /// A browser or its driver, with its renderers.
    Browser,
    /// A language server and its children.
    LanguageServer,
    /// What a tool call runs: shells, compilers, tests, dev servers.
    Tool,
    /// Anything else.
    Other,
}

/// Whether a process's place in its session is in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// In order.
    Running,
    /// Its nearest agent is dead.
    Orphaned,
    /// Its own parent exited while its agent lives.
    Detached,
    /// It belongs to a finished task.
    Stale,
    /// Dead; its parent has not waited for it.
    Zombie,
    /// Meant to stay.
    Kept,
}

impl ProcessKind {
    /// Every kind, as the metrics list them.
    pub const ALL: [Self; 7] =
        [Self::Agent, Self::Subagent, Self::McpServer, Self::Browser, Self::LanguageServer, Self::Tool, Self::Other];

    /// The name in JSON, metrics and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Subagent => "subagent",
            Self::McpServer => "mcp-server",
            Self::Browser => "browser",
            Self::LanguageServer => "language-server",
            Self::Tool => "tool",
            Self::Other => "other",
        }
    }
}

impl ProcessState {
    /// The name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Orphaned => "orphaned",
            Self::Detached => "detached",
            Self::Stale => "stale",
            Self::Zombie => "zombie",
            Self::Kept => "kept",
        }
    }
}

impl SessionState {
    /// Every state, as the metrics list them.
    pub const ALL: [Self; 3] = [Self::Running, Self::Orphaned, Self::Ended];

    /// The name in JSON, metrics and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Orphaned => "orphaned",
            Self::Ended => "ended",
        }
    }
}
