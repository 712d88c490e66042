//! Whether the floor of one window grows without end: its lower envelope, read from the right.
//!
//! A minimum belongs to the envelope when memory never fell to it again: it is a record of the series read backwards.
//! The envelope must meet four conditions before it is called a leak:
//!
//! - **Many records.** Of sixteen values without a trend 3.4 are records on average, and nine or more once in 2,300
//!   times, whatever the distribution (F. G. Foster and A. Stuart, "Distribution-free tests in time-series
//!   based on the breaking of records", JRSS B 16, 1954). A load or a few steps make few records, too.
//! - **Many steps.** The four largest do not make most of the growth: a warm-up takes three or five.
//! - **Growth.** More than is reported in a window of this length ([`least_growth`]).
//! - **Straightness.** The way from the first record to the last stays near its chord, by the distance of Kolmogorov and
//!   Smirnov. Above the chord growth came early and slows down: a warm-up, a cache that fills, a plateau. Below it growth
//!   came late, and one load looks like that; a leak that began in the window has to fill it first.
//!
//! What a collection may still take away ([`TeethDue`]) is taken off first, down to the floor that the last one left. A
//! collection that memory has outgrown is not expected any more.

use super::minima::{Floors, Minimum, SPANS, window};
use super::sawtooth::TeethDue;
use super::slope::{Slope, slope};

/// The number of records that make a trend.
const RECORDS: usize = 12;
/// The same for growth of at least [`STRONG`] times the reported amount.
const RECORDS_OF_STRONG: usize = 9;
const STRONG: f64 = 1.3;
/// How far growth may run ahead of the chord, as a part of it.
const EARLY: f64 = 0.11;
/// How far it may lag behind, and how far in the shortest window, which growth has to fill: a load takes as long as a part
/// of it, and noise of seconds bends it.
const LATE: f64 = 0.25;
const LATE_IN_SHORTEST: f64 = 0.08;
/// The largest steps, of which a warm-up has only a few.
const FEW_STEPS: usize = 4;
/// The largest steps together make at most this part of a leak's growth.
const FEW_STEPS_PART: f64 = 0.68;
/// A record is higher than the one before by at least this part of the growth: a plateau's ripples are none.
const STEP: f64 = 1.0 / 32.0;
/// A drop is no longer expected when this many of the newest minima are above its depth.
const OUTGROWN: usize = 4;
/// The least growth that is reported in the shortest window, in KiB.
const WORTH: f64 = 35.0 * 1024.0;
/// How much more growth a window twice as long needs: an hour has seen caches fill that a minute has not.
const WORTH_MORE: f64 = 1.21;
/// The least growth as a part of the memory before it: the noise of a large program is large.
const WORTH_PART: f64 = 0.02;

/// Growth of a floor. Memory in KiB, time in tenths of a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rising {
    /// Per tenth of a second.
    pub(super) slope: Slope,
    /// When the first record began, since the beginning of the series.
    pub(super) at: f64,
    /// The floor where the window begins.
    pub(super) from: f64,
    /// By how much it has grown.
    pub(super) grown: f64,
    /// The time between the first record and the last.
    pub(super) time: f64,
    /// The largest distance from the chord, as a part of the growth.
    pub(super) bent: f64,
    /// How often the growth is what was asked for.
    pub(super) times: f64,
}

/// The least growth that is reported in the window of a scale, in KiB, above a floor of `from`.
fn least_growth(scale: usize, from: f64, factor: f64) -> f64 {
    factor * (WORTH * WORTH_MORE.powi(scale as i32)).max(WORTH_PART * from)
}

/// The growth of the floor in the window of a scale, when that is growth without end. `factor` is how many times more than
/// usual is asked for.
pub(super) fn rising(
    floors: &Floors,
    due: impl Iterator<Item = TeethDue>,
    scale: usize,
    factor: f64,
) -> Option<Rising> {
    // Cheap first: most windows are flat, and what teeth take off makes no growth.
    let (mut least, mut most) = (u32::MAX, 0);
    for minimum in floors.minima(scale) {
        (least, most) = (least.min(minimum.kib), most.max(minimum.kib));
    }
    if f64::from(most.saturating_sub(least)) < least_growth(scale, f64::from(least), factor) {
        return None;
    }
    let envelope = Envelope::of(floors, due, scale)?;
    let records = envelope.records();
    let ((x0, y0), (x1, y1)) = (*records.first()?, *records.last()?);
    let grown = y1 - y0;
    let least = least_growth(scale, y0, factor);
    let enough = if grown >= STRONG * least { RECORDS_OF_STRONG } else { RECORDS };
    if grown < least || records.len() < enough || scale == 0 && x0 > 0.0 {
        return None;
    }
    let (mut early, mut late) = (0.0_f64, 0.0_f64);
    for (x, y) in records.iter() {
        let above = (y - y0) / grown - (x - x0) / (x1 - x0);
        early = early.max(above);
        late = late.max(-above);
    }
    let most_late = if scale == 0 { LATE_IN_SHORTEST } else { LATE };
    if early > EARLY || late > most_late || few_steps(records) > FEW_STEPS_PART * grown {
        return None;
    }
    let span = f64::from(window(scale)) / SPANS as f64;
    let Slope { median, low, high } = slope(records)?;
    let slope = Slope { median: median / span, low: low / span, high: high / span };
    let newest = floors.minima(scale).last()?;
    let at = f64::from(newest.ended) - (f64::from(newest.span) + 1.0 - x0) * span;
    Some(Rising { slope, at, from: y0, grown, time: (x1 - x0) * span, bent: early.max(late), times: grown / least })
}

/// The slope of the envelope in the window of a scale, in KiB per tenth of a second, when half of the window has one.
pub(super) fn steepness(floors: &Floors, due: impl Iterator<Item = TeethDue>, scale: usize) -> Option<f64> {
    let envelope = Envelope::of(floors, due, scale)?;
    let records = envelope.records();
    let span = f64::from(window(scale)) / SPANS as f64;
    (records.len() >= SPANS / 2).then(|| slope(records)).flatten().map(|slope| slope.median / span)
}

/// What is certain of a minimum: less than it by what a collection may still take away.
fn proven(due: &[TeethDue], minimum: Minimum) -> f64 {
    let kib = f64::from(minimum.kib);
    let after = due.iter().filter(|due| minimum.ended > due.since);
    after.map(|due| kib - due.size.min(kib - due.floor).max(0.0)).fold(kib, f64::min)
}

/// The growth of the largest steps between records.
fn few_steps(records: &[(f64, f64)]) -> f64 {
    let mut largest = [0.0_f64; FEW_STEPS];
    for pair in records.windows(2) {
        let mut step = pair[1].1 - pair[0].1;
        for place in &mut largest {
            if step > *place {
                std::mem::swap(place, &mut step);
            }
        }
    }
    largest.iter().sum()
}

/// The records of the minima of a window, read backwards.
struct Envelope {
    records: [(f64, f64); SPANS],
    first: usize,
}

impl Envelope {
    fn of(floors: &Floors, due: impl Iterator<Item = TeethDue>, scale: usize) -> Option<Self> {
        let minima: Vec<Minimum> = floors.minima(scale).collect();
        let newest = minima.iter().rev().take(OUTGROWN);
        let recent = f64::from(newest.map(|minimum| minimum.kib).min()?);
        let due: Vec<TeethDue> = due.filter(|due| recent <= due.floor + due.size).collect();
        let mut points = [(0.0, 0.0); SPANS];
        for (point, minimum) in points.iter_mut().zip(&minima) {
            *point = (f64::from(minimum.span), proven(&due, *minimum));
        }
        let points = &mut points[..minima.len()];
        // Growth that has just been given back is none.
        let newest = points.last_mut()?;
        newest.1 = newest.1.min(f64::from(floors.newest(scale)));
        let last = newest.1;
        let least = points.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
        let step = (last - least) * STEP;
        let (mut records, mut first) = ([(0.0, 0.0); SPANS], SPANS);
        for point in points.iter().rev() {
            if first == SPANS || point.1 < records[first].1 - step {
                first -= 1;
                records[first] = *point;
            }
        }
        Some(Self { records, first })
    }

    /// The oldest first.
    fn records(&self) -> &[(f64, f64)] {
        &self.records[self.first..]
    }
}
