//! The last page-out of a process: how much memory returned, and when the process may be paged out again.

use std::time::Duration;

use watchdog_types::{BootTime, Bytes, PageOutExclusion};

/// If this share returns, in per cent, the pause before the next page-out doubles.
const RELAPSE_SHARE: u64 = 25;
/// A smaller return never doubles the pause.
const MIN_RELAPSE: Bytes = Bytes::from_mib(4);
const LONGEST_PAUSE: Duration = Duration::from_secs(86_400);

/// How much of a process was paged out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageOutExtent {
    /// As much as the kernel permits.
    Whole,
    /// The order ended before. The rest may follow at once.
    Partial,
    /// Next to nothing, although nothing stopped it: other processes share it, or memory.swap.max of its cgroup is 0.
    Nothing,
}

#[derive(Debug)]
pub(super) struct PageOutRecord {
    pub(super) at: BootTime,
    /// By how much its resident memory shrank.
    pub(super) out: Bytes,
    /// Resident afterwards.
    resident: Bytes,
    /// The highest amount that has returned.
    back: Bytes,
    /// Consecutive page-outs before this one that were in vain.
    relapses: u32,
    extent: PageOutExtent,
    /// Why it is never paged out. Then nothing was paged out.
    pub(super) excluded: Option<PageOutExclusion>,
}

impl PageOutRecord {
    pub(super) fn new(at: BootTime, out: Bytes, resident: Bytes, extent: PageOutExtent, before: Option<&Self>) -> Self {
        let (out, relapses) = match before {
            Some(before) if before.relapsed() => (out, before.relapses + 1),
            Some(before) if before.extent == PageOutExtent::Partial => (before.out + out, before.relapses),
            _ => (out, 0),
        };
        Self { at, out, resident, back: Bytes(0), relapses, extent, excluded: None }
    }

    pub(super) fn excluded(at: BootTime, why: PageOutExclusion) -> Self {
        Self { excluded: Some(why), ..Self::new(at, Bytes(0), Bytes(0), PageOutExtent::Whole, None) }
    }

    /// Records the resident memory. Returns the memory that has returned since the last call.
    pub(super) fn sampled(&mut self, resident: Bytes) -> Bytes {
        let back = Bytes(resident.0.saturating_sub(self.resident.0)).min(self.out);
        let more = Bytes(back.0.saturating_sub(self.back.0));
        self.back += more;
        more
    }

    /// When it may be paged out again. In any case, it must have been idle for `idle` by then.
    pub(super) fn allowed_at(&self, idle: Duration) -> BootTime {
        if self.extent == PageOutExtent::Partial && !self.relapsed() {
            return self.at;
        }
        let doublings = self.relapses + u32::from(self.relapsed());
        let pause = 2_u32.checked_pow(doublings).and_then(|times| idle.checked_mul(times)).unwrap_or(LONGEST_PAUSE);
        self.at.plus(pause.min(LONGEST_PAUSE.max(idle)))
    }

    fn relapsed(&self) -> bool {
        let returned = self.back >= MIN_RELAPSE && self.back >= self.out.percent(RELAPSE_SHARE);
        returned || self.extent == PageOutExtent::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::PageOutExtent::{Nothing, Partial, Whole};
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    fn paged(at: u64, before: Option<&PageOutRecord>) -> PageOutRecord {
        PageOutRecord::new(BootTime(at * 1_000_000_000), Bytes::from_mib(100), Bytes::from_mib(10), Whole, before)
    }

    fn pause(record: &PageOutRecord) -> u64 {
        record.allowed_at(IDLE).since(record.at).as_secs()
    }

    #[test]
    fn pause_doubles_while_memory_returns() {
        let mut record = paged(0, None);
        assert_eq!(pause(&record), 600);
        for expected in [1_200, 2_400, 4_800] {
            record.sampled(Bytes::from_mib(90));
            assert_eq!(pause(&record), expected);
            record = paged(0, Some(&record));
        }
        record = paged(0, Some(&record));
        assert_eq!(pause(&record), 600, "it stayed out");
    }

    #[test]
    fn pause_is_a_day_at_most() {
        let mut record = paged(0, None);
        for _ in 0..100 {
            record.sampled(Bytes::from_mib(110));
            record = paged(0, Some(&record));
        }
        record.sampled(Bytes::from_mib(110));
        assert_eq!(pause(&record), 86_400);
    }

    #[test]
    fn returned_memory_counts_once() {
        let mut record = paged(0, None);
        let counted = [12, 10, 30, 20, 400].map(|resident| record.sampled(Bytes::from_mib(resident)).mib());
        assert_eq!(counted, [2, 0, 18, 0, 80], "no more than was paged out");
    }

    #[test]
    fn rest_of_partial_page_out_follows() {
        let mut relapsed = paged(0, None);
        relapsed.sampled(Bytes::from_mib(90));
        let mut first = PageOutRecord { extent: Partial, ..paged(0, Some(&relapsed)) };
        assert_eq!(pause(&first), 0);
        let mut whole = paged(4, Some(&first));
        assert_eq!((pause(&whole), whole.out), (1_200, Bytes::from_mib(200)), "the earlier relapse counts");
        whole.sampled(Bytes::from_mib(90));
        assert_eq!(pause(&whole), 2_400);
        first.sampled(Bytes::from_mib(90));
        assert_eq!(pause(&first), 2_400, "it is in use");
    }

    #[test]
    fn pause_doubles_while_nothing_is_paged_out() {
        let mut record = None;
        for expected in [1_200, 2_400, 4_800] {
            let next = PageOutRecord::new(BootTime(0), Bytes(0), Bytes::from_mib(9), Nothing, record.as_ref());
            assert_eq!(pause(&next), expected);
            record = Some(next);
        }
    }

    #[test]
    fn small_returns_are_no_relapse() {
        let mut record = PageOutRecord::new(BootTime(0), Bytes::from_mib(5), Bytes(0), Whole, None);
        record.sampled(Bytes::from_mib(3));
        assert_eq!(pause(&record), 600);
    }
}
