//! Schedules memory samples of tracked processes, and selects the processes whose memory changed.
//!
//! A round takes a cheap [`MemorySample`] of every tracked process, from the kernel's task iterator or from
//! [`statm`](super::statm). [`Sampler::round`] compares it with the last report and selects the changes. [`refine`] reads
//! exact numbers from /proc for these alone: the kernel counts pages per CPU, and a sample can be off by some hundred
//! pages on small machines, and some thousand on large ones.
//!
//! Most processes sleep and their data is in no cache, so a sample costs 1 to 2 µs each. While the memory of the whole
//! host is steady ([`Sampler::changed`] reads one file of /proc), rounds are rare.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use watchdog_common::{COMM_LEN, SampleFlags, SampleRecord, name_hash};

use super::error::HostError;
use super::memory;
use watchdog_types::{BootTime, Bytes, HostMemory, Memory, Pid, ProcessId, Sample, Ticks, text};

/// Smaller changes (256 KiB) are not reported.
const STEP_PAGES: u32 = 64;
/// Growth per second of all tracked processes together above which rounds are quick.
const GROWING: Bytes = Bytes::from_mib(8);
/// Time between rounds while memory grows.
const QUICK: Duration = Duration::from_millis(250);
/// Longest time between two samples of the host's memory, which decide whether a round is due.
pub const HOST_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest, when little memory is left.
const HOST_SOONEST: Duration = Duration::from_millis(100);
/// Assumed fastest growth per second: the next sample is due before it could use up what is left.
const FILL: Bytes = Bytes::from_mib(4 * 1024);
/// Idle intervals between two rounds while the memory of the host is steady. A round finds what the sum hides: one
/// process that grew by what another freed, a new comm, a lost terminal.
const REST: u32 = 5;
/// Difference of the host's memory, since the last round, that makes a round due.
const STIR: Bytes = Bytes::from_mib(4);
/// Each process is reported exactly once in this many rounds even without a change, to correct inexact samples.
const REFRESH_ROUNDS: u32 = 200;

/// Time until the next sample of the host's memory.
#[must_use]
pub fn next_host_sample(host: &HostMemory) -> Duration {
    let left = host.available + host.swap_free;
    let fills = Duration::from_millis(left.0 / (FILL.0 / 1_000));
    fills.clamp(HOST_SOONEST, HOST_INTERVAL)
}

/// An inexact sample of one process, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySample {
    pub process: ProcessId,
    /// Resident.
    pub anon: u32,
    /// Resident; 0 where the source counts them with shared memory.
    pub file: u32,
    /// Resident.
    pub shmem: u32,
    /// 0 where the source has no such number.
    pub swap: u32,
    /// The kernel's high-water mark, updated when memory shrinks; 0 where the source has no such number.
    pub hiwater: u32,
    /// `None` where the source has no parent; the same for `tty` and `comm`.
    pub ppid: Option<Pid>,
    pub zombie: bool,
    /// Has a controlling terminal.
    pub tty: Option<bool>,
    /// NUL-padded.
    pub comm: Option<[u8; COMM_LEN]>,
}

impl MemorySample {
    fn charged(&self) -> u32 {
        self.anon.saturating_add(self.shmem).saturating_add(self.swap)
    }

    /// The highest resident set that this sample shows.
    fn peak(&self) -> u32 {
        self.hiwater.max(self.anon.saturating_add(self.file).saturating_add(self.shmem))
    }
}

impl From<&SampleRecord> for MemorySample {
    fn from(record: &SampleRecord) -> Self {
        // A per-CPU counter may be seen below zero.
        let [file, anon, swap, shmem] = record.pages.map(|pages| u32::try_from(pages.max(0)).unwrap_or(u32::MAX));
        Self {
            process: ProcessId::from_kernel(record.tgid, record.start),
            anon,
            file,
            shmem,
            swap,
            hiwater: u32::try_from(record.hiwater_rss).unwrap_or(u32::MAX),
            ppid: Some(Pid(record.ppid)),
            zombie: record.flags & SampleFlags::ZOMBIE != 0,
            tty: Some(record.flags & SampleFlags::TTY != 0),
            comm: Some(record.comm),
        }
    }
}

/// A process to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryChange {
    pub sample: MemorySample,
    /// Highest resident set of the program that it runs now, in pages.
    pub peak: u32,
}

struct TrackedMemory {
    start_time: Ticks,
    reported: LastReport,
    /// In the last round: pages charged, and the high-water mark.
    charged: u32,
    hiwater: u32,
    peak: u32,
    /// Last round with a sample of it.
    round: u32,
}

/// Bytes that a sampler keeps per process, without one byte of the table.
pub const BYTES_PER_PROCESS: usize = size_of::<(Pid, TrackedMemory)>();
const _: () = assert!(BYTES_PER_PROCESS <= 72);

#[derive(Clone, Copy)]
struct LastReport {
    anon: u32,
    shmem: u32,
    swap: u32,
    peak: u32,
    ppid: Option<Pid>,
    zombie: bool,
    tty: Option<bool>,
    /// Hash of comm, or 0.
    comm: u32,
}

impl LastReport {
    fn of(sample: &MemorySample, peak: u32) -> Self {
        let MemorySample { process: _, anon, file: _, shmem, swap, hiwater: _, ppid, zombie, tty, comm } = *sample;
        #[expect(clippy::cast_possible_truncation, reason = "half a hash distinguishes two names as well")]
        let comm = comm.map_or(0, |comm| name_hash(&comm) as u32);
        Self { anon, shmem, swap, peak, ppid, zombie, tty, comm }
    }

    fn differs(&self, now: &Self) -> bool {
        let stepped = |before: u32, after: u32| before.abs_diff(after) >= STEP_PAGES;
        stepped(self.anon, now.anon)
            || stepped(self.shmem, now.shmem)
            || stepped(self.swap, now.swap)
            || stepped(self.peak, now.peak)
            || self.zombie != now.zombie
            || self.ppid != now.ppid
            || self.tty != now.tty
            || self.comm != now.comm
    }
}

/// The last reports, and the time of the next round.
pub struct Sampler {
    known: HashMap<Pid, TrackedMemory>,
    idle: Duration,
    interval: Duration,
    round: u32,
    last: Option<BootTime>,
    page: u64,
    /// Memory in use on the host now, and at the last round.
    held: Bytes,
    held_at_round: Bytes,
}

impl Sampler {
    /// `idle`: the time between rounds while no process grows.
    #[must_use]
    pub fn new(idle: Duration) -> Self {
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let (held, held_at_round) = (Bytes(0), Bytes(0));
        Self { known: HashMap::new(), idle, interval: idle, round: 0, last: None, page, held, held_at_round }
    }

    pub fn set_idle(&mut self, idle: Duration) {
        self.idle = idle;
        self.interval = self.interval.min(idle);
    }

    /// Reports these in the next round, changed or not: other numbers of them were reported, from another source.
    pub fn report_next(&mut self, processes: &[ProcessId]) {
        for process in processes {
            let known = self.known.get_mut(&process.pid);
            if let Some(known) = known.filter(|known| known.start_time == process.start_time) {
                // No process has as much.
                known.reported.anon = u32::MAX;
            }
        }
    }

    /// Takes the host's memory in use, every [`HOST_INTERVAL`]. Returns whether it changed enough for a round.
    pub fn changed(&mut self, held: Bytes) -> bool {
        self.held = held;
        held.0.abs_diff(self.held_at_round.0) >= STIR.0
    }

    /// Takes one sample of every tracked process, appends those that changed to `changes`, and returns the time until the
    /// next round. A process without a sample is forgotten.
    ///
    /// These count as changes: the first sample; 64 pages more or less of anonymous, shared or swapped memory, or of the
    /// peak, since the last report; another parent, comm or terminal; the exit; and every [`REFRESH_ROUNDS`]th round.
    pub fn round(
        &mut self,
        at: BootTime,
        samples: impl IntoIterator<Item = MemorySample>,
        changes: &mut Vec<MemoryChange>,
    ) -> Duration {
        self.round = self.round.wrapping_add(1);
        let mut seen = 0;
        let mut grown: u64 = 0;
        for sample in samples {
            if let Some(pages) = self.take(sample, changes) {
                seen += 1;
                grown += u64::from(pages);
            }
        }
        if seen < self.known.len() {
            self.known.retain(|_, known| known.round == self.round);
            if self.known.len() < self.known.capacity() / 8 {
                self.known.shrink_to(2 * self.known.len());
            }
        }
        self.held_at_round = self.held;
        let elapsed = self.last.replace(at).map(|last| at.since(last));
        self.interval = self.pace(grown.saturating_mul(self.page), elapsed);
        self.interval
    }

    /// Returns the pages that the process grew by. `None` for its second sample in one round: when the first thread has
    /// exited, the iterator shows every other thread.
    fn take(&mut self, sample: MemorySample, changes: &mut Vec<MemoryChange>) -> Option<u32> {
        let round = self.round;
        let ProcessId { pid, start_time } = sample.process;
        let mut slot = match self.known.entry(pid) {
            Entry::Occupied(slot) if slot.get().start_time == start_time => slot,
            slot => {
                // Its memory is not growth: after a fork it is shared with its parent.
                let peak = sample.peak();
                let reported = LastReport::of(&sample, peak);
                let (charged, hiwater) = (sample.charged(), sample.hiwater);
                slot.insert_entry(TrackedMemory { start_time, reported, charged, hiwater, peak, round });
                changes.push(MemoryChange { sample, peak });
                return Some(0);
            }
        };
        let known = slot.get_mut();
        if known.round == round {
            return None;
        }
        // The mark of one memory map never falls: this is the map of another program, with its own peak.
        // A zombie has released its map and keeps its peak.
        if sample.hiwater < known.hiwater && !sample.zombie {
            known.peak = 0;
        }
        known.peak = known.peak.max(sample.peak());
        let grown = sample.charged().saturating_sub(known.charged);
        known.charged = sample.charged();
        known.hiwater = sample.hiwater;
        known.round = round;
        let now = LastReport::of(&sample, known.peak);
        let its_turn = round.wrapping_add(pid.0).is_multiple_of(REFRESH_ROUNDS);
        if known.reported.differs(&now) || its_turn {
            known.reported = now;
            changes.push(MemoryChange { sample, peak: known.peak });
        }
        Some(grown)
    }

    /// Quick at once when memory grows; then each interval is half as long again, up to the longest.
    fn pace(&self, grown: u64, elapsed: Option<Duration>) -> Duration {
        let seconds = elapsed.unwrap_or_default().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate is compared with a rough threshold")]
        let grows = seconds > 0.0 && grown as f64 / seconds > GROWING.0 as f64;
        // With an interval below 1 s, rounds do not depend on the host's memory.
        let longest = if self.idle < HOST_INTERVAL { self.idle } else { self.idle * REST };
        if grows { QUICK.min(self.idle) } else { (self.interval * 3 / 2).min(longest) }
    }
}

/// Exact samples of the processes that changed, without those that have exited. 25 µs per process.
///
/// # Errors
/// When the kernel refuses /proc/PID/status, which every user may read.
pub fn refine(at: BootTime, changes: &[MemoryChange]) -> Result<Vec<Sample>, HostError> {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let mut samples = Vec::with_capacity(changes.len());
    for MemoryChange { sample, peak } in changes {
        let MemorySample { process, ppid, zombie, tty, comm, .. } = *sample;
        let memory = if zombie {
            Memory { peak: Bytes(u64::from(*peak) * page), ..Memory::default() }
        } else {
            match memory::memory(process)? {
                Some(memory) => memory,
                None => continue,
            }
        };
        let comm = comm.map(|comm| text(&comm));
        samples.push(Sample { at, process, memory, ppid, zombie, tty, comm });
    }
    Ok(samples)
}

#[cfg(test)]
#[path = "sampler_tests.rs"]
mod tests;
