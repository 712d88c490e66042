//! State that outlives a daemon in the kernel: deaths, and how far the last daemon had read.

use crate::lineage::RawLineage;
use crate::record::{ExitRecord, LossCause};

/// The value of the `DEATHS` and `ROOT_DEATHS` maps, keyed by tgid.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct DeathRecord {
    /// The exit, as it was sent on the ring.
    pub exit: ExitRecord,
    pub lineage: RawLineage,
}

/// The value of the `READER` map. Userspace writes it about once a second, after its table has taken in what the maps held.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "user",
    derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)
)]
pub struct ReaderState {
    /// When a daemon last read the maps: CLOCK_BOOTTIME, nanoseconds. 0 before the first time.
    pub seen_at: u64,
    /// Losses reported so far, summed over CPUs, by the slots of [`LossCause`].
    pub lost: [u64; LossCause::SLOTS],
    /// Skipped program runs reported so far.
    pub missed: u64,
    /// Deaths of processes other than session roots, counted up to that moment.
    pub deaths: u64,
}

/// A daemon without a heartbeat for this long, in nanoseconds, counts as exited: agents past the gate are no longer killed.
pub const READER_ABSENT_NANOS: u64 = 10_000_000_000;

const _: () = assert!(size_of::<DeathRecord>() == 112);
const _: () = assert!(size_of::<ReaderState>() == 24 + 8 * LossCause::SLOTS);
