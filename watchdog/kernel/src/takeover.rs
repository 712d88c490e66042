//! State that an earlier daemon left in the kernel: used as it is where the layout is the same, else imported.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use watchdog_common::{DeathRecord, LossCause, ReaderState, Tracked};

use super::decode;
use super::entries::TrackOutcome;
use super::error::KernelError;
use super::left_ring;
use super::liveness::state_of;
use super::losses::Lost;
use super::maps::{DeathMap, bytes_of, is_errno, reading, update, writing};
use super::pin_paths::program_path;
use super::programs::open_pinned_program;
use super::stats::Misses;
use super::tracer::Tracer;
use watchdog_host::pins::{self, Pins};
use watchdog_types::{BootTime, KernelEvent, MissedExit, ProcessId};

#[derive(Debug)]
pub struct Inherited {
    /// The directory of the pins, or why nothing is pinned.
    pub pins: Result<PathBuf, String>,
    /// When a daemon last read the maps; `None` when that is not known.
    pub since: Option<BootTime>,
    /// Tracked processes, exited ones included.
    pub tracked: usize,
    /// Unread exits, and those of session roots, which an earlier daemon may have read. Some are in a ring too.
    pub exits: Vec<MissedExit>,
    /// Losses that an earlier daemon reported: those beyond are new.
    pub reported: Lost,
    /// Unreported losses of another layout.
    pub lost: Lost,
    /// Exits dropped from their map before they were read.
    pub exits_dropped: u64,
}

/// A daemon reads events within this time: older ones were read.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// Most passes over an imported map. Each pass finds the children forked during the one before. A chain of forks that
/// outruns them all is found by the scan of /proc.
const PASSES: usize = 64;
impl Default for Inherited {
    fn default() -> Self {
        Self::nothing(String::new())
    }
}

impl Inherited {
    /// Nothing was left, and nothing is pinned for this reason.
    pub(super) fn nothing(why: String) -> Self {
        Self {
            pins: Err(why),
            since: None,
            tracked: 0,
            exits: Vec::new(),
            reported: Lost::default(),
            lost: Lost::default(),
            exits_dropped: 0,
        }
    }
}

impl Tracer {
    /// Collects what happened since an earlier daemon last read the maps that this one uses now.
    pub(super) fn take_over(&mut self, dir: &Path) -> Result<Inherited, KernelError> {
        let mut inherited = Inherited { pins: Ok(dir.to_owned()), ..Inherited::default() };
        let reader = reader_of(&self.maps.reader)?;
        inherited.since = (reader.seen_at > 0).then_some(BootTime(reader.seen_at));
        // A missed signal needs no repair, so earlier ones count as reported.
        let causes_missed = self.lost()?.causes_missed;
        inherited.reported = Lost { slots: reader.lost, missed: reader.missed, causes_missed };
        inherited.add_exits(&reader, [&self.maps.root_deaths, &self.maps.deaths], self.deaths_counted()?)?;
        let mut counted = Vec::new();
        for pair in self.maps.tracked.iter() {
            let (_, value) = pair.map_err(reading)?;
            let entry: Tracked = zerocopy::transmute!(value);
            counted.push(entry.counted);
        }
        inherited.tracked = counted.len();
        // Nothing is denied until this daemon is configured.
        self.denied.set_kill(false)?;
        self.sessions.start_over(counted.into_iter())?;
        self.unread = Some(open_ring(dir)?);
        Ok(inherited)
    }

    /// Imports the pins of other layouts and detaches their programs: those of this one run already. Their maps stay
    /// until [`remove_imported`](Self::remove_imported), so that nothing is lost if this daemon is killed before.
    pub(super) fn import_others(&mut self, pins: &Pins, complete: &Path, inherited: &mut Inherited) {
        let others = pins.others(complete).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        for (dir, readable) in others {
            let imported = if readable {
                self.import(&dir, inherited).map_err(|error| error.to_string())
            } else {
                Err("the pins are of another version".to_owned())
            };
            let done = match imported {
                Ok(ring) => pins.detach(&dir).map(|kept| self.imported.push((kept, ring))),
                Err(error) => {
                    tracing::warn!("what an earlier daemon pinned in {} cannot be imported: {error}", dir.display());
                    pins::remove(&dir)
                }
            };
            if let Err(error) = done {
                tracing::warn!("{error}");
            }
        }
    }

    /// The events that earlier daemons left in their rings, and the number of records in this daemon's own ring: they stay there
    /// until they are [skipped](super::EventStream::skip).
    pub fn unread_events(&mut self) -> (Vec<KernelEvent>, usize) {
        let read = |ring: &MapData| {
            left_ring::unread(ring).unwrap_or_else(|error| {
                tracing::warn!("cannot read the events that an earlier daemon left: {error}");
                Default::default()
            })
        };
        let mut events: Vec<KernelEvent> = self.imported.iter().flat_map(|(_, ring)| read(ring).0).collect();
        let (mut own, records) = self.unread.take().map(|ring| read(&ring)).unwrap_or_default();
        events.append(&mut own);
        (events, records)
    }

    /// Removes the maps of other layouts.
    pub fn remove_imported(&mut self) {
        for (dir, _) in self.imported.drain(..) {
            if let Err(error) = pins::remove(&dir) {
                tracing::warn!("{error}");
            }
        }
    }

    fn import(&mut self, dir: &Path, inherited: &mut Inherited) -> Result<MapData, KernelError> {
        let tracked = open_pinned(dir, "TRACKED", HashMap::try_from)?;
        inherited.tracked += self.import_tracked(&tracked)?;

        let reader = reader_of(&open_pinned(dir, "READER", Array::try_from)?)?;
        inherited.since = inherited.since.max((reader.seen_at > 0).then_some(BootTime(reader.seen_at)));
        let lost = open_pinned(dir, "LOST", PerCpuArray::try_from)?;
        inherited.lost.add_new(&Lost::read(&lost)?, &reader.lost);
        inherited.lost.missed += misses_in(dir)?.saturating_sub(reader.missed);

        let count = open_pinned(dir, "DEATH_COUNT", PerCpuArray::<_, u64>::try_from)?;
        let count =
            count.get(&0, 0).map_err(|source| KernelError::Map { map: "DEATH_COUNT", doing: "read", source })?;
        let roots: DeathMap = open_pinned(dir, "ROOT_DEATHS", HashMap::try_from)?;
        let others: DeathMap = open_pinned(dir, "DEATHS", HashMap::try_from)?;
        inherited.add_exits(&reader, [&roots, &others], count.iter().sum())?;
        // If this daemon is killed before it has handled them, the next one reads them.
        for (from, to) in [(&roots, &mut self.maps.root_deaths), (&others, &mut self.maps.deaths)] {
            for pair in from.iter() {
                let (tgid, value) = pair.map_err(reading)?;
                match to.insert(tgid, value, update::NO_EXIST) {
                    Err(error) if !is_errno(&error, libc::EEXIST) => return Err(writing(error)),
                    _ => {}
                }
            }
        }
        open_ring(dir)
    }

    /// Copies entries until a pass finds no new one. Children of a process in the new map are tracked there.
    fn import_tracked(
        &mut self,
        from: &HashMap<MapData, u32, [u8; size_of::<Tracked>()]>,
    ) -> Result<usize, KernelError> {
        let mut taken = HashSet::new();
        for _ in 0..PASSES {
            let before = taken.len();
            for pair in from.iter() {
                let (tgid, value) = pair.map_err(reading)?;
                let entry: Tracked = zerocopy::transmute!(value);
                if taken.insert((tgid, entry.start)) {
                    self.import_entry(tgid, entry)?;
                }
            }
            if taken.len() == before {
                break;
            }
        }
        Ok(taken.len())
    }

    fn import_entry(&mut self, tgid: u32, entry: Tracked) -> Result<(), KernelError> {
        let process = ProcessId::from_kernel(tgid, entry.start);
        if state_of(process)?.is_none() {
            return Ok(());
        }
        // Sessions get numbers of this daemon once they have a limit.
        let entry = Tracked { counted: 0, ..entry };
        match self.maps.tracked.insert(tgid, bytes_of(&entry), update::NO_EXIST) {
            Ok(()) => {
                self.users.charge(entry.uid, 1)?;
                self.check_alive(process).map(|_: TrackOutcome| ())
            }
            // It called exec meanwhile, or its parent was imported before.
            Err(error) if is_errno(&error, libc::EEXIST) => {
                self.change_entry(process, &decode::lineage(&entry.lineage)).map(|_: Option<TrackOutcome>| ())
            }
            Err(error) if is_errno(&error, libc::E2BIG) => {
                tracing::warn!("{}", KernelError::Full(process));
                Ok(())
            }
            Err(error) => Err(writing(error)),
        }
    }
}

impl Inherited {
    /// Adds the deaths in these maps: all of session roots, whose sessions may still be open, and unread ones of others.
    fn add_exits(
        &mut self,
        reader: &ReaderState,
        [roots, others]: [&DeathMap; 2],
        counted: u64,
    ) -> Result<(), KernelError> {
        let read_before = reader.seen_at.saturating_sub(u64::try_from(READ_WITHIN.as_nanos()).unwrap_or(u64::MAX));
        let mut unread = 0;
        for (map, all) in [(roots, true), (others, false)] {
            let mut seen = HashSet::new();
            for pair in map.iter() {
                let (tgid, value) = pair.map_err(reading)?;
                let death: DeathRecord = zerocopy::transmute!(value);
                // The kernel starts over when the current key is removed meanwhile.
                if !seen.insert((tgid, death.exit.header.start)) {
                    continue;
                }
                unread += u64::from(!all && death.exit.header.at >= reader.seen_at);
                if all || death.exit.header.at >= read_before {
                    self.exits.push(decode::missed_exit(&death));
                }
            }
        }
        self.exits_dropped += counted.saturating_sub(reader.deaths).saturating_sub(unread);
        Ok(())
    }
}

impl Lost {
    fn add_new(&mut self, now: &Self, reported: &[u64; LossCause::SLOTS]) {
        let new = now.slots.iter().zip(reported).map(|(now, reported)| now.saturating_sub(*reported));
        self.slots.iter_mut().zip(new).for_each(|(sum, new)| *sum += new);
    }
}

fn reader_of(map: &Array<MapData, [u8; size_of::<ReaderState>()]>) -> Result<ReaderState, KernelError> {
    let value = map.get(&0, 0).map_err(|source| KernelError::Map { map: "READER", doing: "read", source })?;
    Ok(zerocopy::transmute!(value))
}

/// Events that the programs pinned in a directory missed.
fn misses_in(dir: &Path) -> Result<u64, KernelError> {
    /// Every variant of `programs::lifecycle_programs`.
    const GROUPS: [&[&str]; 7] = [
        &["fork", "fork_spare"],
        &["exit_flag", "exit_flag_spare"],
        &["exit_count"],
        // Their names in earlier builds.
        &["exit_told", "exit_told_spare"],
        &["exit_counted"],
        &["exec"],
        &["free"],
    ];
    let open = |name: &&str| open_pinned_program(&program_path(dir, name)).ok();
    let groups = GROUPS.map(|names| names.iter().filter_map(open).collect::<Vec<OwnedFd>>());
    let groups = groups.iter().map(|programs| programs.iter().map(AsFd::as_fd).collect());
    Misses::of(groups).count().map_err(KernelError::Misses)
}

fn open_ring(dir: &Path) -> Result<MapData, KernelError> {
    let ring = MapData::from_pin(dir.join("LIFECYCLE"));
    ring.map_err(|source| KernelError::Map { map: "LIFECYCLE", doing: "open", source })
}

fn open_pinned<T>(
    dir: &Path,
    name: &'static str,
    of: impl FnOnce(Map) -> Result<T, MapError>,
) -> Result<T, KernelError> {
    MapData::from_pin(dir.join(name)).and_then(Map::from_map_data).and_then(of).map_err(|source| KernelError::Map {
        map: name,
        doing: "open",
        source,
    })
}
