//! The memory ranges of a process that can be paged out, from /proc/PID/smaps.

use std::io::{BufRead, BufReader};

use crate::error::{HostError, is_missing};
use crate::process::ProcessDir;
use crate::stat::number;
use rustix::io::Errno;
use watchdog_types::Bytes;

/// Mappings of the kernel in every process.
const OF_KERNEL: [&[u8]; 5] = [b"[vdso]", b"[vvar]", b"[vvar_vclock]", b"[vsyscall]", b"[uprobes]"];
/// Files in memory, whose pages need swap.
const IN_MEMORY: [&[u8]; 5] = [b"/memfd:", b"/dev/shm/", b"/SYSV", b"/dev/zero", b"/anon_hugepage"];
/// The file of memfd_secret(2).
const SECRET: &[u8] = b"/secretmem";
/// VmFlags that MADV_PAGEOUT rejects (`can_madv_lru_vma` of mm/internal.h): locked, huge pages, page frames of devices, I/O.
const REJECTED: [&[u8]; 4] = [b"lo", b"ht", b"pf", b"io"];
/// VmFlags of memory that is excluded from core dumps, as allocators of keys mark their memory.
const NOT_DUMPED: &[u8] = b"dd";

/// Resident memory at these addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryRange {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) resident: Bytes,
    /// The part that needs swap: anonymous and shared memory, and pages of files that the process has changed. Other pages of
    /// files can be dropped and read again.
    pub(super) swappable: Bytes,
}

/// The content of smaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessRanges {
    /// In ascending order.
    pub(super) ranges: Vec<MemoryRange>,
    /// It maps memory of memfd_secret(2).
    pub(super) secret: bool,
}

/// `None` when the process has exited. The kernel walks all page tables, about 25 ms per resident GiB.
///
/// # Errors
/// When the kernel refuses: reading the file needs the right to ptrace the process.
pub(super) fn read(dir: &ProcessDir) -> Result<Option<ProcessRanges>, HostError> {
    let Some(file) = dir.file("smaps")? else { return Ok(None) };
    match parse(BufReader::with_capacity(64 << 10, std::fs::File::from(file))) {
        Ok(found) => Ok(Some(found)),
        Err(error) if Errno::from_io_error(&error).is_some_and(is_missing) => Ok(None),
        Err(error) => Err(HostError::io("read", dir.path("smaps"), error)),
    }
}

fn parse(mut smaps: impl BufRead) -> std::io::Result<ProcessRanges> {
    let mut found = ProcessRanges::default();
    let mut current: Option<MemoryRange> = None;
    let mut in_memory = false;
    let mut line = Vec::new();
    while smaps.read_until(b'\n', &mut line)? > 0 {
        if let Some((range, name)) = header(&line) {
            found.secret |= name.text.starts_with(SECRET);
            in_memory = name.is_memory();
            current = Some(range).filter(|_| !OF_KERNEL.contains(&name.text));
        } else if let Some(resident) = kib(&line, b"Rss:") {
            let swappable = if in_memory { resident } else { Bytes(0) };
            current = current.map(|range| MemoryRange { resident, swappable, ..range });
        } else if let Some(anonymous) = kib(&line, b"Anonymous:") {
            current = current.map(|range| MemoryRange { swappable: range.swappable.max(anonymous), ..range });
        } else if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            let has = |flag: &[u8]| flags.split(u8::is_ascii_whitespace).any(|word| word == flag);
            let rejected = REJECTED.into_iter().any(has) || (in_memory && has(NOT_DUMPED));
            found.ranges.extend(current.take().filter(|range| range.resident > Bytes(0) && !rejected));
        }
        line.clear();
    }
    Ok(found)
}

/// The amount of a line such as `Rss:    8 kB`.
fn kib(line: &[u8], name: &[u8]) -> Option<Bytes> {
    number(line.strip_prefix(name)?.trim_ascii().strip_suffix(b" kB")?).map(Bytes::from_kib)
}

/// The source of a mapping.
struct RangeName<'a> {
    /// A path, a name in brackets, or nothing.
    text: &'a [u8],
    inode: u64,
}

impl RangeName<'_> {
    fn is_memory(&self) -> bool {
        self.inode == 0 || IN_MEMORY.iter().any(|known| self.text.starts_with(known))
    }
}

/// The range and its name from `7f00-7f40 rw-p 00000000 00:00 0    [heap]`; `None` for other lines.
fn header(line: &[u8]) -> Option<(MemoryRange, RangeName<'_>)> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (start, end) = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let inode: u64 = number(words.nth(3)?)?;
    let text = line.iter().position(|byte| matches!(byte, b'/' | b'[')).map_or(&line[line.len()..], |at| &line[at..]);
    let range = MemoryRange { start, length: end.checked_sub(start)?, resident: Bytes(0), swappable: Bytes(0) };
    Some((range, RangeName { text: text.trim_ascii_end(), inode }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each with a page that the process has changed, if it is of a file.
    fn smaps(ranges: &[(&str, u64, &str)]) -> ProcessRanges {
        let text: String = ranges
            .iter()
            .map(|(header, rss, flags)| {
                format!("{header}\nSize:  8 kB\nRss:  {rss} kB\nPss:  {rss} kB\nAnonymous:  4 kB\nVmFlags: {flags} \n")
            })
            .collect();
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn resident_ranges_are_kept() {
        let found = smaps(&[
            ("559e1000-559e3000 r-xp 00001000 fe:00 4242                       /usr/bin/a (b) c", 8, "rd ex mr"),
            ("559e3000-559e5000 rw-p 00000000 00:00 0 ", 4, "rd wr mr"),
            ("559e5000-559e7000 rw-p 00000000 00:00 0                          [heap]", 0, "rd wr mr"),
            ("559e7000-559e9000 rw-s 00000000 00:01 77                         /memfd:x (deleted)", 8, "rd wr sh"),
        ]);
        let range = |start, resident, swappable| MemoryRange {
            start,
            length: 0x2000,
            resident: Bytes::from_kib(resident),
            swappable: Bytes::from_kib(swappable),
        };
        let expected = [range(0x559e_1000, 8, 4), range(0x559e_3000, 4, 4), range(0x559e_7000, 8, 8)];
        assert_eq!(found, ProcessRanges { ranges: expected.into(), secret: false });
    }

    #[test]
    fn protected_ranges_are_skipped() {
        let found = smaps(&[
            ("1000-3000 r-xp 00000000 00:00 0                [vdso]", 8, "rd ex"),
            ("3000-5000 rw-p 00000000 00:00 0 ", 8, "rd wr lo"),
            ("5000-7000 rw-p 00000000 00:0e 9                /anon_hugepage (deleted)", 8, "rd wr ht"),
            ("7000-9000 rw-s 00000000 00:06 3                /dev/dri/card0", 8, "rd wr io pf"),
            ("9000-b000 rw-p 00000000 00:00 0 ", 8, "rd wr dd"),
        ]);
        assert_eq!(found, ProcessRanges::default());
    }

    #[test]
    fn secret_memory_is_recognised() {
        let found = smaps(&[("1000-3000 rw-s 00000000 00:0f 5      /secretmem (deleted)", 8, "rd wr lo")]);
        assert!(found.secret && found.ranges.is_empty(), "{found:?}");
    }

    #[test]
    fn hostile_name_is_no_header() {
        let found = smaps(&[(
            "1000-3000 r--p 00000000 fe:00 4242      /home/u/[vdso]\\012Rss: 9999 kB\\012VmFlags: lo",
            8,
            "rd",
        )]);
        assert_eq!(found.ranges.first().map(|range| range.resident), Some(Bytes::from_kib(8)), "{found:?}");
    }
}
