//! How much of their memory the sessions of a profile released in earlier page-outs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use watchdog_types::Bytes;

/// Share of earlier yields that is expected again, in per cent. Compressed swap uses about a third of it.
const EXPECTED_SHARE: u64 = 60;
/// All sums are halved when the offered memory exceeds this, so that older page-outs count less.
const HALVING_LIMIT: u64 = 64 << 30;

/// Sums over page-outs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Yield {
    /// Anonymous memory before the page-outs.
    offered: u64,
    /// The part of it that was paged out.
    given: u64,
    /// Resident memory of any kind that was paged out.
    out: u64,
    /// The part of that which returned.
    back: u64,
}

/// By profile. Outlives the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedYields(BTreeMap<String, Yield>);

impl LearnedYields {
    pub(super) fn record(&mut self, profile: &str, offered: Bytes, given: Bytes, out: Bytes) {
        let known = self.0.entry(profile.to_owned()).or_default();
        if known.offered > HALVING_LIMIT {
            let Yield { offered, given, out, back } = known;
            [offered, given, out, back].into_iter().for_each(|sum| *sum /= 2);
        }
        known.offered = known.offered.saturating_add(offered.0);
        known.given = known.given.saturating_add(given.0);
        known.out = known.out.saturating_add(out.0);
    }

    pub(super) fn refaulted(&mut self, profile: &str, back: Bytes) {
        if let Some(known) = self.0.get_mut(profile) {
            known.back = known.out.min(known.back.saturating_add(back.0));
        }
    }

    /// Memory that a session of this profile with this anonymous memory is expected to release; zero before the first
    /// page-out.
    pub(super) fn expected(&self, profile: &str, anon: Bytes) -> Bytes {
        let Some(known) = self.0.get(profile).filter(|known| known.offered > 0 && known.out > 0) else {
            return Bytes(0);
        };
        let stays = known.out.saturating_sub(known.back);
        let share = |amount: u128, part: u64, whole: u64| amount * u128::from(part) / u128::from(whole);
        let yields = share(share(u128::from(anon.0), known.given, known.offered), stays, known.out);
        Bytes(u64::try_from(yields).unwrap_or(u64::MAX)).percent(EXPECTED_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(mib: u64) -> Bytes {
        Bytes::from_mib(mib)
    }

    #[test]
    fn nothing_expected_before_first_page_out() {
        let mut learned = LearnedYields::default();
        assert_eq!(learned.expected("codex", mib(100)), Bytes(0));
        learned.record("claude-code", mib(100), mib(80), mib(90));
        assert_eq!(learned.expected("codex", mib(100)), Bytes(0));
    }

    #[test]
    fn returned_memory_lowers_expectation() {
        let mut learned = LearnedYields::default();
        learned.record("codex", mib(100), mib(80), mib(100));
        assert_eq!(learned.expected("codex", mib(200)).mib(), 95);
        learned.refaulted("codex", mib(50));
        assert_eq!(learned.expected("codex", mib(200)).mib(), 47);
        learned.refaulted("codex", mib(500));
        assert_eq!(learned.expected("codex", mib(200)), Bytes(0));
    }
}
