//! What the kernel programs and the daemon share: the records of the ring buffers, the values of the maps, and the
//! globals that userspace fills in before the programs are loaded.
//!
//! Everything here is plain data with a fixed layout. Both sides are built from these files, and the sizes are
//! asserted: a change that moves a field fails to compile.
#![no_std]

mod death;
mod gate;
mod lineage;
mod offsets;
mod record;

pub use death::{DeathRecord, READER_ABSENT_NANOS, ReaderState};
pub use gate::{ExecDeniedRecord, FORK_DENIED_INTERVAL_NANOS, FileId, ForkDeniedRecord, GatedSession, RecountRequest};
pub use lineage::{LineageFlags, RawLineage, SHARED_ACCOUNT, Tracked};
pub use offsets::{ABSENT, LoadSettings, Offsets};
pub use record::{
    ARGV_MAX, COMM_LEN, ExecRecord, ExitRecord, ForkRecord, LossCause, MemoryStepRecord, PATH_MAX, ReclaimRecord,
    RecordHeader, RecordKind, SampleFlags, SampleRecord, SignalFlags, SignalRecord, VictimRecord,
};

/// Nanoseconds in one clock tick of /proc: USER_HZ is 100 on every architecture that Linux still builds for
/// (`include/asm-generic/param.h`), so `start_boottime / NANOS_PER_TICK` is field 22 of /proc/PID/stat.
pub const NANOS_PER_TICK: u64 = 10_000_000;

/// Whether two starts, in nanoseconds since boot, are in the same clock tick of /proc. Userspace knows starts in ticks only, so
/// its entries hold the start of the tick.
#[inline(always)]
#[must_use]
pub const fn same_start(a: u64, b: u64) -> bool {
    a / NANOS_PER_TICK == b / NANOS_PER_TICK
}

/// The key of a file name in the maps of names: FNV-1a, 64 bits, over the bytes of one path component.
///
/// Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm" (RFC 9923).
#[must_use]
pub const fn name_hash(name: &[u8]) -> u64 {
    let mut hash = FNV_OFFSET;
    let mut i = 0;
    while i < name.len() {
        hash = name_hash_step(hash, name[i]);
        i += 1;
    }
    hash
}

/// The hash of the empty name, from which [`name_hash_step`] starts.
pub const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// Adds one byte to a running [`name_hash`].
#[inline(always)]
#[must_use]
pub const fn name_hash_step(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_compared_by_tick() {
        assert!(same_start(1_230_000_000, 1_239_999_999));
        assert!(!same_start(1_239_999_999, 1_240_000_000));
    }

    #[test]
    fn name_hash_is_fnv_1a() {
        // Vectors of RFC 9923, appendix C.
        assert_eq!(name_hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(name_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(name_hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
