//! Memory over time, as far as it was observed.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;
use watchdog_api::{Process, Record, Session};

use super::observation::Observation;

/// Samples of a series: two minutes at one a second, twenty at one in ten seconds.
const MAX_SAMPLES: usize = 120;
/// Growth is measured over this span, or less if the series is younger.
const GROWTH_SPAN: f64 = 60.0;
/// A shorter series has no growth.
const MIN_SPAN: f64 = 5.0;
/// A series that was not observed for so long is dropped.
const FORGOTTEN: f64 = 120.0;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Changes below a twentieth of the memory look flat.
const FLAT: u64 = 20;

/// Whose memory a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SeriesKey {
    /// Available memory of the host.
    Host,
    Session(u64),
    Process {
        pid: u32,
        start_time: u64,
    },
}

#[derive(Clone, Debug, Default)]
struct TimedSeries {
    /// Seconds since the epoch, bytes.
    samples: VecDeque<(f64, u64)>,
}

/// The series of everything that was observed lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trends {
    series: HashMap<SeriesKey, TimedSeries>,
}

/// anon + shmem + swap, which is what a session is charged with.
pub(crate) const fn charged(process: &Process) -> u64 {
    process.anon_bytes.saturating_add(process.shmem_bytes).saturating_add(process.swap_bytes)
}

pub(crate) fn epoch_seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

impl Trends {
    pub(crate) fn observe(&mut self, observation: &Observation) {
        let at = epoch_seconds(observation.at);
        self.add(SeriesKey::Host, at, observation.host.memory_available_bytes);
        for session in &observation.tree.sessions {
            self.observe_session(session, at);
        }
        self.series.retain(|_, series| series.samples.back().is_some_and(|(last, _)| at - last < FORGOTTEN));
    }

    fn observe_session(&mut self, session: &Session, at: f64) {
        self.add(SeriesKey::Session(session.id), at, session.memory_bytes);
        for process in &session.processes {
            let key = SeriesKey::Process { pid: process.pid, start_time: process.start_time };
            self.add(key, at, charged(process));
        }
    }

    /// Adds the host records of the history up to `until`.
    pub(crate) fn replay(&mut self, records: &[Record], until: Timestamp) {
        for record in records {
            let watchdog_api::Past::Host(host) = &record.what else { continue };
            let Some(at) = record.at.parse::<Timestamp>().ok().filter(|at| *at <= until) else { continue };
            let at = epoch_seconds(at);
            self.add(SeriesKey::Host, at, host.memory.memory_available_bytes);
            for session in &host.sessions {
                self.add(SeriesKey::Session(session.session), at, session.memory_bytes);
            }
            for process in &host.processes {
                let key = SeriesKey::Process { pid: process.pid, start_time: process.start_time };
                self.add(key, at, process.memory_bytes);
            }
        }
    }

    fn add(&mut self, key: SeriesKey, at: f64, bytes: u64) {
        let samples = &mut self.series.entry(key).or_default().samples;
        // Time went back: another recording position, or the clock was set.
        if samples.back().is_some_and(|(last, _)| *last > at) {
            samples.clear();
        }
        if samples.back().is_some_and(|(last, _)| (at - last).abs() < 0.5) {
            samples.pop_back();
        }
        samples.push_back((at, bytes));
        if samples.len() > MAX_SAMPLES {
            samples.pop_front();
        }
    }

    /// Growth in bytes per minute; `None` for a series that is too young.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "three digits are shown")]
    pub(crate) fn growth_per_minute(&self, key: SeriesKey) -> Option<i64> {
        let samples = &self.series.get(&key)?.samples;
        let (last, now) = *samples.back()?;
        let (first, before) = *samples.iter().find(|(at, _)| last - at <= GROWTH_SPAN)?;
        let span = last - first;
        (span >= MIN_SPAN).then(|| ((now as f64 - before as f64) / span * 60.0) as i64)
    }

    /// At most `width` characters; fewer while the series is young.
    pub(crate) fn sparkline(&self, key: SeriesKey, width: usize) -> String {
        let Some(series) = self.series.get(&key).filter(|_| width > 0) else { return String::new() };
        let samples = &series.samples;
        let bucket = samples.len().div_ceil(width).max(1);
        // From the end, so that a column does not change while the last one fills.
        let values: Vec<u64> = samples.iter().map(|(_, bytes)| *bytes).collect();
        let columns: Vec<u64> = values.rchunks(bucket).rev().filter_map(|chunk| chunk.iter().max().copied()).collect();
        let high = columns.iter().max().copied().unwrap_or_default();
        let low = columns.iter().min().copied().unwrap_or_default();
        // A flat series stays in the middle.
        let margin = (high / FLAT).saturating_sub(high - low) / 2;
        let (low, span) = (low.saturating_sub(margin), (high - low).max(high / FLAT).max(1));
        let top = LEVELS.len() as u64 - 1;
        let level = |bytes: u64| u128::from(bytes.saturating_sub(low)) * u128::from(top) / u128::from(span);
        columns
            .iter()
            .filter_map(|bytes| LEVELS.get(usize::try_from(level(*bytes)).ok()?.min(LEVELS.len() - 1)))
            .collect()
    }
}
