//! What memory never fell below: minima of equal spans of time, at thirteen scales at once.

/// A span of the finest scale, in tenths of a second.
const SPAN: u32 = 32;
/// Complete spans in the window that a scale is judged by.
pub(super) const SPANS: usize = 16;
/// Scales. Each has spans twice as long as the one before: windows from 51 seconds to two days and a half.
pub(super) const SCALES: usize = 13;
/// No sample fell into the span.
const NONE: u32 = u32::MAX;
/// The complete spans, and the one that is being filled.
const SLOTS: usize = SPANS + 1;

/// The minima of one scale, in KiB.
#[derive(Clone, Copy, Debug)]
struct Ring {
    /// The number of the span that is being filled, counted from the beginning of the series.
    newest: u32,
    minima: [u32; SLOTS],
}

/// The minima of all scales.
#[derive(Clone, Debug)]
pub(super) struct Floors {
    rings: [Ring; SCALES],
}

/// A complete span, and the least memory in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Minimum {
    /// The span's number within the window: the newest complete one has the last number.
    pub(super) span: u32,
    /// When it ended, in tenths of a second since the beginning of the series.
    pub(super) ended: u32,
    /// In KiB.
    pub(super) kib: u32,
}

/// Scales by number, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scales(u16);

impl Scales {
    /// The scales, the finest first.
    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..SCALES).filter(move |scale| self.0 & (1 << scale) != 0)
    }

    fn add(&mut self, scale: usize) {
        self.0 |= 1 << scale;
    }
}

/// How long a span of a scale is, in tenths of a second.
pub(super) const fn length(scale: usize) -> u32 {
    SPAN << scale
}

/// How long the window of a scale is, in tenths of a second.
pub(super) const fn window(scale: usize) -> u32 {
    (SPAN << scale) * SPANS as u32
}

impl Minimum {
    /// When the span began, in tenths of a second since the beginning of the series.
    pub(super) fn began(&self, scale: usize) -> u32 {
        self.ended - length(scale)
    }
}

impl Ring {
    const EMPTY: Self = Self { newest: 0, minima: [NONE; SLOTS] };

    /// Advances to a span; those in between get `between`.
    fn advance(&mut self, span: u32, between: u32) {
        for skipped in (self.newest + 1).max(span.saturating_sub(SLOTS as u32))..span {
            self.minima[skipped as usize % SLOTS] = between;
        }
        self.minima[span as usize % SLOTS] = NONE;
        self.newest = span;
    }

    fn note(&mut self, kib: u32) {
        let slot = &mut self.minima[self.newest as usize % SLOTS];
        *slot = (*slot).min(kib);
    }
}

impl Floors {
    pub(super) fn new() -> Self {
        Self { rings: [Ring::EMPTY; SCALES] }
    }

    /// Notes what memory was at a moment. Spans without a sample since the last one get `between`, where that is known.
    /// Gives the scales of which a span was completed.
    pub(super) fn note(&mut self, at: u32, kib: u32, between: Option<u32>) -> Scales {
        let mut completed = Scales::default();
        for (scale, ring) in self.rings.iter_mut().enumerate() {
            let span = at / (SPAN << scale);
            if span > ring.newest {
                ring.advance(span, between.unwrap_or(NONE));
                completed.add(scale);
            }
            ring.note(kib);
        }
        completed
    }

    /// When memory was at most this high before a moment: the beginning of the last earlier span that reached down to it.
    pub(super) fn last_below(&self, kib: u32, before: u32) -> u32 {
        let last = |(ring, scale): (&Ring, usize)| {
            let first = ring.newest.saturating_sub(SPANS as u32);
            let span = (first..before / length(scale)).rev().find(|span| ring.minima[*span as usize % SLOTS] <= kib)?;
            Some(span * length(scale))
        };
        self.rings.iter().zip(0..).find_map(last).unwrap_or(0)
    }

    /// The least memory in the span that is being filled, in KiB.
    pub(super) fn newest(&self, scale: usize) -> u32 {
        let ring = &self.rings[scale];
        ring.minima[ring.newest as usize % SLOTS]
    }

    /// The window of a scale: its complete spans that had a sample, the oldest first.
    pub(super) fn minima(&self, scale: usize) -> impl Iterator<Item = Minimum> {
        let ring = &self.rings[scale];
        let first = ring.newest.saturating_sub(SPANS as u32);
        (first..ring.newest).filter_map(move |span| {
            let kib = ring.minima[span as usize % SLOTS];
            (kib != NONE).then_some(Minimum {
                span: SPANS as u32 + span - ring.newest,
                ended: (span + 1) * (SPAN << scale),
                kib,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kib(floors: &Floors, scale: usize) -> Vec<u32> {
        floors.minima(scale).map(|minimum| minimum.kib).collect()
    }

    #[test]
    fn span_keeps_minimum_once_complete() {
        let mut floors = Floors::new();
        for (at, kib) in [(0, 9), (10, 5), (31, 7)] {
            floors.note(at, kib, None);
        }
        assert!(kib(&floors, 0).is_empty());
        let completed = floors.note(32, 8, None);
        assert_eq!(completed.iter().collect::<Vec<_>>(), [0]);
        assert_eq!(kib(&floors, 0), [5]);
        assert!(kib(&floors, 1).is_empty());
    }

    #[test]
    fn empty_spans_are_skipped_or_filled() {
        for (between, expected) in [(None, vec![1]), (Some(1), vec![1, 1, 1, 1])] {
            let mut floors = Floors::new();
            floors.note(0, 1, None);
            floors.note(4 * SPAN, 2, between);
            assert_eq!(kib(&floors, 0), expected);
        }
    }

    #[test]
    fn window_keeps_last_spans_across_gaps() {
        let mut floors = Floors::new();
        for span in 0..100 {
            floors.note(span * SPAN, span, None);
        }
        assert_eq!(kib(&floors, 0), (83..99).collect::<Vec<_>>());
        floors.note(u32::MAX, 7, Some(99));
        assert_eq!(kib(&floors, 0), [99; SPANS]);
        floors.note(u32::MAX, 7, None);
        assert_eq!(floors.minima(3).count(), SPANS);
    }
}
