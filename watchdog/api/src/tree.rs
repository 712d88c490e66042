//! `GET /v1/tree`: sessions with their processes.

use serde::{Deserialize, Serialize};

/// The sessions that the requesting user can see.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Tree {
    /// In order of start.
    pub sessions: Vec<Session>,
}

/// An agent and everything forked below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Session {
    /// Increases with each session; never reused.
    pub id: u64,
    /// The profile that matched the agent.
    pub profile: String,
    /// State of the agent.
    pub state: SessionState,
    /// Launched through the gate.
    pub gated: bool,
    /// Name of the agent's user, or the uid if it has none.
    pub user: String,
    /// Uid of the agent.
    pub uid: u32,
    /// When the agent was forked, RFC 3339.
    pub started_at: String,
    /// anon + shmem + swap of all its processes; shared memory counts once. Processes that serve several sessions, such
    /// as a build server that outlived its command, are charged to no session.
    pub memory_bytes: u64,
    /// The highest `memory_bytes` so far, sampled about once a second; 0 if the agent belongs to another user.
    #[serde(default)]
    pub peak_memory_bytes: u64,
    /// Resident memory of all its processes together; shared memory counts for each.
    #[serde(default)]
    pub resident_bytes: u64,
    /// Swapped-out memory of all its processes together.
    #[serde(default)]
    pub swap_bytes: u64,
    /// Since when no process of it is active, kept ones aside, RFC 3339; null while one is, and with `[reclaim] mode`
    /// "off".
    #[serde(default)]
    pub idle_since: Option<String>,
    /// Living processes, whether or not `processes` lists them.
    #[serde(default)]
    pub process_count: u64,
    /// oom_score_adj of its living agent, as last read. The OOM killer spares an agent with -500 or less.
    #[serde(default)]
    pub oom_score_adj: Option<i32>,
    /// The session in which this agent was started, if any.
    pub parent_session: Option<u64>,
    /// Processes that exited and that their parent has not waited for.
    pub zombies: u64,
    /// Parents before their children, siblings in order of start.
    pub processes: Vec<Process>,
}

/// State of a session's agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// The agent is alive.
    Running,
    /// The agent is dead; helpers are alive.
    Orphaned,
    /// The agent is dead; only kept processes are alive, if any.
    Ended,
}

/// A process of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Process {
    /// Pid in the initial pid namespace.
    pub pid: u32,
    /// Field 22 of /proc/PID/stat: clock ticks since boot.
    pub start_time: u64,
    /// The current parent.
    pub ppid: u32,
    /// The parent that forked it. If the fork was not observed, the parent when it was first seen.
    pub parent_pid: u32,
    /// Forks below the agent.
    pub depth: u32,
    /// Role in the session.
    pub kind: ProcessKind,
    /// The current name, cut to 15 bytes by the kernel. Not an identity: processes choose it.
    pub comm: String,
    /// Its script, or else the file that it executes, as findings and explanations name it.
    #[serde(default)]
    pub name: String,
    /// The arguments of its exec, even if overwritten later. Empty for other users' processes.
    pub argv: Vec<String>,
    /// State in the session.
    pub state: ProcessState,
    /// Resident memory of all kinds.
    pub rss_bytes: u64,
    /// Anonymous resident memory.
    pub anon_bytes: u64,
    /// Resident shared memory.
    pub shmem_bytes: u64,
    /// Swapped-out memory.
    pub swap_bytes: u64,
    /// The highest resident set so far.
    pub peak_bytes: u64,
    /// As last read: of agents and large processes every 30 s at most, of others shortly after their start. The OOM killer
    /// spares a process with -500 or less.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub oom_score_adj: Option<i32>,
    /// Set if it is kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kept_because: Option<String>,
}

/// Role of a process in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// The agent itself, with its launcher and its own background daemon.
    Agent,
    /// The same agent program, started by the agent.
    Subagent,
    /// A Model Context Protocol server, with its wrappers (npx, uvx, sh).
    McpServer,
    /// A browser or its driver, with its renderers.
    Browser,
    /// A language server and its children.
    LanguageServer,
    /// Commands of tool calls: shells, compilers, tests, dev servers.
    Tool,
    /// Anything else.
    Other,
}

/// State of a process in its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// None of the others.
    Running,
    /// Its nearest agent is dead.
    Orphaned,
    /// Its parent exited; its agent is alive.
    Detached,
    /// Idle, old and superseded, although its parent is alive.
    Stale,
    /// Exited; its parent has not waited for it.
    Zombie,
    /// Intended to stay: adopted, configured, or with evidence.
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
