//! What the kernel programs report, decoded.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::id::{BootTime, Bytes, Pid, ProcessId, Uid};
use super::memory::Sample;

/// What the kernel programs report, decoded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KernelEvent {
    /// A tracked process forked.
    Fork(Fork),
    /// A tracked process, or a possible agent, executed a program.
    Exec(Exec),
    /// A tracked process or a witness ended.
    Exit(Exit),
    /// The OOM killer chose a victim.
    Oom(Oom),
    /// A signal that ends processes was sent to a tracked process.
    Signal(Signal),
    /// Close watch: memory moved by a step.
    MemoryStep(Sample),
    /// Close watch: an allocation had to wait for reclaim.
    Reclaim(Reclaim),
    /// A fork beyond a session's bound, or an exec past the gate, was refused.
    Denied(Denied),
}

impl KernelEvent {
    /// When it happened.
    #[must_use]
    pub fn at(&self) -> BootTime {
        match self {
            Self::Fork(fork) => fork.at,
            Self::Exec(exec) => exec.at,
            Self::Exit(exit) => exit.at,
            Self::Oom(oom) => oom.at,
            Self::Signal(signal) => signal.at,
            Self::MemoryStep(sample) => sample.at,
            Self::Reclaim(reclaim) => reclaim.at,
            Self::Denied(denied) => denied.at,
        }
    }
}

/// A process's place in a session, as the kernel's map holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lineage {
    /// The root of the session.
    pub root: ProcessId,
    /// The process that forked it, if known.
    pub parent: Option<ProcessId>,
    /// Forks from the root.
    pub depth: u32,
    /// Tracked by the kernel on the strength of a file name only.
    pub provisional: bool,
    /// Has not executed a program since its fork.
    pub forked: bool,
    /// Watched only for its exit: not a member of the session.
    pub witness: bool,
}

/// A fork.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fork {
    /// When.
    pub at: BootTime,
    /// The child.
    pub process: ProcessId,
    /// The child's lineage.
    pub lineage: Lineage,
    /// The child's user.
    pub uid: Uid,
    /// The child's comm: its parent's.
    pub comm: String,
}

/// An exec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    /// When.
    pub at: BootTime,
    /// The process.
    pub process: ProcessId,
    /// Its lineage.
    pub lineage: Lineage,
    /// Its user, after the exec.
    pub uid: Uid,
    /// Its parent at that moment.
    pub ppid: Pid,
    /// comm after the exec.
    pub comm: String,
    /// What was executed.
    pub image: Image,
}

/// What a process executed: fixed at exec, whatever the program later writes over its argv.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// The path that was executed; a script's own path, not its interpreter's.
    pub path: String,
    /// The arguments; a script's begin with its interpreter.
    pub argv: Vec<String>,
    /// `argv` is not all of it.
    pub truncated: bool,
    /// The absolute path of the script, where the command line has a relative one, as of the exec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
}

impl Image {
    /// With all of its arguments.
    pub fn new(path: impl Into<String>, argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { path: path.into(), argv, truncated: false, script: None }
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// It exited with this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

impl ExitStatus {
    /// The code that it exited with, if it did.
    #[must_use]
    pub fn code(self) -> Option<u8> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal(_) => None,
        }
    }

    /// The signal that ended it, if one did.
    #[must_use]
    pub fn signal(self) -> Option<u8> {
        match self {
            Self::Code(_) => None,
            Self::Signal(signal) => Some(signal),
        }
    }
}

/// An exit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// When.
    pub at: BootTime,
    /// The process.
    pub process: ProcessId,
    /// How; `None` when it was not observed.
    pub status: Option<ExitStatus>,
    /// The highest resident set of the program that it ran last, where the kernel's marks give it.
    pub peak: Option<Bytes>,
}

/// An exit that the kernel programs kept for a daemon that did not run then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MissedExit {
    /// The exit.
    pub exit: Exit,
    /// Where the process belonged.
    pub lineage: Lineage,
    /// Its user.
    pub uid: Uid,
    /// Its comm at the end.
    pub comm: String,
}

/// What is known of the time in which no daemon ran, beside [`Restored`] and what the rings hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Absence {
    /// Exits. Of session roots, those of earlier times too; some are in a ring as well.
    pub exits: Vec<MissedExit>,
    /// Where processes belonged when that was last written down.
    pub places: Vec<(ProcessId, Lineage)>,
}

/// A choice of the OOM killer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Oom {
    /// When.
    pub at: BootTime,
    /// The victim's pid; old kernels give no more.
    pub pid: Pid,
    /// The victim, where the kernel reports its start.
    pub process: Option<ProcessId>,
    /// The victim's comm; may be empty.
    pub comm: String,
    /// Whose allocation it was that failed.
    pub trigger: Pid,
    /// The victim's user, where the kernel reports more than a pid.
    pub uid: Option<Uid>,
}

/// A signal on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// When.
    pub at: BootTime,
    /// The target.
    pub process: ProcessId,
    /// The signal's number.
    pub signal: u8,
    /// `si_code`: above 0 it is the kernel's own.
    pub code: i32,
    /// The kernel did deliver it: it was neither ignored nor pending already.
    pub delivered: bool,
    /// The sender.
    pub sender: ProcessId,
    /// The sender's comm.
    pub sender_comm: String,
    /// The sender's user.
    pub sender_uid: Uid,
    /// The sender's thread is exiting: its child receives the signal that it requested by PR_SET_PDEATHSIG.
    #[serde(default)]
    pub sender_thread_exits: bool,
}

/// A wait for reclaim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reclaim {
    /// When it ended.
    pub at: BootTime,
    /// The process that waited.
    pub process: ProcessId,
    /// How long.
    pub stalled: Duration,
    /// What it freed.
    pub reclaimed: Bytes,
}

/// Something that the kernel programs did not let a process do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Denied {
    /// When.
    pub at: BootTime,
    /// The process that was denied. For an exec, it usually belongs to no session.
    pub process: ProcessId,
    /// Its user.
    pub uid: Uid,
    /// Its comm.
    pub comm: String,
    /// What it attempted.
    pub what: Attempt,
}

/// What the kernel programs denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// A fork, which failed with EAGAIN. At most one a second is reported for a session.
    Fork {
        /// The root of the session.
        root: ProcessId,
        /// Living processes of the session, its root included.
        live: u32,
        /// Their limit.
        bound: u32,
        /// Forks of the session that were denied so far, unreported ones included.
        refused: u64,
    },
    /// The exec of an agent past the gate.
    Exec {
        /// Today's parent.
        ppid: Pid,
        /// The path that was executed.
        path: String,
        /// The process was killed at the end of the exec; its exit follows if it is tracked. If false, the exec failed with
        /// EPERM, and the process continues.
        killed: bool,
    },
}
