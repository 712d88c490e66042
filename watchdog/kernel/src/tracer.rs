//! The handle on what runs in the kernel.

use std::cmp::Reverse;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use aya::Ebpf;
use aya::maps::MapData;
use aya::programs::links::PinnedLink;
use aya::programs::tp_btf::BtfTracePointLinkId;
use watchdog_common::{ReaderState, SampleRecord};
use zerocopy::FromBytes;

use super::denied_programs::DeniedFileTable;
use super::error::KernelError;
use super::features::Features;
use super::gated_sessions::GatedSessions;
use super::logs::KernelLog;
use super::losses::Lost;
use super::maps::{TrackingMaps, set_names};
use super::programs::read_iterator;
use super::stats::{Misses, ProgramStats};
use super::stream::EventRing;
use super::user_shares::UserShares;
use watchdog_config::Candidates;
use watchdog_host::clock;
use watchdog_host::pins::Pins;

/// The loaded programs, their links and their maps. Dropping it detaches everything that is not pinned.
pub struct Tracer {
    pub(super) ebpf: Ebpf,
    pub(super) maps: TrackingMaps,
    pub(super) features: Features,
    pub(super) sessions: GatedSessions,
    pub(super) denied: DeniedFileTable,
    pub(super) users: UserShares,
    pub(super) misses: Misses,
    pub(super) cause_misses: Misses,
    log: Option<KernelLog>,
    pub(super) close_watch: Option<Vec<(&'static str, BtfTracePointLinkId)>>,
    sample_buffer: Vec<u8>,
    /// Where programs, links and maps are pinned; locked.
    pub(super) pins: Option<Pins>,
    /// Pinned links. They keep programs attached even after the pins are removed.
    pub(super) links: Vec<PinnedLink>,
    /// Programs that an earlier daemon loaded.
    pub(super) earlier: Vec<(String, OwnedFd)>,
    /// Rings of other layouts, and the directories where their maps stay pinned until the table is complete.
    pub(super) imported: Vec<(PathBuf, MapData)>,
    /// The ring as an earlier daemon left it, until it is read.
    pub(super) unread: Option<MapData>,
}

pub struct Streams {
    /// fork, exec, exit, signals, the OOM killer.
    pub lifecycle: EventRing,
    /// Memory steps and reclaim, in close watch.
    pub memory: EventRing,
}

/// The buffer holds whole records: the kernel cuts its output wherever the buffer ends.
const SAMPLES_PER_READ: usize = 200;

impl Tracer {
    pub(super) fn new(
        ebpf: Ebpf,
        maps: TrackingMaps,
        features: Features,
        sessions: GatedSessions,
        denied: DeniedFileTable,
        users: UserShares,
        log: Option<KernelLog>,
    ) -> Self {
        Self {
            ebpf,
            maps,
            features,
            sessions,
            denied,
            users,
            misses: Misses::of(std::iter::empty()),
            cause_misses: Misses::of(std::iter::empty()),
            log,
            close_watch: None,
            sample_buffer: vec![0; SAMPLES_PER_READ * size_of::<SampleRecord>()],
            pins: None,
            links: Vec::new(),
            earlier: Vec::new(),
            imported: Vec::new(),
            unread: None,
        }
    }

    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Replaces the names of possible agents; writes differences only.
    ///
    /// # Errors
    /// When a map cannot be written.
    pub fn set_candidates(&mut self, candidates: &Candidates) -> Result<(), KernelError> {
        set_names(&mut self.maps.candidates, "CANDIDATES", &candidates.names)?;
        self.maps.every_exec.set(0, u32::from(candidates.every_exec), 0).map_err(|source| KernelError::Map {
            map: "TRACK_EVERY_EXEC",
            doing: "write",
            source,
        })
    }

    /// The memory of every tracked process, in one read: some 0.5 µs each, and 0.05 µs for every other thread of the
    /// host.
    ///
    /// # Errors
    /// When this kernel has no sampler, or reading it fails.
    pub fn sample(&mut self) -> Result<Vec<SampleRecord>, KernelError> {
        self.features.sampler.clone().map_err(KernelError::Off)?;
        let mut file = read_iterator(&mut self.ebpf, "sample")?;
        let mut samples: Vec<SampleRecord> = Vec::new();
        loop {
            let len = file.read(&mut self.sample_buffer).map_err(|error| KernelError::Iterator("sample", error))?;
            if len == 0 {
                break;
            }
            let (records, _) = self.sample_buffer[..len].as_chunks::<{ size_of::<SampleRecord>() }>();
            samples.extend(records.iter().filter_map(|record| SampleRecord::read_from_bytes(record).ok()));
        }
        // A process whose leader has exited is found once without memory, and once in each other thread with it.
        samples.sort_unstable_by_key(|sample| (sample.tgid, Reverse(sample.hiwater_rss)));
        samples.dedup_by_key(|sample| sample.tgid);
        Ok(samples)
    }

    /// Losses since the programs were loaded.
    pub fn lost(&self) -> Result<Lost, KernelError> {
        let missed = self.misses.count().map_err(KernelError::Misses)?;
        let causes_missed = self.cause_misses.count().map_err(KernelError::Misses)?;
        Ok(Lost { missed, causes_missed, ..Lost::read(&self.maps.lost)? })
    }

    /// Saves that everything up to now was read, and these losses reported: the next daemon starts from there.
    ///
    /// # Errors
    /// When a map cannot be read or written.
    pub fn save_reader_state(&mut self, lost: &Lost) -> Result<(), KernelError> {
        let reader = ReaderState {
            seen_at: clock::now().0,
            lost: lost.slots,
            missed: lost.missed,
            deaths: self.deaths_counted()?,
        };
        let bytes: [u8; _] = zerocopy::transmute!(reader);
        self.maps.reader.set(0, bytes, 0).map_err(|source| KernelError::Map { map: "READER", doing: "write", source })
    }

    /// Saves that a daemon runs. Agents past the gate are killed at their exec only while this is called every second or so.
    pub fn save_heartbeat(&mut self) -> Result<(), KernelError> {
        let failed = |source| KernelError::Map { map: "ALIVE_AT", doing: "write", source };
        self.maps.alive_at.set(0, clock::now().0, 0).map_err(failed)
    }

    /// Deaths of processes other than session roots, since the programs were loaded.
    pub(super) fn deaths_counted(&self) -> Result<u64, KernelError> {
        let counts = self.maps.death_count.get(&0, 0);
        let counts = counts.map_err(|source| KernelError::Map { map: "DEATH_COUNT", doing: "read", source })?;
        Ok(counts.iter().sum())
    }

    /// Forwards the programs' log to `tracing`. Once a second is often enough.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// Run times are counted only while `kernel.bpf_stats_enabled` is 1.
    #[must_use]
    pub fn program_stats(&self) -> Vec<ProgramStats> {
        let loaded = self.ebpf.programs().filter_map(|(name, program)| Some((name, program.fd().ok()?.as_fd())));
        let earlier = self.earlier.iter().map(|(name, program)| (name.as_str(), program.as_fd()));
        loaded.chain(earlier).filter_map(|(name, program)| ProgramStats::of(name, program)).collect()
    }
}
