//! Records that the programs could not send, and runs of programs that the kernel skipped.

use aya::maps::{MapData, PerCpuArray};
use watchdog_common::{LossCause, RecordKind};

use super::error::KernelError;

/// Records that were lost since the programs were loaded, summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    pub(super) slots: [u64; LossCause::SLOTS],
    /// Events that the programs on fork, exec, exit and free missed.
    pub(super) missed: u64,
    /// Events that the programs on signals and the OOM killer missed.
    pub(super) causes_missed: u64,
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

    /// Records of this kind that were dropped because their ring was full.
    #[must_use]
    pub fn of(&self, kind: RecordKind) -> u64 {
        self.slots[kind as usize]
    }

    /// Processes that were not tracked because the map was full.
    #[must_use]
    pub fn untracked(&self) -> u64 {
        self.slots[LossCause::MAP_FULL as usize]
    }

    /// Events for which the kernel skipped the programs, of tracked processes or not.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed + self.causes_missed
    }

    /// Losses that can make the table of processes wrong: all but the records of close watch.
    #[must_use]
    pub fn lifecycle(&self) -> u64 {
        [RecordKind::Fork, RecordKind::Exec, RecordKind::Exit, RecordKind::Oom, RecordKind::Signal]
            .into_iter()
            .map(|kind| self.of(kind))
            .sum::<u64>()
            + self.untracked()
            + self.missed
    }

    /// All losses.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.slots.iter().sum::<u64>() + self.missed()
    }
}
