//! How often to look at the memory of tracked processes, and which of them have changed enough to be told about.
//!
//! A round is a cheap [`Glance`] at every tracked process, from the kernel's task iterator or from
//! [`statm`](super::statm). [`Sampler::round`] compares it with what was told before and names those that changed;
//! [`refine`] asks /proc for exact numbers of these alone, since glances may be off: the kernel counts pages per CPU, and
//! a glance sees the sum only to within some hundred pages on small machines, and some thousand on large ones.
//!
//! Most processes sleep, so what costs is looking: a microsecond or two for each, since nothing of a sleeper is in a cache.
//! While the memory of the whole host stands still ([`Sampler::stirred`], which asks for one file of /proc), rounds are rare.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use watchdog_common::{COMM_LEN, SampleFlags, SampleRecord, name_hash};

use super::error::HostError;
use super::memory;
use crate::engine::id::{BootTime, Bytes, Pid, ProcessId, Ticks};
use crate::engine::input::{HostMemory, Memory, Sample};
use crate::kernel::text;

/// A change smaller than this many pages (256 KiB) is not told.
const STEP_PAGES: u32 = 64;
/// Growth of all tracked processes together, per second, from which on looking is quick.
const GROWING: Bytes = Bytes::from_mib(8);
/// The time between two looks while something grows.
const QUICK: Duration = Duration::from_millis(250);
/// The time between two looks at the memory of the host, which say whether its processes are worth a look.
pub const HOST_INTERVAL: Duration = Duration::from_secs(1);
/// And the shortest, when little is left.
const HOST_SOONEST: Duration = Duration::from_millis(100);
/// Processes can take this much in a second: a look is due before they could have taken all that is left.
const FILL: Bytes = Bytes::from_mib(4 * 1024);
/// While the memory of the host stands still, a look is due only in this many idle intervals. It is due then, for what
/// no sum shows: one process that grew by what another gave back, a new comm, a terminal that is gone.
const REST: u32 = 3;
/// The host's memory has moved when it differs by this from what it was at the last look.
const STIR: Bytes = Bytes::from_mib(4);
/// Each process is told exactly once in this many rounds even when no change shows, in turn: what the glances missed.
const REFRESH_ROUNDS: u32 = 200;

/// How long the next look at the memory of the host may be in coming.
#[must_use]
pub fn until_next_look(host: &HostMemory) -> Duration {
    let left = host.available + host.swap_free;
    let fills = Duration::from_millis(left.0 / (FILL.0 / 1_000));
    fills.clamp(HOST_SOONEST, HOST_INTERVAL)
}

/// A process as a cheap source shows it. Counts are pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Who.
    pub process: ProcessId,
    /// Anonymous resident pages.
    pub anon: u32,
    /// Resident pages of files; 0 where the source cannot tell them from shared memory.
    pub file: u32,
    /// Resident shared memory.
    pub shmem: u32,
    /// Swapped out; 0 where the source does not tell.
    pub swap: u32,
    /// The kernel's high-water mark, which it brings up to date when memory shrinks; 0 where the source does not tell.
    pub hiwater: u32,
    /// Today's parent, where the source tells it.
    pub ppid: Option<Pid>,
    /// Dead, and not yet waited for.
    pub zombie: bool,
    /// Has a controlling terminal, where the source tells it.
    pub tty: Option<bool>,
    /// comm, NUL-padded, where the source tells it.
    pub comm: Option<[u8; COMM_LEN]>,
}

impl Glance {
    fn charged(&self) -> u32 {
        self.anon.saturating_add(self.shmem).saturating_add(self.swap)
    }

    /// The highest resident set that this glance shows.
    fn peak(&self) -> u32 {
        self.hiwater.max(self.anon.saturating_add(self.file).saturating_add(self.shmem))
    }
}

impl From<&SampleRecord> for Glance {
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

/// A process that is to be told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// How it was just seen.
    pub glance: Glance,
    /// The highest resident set that was seen of the program that it runs, in pages.
    pub peak: u32,
}

/// What is remembered of a process.
struct Known {
    start_time: Ticks,
    /// As it was last told.
    told: Told,
    /// In the round before: pages charged, and the high-water mark.
    charged: u32,
    hiwater: u32,
    peak: u32,
    /// The round that it was last seen in.
    round: u32,
}

/// Bytes that a sampler holds for each living process: about this, and a byte of the table's own.
pub const BYTES_PER_PROCESS: usize = size_of::<(Pid, Known)>();
const _: () = assert!(BYTES_PER_PROCESS <= 72);

#[derive(Clone, Copy)]
struct Told {
    anon: u32,
    shmem: u32,
    swap: u32,
    peak: u32,
    ppid: Option<Pid>,
    zombie: bool,
    tty: Option<bool>,
    /// A hash of comm, or 0: enough to see that it is another one.
    comm: u32,
}

impl Told {
    fn of(glance: &Glance, peak: u32) -> Self {
        let Glance { process: _, anon, file: _, shmem, swap, hiwater: _, ppid, zombie, tty, comm } = *glance;
        #[expect(clippy::cast_possible_truncation, reason = "half a hash tells two names apart as well")]
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

/// The memory of the last rounds, and the pace of the next.
pub struct Sampler {
    known: HashMap<Pid, Known>,
    idle: Duration,
    interval: Duration,
    round: u32,
    last: Option<BootTime>,
    page: u64,
    /// What the host holds now, and held at the last round.
    held: Bytes,
    held_then: Bytes,
}

impl Sampler {
    /// A sampler that looks every `idle` while nothing grows, and less often while nothing moves.
    #[must_use]
    pub fn new(idle: Duration) -> Self {
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let (held, held_then) = (Bytes(0), Bytes(0));
        Self { known: HashMap::new(), idle, interval: idle, round: 0, last: None, page, held, held_then }
    }

    /// Takes another interval for quiet times.
    pub fn set_idle(&mut self, idle: Duration) {
        self.idle = idle;
        self.interval = self.interval.min(idle);
    }

    /// Takes what the host holds, every [`HOST_INTERVAL`]. Whether it has moved since the last round, so that one is due.
    pub fn stirred(&mut self, held: Bytes) -> bool {
        self.held = held;
        held.0.abs_diff(self.held_then.0) >= STIR.0
    }

    /// Takes one glance at every tracked process, appends those that changed to `changes`, and says how long to wait
    /// for the next round. A process without a glance is forgotten.
    ///
    /// A change is the first sight; 64 pages more or less of anonymous, shared or swapped memory since it was last told, or
    /// of its peak; another parent; a terminal lost or got; another comm; death; or its turn.
    pub fn round(
        &mut self,
        at: BootTime,
        glances: impl IntoIterator<Item = Glance>,
        changes: &mut Vec<Change>,
    ) -> Duration {
        self.round = self.round.wrapping_add(1);
        let mut seen = 0;
        let mut grown: u64 = 0;
        for glance in glances {
            if let Some(pages) = self.take(glance, changes) {
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
        self.held_then = self.held;
        let elapsed = self.last.replace(at).map(|last| at.since(last));
        self.interval = self.pace(grown.saturating_mul(self.page), elapsed);
        self.interval
    }

    /// Takes one glance; gives the pages that the process grew by. `None` for a second glance in one round: of a process
    /// whose first thread has exited, the iterator shows every other thread.
    fn take(&mut self, glance: Glance, changes: &mut Vec<Change>) -> Option<u32> {
        let round = self.round;
        let ProcessId { pid, start_time } = glance.process;
        let mut slot = match self.known.entry(pid) {
            Entry::Occupied(slot) if slot.get().start_time == start_time => slot,
            slot => {
                // The first sight. Its memory is no growth: after a fork it is its parent's, shared with it.
                let peak = glance.peak();
                let told = Told::of(&glance, peak);
                let (charged, hiwater) = (glance.charged(), glance.hiwater);
                slot.insert_entry(Known { start_time, told, charged, hiwater, peak, round });
                changes.push(Change { glance, peak });
                return Some(0);
            }
        };
        let known = slot.get_mut();
        if known.round == round {
            return None;
        }
        // The mark of a memory map never falls: this is another one, so another program, with a peak of its own.
        // A zombie has let go of its map, and keeps its peak.
        if glance.hiwater < known.hiwater && !glance.zombie {
            known.peak = 0;
        }
        known.peak = known.peak.max(glance.peak());
        let grown = glance.charged().saturating_sub(known.charged);
        known.charged = glance.charged();
        known.hiwater = glance.hiwater;
        known.round = round;
        let now = Told::of(&glance, known.peak);
        let its_turn = round.wrapping_add(pid.0).is_multiple_of(REFRESH_ROUNDS);
        if known.told.differs(&now) || its_turn {
            known.told = now;
            changes.push(Change { glance, peak: known.peak });
        }
        Some(grown)
    }

    /// Quick at once when something grows; each quiet round half as slow again, up to the longest interval.
    fn pace(&self, grown: u64, elapsed: Option<Duration>) -> Duration {
        let seconds = elapsed.unwrap_or_default().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate is compared with a rough bound")]
        let grows = seconds > 0.0 && grown as f64 / seconds > GROWING.0 as f64;
        // Who wants more than one look a second does not want to wait for the host's memory to say so.
        let longest = if self.idle < HOST_INTERVAL { self.idle } else { self.idle * REST };
        if grows { QUICK.min(self.idle) } else { (self.interval * 3 / 2).min(longest) }
    }
}

/// Exact samples of the processes that changed; those that are gone by now are left out. 25 µs for each process.
///
/// # Errors
/// When the kernel refuses /proc/PID/status, which everybody may read.
pub fn refine(at: BootTime, changes: &[Change]) -> Result<Vec<Sample>, HostError> {
    let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let mut samples = Vec::with_capacity(changes.len());
    for Change { glance, peak } in changes {
        let Glance { process, ppid, zombie, tty, comm, .. } = *glance;
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
