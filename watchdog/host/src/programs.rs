//! The executables of denied agents, by inode.
//!
//! A denied file is denied for all users, so no user may select a file of another user. A symbolic link counts if it belongs
//! to root or to the file's owner, and a file with several hard links if it is in a directory of its owner. A program that
//! is also known by another name (`busybox`, an interpreter) is not denied by inode.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, major, minor, statx};
use watchdog_common::FileId;

use super::passwd::PASSWD;
use watchdog_classify::Runtime;
use watchdog_config::{DeniedFiles, Globs};

/// Directories of programs, in addition to the daemon's PATH.
const DIRECTORIES: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/opt/bin", "/snap/bin"];
/// Directories of programs in a home directory.
const OF_HOMES: &[&str] =
    &[".local/bin", "bin", ".npm-global/bin", ".bun/bin", ".cargo/bin", ".claude/local", ".opencode/bin"];
/// Home directories that are searched.
const HOMES: usize = 64;
/// Matches of a glob that are used.
const MATCHES: usize = 256;
/// Symbolic links that are followed; the kernel's limit.
const LINKS: usize = 40;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeniedPrograms {
    /// By the inode numbers that the kernel programs compare.
    pub files: BTreeSet<FileId>,
    /// Files whose file system shows other numbers to userspace (btrfs, some overlays): they are denied by
    /// name.
    pub by_name_only: BTreeSet<PathBuf>,
}

/// About 2 µs per name and directory; a home directory on a network file system may
/// block.
#[must_use]
pub fn find(denied: &DeniedFiles) -> DeniedPrograms {
    let directories = directories();
    let named = denied.names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    let paths = denied.paths.iter().flat_map(|glob| matching(glob)).chain(named);
    let mut programs = DeniedPrograms::default();
    for path in paths.filter(|path| !path.to_str().is_some_and(|path| denied.exempts(path))) {
        let Some((target, file)) = program(&path, &directories) else { continue };
        match identity(&target, &file) {
            Some(id) => drop(programs.files.insert(id)),
            None => drop(programs.by_name_only.insert(target)),
        }
    }
    programs
}

fn directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    let mut all: Vec<PathBuf> = own.chain(DIRECTORIES.iter().map(PathBuf::from)).collect();
    let passwd = fs::read_to_string(PASSWD).unwrap_or_default();
    let homes = passwd.lines().filter_map(|line| line.split(':').nth(5)).filter(|home| home.len() > 1);
    let mut homes: Vec<&Path> = homes.map(Path::new).filter(|home| home.is_absolute()).collect();
    homes.sort_unstable();
    homes.dedup();
    for home in homes.into_iter().take(HOMES) {
        all.extend(OF_HOMES.iter().map(|below| home.join(below)));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The files that a glob on a whole path matches.
fn matching(glob: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for component in glob.split('/').filter(|component| !component.is_empty()) {
        if !component.contains(['*', '?', '[', '{', '\\']) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        let Ok(globs) = Globs::new(vec![component.to_owned()]) else { return Vec::new() };
        let entries = found.iter().filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
        let matches = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| globs.matches(name)));
        found = matches.take(MATCHES).map(|entry| entry.path()).collect();
    }
    found
}

/// The target of a path, if it may be denied.
fn program(path: &Path, directories: &[PathBuf]) -> Option<(PathBuf, Metadata)> {
    let file = fs::metadata(path).ok().filter(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)?;
    let mut link = path.to_owned();
    for _ in 0..LINKS {
        let known = fs::symlink_metadata(&link).ok()?;
        if !known.is_symlink() {
            break;
        }
        if known.uid() != 0 && known.uid() != file.uid() {
            return None;
        }
        link = link.parent()?.join(fs::read_link(&link).ok()?);
    }
    let target = fs::canonicalize(path).ok()?;
    let (directory, name) = (target.parent()?, target.file_name()?);
    let another = Some(name) != path.file_name() && directories.iter().any(|known| known == directory);
    if another || name.to_str().is_none_or(|name| name == "env" || Runtime::of(name).is_some()) {
        return None;
    }
    let owner = fs::metadata(directory).ok()?.uid();
    (file.nlink() == 1 || owner == file.uid()).then_some((target, file))
}

/// The identity of a file in the kernel; `None` where the file system shows another device number, as btrfs does
/// for its subvolumes.
fn identity(path: &Path, file: &Metadata) -> Option<FileId> {
    let mount = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?.stx_mnt_id;
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut fields = table.lines().map(|line| line.split(' '));
    let device = fields.find_map(|mut line| (line.next()?.parse() == Ok(mount)).then(|| line.nth(1))?)?;
    let (major, minor) = (major(file.dev()), minor(file.dev()));
    // include/linux/kdev_t.h: MKDEV
    (device == format!("{major}:{minor}")).then(|| FileId {
        inode: file.ino(),
        device: major << 20 | minor,
        generation: generation(path).unwrap_or(0),
    })
}

/// The generation of the inode, where its file system reports it to userspace (ext4, xfs, f2fs).
fn generation(path: &Path) -> Option<u32> {
    // Non-blocking: the file may have been replaced.
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).ok()?;
    // The request is defined with a long, and an int is written.
    let mut version = [0u32; 2];
    // SAFETY: the descriptor is open, and the kernel writes at most a long into `version`.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETVERSION, version.as_mut_ptr()) };
    (result == 0).then_some(version[0])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;
    use watchdog_config as config;

    fn denied(config: &str) -> DeniedFiles {
        let text = format!("[tracking]\nbuilt_in_profiles = false\n{config}");
        DeniedFiles::of(&config::parse(Path::new("test.toml"), &text).unwrap())
    }

    fn executable(path: &Path) {
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn inodes(programs: &DeniedPrograms) -> Vec<u64> {
        programs.files.iter().map(|file| file.inode).collect()
    }

    #[test]
    fn globs_of_paths_find_files() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("v1.2/bin");
        fs::create_dir_all(&home).unwrap();
        executable(&home.join("run"));
        executable(&home.join("other"));
        let path = dir.path().display();
        let config = format!("[[profile]]\nname = \"a\"\nexe = [\"{path}/v*/bin/run\"]\nungated = \"deny\"\n");
        let inode = fs::metadata(home.join("run")).unwrap().ino();
        assert_eq!(inodes(&find(&denied(&config))), [inode]);
        let spared = format!("{config}[[profile]]\nname = \"b\"\nexe = [\"*/v1.2/bin/run\"]\nungated = \"allow\"\n");
        assert_eq!(find(&denied(&spared)), DeniedPrograms::default());
    }

    #[test]
    fn interpreters_and_foreign_links_exempt() {
        let dir = tempfile::tempdir().unwrap();
        let agent = dir.path().join("agent");
        let path = agent.display();
        let config = format!("[[profile]]\nname = \"a\"\nexe = [\"{path}\"]\nungated = \"deny\"\n");
        for target in ["python3", "tool"] {
            executable(&dir.path().join(target));
            symlink(dir.path().join(target), &agent).unwrap();
            assert_eq!(find(&denied(&config)).files.len(), usize::from(target == "tool"), "{target}");
            if target == "tool" {
                std::os::unix::fs::lchown(&agent, Some(65_534), None).unwrap();
                assert_eq!(find(&denied(&config)), DeniedPrograms::default(), "a link of another user");
            }
            fs::remove_file(&agent).unwrap();
        }
        symlink("/bin/ls", &agent).unwrap();
        assert_eq!(find(&denied(&config)), DeniedPrograms::default(), "a program in its own right");
        fs::remove_file(&agent).unwrap();
        fs::hard_link(dir.path().join("tool"), &agent).unwrap();
        assert_eq!(find(&denied(&config)).files.len(), 1);
        chown(dir.path(), Some(65_534), None).unwrap();
        assert_eq!(find(&denied(&config)), DeniedPrograms::default(), "a hard link of another user");
    }
}
