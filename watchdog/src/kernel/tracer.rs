//! The handle on what runs in the kernel.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray};
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tp_btf::BtfTracePointLinkId;
use procfs::process::{Stat, StatFlags, Task};
use procfs::{ProcError, ProcResult};
use watchdog_common::{
    DeathRecord, LineageFlags, LossCause, NANOS_PER_TICK, Reader, RecordKind, SampleRecord, Tracked, name_hash,
    same_start,
};
use zerocopy::{FromBytes, IntoBytes};

use super::decode;
use super::error::KernelError;
use super::gate::Gate;
use super::layout::Variants;
use super::load::{cause_programs, lifecycle_programs};
use super::logs::KernelLog;
use super::programs::{open_pinned_program, read_iterator, tracepoint_program};
use super::stats::{Misses, ProgramStats};
use super::stream::EventRing;
use super::takeover;
use super::users::Users;
use crate::config::Candidates;
use crate::engine::id::{ProcessId, Ticks};
use crate::engine::input::Lineage;
use crate::host::clock;
use crate::host::pins::{self, Pins};

/// The loaded programs, their links and their maps. Dropping it detaches everything that is not pinned.
pub struct Tracer {
    pub(super) ebpf: Ebpf,
    pub(super) maps: Maps,
    pub(super) features: Features,
    pub(super) gate: Gate,
    pub(super) users: Users,
    misses: Misses,
    cause_misses: Misses,
    log: Option<KernelLog>,
    close_watch: Option<Vec<(&'static str, BtfTracePointLinkId)>>,
    sample_buffer: Vec<u8>,
    /// Where programs, links and maps are pinned; locked.
    pub(super) pins: Option<Pins>,
    /// Links that are pinned. They hold also when somebody removes the pins.
    links: Vec<PinnedLink>,
    /// Programs that an earlier daemon loaded.
    earlier: Vec<(String, OwnedFd)>,
    /// Rings of other layouts, and where their maps are pinned until the table is right.
    pub(super) imported: Vec<(PathBuf, MapData)>,
    /// The ring, as an earlier daemon left it: to be read once.
    pub(super) left: Option<MapData>,
}

/// The two rings: what lives and dies, and memory in close watch.
pub struct Streams {
    /// fork, exec, exit, signals, the OOM killer.
    pub lifecycle: EventRing,
    /// Steps of memory, and reclaim.
    pub memory: EventRing,
}

/// On, or the reason why not.
pub type Feature = Result<(), String>;

/// What this kernel lets us do beyond following processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Senders of signals.
    pub signals: Feature,
    /// Choices of the OOM killer.
    pub oom: Feature,
    /// Memory events.
    pub close_watch: Feature,
    /// Reading the memory of all tracked processes at once.
    pub sampler: Feature,
    /// Counting the processes of gated sessions.
    pub counting: Feature,
    /// Telling the file that is executed from its path.
    pub files: Feature,
    /// Refusing a fork or an exec: that LSM programs are not only taken but called was tried.
    pub lsm: Feature,
}

/// Deaths by tgid.
pub(super) type DeathMap = HashMap<MapData, u32, [u8; size_of::<DeathRecord>()]>;

/// The maps that userspace works with. Values are bytes here, since aya's and the common crate's traits do not know each
/// other.
pub(super) struct Maps {
    pub(super) tracked: HashMap<MapData, u32, [u8; size_of::<Tracked>()]>,
    pub(super) candidates: HashMap<MapData, u64, u8>,
    pub(super) every_exec: Array<MapData, u32>,
    pub(super) dead: HashMap<MapData, u32, u64>,
    pub(super) lost: PerCpuArray<MapData, [u64; LossCause::SLOTS]>,
    pub(super) reader: Array<MapData, [u8; size_of::<Reader>()]>,
    pub(super) alive_at: Array<MapData, u64>,
    pub(super) root_deaths: DeathMap,
    pub(super) deaths: DeathMap,
    pub(super) death_count: PerCpuArray<MapData, u64>,
}

/// A process in the kernel's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Who.
    pub process: ProcessId,
    /// Its place.
    pub lineage: Lineage,
}

/// What became of a wish to track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is in the map, and its exit will be told.
    Alive,
    /// It is in the map, and dead or about to be: its exit may have gone by before, and then none will be told.
    Ending,
    /// There is no such process any more.
    Gone,
}

/// Records that were lost since the programs were loaded, summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub(super) slots: [u64; LossCause::SLOTS],
    /// What the programs on fork, exec, exit and free missed.
    pub(super) missed: u64,
    /// What those on signals and the OOM killer missed.
    pub(super) causes_missed: u64,
}

/// Flags of `bpf_map_update_elem` (include/uapi/linux/bpf.h).
pub(super) mod update {
    pub(in crate::kernel) const NO_EXIST: u64 = 1;
    pub(in crate::kernel) const EXIST: u64 = 2;
}

/// The kernel cuts what it has wherever the reader's buffer ends: so many whole records fit.
const SAMPLES_A_READ: usize = 200;

/// The programs of close watch.
const CLOSE_WATCH: [&str; 3] = ["rss_stat", "reclaim_begin", "reclaim_end"];

impl Tracer {
    pub(super) fn new(
        ebpf: Ebpf,
        maps: Maps,
        features: Features,
        gate: Gate,
        users: Users,
        log: Option<KernelLog>,
    ) -> Self {
        Self {
            ebpf,
            maps,
            features,
            gate,
            users,
            misses: Misses::of(std::iter::empty()),
            cause_misses: Misses::of(std::iter::empty()),
            log,
            close_watch: None,
            sample_buffer: vec![0; SAMPLES_A_READ * size_of::<SampleRecord>()],
            pins: None,
            links: Vec::new(),
            earlier: Vec::new(),
            imported: Vec::new(),
            left: None,
        }
    }

    /// Attaches everything but close watch, and pins it in this directory. The order matters: an exit must never be missed of
    /// a process whose fork was seen, so what removes comes before what adds.
    pub(super) fn attach_all(&mut self, variants: Variants, pinned_in: Option<&Path>) -> Result<(), KernelError> {
        let exit = variants.exit.ok_or(KernelError::UnknownForm("sched_process_exit"))?;
        let spares = variants.spares;
        let required = [
            Some("free"),
            Some(exit),
            spares.map(|spares| spares.exit),
            Some("exec"),
            Some("fork"),
            spares.map(|spares| spares.fork),
        ];
        for program in required.into_iter().flatten() {
            self.attach_lasting(program, pinned_in)?;
        }
        if self.features.signals.is_ok() {
            self.features.signals = self.attach_lasting("signal", pinned_in).map_err(|error| error.to_string());
        }
        if let (Ok(()), Some(program)) = (&self.features.oom, variants.victim) {
            self.features.oom = self.attach_lasting(program, pinned_in).map_err(|error| error.to_string());
        }
        self.misses = self.misses_of(&lifecycle_programs(variants));
        self.cause_misses = self.misses_of(&cause_programs(variants));
        let Features { signals, oom, close_watch, sampler, counting, files, lsm } = &self.features;
        for (name, feature) in [
            ("signals", signals),
            ("oom", oom),
            ("close watch", close_watch),
            ("sampler", sampler),
            ("counting", counting),
            ("executed files", files),
        ] {
            if let Err(reason) = feature {
                tracing::warn!(feature = name, %reason, "this kernel does not give all: doing without");
            }
        }
        if let Err(reason) = lsm {
            // So it is on most kernels.
            tracing::info!(%reason, "forks beyond a bound and agents past the gate are not refused in the kernel");
        }
        Ok(())
    }

    fn misses_of(&self, groups: &[[Option<&'static str>; 2]]) -> Misses {
        let earlier = |name: &str| {
            let found = self.earlier.iter().find(|(earlier, _)| earlier == name);
            found.map(|(_, program)| program.as_fd())
        };
        let loaded = |name: &str| self.ebpf.program(name).and_then(|program| Some(program.fd().ok()?.as_fd()));
        let program = |name: &'static str| loaded(name).or_else(|| earlier(name));
        Misses::of(groups.iter().map(|names| names.iter().flatten().filter_map(|name| program(name)).collect()))
    }

    /// What this kernel gives, and why not what it does not.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Puts a process into the map, or changes the lineage of one that is there. What the kernel has noted of it stays:
    /// its exact start, its peak before the last exec, and whether it has exited; an exec that either has seen, too. So does the
    /// [bound](Self::bound) session with which it is counted, unless its new root's is bound itself: a session inside another
    /// is held with it, and not for a moment without.
    ///
    /// # Errors
    /// When the map, or the user's share of it, is full, or cannot be read or written.
    pub fn track(&mut self, process: ProcessId, lineage: &Lineage) -> Result<Placed, KernelError> {
        if let Some(placed) = self.change(process, lineage)? {
            return Ok(placed);
        }
        if state_of(process)?.is_none() {
            return Ok(Placed::Gone);
        }
        let Some(uid) = self.user_of(process, lineage)? else { return Ok(Placed::Gone) };
        if !self.users.admits(uid)? {
            return Err(KernelError::ShareFull(process));
        }
        let entry =
            Tracked { lineage: to_kernel(lineage), start: start_of(process), inherited_peak: 0, counted: 0, uid };
        match self.maps.tracked.insert(process.pid.0, bytes_of(&entry), update::NO_EXIST) {
            Ok(()) => self.users.charge(uid, 1)?,
            // The kernel was quicker: the process called exec as a possible agent.
            Err(error) if is_errno(&error, libc::EEXIST) => {
                if let Some(placed) = self.change(process, lineage)? {
                    return Ok(placed);
                }
                // What is there belongs to an earlier process of this pid, and to no living one.
                if let Some(earlier) = self.entry_at(process.pid.0)? {
                    self.remove(process.pid.0, &earlier)?;
                }
                self.maps.tracked.insert(process.pid.0, bytes_of(&entry), update::NO_EXIST).map_err(writing)?;
                self.users.charge(uid, 1)?;
            }
            Err(error) if is_errno(&error, libc::E2BIG) => return Err(KernelError::Full(process)),
            Err(error) => return Err(writing(error)),
        }
        let placed = self.settle(process)?;
        self.count_where_it_belongs(process, entry.counted, lineage)?;
        Ok(placed)
    }

    /// Takes a process out of the map. An entry of another process with this pid stays.
    ///
    /// # Errors
    /// When the map cannot be read or written.
    pub fn untrack(&mut self, process: ProcessId) -> Result<(), KernelError> {
        let Some(entry) = self.entry(process)? else { return Ok(()) };
        if entry.counted != 0 {
            // A session of its own, in which nothing is counted: so it is taken off where it was.
            let alone =
                Lineage { root: process, parent: None, depth: 0, provisional: false, forked: false, witness: false };
            if self.rewrite(process, &alone)?.is_some() {
                self.count_nowhere(process)?;
            }
        }
        match self.entry(process)? {
            Some(entry) => self.remove(process.pid.0, &entry),
            None => Ok(()),
        }
    }

    /// Removes an entry, and takes it off where it was counted.
    fn remove(&mut self, pid: u32, entry: &Tracked) -> Result<(), KernelError> {
        match self.maps.tracked.remove(&pid) {
            Ok(()) => {
                self.users.charge(entry.uid, -1)?;
                // No program will see the exit.
                if entry.counted == 0 { Ok(()) } else { self.correct_count(entry.counted) }
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(writing(error)),
        }
    }

    /// Everything in the map, in any order. Some 2 µs each.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, KernelError> {
        Ok(self.contents()?.iter().map(Entry::from).collect())
    }

    /// Zombies: processes that were tracked until they exited, and that the kernel has not freed.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn dead(&self) -> Result<Vec<ProcessId>, KernelError> {
        let of = |pair: Result<(u32, u64), MapError>| pair.map(|(tgid, start)| ProcessId::from_kernel(tgid, start));
        self.maps.dead.iter().map(|pair| of(pair).map_err(reading)).collect()
    }

    pub(super) fn contents(&self) -> Result<Vec<(u32, Tracked)>, KernelError> {
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        for pair in self.maps.tracked.iter() {
            let (tgid, value) = pair.map_err(reading)?;
            // The kernel starts over when the key that it stands at is removed meanwhile.
            if !seen.insert(tgid) {
                continue;
            }
            entries.push((tgid, zerocopy::transmute!(value)));
        }
        Ok(entries)
    }

    /// Replaces the names of possible agents; only what differs is written.
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

    /// Attaches or detaches the memory programs. Doing what is done already is nothing.
    ///
    /// # Errors
    /// When the kernel refuses; a half of it does not stay.
    pub fn set_close_watch(&mut self, on: bool) -> Result<(), KernelError> {
        match (on, self.close_watch.take()) {
            (true, None) => {
                self.features.close_watch.clone().map_err(KernelError::Off)?;
                let mut links = Vec::new();
                for program in CLOSE_WATCH {
                    match self.attach(program) {
                        Ok(link) => links.push((program, link)),
                        Err(error) => {
                            self.detach(links)?;
                            return Err(error);
                        }
                    }
                }
                self.close_watch = Some(links);
            }
            (false, Some(links)) => self.detach(links)?,
            (_, unchanged) => self.close_watch = unchanged,
        }
        Ok(())
    }

    /// Whether the memory programs are attached.
    #[must_use]
    pub fn close_watch(&self) -> bool {
        self.close_watch.is_some()
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
        // A process whose first thread has exited is found once without memory, and once in each other thread with it.
        samples.sort_unstable_by_key(|sample| (sample.tgid, Reverse(sample.hiwater_rss)));
        samples.dedup_by_key(|sample| sample.tgid);
        Ok(samples)
    }

    /// What was lost since the programs were loaded.
    ///
    /// # Errors
    /// When the counters cannot be read.
    pub fn lost(&self) -> Result<Lost, KernelError> {
        let missed = self.misses.count().map_err(KernelError::Misses)?;
        let causes_missed = self.cause_misses.count().map_err(KernelError::Misses)?;
        Ok(Lost { missed, causes_missed, ..Lost::read(&self.maps.lost)? })
    }

    /// Notes that everything up to now was read, and that these losses were reported: the next daemon begins there.
    ///
    /// # Errors
    /// When a map cannot be read or written.
    pub fn note_read(&mut self, lost: &Lost) -> Result<(), KernelError> {
        let reader =
            Reader { seen_at: clock::now().0, lost: lost.slots, missed: lost.missed, deaths: self.deaths_counted()? };
        let mut bytes = [0; size_of::<Reader>()];
        bytes.copy_from_slice(reader.as_bytes());
        self.maps.reader.set(0, bytes, 0).map_err(|source| KernelError::Map { map: "READER", doing: "write", source })
    }

    /// Notes that a daemon runs. Agents past the gate are killed at their exec only while this is called every second or so.
    ///
    /// # Errors
    /// When the map cannot be written.
    pub fn note_alive(&mut self) -> Result<(), KernelError> {
        let failed = |source| KernelError::Map { map: "ALIVE_AT", doing: "write", source };
        self.maps.alive_at.set(0, clock::now().0, 0).map_err(failed)
    }

    /// Deaths of processes that are no root of a session, since the programs were loaded.
    pub(super) fn deaths_counted(&self) -> Result<u64, KernelError> {
        let counts = self.maps.death_count.get(&0, 0);
        let counts = counts.map_err(|source| KernelError::Map { map: "DEATH_COUNT", doing: "read", source })?;
        Ok(counts.iter().sum())
    }

    /// Hands what the programs have logged over to `tracing`. Once a second is often enough.
    pub fn flush_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.flush();
        }
    }

    /// What the loaded programs cost, while `kernel.bpf_stats_enabled` is 1.
    #[must_use]
    pub fn program_stats(&self) -> Vec<ProgramStats> {
        let loaded = self.ebpf.programs().filter_map(|(name, program)| Some((name, program.fd().ok()?.as_fd())));
        let earlier = self.earlier.iter().map(|(name, program)| (name.as_str(), program.as_fd()));
        loaded.chain(earlier).filter_map(|(name, program)| ProgramStats::of(name, program)).collect()
    }

    /// Attaches a program and pins it and its link in this directory, unless an earlier daemon has done so.
    fn attach_lasting(&mut self, program: &str, pinned_in: Option<&Path>) -> Result<(), KernelError> {
        let Some(dir) = pinned_in else { return self.attach(program).map(drop) };
        let failed = |doing| move |source| KernelError::program(program, doing, source);
        let (link_path, program_path) = (takeover::link_path(dir, program), takeover::program_path(dir, program));
        if link_path.exists() {
            let link = PinnedLink::from_pin(&link_path).map_err(|error| takeover::not_pinned(program, dir, &error))?;
            // The program is needed for its counters only.
            match open_pinned_program(&program_path) {
                Ok(loaded) => self.earlier.push((program.to_owned(), loaded)),
                Err(error) => tracing::warn!(
                    "cannot open {}: {error}. Skipped runs of the kernel program `{program}` are not counted",
                    program_path.display()
                ),
            }
            self.links.push(link);
            return Ok(());
        }
        let attached = self.attach(program)?;
        let not_pinned = |error: aya::pin::PinError| takeover::not_pinned(program, dir, &error);
        pins::remove_if_there(&program_path)?;
        let loaded = tracepoint_program(&mut self.ebpf, program)?;
        loaded.pin(&program_path).map_err(not_pinned)?;
        let link = FdLink::from(loaded.take_link(attached).map_err(failed("attach"))?);
        self.links.push(link.pin(&link_path).map_err(not_pinned)?);
        Ok(())
    }

    fn attach(&mut self, program: &str) -> Result<BtfTracePointLinkId, KernelError> {
        tracepoint_program(&mut self.ebpf, program)?
            .attach()
            .map_err(|source| KernelError::program(program, "attach", source))
    }

    fn detach(&mut self, links: Vec<(&'static str, BtfTracePointLinkId)>) -> Result<(), KernelError> {
        for (program, link) in links {
            tracepoint_program(&mut self.ebpf, program)?
                .detach(link)
                .map_err(|source| KernelError::program(program, "detach", source))?;
        }
        Ok(())
    }

    /// The number under which this very process was counted; 0 for none, and when it is not in the map.
    pub(super) fn counted_under(&self, process: ProcessId) -> Result<u32, KernelError> {
        Ok(self.entry(process)?.map_or(0, |entry| entry.counted))
    }

    /// The user to whom a new entry is charged; `None` when the process is gone.
    fn user_of(&self, process: ProcessId, lineage: &Lineage) -> Result<Option<u32>, KernelError> {
        if process != lineage.root
            && let Some(root) = self.entry(lineage.root)?
        {
            return Ok(Some(root.uid));
        }
        match procfs::process::Process::new(process.pid.0.cast_signed()).and_then(|found| found.status()) {
            Ok(status) => Ok(Some(status.ruid)),
            Err(ProcError::NotFound(_)) => Ok(None),
            Err(source) => Err(KernelError::State(process, source)),
        }
    }

    /// The entry of this very process.
    pub(super) fn entry(&self, process: ProcessId) -> Result<Option<Tracked>, KernelError> {
        Ok(self.entry_at(process.pid.0)?.filter(|entry| same_start(entry.start, start_of(process))))
    }

    /// The entry of whichever process.
    fn entry_at(&self, pid: u32) -> Result<Option<Tracked>, KernelError> {
        match self.maps.tracked.get(&pid, 0) {
            Ok(value) => Ok(Some(zerocopy::transmute!(value))),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(reading(error)),
        }
    }

    /// Changes the entry of this very process; `None` when it has none.
    pub(super) fn change(&mut self, process: ProcessId, lineage: &Lineage) -> Result<Option<Placed>, KernelError> {
        let Some(counted) = self.rewrite(process, lineage)? else { return Ok(None) };
        let placed = self.settle(process)?;
        self.count_where_it_belongs(process, counted, lineage)?;
        Ok(Some(placed))
    }

    /// Writes another lineage into the entry of this very process, and tells the number under which it is counted; `None`
    /// when it has none.
    fn rewrite(&mut self, process: ProcessId, lineage: &Lineage) -> Result<Option<u32>, KernelError> {
        let Some(mut entry) = self.entry(process)? else { return Ok(None) };
        let noted = entry.lineage;
        entry.lineage = to_kernel(lineage);
        // An exec that either side has seen stays seen: the kernel may have skipped its program.
        entry.lineage.flags &= noted.flags | !LineageFlags::FORKED;
        // Starts that the kernel knows to the nanosecond stay so.
        if noted.parent == entry.lineage.parent && same_start(noted.parent_start, entry.lineage.parent_start) {
            entry.lineage.parent_start = noted.parent_start;
        }
        match self.maps.tracked.insert(process.pid.0, bytes_of(&entry), update::EXIST) {
            Ok(()) => Ok(Some(entry.counted)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(writing(error)),
        }
    }

    /// Finds out what may have happened to a process while its entry was being written: it may have exited, or be gone.
    pub(super) fn settle(&mut self, process: ProcessId) -> Result<Placed, KernelError> {
        match state_of(process)? {
            None => self.untrack(process).map(|()| Placed::Gone),
            Some(State::Alive) => Ok(Placed::Alive),
            Some(State::Ending) => Ok(Placed::Ending),
            Some(State::Zombie) => {
                // No program will note it as a zombie any more.
                if let Some(entry) = self.entry(process)?
                    && entry.lineage.flags & LineageFlags::WITNESS == 0
                {
                    self.maps.dead.insert(process.pid.0, entry.start, 0).map_err(writing)?;
                }
                self.untrack(process).map(|()| Placed::Ending)
            }
        }
    }
}

impl From<&(u32, Tracked)> for Entry {
    fn from((tgid, tracked): &(u32, Tracked)) -> Self {
        Self { process: ProcessId::from_kernel(*tgid, tracked.start), lineage: decode::lineage(&tracked.lineage) }
    }
}

impl Lost {
    pub(super) fn read(map: &PerCpuArray<MapData, [u64; LossCause::SLOTS]>) -> Result<Self, KernelError> {
        let per_cpu = map.get(&0, 0).map_err(|source| KernelError::Map { map: "LOST", doing: "read", source })?;
        let mut lost = Self::default();
        for slots in per_cpu.iter() {
            lost.slots.iter_mut().zip(slots).for_each(|(sum, count)| *sum += count);
        }
        Ok(lost)
    }

    /// Records of this kind that found no room in their ring.
    #[must_use]
    pub fn of(&self, kind: RecordKind) -> u64 {
        self.slots[kind as usize]
    }

    /// Processes that found no room in the map.
    #[must_use]
    pub fn untracked(&self) -> u64 {
        self.slots[LossCause::MAP_FULL as usize]
    }

    /// Events for which the kernel skipped the programs, of tracked processes or not.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed + self.causes_missed
    }

    /// Everything whose loss can make the table of processes wrong: all but the records of close watch.
    #[must_use]
    pub fn lifecycle(&self) -> u64 {
        [RecordKind::Fork, RecordKind::Exec, RecordKind::Exit, RecordKind::Oom, RecordKind::Signal]
            .into_iter()
            .map(|kind| self.of(kind))
            .sum::<u64>()
            + self.untracked()
            + self.missed
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.slots.iter().sum::<u64>() + self.missed()
    }
}

/// Makes a map hold these names and no others; only what differs is written.
pub(super) fn set_names(
    map: &mut HashMap<MapData, u64, u8>,
    name: &'static str,
    names: &[Vec<u8>],
) -> Result<(), KernelError> {
    let failed = |doing| move |source| KernelError::Map { map: name, doing, source };
    let wanted: HashSet<u64> = names.iter().map(|name| name_hash(name)).collect();
    let present: HashSet<u64> = map.keys().collect::<Result<_, _>>().map_err(failed("read"))?;
    for &name in wanted.difference(&present) {
        map.insert(name, 1, 0).map_err(failed("write"))?;
    }
    for name in present.difference(&wanted) {
        map.remove(name).map_err(failed("write"))?;
    }
    Ok(())
}

pub(super) enum State {
    /// What was in the map before this was found will be there when its exit is told.
    Alive,
    Ending,
    /// Its exit was reported, or never will be.
    Zombie,
}

/// How this very process is; `None` when it is gone.
///
/// Every thread is marked as exiting, and the threads are counted down, before the kernel tells of the last one's exit
/// (kernel/exit.c, `do_exit`): while one is not marked, nothing was told. A zombie would be seen too late: since Linux 6.16 the
/// exit is told before the address space is let go, which may take seconds.
pub(super) fn state_of(process: ProcessId) -> Result<Option<State>, KernelError> {
    let state = || -> ProcResult<State> {
        let found = procfs::process::Process::new(process.pid.0.cast_signed())?;
        let stat = || -> ProcResult<Stat> {
            let stat = found.stat()?;
            if Ticks(stat.starttime) == process.start_time { Ok(stat) } else { Err(ProcError::NotFound(None)) }
        };
        let lives = || stat().map(|stat| stat.flags & StatFlags::PF_EXITING.bits() == 0);
        // The first thread may be gone long before the others. One that calls exec takes its place, and is nowhere for a moment
        // in between: so the place is looked at once more.
        let other = |task: ProcResult<Task>| {
            task.and_then(|task| task.stat()).is_ok_and(|stat| stat.flags & StatFlags::PF_EXITING.bits() == 0)
        };
        let lives = lives()? || found.tasks()?.any(other) || lives()?;
        if lives {
            return Ok(State::Alive);
        }
        // The kernel makes it a zombie after it has told of the exit.
        let Stat { state, num_threads, .. } = stat()?;
        Ok(if state == 'Z' && num_threads <= 1 { State::Zombie } else { State::Ending })
    };
    match state() {
        Ok(state) => Ok(Some(state)),
        Err(ProcError::NotFound(_)) => Ok(None),
        Err(source) => Err(KernelError::State(process, source)),
    }
}

/// The start of the tick, in nanoseconds: what the kernel's start is rounded down to.
pub(super) fn start_of(process: ProcessId) -> u64 {
    process.start_time.0.saturating_mul(NANOS_PER_TICK)
}

fn to_kernel(lineage: &Lineage) -> watchdog_common::Lineage {
    let Lineage { root, parent, depth, provisional, forked, witness } = *lineage;
    let flag = |on: bool, bit| if on { bit } else { 0 };
    watchdog_common::Lineage {
        root_start: start_of(root),
        parent_start: parent.map_or(0, start_of),
        root: root.pid.0,
        parent: parent.map_or(0, |parent| parent.pid.0),
        depth,
        flags: flag(provisional, LineageFlags::PROVISIONAL)
            | flag(forked, LineageFlags::FORKED)
            | flag(witness, LineageFlags::WITNESS),
    }
}

pub(super) fn bytes_of(entry: &Tracked) -> [u8; size_of::<Tracked>()] {
    let mut bytes = [0; size_of::<Tracked>()];
    bytes.copy_from_slice(entry.as_bytes());
    bytes
}

pub(super) fn is_missing(error: &MapError) -> bool {
    matches!(error, MapError::KeyNotFound | MapError::ElementNotFound) || is_errno(error, libc::ENOENT)
}

pub(super) fn is_errno(error: &MapError, errno: i32) -> bool {
    matches!(error, MapError::SyscallError(call) if call.io_error.raw_os_error() == Some(errno))
}

pub(super) fn reading(source: MapError) -> KernelError {
    KernelError::Map { map: "TRACKED", doing: "read", source }
}

pub(super) fn writing(source: MapError) -> KernelError {
    KernelError::Map { map: "TRACKED", doing: "write", source }
}
