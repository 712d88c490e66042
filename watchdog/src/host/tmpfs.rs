//! Files that are memory: what each tmpfs holds, what processes map of it, and which file is the largest.

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
use crate::engine::id::{Bytes, Uid};
use crate::engine::input::{Tmpfs, TmpfsFile, TmpfsMount};

/// A tmpfs that holds less is not searched for its largest file.
const WORTH_SEARCHING: Bytes = Bytes::from_mib(256);
/// A search ends after so many entries: about 50 ms.
const ENTRIES: usize = 20_000;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;

/// How files in memory stand now. About 30 µs for each process of the host; a search comes on top when there is much.
///
/// # Errors
/// When /proc, /proc/meminfo or /proc/self/mountinfo cannot be read.
pub fn look() -> Result<Tmpfs, HostError> {
    let mapped = mapped()?;
    let shmem = meminfo::host_memory()?.shmem;
    let mountinfo = "/proc/self/mountinfo";
    let table = fs::read(mountinfo).map_err(|error| HostError::io("read", mountinfo, error))?;
    let mut mounts: Vec<TmpfsMount> = mounted(&table).into_iter().filter_map(|path| used(&path)).collect();
    mounts.sort_by(|one, other| (other.used, &one.path).cmp(&(one.used, &other.path)));
    let fullest = mounts.first().filter(|mount| mount.used >= WORTH_SEARCHING);
    let largest = fullest.and_then(|mount| largest_below(Path::new(&mount.path)));
    Ok(Tmpfs { shmem, mapped, mounts, largest })
}

/// The sum of what all processes map of shared memory. What cannot be read counts as nothing.
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

/// Where each tmpfs is mounted: once for each, however often it is.
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

/// A blank is written `\040` there.
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

/// What a mounted tmpfs holds; `None` when that is nothing, or cannot be told.
fn used(path: &Path) -> Option<TmpfsMount> {
    let stat = statvfs(path).ok()?;
    let used = Bytes(stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize));
    (used.0 > 0).then(|| TmpfsMount { path: path.to_string_lossy().into_owned(), used })
}

/// The file that takes most, of those that a short search comes across. Follows no link and enters no other file system.
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
    fn each_tmpfs_is_named_once() {
        let table = b"22 1 0:20 / /run rw - tmpfs tmpfs rw\n23 1 8:1 / / rw - ext4 /dev/sda1 rw\n24 1 0:21 / /tmp/a\\040b rw shared:1 - tmpfs x rw\n25 1 0:20 /x /mnt rw - tmpfs tmpfs rw\n";
        assert_eq!(mounted(table), [PathBuf::from("/run"), PathBuf::from("/tmp/a b")]);
    }

    #[test]
    fn a_path_with_escapes_is_read_as_it_is() {
        assert_eq!(unescape(b"/a\\040b\\134c"), b"/a b\\c");
        assert_eq!(unescape(b"/a\\9"), b"/a\\9");
    }

    #[test]
    fn the_largest_file_is_found_wherever_it_is() {
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
    fn the_host_is_looked_at() {
        let seen = look().unwrap();
        assert!(seen.mounts.iter().all(|mount| mount.used.0 > 0 && mount.path.starts_with('/')), "{seen:?}");
        assert!(seen.shmem.0 > 0 || seen.mounts.is_empty(), "{seen:?}");
    }
}
