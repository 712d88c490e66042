//! Saw-teeth: what memory fell by before, it may fall by again.
//!
//! A runtime with a garbage collector lets memory grow and gives it back in one drop. Growth since the last drop is no
//! growth of the floor until it is beyond what such a drop takes away. One drop makes no saw: it is expected again once
//! it has come twice. Drops are remembered by size, one for each power of two: small ones of the young generation do not
//! push out the large ones of the old.
//!
//! A fall that small rises interrupt is one drop: falls are nested and closed as in the rainflow method (M. Matsuishi and
//! T. Endo, 1968; ASTM E1049). Otherwise noise falls in steps, each far smaller than the whole.
//!
//! A tooth that lasts for less than a span leaves no trace in the span's minimum. It is taken off by finer scales only: a
//! burst of two seconds each hour hides no leak of days.

use super::minima::Floors;

/// Drops below this are noise, in KiB.
const LEAST: u32 = 2 * 1024;
/// Powers of two from `LEAST` up: the last stands for all above 16 GiB.
const SIZES: usize = 14;
/// V8 lets the heap grow to at most four times of what survived the last collection (`kMaxGrowingFactor` in
/// heap/memory-controller.h of its sources): the next tooth may be this much larger than the last.
const LARGER: f64 = 2.5;
/// The next tooth may last this many times longer than the last: only the upper three quarters of a tooth are measured.
const LONGER: u32 = 5;
/// A drop is expected again for this many times as long as its tooth lasted.
const OVERDUE: u32 = 5;
/// Interrupted falls that are remembered.
const NESTED: usize = 3;

/// A drop, and the rise before it.
#[derive(Clone, Copy, Debug, Default)]
struct Fall {
    /// In KiB.
    peak: u32,
    peak_at: u32,
    trough: u32,
    /// When memory was that low.
    at: u32,
    /// How long the tooth had lasted when the fall was over.
    lasted: u32,
}

/// The last drop of a size.
#[derive(Clone, Copy, Debug, Default)]
struct Tooth {
    /// How much memory fell, in KiB; 0 when there was none.
    size: u32,
    /// What was left, in KiB.
    floor: u32,
    /// Since when memory may grow from there to the next drop, in tenths of a second since the beginning of the series.
    since: u32,
    /// The end of the drop, or of a later one that includes it.
    at: u32,
    /// How long memory was higher than after the drop.
    lasted: u32,
}

/// The drops of a series.
#[derive(Clone, Debug)]
pub(super) struct Teeth {
    fall: Fall,
    /// Falls that a rise has interrupted, the outermost first.
    interrupted: [Fall; NESTED],
    depth: u8,
    /// Sizes of which a drop came when it was expected, as bits.
    again: u16,
    last: [Tooth; SIZES],
}

/// A tooth that may still be given back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TeethDue {
    /// Growth after this moment may be part of it.
    pub(super) since: u32,
    /// The floor that the last one left, in KiB.
    pub(super) floor: f64,
    /// The most that it may take away, in KiB.
    pub(super) size: f64,
}

impl Fall {
    fn from(peak_at: u32, peak: u32) -> Self {
        Self { peak, peak_at, trough: peak, ..Self::default() }
    }

    fn size(&self) -> u32 {
        self.peak - self.trough
    }
}

impl Teeth {
    pub(super) fn new(kib: u32) -> Self {
        Self {
            fall: Fall::from(0, kib),
            interrupted: [Fall::default(); NESTED],
            depth: 0,
            again: 0,
            last: [Tooth::default(); SIZES],
        }
    }

    /// Memory is this much now. `floors` has the samples before.
    pub(super) fn note(&mut self, at: u32, kib: u32, floors: &Floors) {
        while let Some(outer) = self.outer() {
            if kib < outer.trough {
                // One whole drop, of which the last part may be the same drop again.
                self.compare(&Fall { trough: kib, ..self.fall });
                self.fall = outer;
            } else if kib <= outer.peak {
                break;
            }
            self.depth -= 1;
        }
        if kib > self.fall.peak {
            self.fall = Fall::from(at, kib);
        } else if kib < self.fall.trough {
            (self.fall.trough, self.fall.at) = (kib, at);
        } else if self.fall.size() >= LEAST && kib - self.fall.trough > (self.fall.size() / 8).min(LEAST) {
            // The fall is over when a part of it has grown again.
            let fall = &mut self.fall;
            fall.lasted = fall.at - floors.last_below(fall.trough + fall.size() / 4, fall.peak_at);
            self.fell(self.fall);
            if let Some(free) = self.interrupted.get_mut(usize::from(self.depth)) {
                *free = self.fall;
                self.depth += 1;
            }
            self.fall = Fall::from(at, kib);
        }
    }

    fn outer(&self) -> Option<Fall> {
        self.interrupted[..usize::from(self.depth)].last().copied()
    }

    fn compare(&mut self, fall: &Fall) {
        if self.last.iter().any(|tooth| tooth.comes_again(fall)) {
            self.again |= 1 << size_class(fall.size());
        }
    }

    fn fell(&mut self, fall: Fall) {
        let Fall { trough: floor, at, .. } = fall;
        let drop = fall.size();
        let class = size_class(drop);
        self.compare(&fall);
        let tooth = &mut self.last[class];
        let (mut size, mut lasted) = (drop, fall.lasted);
        if tooth.expected(at) {
            (size, lasted) = (size.max(tooth.size / 4 * 3), lasted.max(tooth.lasted / 4 * 3));
        }
        *tooth = Tooth { size, floor, since: at, at, lasted };
        // A drop includes all smaller ones, and counts as those that are not much larger. The end of a burst takes away no
        // growth from before the burst.
        for tooth in self.last.iter_mut().filter(|tooth| tooth.size <= drop.saturating_add(drop / 2)) {
            tooth.at = at;
            if tooth.floor >= floor || tooth.lasted <= fall.lasted.saturating_mul(LONGER) {
                (tooth.floor, tooth.since) = (floor, at);
            }
        }
    }

    /// The drops that may come again at this moment, and may be seen in the minima of spans of this length.
    pub(super) fn due(&self, now: u32, span: u32) -> impl Iterator<Item = TeethDue> {
        let again = move |class: usize| self.again & 1 << class != 0;
        let due = self.last.iter().enumerate().filter(move |(class, tooth)| {
            again(*class) && tooth.expected(now) && tooth.lasted.saturating_mul(LONGER) > span
        });
        due.map(|(_, tooth)| TeethDue {
            since: tooth.since,
            floor: f64::from(tooth.floor),
            size: f64::from(tooth.size) * LARGER,
        })
    }
}

impl Tooth {
    fn expected(&self, now: u32) -> bool {
        self.size > 0 && now.saturating_sub(self.at) <= self.lasted.saturating_mul(OVERDUE)
    }

    /// Whether a fall is such a drop as this was, and came when it was expected.
    fn comes_again(&self, fall: &Fall) -> bool {
        let may_become = |size: u32, next: u32| f64::from(next) <= f64::from(size) * LARGER;
        let alike = may_become(self.size, fall.size()) && may_become(fall.size(), self.size);
        alike && self.at < fall.peak_at && self.expected(fall.peak_at)
    }
}

fn size_class(drop: u32) -> usize {
    ((drop / LEAST).max(1).ilog2() as usize).min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::super::minima::length;
    use super::*;

    const MIB: u32 = 1024;
    const SPAN: u32 = length(0);

    struct FloorsAndTeeth {
        floors: Floors,
        teeth: Teeth,
    }

    fn after(values: &[(u32, u32)]) -> FloorsAndTeeth {
        let mut seen = FloorsAndTeeth { floors: Floors::new(), teeth: Teeth::new(values[0].1 * MIB) };
        seen.note(values);
        seen
    }

    impl FloorsAndTeeth {
        fn note(&mut self, values: &[(u32, u32)]) {
            for (at, mib) in values {
                self.teeth.note(*at, mib * MIB, &self.floors);
                self.floors.note(*at, mib * MIB, None);
            }
        }

        fn sizes(&self, now: u32, span: u32) -> Vec<f64> {
            self.teeth.due(now, span).map(|due| due.size / LARGER / f64::from(MIB)).collect()
        }
    }

    /// The same again, right after it.
    fn twice(values: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let end = values[values.len() - 1].0;
        values.iter().copied().chain(values.iter().map(|(at, mib)| (end + 10 + at, *mib))).collect()
    }

    #[test]
    fn drop_is_expected_once_it_came_twice() {
        let tooth = [(0, 10), (300, 60), (301, 20), (320, 30)];
        assert_eq!(after(&tooth).sizes(320, SPAN), [0.0; 0]);
        let mut seen = after(&twice(&tooth));
        assert_eq!(seen.sizes(650, SPAN), [40.0]);
        seen.note(&[(3_000, 400)]);
        let due = (651..3_000).take_while(|now| seen.sizes(*now, SPAN) == [40.0]).count() as u32;
        assert!((250 * OVERDUE..350 * OVERDUE).contains(&due), "{due}");
    }

    #[test]
    fn later_drop_is_another_one() {
        let drops =
            |again: u32| [(0, 10), (300, 60), (301, 20), (302, 25), (again, 60), (again + 1, 20), (again + 2, 25)];
        assert_eq!(after(&drops(1_500)).sizes(1_502, SPAN), [40.0]);
        assert_eq!(after(&drops(10_000)).sizes(10_002, SPAN), [0.0; 0]);
    }

    #[test]
    fn much_larger_drop_is_another_one() {
        let growing = |size: u32| [(0, 10), (300, 60), (301, 20), (302, 25), (601, 20 + size), (602, 20), (603, 25)];
        assert!(after(&growing(95)).sizes(603, SPAN).contains(&95.0));
        assert_eq!(after(&growing(105)).sizes(603, SPAN), [0.0; 0]);
    }

    #[test]
    fn whole_fall_measures_its_tooth() {
        let fall = [(0, 10), (1_000, 60), (2_000, 110), (2_010, 50), (2_020, 10), (2_030, 20)];
        let mut seen = after(&twice(&fall));
        seen.note(&[(11_500, 400)]);
        assert!(seen.sizes(11_500, SPAN).contains(&100.0), "{:?}", seen.teeth);
    }

    #[test]
    fn long_spans_ignore_short_tooth() {
        let bursts = twice(&[(0, 20), (10, 900), (20, 20), (30, 40)]);
        let seen = after(&bursts);
        assert_eq!(seen.sizes(70, SPAN), [880.0]);
        assert_eq!(seen.sizes(70, 100 * SPAN), [0.0; 0]);
        let slow = after(&twice(&[(0, 20), (3_000, 900), (3_020, 20), (3_100, 40)]));
        assert_eq!(slow.sizes(6_300, 100 * SPAN), [880.0]);
    }

    #[test]
    fn burst_takes_no_earlier_growth_away() {
        let growth = [(0, 10), (200, 60), (300, 20), (600, 60), (700, 20), (990, 40)];
        let due = |fall: &[(u32, u32)]| {
            let seen = after(&[&growth[..], fall].concat());
            let mut due = seen.teeth.due(fall[fall.len() - 1].0, SPAN);
            let tooth = due.find(|due| due.size == 40.0 * LARGER * f64::from(MIB)).unwrap();
            (tooth.since, tooth.floor / f64::from(MIB))
        };
        assert_eq!(due(&[(1_010, 900), (1_020, 40), (1_030, 45)]), (700, 20.0));
        assert_eq!(due(&[(1_010, 900), (1_500, 40), (1_510, 45)]), (1_500, 40.0));
    }

    #[test]
    fn interrupted_fall_is_one_drop() {
        let fall = [(0, 10), (300, 100), (310, 70), (320, 80), (330, 50), (340, 60), (350, 20), (360, 40)];
        let seen = after(&twice(&fall));
        assert!(seen.sizes(730, SPAN).contains(&80.0), "{:?}", seen.teeth);
    }

    #[test]
    fn rise_above_peak_ends_fall() {
        let mut seen = after(&[(0, 10), (300, 100), (310, 70), (320, 80)]);
        seen.note(&[(400, 120), (410, 60), (420, 90)]);
        assert!(seen.sizes(420, SPAN).iter().all(|size| *size <= 60.0), "{:?}", seen.teeth);
        assert_eq!(usize::from(seen.teeth.depth), 1);
    }

    #[test]
    fn small_drops_keep_a_large_one() {
        let mut seen = after(&twice(&[(0, 10), (300, 200), (301, 50), (310, 100)]));
        for n in 0..20 {
            seen.note(&[(640 + n * 10, 110 + n * 10), (645 + n * 10, 105 + n * 10)]);
        }
        assert!(seen.sizes(840, SPAN).contains(&150.0));
    }

    #[test]
    fn growth_alone_has_no_teeth() {
        let values: Vec<(u32, u32)> = (0..1_000).map(|at| (at, at / 10)).collect();
        assert_eq!(after(&values).sizes(1_000, 0), [0.0; 0]);
    }
}
