//! One row of `watchdogctl doctor`.

use watchdog_api::Capability;

/// `with`: the overhead when on. `without`: the consequence when off.
pub(super) struct CapabilityRow {
    pub(super) name: &'static str,
    pub(super) on: bool,
    pub(super) why: String,
    pub(super) with: &'static str,
    pub(super) without: &'static str,
    pub(super) remedy: Option<&'static str>,
}

impl From<CapabilityRow> for Capability {
    fn from(row: CapabilityRow) -> Self {
        let CapabilityRow { name, on, why, with, without, remedy } = row;
        Self {
            name: name.to_owned(),
            on,
            why,
            cost: if on { with } else { without }.to_owned(),
            remedy: remedy.filter(|_| !on).map(str::to_owned),
        }
    }
}
