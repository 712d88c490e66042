//! The pure core: inputs in, effects out. It does no I/O, reads no clock, and knows no runtime.

pub mod classify;
pub mod effect;
pub mod id;
pub mod input;
pub mod view;

use std::sync::Arc;

use self::effect::Effect;
use self::id::{BootTime, Pid, ProcessId, SessionId, Uid};
use self::input::Input;
use crate::config::Config;

/// The state machine. One task owns it.
pub struct Engine {
    config: Arc<Config>,
}

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(config: Arc<Config>) -> Self {
        Self { config }
    }

    /// Takes one input at the moment `now`, and appends what is to be done to `effects`.
    pub fn step(&mut self, _now: BootTime, _input: Input, _effects: &mut Vec<Effect>) {}

    /// Takes a new configuration; what is recognised already stays recognised.
    pub fn reconfigure(&mut self, _now: BootTime, config: Arc<Config>, _effects: &mut Vec<Effect>) {
        self.config = config;
    }

    /// The tracked process that has this pid now.
    #[must_use]
    pub fn process(&self, _pid: Pid) -> Option<ProcessId> {
        None
    }

    /// The user of a process, for the decision whether somebody may act on it.
    #[must_use]
    pub fn owner(&self, _process: ProcessId) -> Option<Uid> {
        None
    }

    /// The living processes of a session.
    #[must_use]
    pub fn members(&self, _session: SessionId) -> Vec<ProcessId> {
        Vec::new()
    }
}
