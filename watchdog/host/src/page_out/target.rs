//! One process that is paged out.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use super::advice::{AddressRange, CALL_LENGTH, CALL_RANGES, advise};
use super::exclusion::{ProcessStatus, exclusion};
use super::outcome::{of_errno, of_error};
use super::pace::Pace;
use super::ranges::{self, MemoryRange, ProcessRanges};
use crate::error::HostError;
use crate::pidfd::PidFd;
use crate::process::ProcessDir;
use watchdog_types::{Bytes, Memory, PageOutExclusion, PageOutOutcome, PageOutProcess, PageOutStop, Uid};

/// The smallest page size: a smaller amount is rounded down to zero.
const PAGE: u64 = 4096;

pub(super) struct PageOutTarget {
    pinned: PidFd,
    pub(super) memory: Memory,
    dir: ProcessDir,
    uid: Uid,
    found: ProcessRanges,
}

impl PageOutTarget {
    /// Identifies the process, or returns why it is not paged out.
    pub(super) fn find(process: PageOutProcess) -> Result<Result<Self, PageOutOutcome>, HostError> {
        let gone = Ok(Err(PageOutOutcome::Gone));
        let excluded = |why| Ok(Err(PageOutOutcome::Excluded(why)));
        let mut buffer = Vec::new();
        let Some((pinned, identity)) = PidFd::with_identity(process.id)? else { return gone };
        if identity.kernel {
            return excluded(PageOutExclusion::KernelThread);
        }
        let Some((dir, _)) = ProcessDir::of(process.id, &mut buffer)? else { return gone };
        let Some(status) = ProcessStatus::read(&dir, &mut buffer)? else { return gone };
        if let Some(why) = status.exclusion(process.uid) {
            // The kernel counts secret memory as locked.
            let secret = why == PageOutExclusion::Locked && ranges::read(&dir)?.is_some_and(|found| found.secret);
            return excluded(if secret { PageOutExclusion::SecretMemory } else { why });
        }
        if let Some(why) = exclusion(&dir, &mut buffer)? {
            return excluded(why);
        }
        let Some(found) = ranges::read(&dir)? else { return gone };
        if found.secret {
            return excluded(PageOutExclusion::SecretMemory);
        }
        Ok(Ok(Self { pinned, memory: status.memory, dir, uid: process.uid, found }))
    }

    /// Returns the memory afterwards, and the outcome.
    pub(super) fn page_out(mut self, budget: Bytes, pace: &mut Pace<'_>) -> (Memory, PageOutOutcome) {
        let outcome = self.advise_all(budget, pace).unwrap_or_else(|error| of_error(&error));
        (self.memory, outcome)
    }

    fn advise_all(&mut self, budget: Bytes, pace: &mut Pace<'_>) -> Result<PageOutOutcome, HostError> {
        let (pidfd, mut buffer) = (self.pinned.pidfd(), Vec::new());
        let first = self.memory.rss();
        let mut rest: VecDeque<MemoryRange> = self.found.ranges.drain(..).collect();
        // Whether ranges were skipped for lack of swap.
        let mut short_of_swap = false;
        while !rest.is_empty() {
            let room = if pace.has_swap() { pace.swap_room() } else { Bytes(0) };
            if room.0 < PAGE {
                let resident = rest.len();
                rest.retain(|range| range.swappable == Bytes(0));
                short_of_swap |= rest.len() < resident;
            }
            let spent = Bytes(first.0.saturating_sub(self.memory.rss().0));
            let left = Bytes(budget.0.saturating_sub(spent.0));
            let batch = batch(&mut rest, pace.step().min(left), room);
            if batch.is_empty() {
                match rest.is_empty() {
                    true => break,
                    false => return Ok(PageOutOutcome::Stopped(PageOutStop::Budget)),
                }
            }
            if let Err(errno) = advise(pidfd.as_fd(), &batch) {
                return Ok(of_errno(errno));
            }
            let Some(status) = ProcessStatus::read(&self.dir, &mut buffer)? else { return Ok(PageOutOutcome::Gone) };
            let paged_out = Bytes(self.memory.rss().0.saturating_sub(status.memory.rss().0));
            self.memory = status.memory;
            if let Some(why) = status.exclusion(self.uid) {
                return Ok(PageOutOutcome::Excluded(why));
            }
            if !pace.wait(paged_out) {
                return Ok(PageOutOutcome::Stopped(PageOutStop::Cancelled));
            }
        }
        Ok(match (short_of_swap, pace.has_swap()) {
            (false, _) => PageOutOutcome::Done,
            (true, true) => PageOutOutcome::Stopped(PageOutStop::SwapReserve),
            (true, false) => PageOutOutcome::NoSwap,
        })
    }
}

/// Takes the next ranges, with at most `limit` of resident memory, of which at most `room` needs swap. Empty if the limit is
/// smaller than a page.
fn batch(rest: &mut VecDeque<MemoryRange>, limit: Bytes, room: Bytes) -> Vec<AddressRange> {
    let (mut limit, mut room, mut batch) = (limit.0, room.0, Vec::new());
    while batch.len() < CALL_RANGES
        && let Some(range) = rest.front_mut()
    {
        let Some(piece) = cut(range, limit, room, batch.is_empty()) else { break };
        batch.push(piece);
        limit -= piece.length.min(range.resident.0);
        room -= piece.length.min(range.swappable.0);
        if range.length == 0 {
            rest.pop_front();
        }
    }
    batch
}

/// Cuts off the beginning of a range, with at most `limit` of resident memory, of which at most `room` needs swap. Splits a
/// range only as the first of a batch, because its resident pages may be anywhere in it.
fn cut(range: &mut MemoryRange, limit: u64, room: u64, may_split: bool) -> Option<AddressRange> {
    let fits = range.resident.0 <= limit && range.swappable.0 <= room;
    let bound = if range.swappable.0 > room { limit.min(room) } else { limit };
    let length = range.length.min(if fits { CALL_LENGTH } else { bound / PAGE * PAGE });
    if length == 0 || !(fits || may_split) {
        return None;
    }
    let piece = AddressRange { start: range.start, length };
    range.start += length;
    range.length -= length;
    Some(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn range(start: u64, length: u64, resident: u64, swappable: u64) -> MemoryRange {
        MemoryRange { start, length, resident: Bytes(resident), swappable: Bytes(swappable) }
    }

    fn lengths(batch: &[AddressRange]) -> Vec<u64> {
        batch.iter().map(|range| range.length / MIB).collect()
    }

    #[test]
    fn small_ranges_share_a_batch() {
        let mut rest = VecDeque::from([
            range(0, 4 * MIB, 2 * MIB, 2 * MIB),
            range(8 * MIB, 512 * MIB, MIB, MIB),
            range(1 << 40, 8 * MIB, 8 * MIB, 8 * MIB),
        ]);
        assert_eq!(lengths(&batch(&mut rest, Bytes(4 * MIB), Bytes(u64::MAX))), [4, 512]);
        assert_eq!(lengths(&batch(&mut rest, Bytes(4 * MIB), Bytes(u64::MAX))), [4]);
        assert_eq!(lengths(&batch(&mut rest, Bytes(16 * MIB), Bytes(u64::MAX))), [4]);
        assert!(rest.is_empty());
    }

    #[test]
    fn huge_range_is_split() {
        let mut rest = VecDeque::from([range(0, 3 << 30, MIB, MIB)]);
        let all = batch(&mut rest, Bytes(16 * MIB), Bytes(u64::MAX));
        assert_eq!(lengths(&all), [1024, 1024, 1024]);
        assert!(rest.is_empty());
    }

    #[test]
    fn free_swap_bounds_anonymous_memory() {
        let mut rest = VecDeque::from([range(0, 8 * MIB, 8 * MIB, 0), range(1 << 30, 8 * MIB, 8 * MIB, 8 * MIB)]);
        assert_eq!(lengths(&batch(&mut rest, Bytes(16 * MIB), Bytes(2 * MIB))), [8]);
        assert_eq!(lengths(&batch(&mut rest, Bytes(16 * MIB), Bytes(2 * MIB))), [2]);
        assert!(batch(&mut rest, Bytes(16 * MIB), Bytes(0)).is_empty());
        assert!(batch(&mut rest, Bytes(4095), Bytes(u64::MAX)).is_empty());
    }

    /// No batch holds more memory than its limits, and all batches cover each address once.
    #[test]
    fn batches_stay_below_limit() {
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let all: Vec<_> = (0..200)
            .map(|at| {
                let length = (next(2000) + 1) * PAGE;
                let resident = (next(length / PAGE) + 1) * PAGE;
                range(at << 32, length, resident, resident / PAGE * (at % 3) / 2 * PAGE)
            })
            .collect();
        let mut rest = VecDeque::from(all.clone());
        let mut covered = 0;
        while !rest.is_empty() {
            let (limit, room) = ((next(900) + 1) * PAGE, (next(900) + 1) * PAGE);
            let batch = batch(&mut rest, Bytes(limit), Bytes(room));
            let most = |of: fn(&MemoryRange) -> Bytes| {
                let within = |piece: &AddressRange| {
                    let range = all.iter().rev().find(|range| range.start <= piece.start).unwrap();
                    piece.length.min(of(range).0)
                };
                batch.iter().map(within).sum::<u64>()
            };
            assert!(most(|range| range.resident) <= limit && most(|range| range.swappable) <= room, "{batch:?}");
            covered += batch.iter().map(|piece| piece.length).sum::<u64>();
        }
        assert_eq!(covered, all.iter().map(|range| range.length).sum::<u64>());
    }
}
