//! Files in memory: usage of each tmpfs, shared memory that processes map, and the largest file.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use super::error::HostError;
use super::meminfo;
use super::process::{ProcessDir, pids};
use super::stat::Fields;
use watchdog_types::{Bytes, Pid, SharedSegment, Tmpfs, TmpfsFile, TmpfsMount, Uid};

/// A tmpfs with less in use is not searched for its largest file.
const WORTH_SEARCHING: Bytes = Bytes::from_mib(256);
/// Entries that a search visits: about 50 ms.
const ENTRIES: usize = 20_000;
/// Segments that are listed.
const SEGMENTS: usize = 20;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// About 30 µs per process of the host, and a search of at most [`ENTRIES`] when a tmpfs holds much.
///
/// # Errors
/// When /proc, /proc/meminfo or /proc/self/mountinfo cannot be read.
pub fn read() -> Result<Tmpfs, HostError> {
    let mapped = mapped()?;
    let shmem = meminfo::host_memory()?.shmem;
    let mountinfo = "/proc/self/mountinfo";
    let table = fs::read(mountinfo).map_err(|error| HostError::io("read", mountinfo, error))?;
    let mut mounts: Vec<TmpfsMount> = mounted(&table).into_iter().filter_map(|path| used(&path)).collect();
    mounts.sort_by(|one, other| (other.used, &one.path).cmp(&(one.used, &other.path)));
    let fullest = mounts.first().filter(|mount| mount.used >= WORTH_SEARCHING);
    let largest = fullest.and_then(|mount| largest_below(Path::new(&mount.path)));
    let segments = segments(&fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default());
    Ok(Tmpfs { shmem, mapped, mounts, largest, segments })
}

/// The segments of a /proc/sysvipc/shm that no process has attached, the largest first. Empty without System V memory.
fn segments(table: &str) -> Vec<SharedSegment> {
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let column = |name: &str| names.iter().position(|known| *known == name);
    let columns = ["shmid", "nattch", "cpid", "uid", "rss", "swap"].map(column);
    let segment = |line: &str| {
        let words: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let [id, attached, creator, uid, resident, swapped] =
            columns.map(|at| at.and_then(|at| words.get(at)).copied());
        let small = |number: Option<u64>| u32::try_from(number.unwrap_or(0)).unwrap_or(0);
        let size = Bytes(resident? + swapped.unwrap_or(0));
        let left = attached? == 0 && size.0 > 0;
        left.then_some(SharedSegment { id: id?, size, creator: Pid(small(creator)), uid: Uid(small(uid)) })
    };
    let mut found: Vec<SharedSegment> = lines.filter_map(segment).collect();
    found.sort_by_key(|segment| (std::cmp::Reverse(segment.size), segment.id));
    found.truncate(SEGMENTS);
    found
}

/// Shared memory that processes map, in total. Unreadable processes count as zero.
fn mapped() -> Result<Bytes, HostError> {
    let mut buffer = Vec::new();
    let mut total = Bytes(0);
    for pid in pids()? {
        if let Ok(Some((dir, _))) = ProcessDir::with_stat(pid, &mut buffer)
            && let Ok(Some(())) = dir.read_up_to("status", 8192, &mut buffer)
        {
            total += Fields(&buffer).kib("RssShmem").unwrap_or_default();
        }
    }
    Ok(total)
}

/// The mount point of each tmpfs; the first one where it is mounted several times.
fn mounted(mountinfo: &[u8]) -> Vec<PathBuf> {
    let mut devices = BTreeSet::new();
    let mut paths = Vec::new();
    for line in mountinfo.split(|byte| *byte == b'\n') {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let Some(separator) = words.iter().position(|word| *word == b"-") else { continue };
        if let (Some(device), Some(path), Some(&b"tmpfs")) = (words.get(2), words.get(4), words.get(separator + 1))
            && devices.insert(device.to_vec())
        {
            paths.push(PathBuf::from(std::ffi::OsString::from_vec(unescape(path))));
        }
    }
    paths
}

/// Decodes octal escapes: `\040` is a space.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

/// `None` when the tmpfs is empty or unreadable.
fn used(path: &Path) -> Option<TmpfsMount> {
    let stat = statvfs(path).ok()?;
    let used = Bytes(stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize));
    (used.0 > 0).then(|| TmpfsMount { path: path.to_string_lossy().into_owned(), used })
}

/// The largest file among the first [`ENTRIES`]. Follows no link and enters no other file system.
fn largest_below(root: &Path) -> Option<TmpfsFile> {
    let device = fs::symlink_metadata(root).ok()?.dev();
    let mut open = vec![root.to_owned()];
    let mut left = ENTRIES;
    let mut largest: Option<TmpfsFile> = None;
    while let Some(directory) = open.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            if left == 0 {
                return largest;
            }
            left -= 1;
            let Ok(about) = entry.metadata() else { continue };
            if about.dev() != device {
                continue;
            }
            let size = Bytes(about.blocks().saturating_mul(BLOCK));
            if about.is_dir() {
                open.push(entry.path());
            } else if about.is_file() && largest.as_ref().is_none_or(|known| size > known.size) {
                let path = entry.path().to_string_lossy().into_owned();
                largest = Some(TmpfsFile { path, size, uid: Uid(about.uid()) });
            }
        }
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tmpfs_listed_once() {
        let table = b"22 1 0:20 / /run rw - tmpfs tmpfs rw\n23 1 8:1 / / rw - ext4 /dev/sda1 rw\n24 1 0:21 / /tmp/a\\040b rw shared:1 - tmpfs x rw\n25 1 0:20 /x /mnt rw - tmpfs tmpfs rw\n";
        assert_eq!(mounted(table), [PathBuf::from("/run"), PathBuf::from("/tmp/a b")]);
    }

    #[test]
    fn left_segments_are_listed() {
        let table = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n         0          3  1600                524288  41    41      2  1000  1000  1000  1000 0 0 0  524288 0\n         0          7  1600             268435456  77    77      0  1000  1000  1000  1000 0 0 0  200000000 4096\n";
        let expected = SharedSegment { id: 7, size: Bytes(200_004_096), creator: Pid(77), uid: Uid(1000) };
        assert_eq!(segments(table), [expected]);
    }

    #[test]
    fn octal_escapes_are_decoded() {
        assert_eq!(unescape(b"/a\\040b\\134c"), b"/a b\\c");
        assert_eq!(unescape(b"/a\\9"), b"/a\\9");
    }

    #[test]
    fn largest_file_found_at_any_depth() {
        let directory = tempfile::tempdir().unwrap();
        let below = directory.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::write(directory.path().join("small"), vec![1; 10_000]).unwrap();
        fs::write(below.join("large"), vec![1; 200_000]).unwrap();
        std::os::unix::fs::symlink("/", directory.path().join("link")).unwrap();
        let found = largest_below(directory.path()).unwrap();
        assert!(found.path.ends_with("a/b/large"), "{found:?}");
        assert!(found.size >= Bytes(200_000), "{found:?}");
    }

    #[test]
    fn this_host_is_read() {
        let seen = read().unwrap();
        assert!(seen.mounts.iter().all(|mount| mount.used.0 > 0 && mount.path.starts_with('/')), "{seen:?}");
        assert!(seen.shmem.0 > 0 || seen.mounts.is_empty(), "{seen:?}");
    }
}
