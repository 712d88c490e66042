//! Leaky-bucket budgets of the bytes that each user and session may write.

use std::collections::BTreeMap;
use std::time::Duration;

use watchdog_types::BootTime;

/// Entries at which drained ones are removed.
const MANY: usize = 1_024;
const DAY: Duration = Duration::from_secs(86_400);

/// Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Allowance {
    at_once: u64,
    a_day: u64,
}

/// The fill level of a bucket.
#[derive(Clone, Copy, Debug)]
struct Fill {
    bytes: u64,
    at: BootTime,
}

impl Fill {
    fn now(self, allowance: Allowance, now: BootTime) -> u64 {
        let drained = u128::from(allowance.a_day) * now.since(self.at).as_nanos() / DAY.as_nanos();
        self.bytes.saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX))
    }
}

/// The part of an allowance that a record may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BudgetPart {
    Half,
    Whole,
    /// May exceed the allowance; the excess drains before anything else is written.
    Overdraft,
}

#[derive(Debug)]
pub(super) struct Budgets {
    of_user: Allowance,
    of_session: Allowance,
    users: BTreeMap<Option<u32>, Fill>,
    sessions: BTreeMap<(Option<u32>, u64), Fill>,
}

impl Budgets {
    pub(super) fn of(max_bytes: u64) -> Self {
        let (of_user, of_session) = allowances(max_bytes);
        Self { of_user, of_session, users: BTreeMap::new(), sessions: BTreeMap::new() }
    }

    pub(super) fn resize(&mut self, max_bytes: u64) {
        (self.of_user, self.of_session) = allowances(max_bytes);
    }

    /// Whether these bytes may be written; if so, counts them.
    pub(super) fn spend(
        &mut self,
        now: BootTime,
        owner: Option<u32>,
        session: Option<u64>,
        bytes: u64,
        part: BudgetPart,
    ) -> bool {
        let session = session.map(|session| (owner, session));
        let user = self.users.get(&owner).map_or(0, |fill| fill.now(self.of_user, now));
        let of_session =
            session.and_then(|key| self.sessions.get(&key)).map_or(0, |fill| fill.now(self.of_session, now));
        let fits = |fill: u64, allowance: Allowance| match part {
            BudgetPart::Half => fill + bytes <= allowance.at_once / 2,
            BudgetPart::Whole => fill + bytes <= allowance.at_once,
            BudgetPart::Overdraft => true,
        };
        if !fits(user, self.of_user) || session.is_some() && !fits(of_session, self.of_session) {
            return false;
        }
        put(&mut self.users, owner, Fill { bytes: user + bytes, at: now }, self.of_user);
        if let Some(session) = session {
            put(&mut self.sessions, session, Fill { bytes: of_session + bytes, at: now }, self.of_session);
        }
        true
    }
}

fn put<K: Ord>(fills: &mut BTreeMap<K, Fill>, key: K, fill: Fill, allowance: Allowance) {
    if fills.len() >= MANY && !fills.contains_key(&key) {
        fills.retain(|_, known| known.now(allowance, fill.at) > 0);
    }
    fills.insert(key, fill);
}

/// The allowances of a user and of a session. One user needs two days to fill an eighth of the history.
fn allowances(max_bytes: u64) -> (Allowance, Allowance) {
    let of_user = Allowance { at_once: (max_bytes / 64).max(256 << 10), a_day: max_bytes / 16 };
    let of_session = Allowance { at_once: (max_bytes / 256).max(128 << 10), a_day: max_bytes / 32 };
    (of_user, of_session)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: u64 = 256 << 20;

    fn at(seconds: u64) -> BootTime {
        BootTime(seconds * 1_000_000_000)
    }

    #[test]
    fn allowance_is_bounded_and_drains() {
        let mut budgets = Budgets::of(MAX);
        let (_, of_session) = allowances(MAX);
        let mut spend = |now, part| budgets.spend(at(now), Some(1), Some(1), 1_000, part);
        let written = (0..10_000).filter(|_| spend(0, BudgetPart::Half)).count() as u64;
        assert_eq!(written, of_session.at_once / 2 / 1_000);
        assert!(spend(0, BudgetPart::Whole), "the start and end of a session fit");
        assert!(!spend(1, BudgetPart::Half));
        assert!(spend(86_400, BudgetPart::Half), "drained a day later");
    }

    #[test]
    fn drained_entries_are_forgotten() {
        let mut budgets = Budgets::of(MAX);
        for session in 0..10_000 {
            budgets.spend(at(session * 60), Some(1), Some(session), 1_000, BudgetPart::Half);
        }
        assert!(budgets.sessions.len() <= MANY, "{}", budgets.sessions.len());
    }

    proptest! {
            /// Other users' records never reduce the share of a user.
        #[test]
        fn flood_takes_no_share_of_others(flood in prop::collection::vec((2_u32..6, 0_u64..4, 1_u64..100_000), 0..200)) {
            let mut budgets = Budgets::of(MAX);
            let share = budgets.of_session.at_once / 2;
            let mut own = 0;
            for (owner, session, bytes) in flood {
                budgets.spend(at(0), Some(owner), Some(session), bytes, BudgetPart::Whole);
                if own + bytes <= share {
                    prop_assert!(budgets.spend(at(0), Some(1), Some(session % 2), bytes, BudgetPart::Half));
                    own += bytes;
                }
            }
        }
    }
}
