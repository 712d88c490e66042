//! What can go wrong between us and the kernel.

use std::path::PathBuf;

use aya::maps::MapError;
use aya::programs::ProgramError;

use super::btf::BtfError;
use crate::engine::id::ProcessId;
use crate::host::pins::PinError;

/// Why the kernel's side does not work, or something asked of it did not.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel's types do not tell what must be known.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// The kernel's types, as the loader reads them.
    #[error("cannot read the kernel's types: {0}")]
    LoaderTypes(#[from] aya::BtfError),
    /// The object was refused before any program was.
    #[error("cannot create the maps of the kernel programs (are we root?): {0}")]
    Object(#[from] aya::EbpfError),
    /// A tracepoint has arguments that no program expects.
    #[error("this kernel's tracepoint {0} takes arguments that no program is made for")]
    UnknownForm(&'static str),
    /// A program was refused.
    #[error("cannot {doing} the kernel program `{program}`: {source}")]
    Program {
        /// Which.
        program: String,
        /// `find`, `load`, `attach`, `detach`.
        doing: &'static str,
        /// Why.
        source: Box<ProgramError>,
    },
    /// The object has no such program or map: it was built from other sources.
    #[error("the kernel object has no `{0}`: it does not belong to this program")]
    Missing(&'static str),
    /// A map could not be read or written.
    #[error("cannot {doing} the map `{map}`: {source}")]
    Map {
        /// Which.
        map: &'static str,
        /// `open`, `read`, `write`.
        doing: &'static str,
        /// Why.
        source: MapError,
    },
    /// Whether a process lives cannot be told.
    #[error("cannot tell whether {0} lives: {1}")]
    State(ProcessId, procfs::ProcError),
    /// The map has no room.
    #[error("cannot track {0}: the kernel's map of tracked processes is full: raise [tracking] max_processes")]
    Full(ProcessId),
    /// The map has no room for another process of this user.
    #[error(
        "cannot track {0}: its user's share of the kernel's map of tracked processes is full: raise [tracking] \
         max_processes"
    )]
    ShareFull(ProcessId),
    /// The map has no room for another gated session.
    #[error(
        "cannot count the processes of the session of {0}: as many gated sessions run as the kernel's map can hold"
    )]
    TooManySessions(ProcessId),
    /// The sampler, or another iterator, could not be read.
    #[error("cannot read the iterator `{0}`: {1}")]
    Iterator(&'static str, std::io::Error),
    /// A thread of our own, whose start was to show whether LSM programs work, could not be started.
    #[error("cannot start a thread to try LSM programs with: {0}")]
    Trial(std::io::Error),
    /// How often the kernel skipped programs cannot be read.
    #[error("cannot read how often the kernel skipped programs: {0}")]
    Misses(std::io::Error),
    /// Something could not be pinned, or what is pinned could not be used.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// What is pinned does not belong together.
    #[error("the pins in {0} are not complete")]
    PinsIncomplete(PathBuf),
    /// The feature is off.
    #[error("{0}")]
    Off(String),
}

impl KernelError {
    pub(super) fn program(program: &str, doing: &'static str, source: ProgramError) -> Self {
        Self::Program { program: program.to_owned(), doing, source: Box::new(source) }
    }
}
