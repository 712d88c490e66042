//! Whether the floor of one window grows without end: its lower envelope, read from the right.
//!
//! A minimum belongs to the envelope when memory never fell to it again: it is a record of the series read backwards.
//! Four things must be said of the envelope before it is called a leak:
//!
//! - **Many records.** Of sixteen values without a trend 3.4 are records on average, and nine or more once in 2,300
//!   times, whatever the distribution (F. G. Foster and A. Stuart, "Distribution-free tests in time-series
//!   based on the breaking of records", JRSS B 16, 1954). A load or a few steps make few records, too.
//! - **Many steps.** The four largest do not make most of the growth: a warm-up takes three or five.
//! - **Growth.** More than what is worth a word in a window of this length ([`least_growth`]).
//! - **Straightness.** The way from the first record to the last stays near its chord, by the distance of Kolmogorov and
//!   Smirnov. Above the chord growth came early and slows down: a warm-up, a cache that fills, a plateau. Below it growth
//!   came late, and one load looks like that; a leak that began in the window has to fill it first.
//!
//! What a collection may still take away ([`Teeth`]) is taken off first, down to the floor that the last one left.

use super::floors::{Floors, Minimum, SPANS, window};
use super::slope::{Slope, slope};
use super::teeth::{Due, Teeth};

/// Records that make a trend, and how many when it is so many times stronger than what is worth a word. Minutes have seen
/// less than hours, and are asked for more.
const RECORDS: usize = 12;
const RECORDS_OF_STRONG: usize = 9;
const STRONG: f64 = 1.3;
const STRONG_OF_MINUTES: f64 = 1.5;
/// The first scale whose window is longer than six minutes.
const HOURS: usize = 3;
/// The part of the window that the envelope covers at least; the rest may be calm before it, or a tooth after it.
const COVERED: f64 = 0.66;
/// Spans before the first record where growth has to fill the window: in the shortest window it always does, for a load
/// takes as long as a part of it; in the others while growth is not strong and the series is shorter than the window.
const BEFORE: f64 = 1.0;
/// How far growth may run ahead of the chord, as a part of it.
const EARLY: f64 = 0.11;
const EARLY_OF_STRONG: f64 = 0.14;
/// How far it may lag behind, and how far in the shortest window.
const LATE: f64 = 0.25;
const LATE_FIRST: f64 = 0.08;
/// A warm-up takes a few steps: so many of the largest make at most this part of the growth, or that where there are many.
const FEW_STEPS: usize = 4;
const FEW_STEPS_PART: f64 = 0.66;
const FEW_OF_MANY_PART: f64 = 0.7;
const MANY_STEPS: usize = 11;
/// A record is higher than the one before by at least this part of the growth: a plateau's ripples are none.
const STEP: f64 = 1.0 / 32.0;
/// Growth that is worth a word in the shortest window, in KiB.
const WORTH: f64 = 35.0 * 1024.0;
/// How much more is asked of a window twice as long: an hour has seen caches fill that a minute has not.
const WORTH_MORE: f64 = 1.21;
/// And the least part of what was there before: the noise of a large program is large.
const WORTH_PART: f64 = 0.02;

/// Growth of a floor. Memory in KiB, time in tenths of a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rising {
    /// Per tenth of a second.
    pub(super) slope: Slope,
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

/// Growth that is worth a word in the window of a scale, in KiB, above a floor of `from`.
fn least_growth(scale: usize, from: f64, factor: f64) -> f64 {
    factor * (WORTH * WORTH_MORE.powi(scale as i32)).max(WORTH_PART * from)
}

/// The growth of the floor in the window of a scale, when that is growth without end. `factor` is how many times more than
/// usual is asked for.
pub(super) fn rising(floors: &Floors, teeth: &Teeth, scale: usize, factor: f64) -> Option<Rising> {
    // Cheap first: most windows are flat, and what teeth take off makes no growth.
    let (mut least, mut most) = (u32::MAX, 0);
    for minimum in floors.minima(scale) {
        (least, most) = (least.min(minimum.kib), most.max(minimum.kib));
    }
    if f64::from(most.saturating_sub(least)) < least_growth(scale, f64::from(least), factor) {
        return None;
    }
    let due: Vec<Due> = teeth.due().collect();
    let mut points = [(0.0, 0.0); SPANS];
    let mut count = 0;
    for minimum in floors.minima(scale) {
        if let Some(kib) = proven(&due, minimum) {
            points[count] = (f64::from(minimum.span), kib);
            count += 1;
        }
    }
    let points = &points[..count];
    let mut records = [(0.0, 0.0); SPANS];
    let records = envelope(points, &mut records)?;
    let ((x0, y0), (x1, y1)) = (*records.first()?, *records.last()?);
    let grown = y1 - y0;
    let least = least_growth(scale, y0, factor);
    let covered = (x1 - x0) / (SPANS as f64 - 1.0);
    let strong = if scale < HOURS { STRONG_OF_MINUTES } else { STRONG };
    let (enough, ahead) = if grown >= strong * least { (RECORDS_OF_STRONG, EARLY_OF_STRONG) } else { (RECORDS, EARLY) };
    let lag = if scale == 0 { LATE_FIRST } else { LATE };
    let short = points.first()?.0 > BEFORE && grown < strong * least || scale == 0 && x0 > 0.0;
    if grown < least || records.len() < enough || covered < COVERED || short {
        return None;
    }
    let few = if records.len() < MANY_STEPS { FEW_STEPS_PART } else { FEW_OF_MANY_PART };
    let (mut early, mut late) = (0.0_f64, 0.0_f64);
    for (x, y) in records.iter() {
        let above = (y - y0) / grown - (x - x0) / (x1 - x0);
        early = early.max(above);
        late = late.max(-above);
    }
    if early > ahead || late > lag || few_steps(records) > few * grown {
        return None;
    }
    let span = f64::from(window(scale)) / SPANS as f64;
    let Slope { median, low, high } = slope(records)?;
    let slope = Slope { median: median / span, low: low / span, high: high / span };
    Some(Rising { slope, from: y0, grown, time: (x1 - x0) * span, bent: early.max(late), times: grown / least })
}

/// What is certain of a minimum: less than it by what a collection may still take away; `None` when nothing is.
fn proven(due: &[Due], minimum: Minimum) -> Option<f64> {
    let kib = f64::from(minimum.kib);
    let after = |due: &Due| minimum.ended > due.since;
    let mut least = kib;
    for due in due.iter().filter(|due| after(due)) {
        if kib - due.size <= due.floor && kib > due.floor {
            return None;
        }
        least = least.min(kib - due.size.min(kib - due.floor).max(0.0));
    }
    Some(least)
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

/// The records of the points read backwards, the oldest first.
fn envelope<'r>(points: &[(f64, f64)], records: &'r mut [(f64, f64); SPANS]) -> Option<&'r [(f64, f64)]> {
    let least = points.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
    let (_, last) = *points.last()?;
    let step = (last - least) * STEP;
    let mut first = SPANS;
    for point in points.iter().rev() {
        if first == SPANS || point.1 < records[first].1 - step {
            first -= 1;
            records[first] = *point;
        }
    }
    Some(&records[first..])
}
