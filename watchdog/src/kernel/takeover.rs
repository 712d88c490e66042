//! What an earlier daemon left in the kernel: taken over as it is where the layout is the same, else imported.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use watchdog_common::{DeathRecord, LossCause, Reader, Tracked};

use super::decode;
use super::error::KernelError;
use super::left_ring;
use super::programs::open_pinned_program;
use super::stats::Misses;
use super::tracer::{DeathMap, Lost, Placed, Tracer, bytes_of, is_errno, reading, state_of, update, writing};
use crate::engine::id::{BootTime, ProcessId};
use crate::engine::input::{KernelEvent, MissedExit};
use crate::host::pins::{self, PinError, Pins};

/// What an earlier daemon left.
#[derive(Debug)]
pub struct Inherited {
    /// Where everything is pinned, or why nothing is.
    pub pins: Result<PathBuf, String>,
    /// When a daemon last read the maps; `None` when none did, or nothing is known of it.
    pub since: Option<BootTime>,
    /// Processes that were tracked, dead ones too.
    pub tracked: usize,
    /// Exits that no daemon has read, and those of session roots that one may have read. Some of them are in a ring too.
    pub exits: Vec<MissedExit>,
    /// Losses that were reported: those counted beyond are new.
    pub reported: Lost,
    /// Losses of another layout that nobody reported.
    pub lost: Lost,
    /// Exits that were pushed out of their map before they were read.
    pub exits_dropped: u64,
}

/// A daemon reads what happens within this time, so that whatever is older was read.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// Passes over a map that is imported. Each one takes what was forked by a process that the one before was about to take; a
/// chain of forks that is faster than a pass for that long is found by the scan.
const PASSES: usize = 64;
/// Files in a directory of pins that are no maps begin so.
const LINK: &str = "link_";
const PROGRAM: &str = "prog_";

impl Default for Inherited {
    fn default() -> Self {
        Self::nothing(String::new())
    }
}

impl Inherited {
    /// Nothing, and nothing is pinned for this reason.
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

/// Where the link of a program is pinned.
pub(super) fn link_path(dir: &Path, program: &str) -> PathBuf {
    dir.join(format!("{LINK}{program}"))
}

/// Where a program is pinned.
pub(super) fn program_path(dir: &Path, program: &str) -> PathBuf {
    dir.join(format!("{PROGRAM}{program}"))
}

/// The maps that are pinned in a directory, by name.
pub(super) fn pinned_maps(dir: &Path) -> Result<Vec<(String, PathBuf)>, PinError> {
    let failed = |source| PinError::Io { doing: "read the directory", path: dir.to_owned(), source };
    let entries = std::fs::read_dir(dir).map_err(failed)?;
    let named = entries.flatten().map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    Ok(named.filter(|(name, _)| !name.starts_with(LINK) && !name.starts_with(PROGRAM)).collect())
}

/// A map, program or link could not be pinned, or what is pinned not be opened.
pub(super) fn not_pinned(name: &str, path: &Path, error: &dyn std::error::Error) -> PinError {
    PinError::Object { name: name.to_owned(), path: path.to_owned(), reason: chain(error) }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Tracer {
    /// Finds out what happened since the last daemon read the maps that this one uses now.
    pub(super) fn take_over(&mut self, dir: &Path) -> Result<Inherited, KernelError> {
        let mut inherited = Inherited { pins: Ok(dir.to_owned()), ..Inherited::default() };
        let reader = reader_of(&self.maps.reader)?;
        inherited.since = (reader.seen_at > 0).then_some(BootTime(reader.seen_at));
        // Nothing is repaired for a signal: what was missed of them before is no news.
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
        self.gate.begin_after(counted.into_iter())?;
        self.left = Some(open_ring(dir)?);
        Ok(inherited)
    }

    /// Takes in what is in the pins of other layouts, and detaches their programs: those of this one run already. Their maps stay
    /// until [`remove_imported`](Self::remove_imported), so that a daemon that is killed before loses nothing.
    pub(super) fn import_others(&mut self, pins: &Pins, complete: &Path, inherited: &mut Inherited) {
        let others = pins.others(complete).unwrap_or_else(|error| {
            tracing::warn!("{error}");
            Vec::new()
        });
        for (dir, readable) in others {
            let imported = if readable {
                self.import(&dir, inherited).map_err(|error| error.to_string())
            } else {
                Err("they are of another version".to_owned())
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

    /// What earlier daemons left in their rings, and how many records of it are in the ring of this one: they stay there until
    /// they are [skipped](super::EventStream::skip).
    pub fn read_left(&mut self) -> (Vec<KernelEvent>, usize) {
        let read = |ring: &MapData| {
            left_ring::unread(ring).unwrap_or_else(|error| {
                tracing::warn!("the events that an earlier daemon left cannot be read: {error}");
                Default::default()
            })
        };
        let mut events: Vec<KernelEvent> = self.imported.iter().flat_map(|(_, ring)| read(ring).0).collect();
        let (mut own, records) = self.left.take().map(|ring| read(&ring)).unwrap_or_default();
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
        // A daemon that is killed before it has done anything about these leaves them to the next one.
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

    /// Copies entries until a pass finds no new one: what a process forks once it is in the new map is marked there.
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
        // Sessions are counted under numbers of this daemon's own, once they are bound.
        let entry = Tracked { counted: 0, ..entry };
        match self.maps.tracked.insert(tgid, bytes_of(&entry), update::NO_EXIST) {
            Ok(()) => {
                self.users.charge(entry.uid, 1)?;
                self.settle(process).map(|_: Placed| ())
            }
            // It called exec meanwhile, or was forked by one that was imported before.
            Err(error) if is_errno(&error, libc::EEXIST) => {
                self.change(process, &decode::lineage(&entry.lineage)).map(|_: Option<Placed>| ())
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
    /// Adds what is in the maps of deaths: of session roots everything, since their sessions may have to be ended yet.
    fn add_exits(&mut self, reader: &Reader, [roots, others]: [&DeathMap; 2], counted: u64) -> Result<(), KernelError> {
        let read_before = reader.seen_at.saturating_sub(u64::try_from(READ_WITHIN.as_nanos()).unwrap_or(u64::MAX));
        let mut unread = 0;
        for (map, all) in [(roots, true), (others, false)] {
            let mut seen = HashSet::new();
            for pair in map.iter() {
                let (tgid, value) = pair.map_err(reading)?;
                let death: DeathRecord = zerocopy::transmute!(value);
                // The kernel starts over when the key that it stands at is removed meanwhile.
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

fn reader_of(map: &Array<MapData, [u8; size_of::<Reader>()]>) -> Result<Reader, KernelError> {
    let value = map.get(&0, 0).map_err(|source| KernelError::Map { map: "READER", doing: "read", source })?;
    Ok(zerocopy::transmute!(value))
}

/// Events that the programs pinned in a directory missed.
fn misses_in(dir: &Path) -> Result<u64, KernelError> {
    /// Every variant of [`super::load::lifecycle_programs`].
    const GROUPS: [&[&str]; 5] =
        [&["fork", "fork_spare"], &["exit_told", "exit_told_spare"], &["exit_counted"], &["exec"], &["free"]];
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
