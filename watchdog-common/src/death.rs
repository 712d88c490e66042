//! What outlives a daemon in the kernel: the deaths that happened meanwhile, and what the last reader of the maps had seen.

use crate::lineage::Lineage;
use crate::record::{ExitRecord, LossCause};

/// The value of the `DEATHS` and `ROOT_DEATHS` maps, keyed by tgid.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct DeathRecord {
    /// The record that was sent of the exit.
    pub exit: ExitRecord,
    /// Where the process belonged.
    pub lineage: Lineage,
}

/// The value of the `READER` map. Userspace writes it about once a second, once its table holds what the maps held before.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct Reader {
    /// When a daemon last read the maps: CLOCK_BOOTTIME, nanoseconds. 0 before the first time.
    pub seen_at: u64,
    /// Losses that were reported, summed over CPUs, by the slots of [`LossCause`].
    pub lost: [u64; LossCause::SLOTS],
    /// Runs of programs that the kernel skipped, as far as they were reported.
    pub missed: u64,
    /// Deaths of processes other than session roots, counted up to that moment.
    pub deaths: u64,
}

/// A daemon that has not said for this long, in nanoseconds, that it runs has exited: agents past the gate are not killed any more.
pub const READER_ABSENT_NANOS: u64 = 10_000_000_000;

const _: () = assert!(size_of::<DeathRecord>() == 112);
const _: () = assert!(size_of::<Reader>() == 24 + 8 * LossCause::SLOTS);
