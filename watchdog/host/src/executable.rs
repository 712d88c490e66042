//! The executable of a process, and whether only root can replace it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Stat, lstat, stat, statat};

use super::error::{HostError, is_missing};
use super::process::{ProcessDir, leads_to_private_mount};
use watchdog_types::Executable;

/// The kernel's suffix for an executable that was removed, as an upgrade does.
const DELETED: &[u8] = b" (deleted)";
/// Write permission for the group and for others.
const WRITABLE: u32 = 0o022;
/// Only their owner can replace the entries of such a directory.
const STICKY: u32 = 0o1000;

/// `None` when the process has no executable or has exited. 20 µs.
pub(crate) fn executable(dir: &ProcessDir) -> Result<Option<Executable>, HostError> {
    let Some(link) = dir.link("exe")? else { return Ok(None) };
    let file = match statat(dir.fd(), "exe", AtFlags::empty()) {
        Ok(file) => file,
        Err(errno) if is_missing(errno) => return Ok(None),
        Err(_) if leads_to_private_mount(dir.fd(), "exe") => {
            return Ok(Some(Executable { path: String::from_utf8_lossy(&link).into_owned(), of_root: false }));
        }
        Err(errno) => return Err(HostError::io("stat", dir.path("exe"), errno)),
    };
    let removed = link.ends_with(DELETED) && file.st_nlink == 0;
    let path = if removed { link.strip_suffix(DELETED).unwrap_or(&link) } else { &link };
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    // In their own mount namespace, users can put any file at any path.
    let is_there = || stat(path).is_ok_and(|here| (here.st_dev, here.st_ino) == (file.st_dev, file.st_ino));
    let of_root = is_roots(&file, FileType::RegularFile) && (removed || is_there()) && parents_are_roots(path);
    Ok(Some(Executable { path: path.to_string_lossy().into_owned(), of_root }))
}

/// Whether only root can change the directories above a path.
fn parents_are_roots(path: &Path) -> bool {
    path.is_absolute()
        && path.ancestors().skip(1).all(|above| lstat(above).is_ok_and(|above| is_roots(&above, FileType::Directory)))
}

fn is_roots(file: &Stat, kind: FileType) -> bool {
    let writable = file.st_mode & WRITABLE != 0;
    let sticky = kind == FileType::Directory && file.st_mode & STICKY != 0;
    FileType::from_raw_mode(file.st_mode) == kind && file.st_uid == 0 && (!writable || sticky)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::process::Command;

    use super::*;
    use crate::testing::TestProcess;
    use watchdog_types::ProcessId;

    fn executable_of(process: ProcessId) -> Executable {
        let (dir, _) = ProcessDir::of(process, &mut Vec::new()).unwrap().unwrap();
        executable(&dir).unwrap().unwrap()
    }

    #[test]
    fn system_program_is_roots() {
        let subject = TestProcess::spawn(Command::new("/bin/sleep").arg("1000"));
        let seen = executable_of(subject.process);
        assert!(seen.of_root && seen.path.ends_with("sleep"), "{seen:?}");
    }

    #[test]
    fn replaceable_copy_is_not_roots() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = dir.path().join("ssh-agent");
        fs::copy("/bin/sleep", &copy).unwrap();
        let run = || {
            let subject = TestProcess::spawn(Command::new(&copy).arg("1000"));
            executable_of(subject.process)
        };
        if rustix::process::geteuid().is_root() {
            assert!(run().of_root, "root's file in root's directory, below a sticky one");
            chown(dir.path(), Some(65_534), None).unwrap();
        }
        let seen = run();
        assert!(!seen.of_root && seen.path.ends_with("/ssh-agent"), "{seen:?}");
    }

    #[test]
    fn removed_executable_keeps_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("tmux");
        fs::copy("/bin/sleep", &copy).unwrap();
        let subject = TestProcess::spawn(Command::new(&copy).arg("1000"));
        fs::remove_file(&copy).unwrap();
        assert!(executable_of(subject.process).path.ends_with("/tmux"));
    }
}
