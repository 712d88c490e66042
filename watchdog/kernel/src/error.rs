//! Errors of loading, attaching and reading.

use std::path::PathBuf;

use aya::maps::MapError;
use aya::programs::ProgramError;

use super::btf::BtfError;
use watchdog_host::namespaces::PidNamespace;
use watchdog_host::pins::PinError;
use watchdog_types::ProcessId;

#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel's types lack something.
    #[error(transparent)]
    Types(#[from] BtfError),
    #[error("cannot read the kernel's types: {0}")]
    LoaderTypes(#[from] aya::BtfError),
    #[error("cannot create the maps of the kernel programs (requires root, or CAP_BPF and CAP_PERFMON): {0}")]
    Object(#[from] aya::EbpfError),
    #[error("the kernel's tracepoint {0} is missing, or has unknown arguments")]
    UnknownForm(&'static str),
    #[error("/proc shows the processes of another pid namespace than that of this process: mount its own")]
    ForeignProc,
    #[error("the kernel's BTF does not describe the pids of {0}")]
    PidNamespace(PidNamespace),
    #[error("cannot {doing} the kernel program `{program}`: {source}")]
    Program {
        program: String,
        /// `find`, `load`, `attach`, `detach`.
        doing: &'static str,
        source: Box<ProgramError>,
    },
    #[error("the kernel object has no `{0}`: it was built from other sources")]
    Missing(&'static str),
    #[error("cannot {doing} the map `{map}`: {source}")]
    Map {
        map: &'static str,
        /// `open`, `read`, `write`.
        doing: &'static str,
        source: MapError,
    },
    #[error("cannot read the state of {0}: {1}")]
    State(ProcessId, procfs::ProcError),
    #[error("cannot track {0}: the map of tracked processes is full; raise [tracking] max_processes")]
    Full(ProcessId),
    #[error(
        "cannot track {0}: its user's share of the map of tracked processes is full; raise [tracking] max_processes"
    )]
    ShareFull(ProcessId),
    #[error("cannot count the session of {0}: the map of gated sessions is full")]
    TooManySessions(ProcessId),
    #[error("cannot read the iterator `{0}`: {1}")]
    Iterator(&'static str, std::io::Error),
    #[error("cannot start a thread to test LSM programs: {0}")]
    Trial(std::io::Error),
    #[error("cannot read the number of skipped program runs: {0}")]
    Misses(std::io::Error),
    #[error(transparent)]
    Pin(#[from] PinError),
    #[error("the pins in {0} are incomplete")]
    PinsIncomplete(PathBuf),
    /// A feature is off, for this reason.
    #[error("{0}")]
    Off(String),
}

impl KernelError {
    pub(super) fn program(program: &str, doing: &'static str, source: ProgramError) -> Self {
        Self::Program { program: program.to_owned(), doing, source: Box::new(source) }
    }
}
