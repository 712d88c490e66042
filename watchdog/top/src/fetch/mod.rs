//! Everything that talks to the daemon or reads a recording, each on a thread of its own.

mod live;
mod recording;
mod requests;

pub(crate) use self::live::poll;
pub(crate) use self::recording::{open_recording, play};
pub(crate) use self::requests::{perform, read_recent};
