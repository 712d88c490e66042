//! Each user's share of the map of tracked processes: the daemon's side of it. `watchdog-ebpf/src/users.rs` has the rule.

use std::collections::BTreeMap;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, MapError};

use super::error::KernelError;
use super::load::open;
use super::tracer::is_missing;

const ROOT: u32 = 0;

/// Slots of `HELD`.
const BY_PROGRAMS: u32 = 0;
const BY_DAEMON: u32 = 1;

/// How many entries there are, and to whom they are charged.
pub(super) struct Users {
    room: u32,
    held: Array<MapData, i64>,
    by_programs: HashMap<MapData, u32, i64>,
    by_daemon: HashMap<MapData, u32, i64>,
}

/// What was counted at one time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Charges {
    held: i64,
    /// Without root.
    users: BTreeMap<u32, i64>,
}

#[cfg(test)]
impl Charges {
    /// All entries, and those of this user.
    pub(super) fn of(&self, uid: u32) -> (i64, i64) {
        (self.held, self.users.get(&uid).copied().unwrap_or(0))
    }
}

impl Users {
    pub(super) fn open(ebpf: &mut Ebpf, room: u32) -> Result<Self, KernelError> {
        Ok(Self {
            room,
            held: open(ebpf, "HELD", Array::try_from)?,
            by_programs: open(ebpf, "CHARGED", HashMap::try_from)?,
            by_daemon: open(ebpf, "CHARGED_BY_DAEMON", HashMap::try_from)?,
        })
    }

    /// Whether there is room for another entry of this user.
    pub(super) fn admits(&self, uid: u32) -> Result<bool, KernelError> {
        if uid == ROOT {
            return Ok(true);
        }
        let charged = of(&self.by_programs, uid)? + of(&self.by_daemon, uid)?;
        Ok(charged < i64::from(self.room) - self.held()?)
    }

    /// Counts entries of this user that the daemon added, or removed when `entries` is negative.
    pub(super) fn charge(&mut self, uid: u32, entries: i64) -> Result<(), KernelError> {
        self.hold(entries)?;
        if uid == ROOT { Ok(()) } else { self.charge_user(uid, entries) }
    }

    pub(super) fn charges(&self) -> Result<Charges, KernelError> {
        let mut users = BTreeMap::new();
        for pair in self.by_programs.iter().chain(self.by_daemon.iter()) {
            let (uid, entries) = pair.map_err(failed("read"))?;
            *users.entry(uid).or_default() += entries;
        }
        Ok(Charges { held: self.held()?, users })
    }

    /// Corrects what was counted by the entries that were found between two looks at the counts. What moved meanwhile is left
    /// to the next time.
    pub(super) fn correct(&mut self, before: &Charges, found: &[u32], after: &Charges) -> Result<(), KernelError> {
        let mut actual: BTreeMap<u32, i64> = before.users.keys().map(|uid| (*uid, 0)).collect();
        found.iter().filter(|uid| **uid != ROOT).for_each(|uid| *actual.entry(*uid).or_default() += 1);
        let held = i64::try_from(found.len()).unwrap_or(i64::MAX);
        if before.held == after.held && before.held != held {
            self.hold(held - before.held)?;
        }
        for (uid, actual) in actual {
            let [before, after] = [before, after].map(|charges| charges.users.get(&uid).copied().unwrap_or(0));
            if before == after && before != actual {
                self.charge_user(uid, actual - before)?;
            }
        }
        Ok(())
    }

    fn held(&self) -> Result<i64, KernelError> {
        let slot = |slot| self.held.get(&slot, 0).map_err(failed("read"));
        Ok(slot(BY_PROGRAMS)? + slot(BY_DAEMON)?)
    }

    fn hold(&mut self, entries: i64) -> Result<(), KernelError> {
        let held = self.held.get(&BY_DAEMON, 0).map_err(failed("read"))?;
        self.held.set(BY_DAEMON, held + entries, 0).map_err(failed("write"))
    }

    fn charge_user(&mut self, uid: u32, entries: i64) -> Result<(), KernelError> {
        let charged = of(&self.by_daemon, uid)?;
        self.by_daemon.insert(uid, charged + entries, 0).map_err(failed("write"))
    }
}

fn of(map: &HashMap<MapData, u32, i64>, uid: u32) -> Result<i64, KernelError> {
    match map.get(&uid, 0) {
        Err(error) if is_missing(&error) => Ok(0),
        found => found.map_err(failed("read")),
    }
}

fn failed(doing: &'static str) -> impl Fn(MapError) -> KernelError {
    move |source| KernelError::Map { map: "CHARGED", doing, source }
}
