//! Programs, links and maps that are pinned on the BPF file system and outlive the daemon.
//!
//! `BPFFS/agent-watchdog/HASH/v1-LAYOUT` has the pins of one layout. HASH identifies the runtime directory, which is also the
//! target of a symbolic link beside the layouts; the directory is locked while a daemon uses it. LAYOUT is a hash of everything
//! that the programs and maps depend on, so pins of the same name can be used unchanged.
//!
//! A layout is built as `new-LAYOUT` and renamed when it is complete. (Names with dots are reserved on this file system.)

mod bpffs;
mod layouts;
mod pin_directory;
mod pin_error;
mod root_identity;

pub use layouts::{PinnedLayout, Pins, pinned, remove, remove_if_there, unpin};
pub use pin_error::PinError;
