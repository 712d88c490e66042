//! The sender of a signal.

use serde::{Deserialize, Serialize};

/// The sender of a signal. For a signal of the kernel: the process that was running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
pub struct Sender {
    /// The pid.
    pub pid: u32,
    /// Start time, field 22 of /proc/PID/stat.
    pub start_time: u64,
    /// Its comm.
    pub comm: String,
    /// Its user.
    pub uid: u32,
    /// Its relation to the signalled process.
    pub relation: Relation,
    /// Its session, if any.
    pub session: Option<u64>,
    /// The program or script: of a session's process, and of another one that was looked at.
    pub name: Option<String>,
    /// Its systemd unit or container, if that was read.
    #[serde(default)]
    pub unit: Option<String>,
    /// What kind of program it is.
    #[serde(default)]
    pub role: Option<KillerRole>,
    /// The sender had exited: its death sent the signal, as its child had requested (`PR_SET_PDEATHSIG`).
    pub by_its_death: bool,
    /// A thread of the sender had exited, and the sender runs on: the signal is that of `PR_SET_PDEATHSIG`, which the death of
    /// the thread that forked the child sends.
    #[serde(default)]
    pub by_thread_exit: bool,
    /// The signal number.
    pub signal: u8,
    /// `si_code` of sigaction(2); above 0 for a signal of the kernel.
    pub code: i32,
    /// Seconds from the signal to the exit.
    pub before_seconds: f64,
    /// The action of agent-watchdog that sent it, if any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schemars(with = "u64"))]
    pub action: Option<u64>,
}

/// The relation of a signal's sender to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The target itself.
    Itself,
    /// The target's parent.
    Parent,
    /// Another process of the same agent's tree, nested sessions included.
    SameTree,
    /// A process of another agent's tree.
    OtherTree,
    /// agent-watchdog.
    Watchdog,
    /// A process outside all sessions.
    Stranger,
    /// The kernel.
    Kernel,
}

/// What kind of program killed a process, by its name or unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KillerRole {
    /// A userspace OOM killer: earlyoom, nohang, systemd-oomd.
    OomKiller,
    /// systemd, which stops units.
    ServiceManager,
    /// A container runtime.
    ContainerRuntime,
    /// An orchestrator or a process supervisor.
    Supervisor,
}
