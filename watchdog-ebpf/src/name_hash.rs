//! Hashes of path components, under which the maps of names are keyed.

use core::ffi::c_void;

use watchdog_common::{FNV_OFFSET, name_hash_step};

use crate::task::{self, PATH_PART};

/// The hashes of a path's last two components.
#[derive(Clone, Copy)]
pub struct PathHashes {
    pub last: u64,
    pub before: u64,
}

impl PathHashes {
    /// Those of an empty path.
    pub const EMPTY: Self = Self { last: FNV_OFFSET, before: FNV_OFFSET };

    /// Cost: some five instructions a byte.
    #[inline(always)]
    pub fn of(path: &[u8]) -> Self {
        let mut hashes = Self::EMPTY;
        for &byte in path {
            match byte {
                0 => break,
                b'/' => {
                    hashes.before = hashes.last;
                    hashes.last = FNV_OFFSET;
                }
                byte => hashes.last = name_hash_step(hashes.last, byte),
            }
        }
        hashes
    }
}

/// The hash of the last component of a path in kernel memory, of which at most `parts` times [`PATH_PART`] bytes are read. One
/// part at a time: an LSM program has no scratch.
#[inline(always)]
pub fn last_component(path: *const c_void, parts: usize) -> u64 {
    let mut part = [0u8; PATH_PART + 1];
    let mut hash = FNV_OFFSET;
    for number in 0..parts {
        let more = task::read_part(path, number, &mut part);
        for &byte in &part {
            match byte {
                0 => break,
                b'/' => hash = FNV_OFFSET,
                byte => hash = name_hash_step(hash, byte),
            }
        }
        if !more {
            break;
        }
    }
    hash
}
