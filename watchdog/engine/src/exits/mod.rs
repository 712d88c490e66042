//! Why processes exited.
//!
//! Evidence is recorded as it arrives: signals ([`signals`]), choices of the OOM killer with the memory of each session
//! ([`oom`]), and the growth of each process ([`memory_trail`]). An exit adds them to a bounded list ([`exit_tracker`]). A
//! second later, when the exits around it are known too, [`cause`] determines the cause, [`text`] states it, and the history
//! stores it.

mod cause;
mod death_series;
mod exit_tracker;
mod explain;
mod explained_death;
mod facts;
mod killers;
mod memory_snapshot;
mod memory_trail;
mod oom;
mod oom_choice;
mod phrases;
mod record;
mod redaction;
mod signal_note;
mod signals;
mod story;
mod text;

pub(crate) use self::exit_tracker::ExitTracker;
pub use self::explain::ExplainTarget;
pub use self::explained_death::ExplainedDeath;
pub(crate) use self::memory_trail::MemoryTrail;
pub(crate) use self::signal_note::SignalNote;
