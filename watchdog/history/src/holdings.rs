//! Selects the records to remove from a history that is too large: the oldest ones of the owners with the most bytes.

use std::collections::HashMap;

/// Sessions of a user are grouped by their number modulo this, which bounds the memory.
const GROUPS: u64 = 1_024;

/// A user and a group of sessions, or the user's records outside of sessions.
type RecordOwner = (Option<u32>, Option<u64>);

/// Bytes by owner.
#[derive(Debug, Default)]
pub(super) struct Holdings(HashMap<RecordOwner, u64>);

/// Bytes to remove by owner, from the oldest records.
#[derive(Debug, Default)]
pub(super) struct Surplus(HashMap<RecordOwner, u64>);

fn holder(owner: Option<u32>, session: Option<u64>) -> RecordOwner {
    (owner, session.map(|session| session % GROUPS))
}

impl Holdings {
    pub(super) fn add(&mut self, owner: Option<u32>, session: Option<u64>, bytes: u64) {
        *self.0.entry(holder(owner, session)).or_default() += bytes;
    }

    /// The bytes to remove to keep `target` bytes. A user with a fair share or less loses nothing. The others keep equal
    /// shares, and so do the sessions of one user.
    pub(super) fn surplus(&self, target: u64) -> Surplus {
        let mut users: HashMap<Option<u32>, u64> = HashMap::new();
        for ((owner, _), bytes) in &self.0 {
            *users.entry(*owner).or_default() += bytes;
        }
        let share = fair_share(users.values().copied().collect(), target);
        let mut surplus = HashMap::new();
        for (user, _) in users.into_iter().filter(|(_, bytes)| *bytes > share) {
            let own = || self.0.iter().filter(|((owner, _), _)| *owner == user);
            let share = fair_share(own().map(|(_, bytes)| *bytes).collect(), share);
            surplus.extend(own().filter(|(_, bytes)| **bytes > share).map(|(holder, bytes)| (*holder, bytes - share)));
        }
        Surplus(surplus)
    }
}

impl Surplus {
    /// Whether to remove a record. Call this for each record, oldest first.
    pub(super) fn takes(&mut self, owner: Option<u32>, session: Option<u64>, bytes: u64) -> bool {
        let Some(left) = self.0.get_mut(&holder(owner, session)).filter(|left| **left > 0) else { return false };
        *left = left.saturating_sub(bytes);
        true
    }
}

/// The limit per owner at which all together keep at most `target`.
fn fair_share(mut held: Vec<u64>, target: u64) -> u64 {
    held.sort_unstable();
    let mut left = target;
    for (at, bytes) in held.iter().enumerate() {
        let share = left / (held.len() - at) as u64;
        if *bytes > share {
            return share;
        }
        left -= bytes;
    }
    u64::MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn biggest_holder_pays_first() {
        let mut holdings = Holdings::default();
        holdings.add(Some(1), Some(1), 900);
        holdings.add(Some(1), Some(2), 50);
        holdings.add(Some(2), Some(3), 100);
        let mut surplus = holdings.surplus(550);
        assert_eq!(surplus.0, HashMap::from([((Some(1), Some(1)), 500)]));
        assert!(surplus.takes(Some(1), Some(1), 499) && surplus.takes(Some(1), Some(1), 10));
        assert!(!surplus.takes(Some(1), Some(1), 10), "the newest stay");
        assert!(!surplus.takes(Some(2), Some(3), 10));
    }

    proptest! {
        #[test]
        fn fair_holders_lose_nothing(
            records in prop::collection::vec((0_u32..5, 0_u64..6, 1_u64..10_000), 1..300),
            target in 1_000_u64..500_000,
        ) {
            let mut holdings = Holdings::default();
            for (owner, session, bytes) in &records {
                holdings.add(Some(*owner), Some(*session), *bytes);
            }
            let mut surplus = holdings.surplus(target);
            let mut kept: HashMap<u32, u64> = HashMap::new();
            let mut held: HashMap<u32, u64> = HashMap::new();
            for (owner, session, bytes) in &records {
                *held.entry(*owner).or_default() += bytes;
                if !surplus.takes(Some(*owner), Some(*session), *bytes) {
                    *kept.entry(*owner).or_default() += bytes;
                }
            }
            prop_assert!(kept.values().sum::<u64>() <= target);
            for (owner, held) in &held {
                let kept = kept.get(owner).copied().unwrap_or(0);
                prop_assert!(*held > target / 5 || kept == *held, "{owner} held {held} of {target} and kept {kept}");
            }
        }
    }
}
