//! Each user's share of the map of tracked processes, as the daemon counts it. `watchdog-ebpf/src/shares.rs` states the rule.

use std::collections::BTreeMap;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, MapError};

use watchdog_common::SHARED_ACCOUNT;

use super::error::KernelError;
use super::maps::{is_errno, is_missing, open, update};

const ROOT: u32 = 0;

/// Slots of `ENTRY_COUNT`.
const BY_PROGRAMS: u32 = 0;
const BY_DAEMON: u32 = 1;

/// The number of entries, in total and by the user who is charged.
pub(super) struct UserShares {
    room: u32,
    entry_count: Array<MapData, i64>,
    by_programs: HashMap<MapData, u32, i64>,
    by_daemon: HashMap<MapData, u32, i64>,
}

/// The counts at one time, or corrections to them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Charges {
    entries: i64,
    /// Without root.
    users: BTreeMap<u32, i64>,
}

impl Charges {
    pub(super) fn is_none(&self) -> bool {
        self.entries == 0 && self.users.is_empty()
    }

    #[cfg(test)]
    /// All entries, and those of this user.
    pub(super) fn of(&self, uid: u32) -> (i64, i64) {
        (self.entries, self.users.get(&uid).copied().unwrap_or(0))
    }
}

impl UserShares {
    pub(super) fn open(ebpf: &mut Ebpf, room: u32) -> Result<Self, KernelError> {
        let mut users = Self {
            room,
            entry_count: open(ebpf, "ENTRY_COUNT", Array::try_from)?,
            by_programs: open(ebpf, "CHARGED", HashMap::try_from)?,
            by_daemon: open(ebpf, "CHARGED_BY_DAEMON", HashMap::try_from)?,
        };
        users.account(SHARED_ACCOUNT)?;
        Ok(users)
    }

    /// Whether there is room for another entry of this user.
    pub(super) fn admits(&mut self, uid: u32) -> Result<bool, KernelError> {
        if uid == ROOT {
            return Ok(true);
        }
        let account = self.account(uid)?;
        let charged = of(&self.by_programs, account)? + of(&self.by_daemon, account)?;
        Ok(charged < i64::from(self.room) - self.entries()?)
    }

    /// Charges this user for entries that the daemon added; a negative number credits removed ones.
    pub(super) fn charge(&mut self, uid: u32, entries: i64) -> Result<(), KernelError> {
        self.add_entries(entries)?;
        if uid == ROOT {
            return Ok(());
        }
        let account = self.account(uid)?;
        self.charge_account(account, entries)
    }

    pub(super) fn charges(&self) -> Result<Charges, KernelError> {
        let mut users = BTreeMap::new();
        for pair in self.by_programs.iter().chain(self.by_daemon.iter()) {
            let (uid, entries) = pair.map_err(failed("read"))?;
            *users.entry(uid).or_default() += entries;
        }
        Ok(Charges { entries: self.entries()?, users })
    }

    /// Corrections to the counts, from the entries found between two reads of them. A count that changed meanwhile gets none.
    pub(super) fn drift(&mut self, before: &Charges, found: &[u32], after: &Charges) -> Result<Charges, KernelError> {
        let mut actual: BTreeMap<u32, i64> = before.users.keys().map(|account| (*account, 0)).collect();
        for uid in found.iter().filter(|uid| **uid != ROOT) {
            *actual.entry(self.account(*uid)?).or_default() += 1;
        }
        let found = i64::try_from(found.len()).unwrap_or(i64::MAX);
        let entries = if before.entries == after.entries { found - before.entries } else { 0 };
        let mut users = BTreeMap::new();
        for (account, actual) in actual {
            let [before, after] = [before, after].map(|charges| charges.users.get(&account).copied().unwrap_or(0));
            if before == after && before != actual {
                users.insert(account, actual - before);
            }
        }
        Ok(Charges { entries, users })
    }

    /// Corrects the counts where two reads found the same drift: a fork and an exit during a read can look like one.
    pub(super) fn correct(&mut self, first: &Charges, second: &Charges) -> Result<(), KernelError> {
        if first.entries == second.entries && first.entries != 0 {
            self.add_entries(first.entries)?;
        }
        for (account, drift) in first.users.iter().filter(|(account, drift)| second.users.get(account) == Some(drift)) {
            self.charge_account(*account, *drift)?;
        }
        Ok(())
    }

    fn entries(&self) -> Result<i64, KernelError> {
        let slot = |slot| self.entry_count.get(&slot, 0).map_err(failed("read"));
        Ok(slot(BY_PROGRAMS)? + slot(BY_DAEMON)?)
    }

    fn add_entries(&mut self, entries: i64) -> Result<(), KernelError> {
        let before = self.entry_count.get(&BY_DAEMON, 0).map_err(failed("read"))?;
        self.entry_count.set(BY_DAEMON, before + entries, 0).map_err(failed("write"))
    }

    /// The key of this user's count in both maps, as in the programs.
    fn account(&mut self, uid: u32) -> Result<u32, KernelError> {
        match self.by_programs.insert(uid, 0, update::NO_EXIST) {
            Ok(()) => Ok(uid),
            Err(error) if is_errno(&error, libc::EEXIST) => Ok(uid),
            Err(error) if is_errno(&error, libc::E2BIG) => Ok(SHARED_ACCOUNT),
            Err(error) => Err(failed("write")(error)),
        }
    }

    fn charge_account(&mut self, account: u32, entries: i64) -> Result<(), KernelError> {
        let charged = of(&self.by_daemon, account)?;
        self.by_daemon.insert(account, charged + entries, 0).map_err(failed("write"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadOptions, Tracer};
    use watchdog_config::Candidates;

    #[test]
    fn users_beyond_accounts_are_limited() {
        const ACCOUNTS: u32 = 4_096;
        let (mut tracer, _streams) = Tracer::load(&LoadOptions::new(8, &Candidates::default())).unwrap();
        let users = &mut tracer.users;
        // One is the shared account.
        for uid in 1..ACCOUNTS {
            assert_eq!(users.account(uid).unwrap(), uid);
        }
        for uid in [ACCOUNTS, ACCOUNTS + 1] {
            assert!(users.admits(uid).unwrap());
            users.charge(uid, 2).unwrap();
        }
        assert_eq!(users.charges().unwrap().of(SHARED_ACCOUNT), (4, 4));
        assert!(!users.admits(ACCOUNTS + 2).unwrap(), "the shared account holds as many as are free");
        assert!(users.admits(1).unwrap());

        users.charge(ACCOUNTS, -2).unwrap();
        assert!(users.admits(ACCOUNTS + 2).unwrap());
    }

    #[test]
    fn unconfirmed_drift_is_left() {
        let (mut tracer, _streams) = Tracer::load(&LoadOptions::new(8, &Candidates::default())).unwrap();
        let users = &mut tracer.users;
        let drift = |entries, charged| Charges { entries, users: BTreeMap::from([(7, charged)]) };
        users.correct(&drift(1, 2), &drift(2, 1)).unwrap();
        assert_eq!(users.charges().unwrap().of(7), (0, 0));
        users.correct(&drift(1, 2), &drift(1, 2)).unwrap();
        assert_eq!(users.charges().unwrap().of(7), (1, 2));
    }
}
