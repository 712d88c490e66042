//! Saw-teeth: what memory fell by before, it may fall by again.
//!
//! A runtime with a garbage collector lets memory grow and gives it back in one drop. Growth since the last drop is no
//! growth of the floor until it is beyond what such a drop takes away. Drops are remembered by size, one for each power of
//! two: small ones of the young generation do not push out the large ones of the old.

/// Drops below this are noise, in KiB.
const LEAST: u32 = 2 * 1024;
/// Powers of two from `LEAST` up: the last stands for all above 16 GiB.
const SIZES: usize = 14;
/// V8 lets the heap grow to at most four times of what survived the last collection (`kMaxGrowingFactor` in
/// heap/memory-controller.h of its sources): the next tooth may be this much larger than the last.
const LARGER: f64 = 2.5;
/// A drop is expected again for this many times of the time that it took to come the last time.
const OVERDUE: u32 = 4;
/// Of the time between two samples not more than this counts, in tenths of a second: nobody knows what happened in a gap.
const UNSEEN: u32 = 100;

/// The last drop of a size.
#[derive(Clone, Copy, Debug, Default)]
struct Tooth {
    /// How much memory fell, in KiB; 0 when there was none.
    size: u32,
    /// What was left, in KiB.
    floor: u32,
    /// When it was over, in tenths of a second since the beginning of the series.
    at: u32,
    /// The same moment by the clock that stands still in gaps.
    seen: u32,
    /// The time by that clock since the drop of this size before it, or since the beginning.
    every: u32,
}

/// The drops of a series.
#[derive(Clone, Debug)]
pub(super) struct Teeth {
    /// Where the rise ended that came before the present fall.
    peak: u32,
    /// The least since then, and when that was.
    trough: u32,
    trough_at: u32,
    trough_seen: u32,
    /// The moment of the last sample, and the time that was seen until then.
    now: u32,
    seen: u32,
    last: [Tooth; SIZES],
}

/// A tooth that may still be given back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Due {
    /// Growth after this moment may be part of it.
    pub(super) since: u32,
    /// The floor that the last one left, in KiB.
    pub(super) floor: f64,
    /// The most that it may take away, in KiB.
    pub(super) size: f64,
}

impl Teeth {
    pub(super) fn new(kib: u32) -> Self {
        let last = [Tooth::default(); SIZES];
        Self { peak: kib, trough: kib, trough_at: 0, trough_seen: 0, now: 0, seen: 0, last }
    }

    /// Memory is this much now; whether the time since the last sample is known.
    pub(super) fn note(&mut self, at: u32, kib: u32, known: bool) {
        let passed = at - self.now;
        self.seen += if known { passed } else { passed.min(UNSEEN) };
        self.now = at;
        if kib > self.peak {
            (self.peak, self.trough) = (kib, kib);
        } else if kib < self.trough {
            (self.trough, self.trough_at, self.trough_seen) = (kib, at, self.seen);
        } else {
            let drop = self.peak - self.trough;
            // The fall is over when a part of it has grown again.
            if drop >= LEAST && kib - self.trough > drop / 8 {
                self.fell(drop);
                (self.peak, self.trough) = (kib, kib);
            }
        }
    }

    fn fell(&mut self, drop: u32) {
        let (at, seen) = (self.trough_at, self.trough_seen);
        let size = size_class(drop);
        let before = self.last[size..].iter().filter(|tooth| tooth.size > 0).map(|tooth| tooth.seen).max();
        let mut every = seen.saturating_sub(before.unwrap_or(0));
        let tooth = &mut self.last[size];
        let mut largest = drop;
        if tooth.expected(seen) {
            every = every.max(tooth.every / 2);
            largest = largest.max(tooth.size / 4 * 3);
        }
        *tooth = Tooth { size: largest, floor: self.trough, at, seen, every };
        // What took this away took the smaller ones away with it, and stands for those that are not much larger.
        for tooth in self.last.iter_mut().filter(|tooth| tooth.size <= drop.saturating_add(drop / 2)) {
            (tooth.floor, tooth.at, tooth.seen) = (self.trough, at, seen);
        }
    }

    /// The drops that may come again at this moment.
    pub(super) fn due(&self) -> impl Iterator<Item = Due> {
        self.last.iter().filter(|tooth| tooth.expected(self.seen)).map(|tooth| Due {
            since: tooth.at,
            floor: f64::from(tooth.floor),
            size: f64::from(tooth.size) * LARGER,
        })
    }
}

impl Tooth {
    fn expected(&self, seen: u32) -> bool {
        self.size > 0 && seen.saturating_sub(self.seen) <= self.every.saturating_mul(OVERDUE)
    }
}

fn size_class(drop: u32) -> usize {
    ((drop / LEAST).max(1).ilog2() as usize).min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1024;

    fn after(values: &[(u32, u32)]) -> Teeth {
        let mut teeth = Teeth::new(values[0].1 * MIB);
        for (at, mib) in values {
            teeth.note(*at, mib * MIB, true);
        }
        teeth
    }

    #[test]
    fn a_drop_is_expected_again_for_as_long_as_it_took_to_come_and_then_some() {
        let teeth = after(&[(0, 10), (100, 60), (101, 20), (120, 30)]);
        let expected = Due { since: 101, floor: 20.0 * 1024.0, size: 40.0 * 1024.0 * LARGER };
        assert_eq!(teeth.due().collect::<Vec<_>>(), [expected]);
        let later = |at| {
            let mut teeth = teeth.clone();
            teeth.note(at, 40 * MIB, true);
            teeth.due().count()
        };
        assert_eq!(later(101 + 4 * 101), 1);
        assert_eq!(later(101 + 4 * 101 + 1), 0);
    }

    #[test]
    fn a_gap_does_not_make_it_overdue() {
        let mut teeth = after(&[(0, 10), (100, 60), (101, 20), (120, 30)]);
        teeth.note(1_000_000, 40 * MIB, false);
        assert_eq!(teeth.due().count(), 1);
    }

    #[test]
    fn small_drops_do_not_push_out_a_large_one() {
        let mut teeth = after(&[(0, 10), (100, 200), (101, 50), (110, 100)]);
        for n in 0..20 {
            teeth.note(120 + n * 10, (100 + n) * MIB, true);
            teeth.note(125 + n * 10, (95 + n) * MIB, true);
        }
        assert!(teeth.due().any(|due| due.size == 150.0 * 1024.0 * LARGER));
    }

    #[test]
    fn growth_alone_has_no_teeth() {
        let mut teeth = Teeth::new(0);
        (0..1000).for_each(|at| teeth.note(at, at * 100, true));
        assert_eq!(teeth.due().count(), 0);
    }
}
