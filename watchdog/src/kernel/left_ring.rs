//! The ring of another layout, which no program writes any more: read as often as needed, since nothing is taken out of it. A
//! daemon that is killed before it has used the records leaves them to the next one.
//!
//! Layout and header bits: kernel/bpf/ringbuf.c, include/uapi/linux/bpf.h (`BPF_RINGBUF_*`).

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{null_mut, slice_from_raw_parts};

use aya::maps::MapData;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::decode::decode;
use crate::engine::input::KernelEvent;

/// A record is not complete.
const BUSY: u32 = 1 << 31;
/// A record was given up.
const DISCARD: u32 = 1 << 30;
/// Bytes before each record: its length with the two bits, then a page offset.
const HEADER: usize = 8;

/// The events that nothing has read, oldest first. Records that make no sense are left out.
///
/// # Errors
/// When the ring cannot be mapped.
pub(super) fn unread(ring: &MapData) -> io::Result<Vec<KernelEvent>> {
    let size = ring.info().map_err(io::Error::other)?.max_entries() as usize;
    let mapping = Mapping::of(ring, size)?;
    let (mut position, end) = (mapping.position(0), mapping.position(1));
    let mut events = Vec::new();
    while position < end {
        let at = (position % size as u64) as usize;
        let head = mapping.bytes(at, HEADER)?;
        let head = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]);
        if head & BUSY != 0 {
            break;
        }
        let len = (head & !(BUSY | DISCARD)) as usize;
        if head & DISCARD == 0 {
            events.extend(decode(mapping.bytes(at + HEADER, len)?).ok());
        }
        position += (len + HEADER).next_multiple_of(HEADER) as u64;
    }
    Ok(events)
}

/// A ring's pages: the reader's position, the writer's, and the data twice, so that no record is in two pieces.
struct Mapping {
    start: *mut c_void,
    page: usize,
    len: usize,
}

impl Mapping {
    fn of(ring: &MapData, size: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let len = 2 * page + 2 * size;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, ring.fd().as_fd(), 0)? };
        Ok(Self { start, page, len })
    }

    /// The position at the beginning of a page.
    fn position(&self, page: usize) -> u64 {
        // SAFETY: the first two pages are mapped, and each begins with an aligned 64-bit number.
        unsafe { self.start.byte_add(page * self.page).cast::<u64>().read_volatile() }
    }

    /// Bytes of the data.
    fn bytes(&self, at: usize, len: usize) -> io::Result<&[u8]> {
        let from = 2 * self.page + at;
        if from + len > self.len {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record exceeds its ring"));
        }
        // SAFETY: the range is mapped for as long as `self` lives, and the programs that wrote it are detached.
        Ok(unsafe { &*slice_from_raw_parts(self.start.byte_add(from).cast::<u8>(), len) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrowed from it outlives it.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}
