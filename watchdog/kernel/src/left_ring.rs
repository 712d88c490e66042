//! Reads what an earlier daemon left in a ring without consuming it: if this daemon is killed before it has used the
//! records, the next one reads them. Programs may write meanwhile.
//!
//! Layout and header bits: kernel/bpf/ringbuf.c, include/uapi/linux/bpf.h (`BPF_RINGBUF_*`).

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::maps::MapData;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::decode::decode;
use watchdog_types::KernelEvent;

/// The record is being written.
const BUSY: u32 = 1 << 31;
/// The record was discarded.
const DISCARD: u32 = 1 << 30;
/// Bytes before each record: its length with the two bits, then a page offset.
const HEADER: usize = 8;

/// The unread events, oldest first, and their number of records. Invalid records are only counted.
pub(super) fn unread(ring: &MapData) -> io::Result<(Vec<KernelEvent>, usize)> {
    let size = ring.info().map_err(io::Error::other)?.max_entries() as usize;
    let mapping = Mapping::of(ring, size)?;
    let (mut position, end) = (mapping.position(0), mapping.position(1));
    let (mut events, mut records) = (Vec::new(), 0);
    while position < end {
        let at = (position % size as u64) as usize;
        let head = mapping.head(at)?;
        if head & BUSY != 0 {
            break;
        }
        let len = (head & !(BUSY | DISCARD)) as usize;
        if head & DISCARD == 0 {
            records += 1;
            events.extend(decode(mapping.bytes(at + HEADER, len)?).ok());
        }
        position += (len + HEADER).next_multiple_of(HEADER) as u64;
    }
    Ok((events, records))
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

    /// The position stored at the start of a page.
    fn position(&self, page: usize) -> u64 {
        // SAFETY: the first two pages are mapped, and each begins with an aligned 64-bit number, which is only ever changed as
        // a whole.
        unsafe { AtomicU64::from_ptr(self.start.byte_add(page * self.page).cast()) }.load(Ordering::Acquire)
    }

    /// The first word of a record's header.
    fn head(&self, at: usize) -> io::Result<u32> {
        let word: *const u32 = self.bytes(at, HEADER)?.as_ptr().cast();
        // SAFETY: records are aligned to 8 bytes, and the kernel changes the word as a whole when the record is complete.
        Ok(unsafe { AtomicU32::from_ptr(word.cast_mut()) }.load(Ordering::Acquire))
    }

    fn bytes(&self, at: usize, len: usize) -> io::Result<&[u8]> {
        let from = 2 * self.page + at;
        if from + len > self.len {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a record exceeds its ring"));
        }
        // SAFETY: the range is mapped for as long as `self` lives. No program writes a complete record again before the reader's
        // position is past it, and nothing reads the ring meanwhile.
        Ok(unsafe { &*slice_from_raw_parts(self.start.byte_add(from).cast::<u8>(), len) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrowed from it outlives it.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}
