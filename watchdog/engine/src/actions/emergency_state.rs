//! The progress of an emergency.

use watchdog_types::BootTime;

#[derive(Debug, Default)]
pub(super) struct EmergencyState {
    /// The memory of terminated processes is awaited until then.
    pub(super) settles_at: Option<BootTime>,
    pub(super) host_read_at: BootTime,
    /// When the last action finished.
    pub(super) last_finished: BootTime,
    /// The lack of candidates was reported.
    pub(super) reported: bool,
}
