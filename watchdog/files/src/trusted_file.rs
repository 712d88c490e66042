//! Opens the files whose content the daemon trusts, and checks their directories.
//!
//! A file is trusted when it is a regular file of root or of the daemon's user that no other user can write. Anything else in
//! its place, such as a FIFO or a symbolic link, is renamed and never opened: it can neither block the daemon nor redirect a
//! write nor be read as its state.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::{getegid, geteuid};

/// Quarantined files per name; the oldest is removed for the next one.
const ASIDE_MAX: u32 = 4;
/// Symbolic links that are followed, as the kernel does.
const LINKS: usize = 40;
/// Write permission of a group and of all users.
const GROUP_WRITE: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
/// In a directory with this bit, only the owner of an entry can rename or remove it.
const STICKY: u32 = 0o1000;

/// Why a file or a directory is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    #[error("it is a {found}, not a {expected}")]
    Type { found: &'static str, expected: &'static str },
    #[error("it is owned by uid {owner}, not by root{}", own_user())]
    Owner { owner: u32 },
    #[error("other users can write to it (mode {mode:04o})")]
    Writable { mode: u32 },
}

/// Why a trusted file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Untrusted(#[from] Distrust),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io(error) => error,
            OpenError::Untrusted(why) => Self::other(why),
        }
    }
}

/// A path with an untrusted component.
#[derive(Debug, thiserror::Error)]
#[error("{} is not safe to use: {}{why}; {}", used.display(), self.part(), self.remedy())]
pub struct UnsafePath {
    used: PathBuf,
    /// The untrusted component.
    culprit: PathBuf,
    why: Distrust,
}

impl UnsafePath {
    fn part(&self) -> String {
        if self.culprit == self.used { String::new() } else { format!("of {}, ", self.culprit.display()) }
    }

    fn remedy(&self) -> String {
        let path = self.culprit.display();
        match self.why {
            Distrust::Type { .. } => "choose another path".to_owned(),
            Distrust::Owner { .. } => format!("choose another path, or run `chown {} {path}`", geteuid().as_raw()),
            Distrust::Writable { .. } => format!("run `chmod go-w {path}`"),
        }
    }
}

/// Opens a file. A symbolic link is not followed, and nothing blocks.
///
/// # Errors
/// When it is missing (`NotFound`), not trusted, or cannot be opened.
pub fn open(path: &Path, options: &mut OpenOptions) -> Result<File, OpenError> {
    // Opening a device or a FIFO may have side effects, so check the type first. The check of the open file decides.
    match fs::symlink_metadata(path) {
        Ok(found) => check_file(&found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.custom_flags(flags).open(path)?;
    check_file(&file.metadata()?)?;
    Ok(file)
}

/// Reads a whole file; `None` when it is missing.
///
/// # Errors
/// When it is not trusted, longer than `longest` bytes, or cannot be read.
pub fn read(path: &Path, longest: u64) -> Result<Option<Vec<u8>>, OpenError> {
    let file = match open(path, OpenOptions::new().read(true)) {
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut content = Vec::new();
    if file.take(longest + 1).read_to_end(&mut content)? as u64 > longest {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {longest} bytes")).into());
    }
    Ok(Some(content))
}

/// Replaces a file atomically: after a crash it has either the old or the new content. Returns it open for appending.
/// `durable` content also survives a crash of the host.
///
/// # Errors
/// When it cannot be written; the old file is unchanged.
pub fn replace(path: &Path, content: &[u8], durable: bool) -> io::Result<File> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = create(&new)?;
    file.write_all(content)?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&new, path)?;
    if durable && let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(file)
}

/// Creates a file for its owner alone, and removes what a killed daemon left there.
pub fn create(path: &Path) -> io::Result<File> {
    clear(path)?;
    OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)
}

/// Removes a file of any type; a directory is quarantined. Returns whether the path existed.
pub fn clear(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => set_aside(path).map(|_| true),
        Ok(_) => fs::remove_file(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates a directory and its missing parents. The umask does not change its mode.
///
/// # Errors
/// When one cannot be created, or the path is not trusted before or after that, because another user was faster.
pub fn make_directory(dir: &Path, mode: u32) -> io::Result<()> {
    check_directory(dir).map_err(io::Error::other)?;
    if let Some(parent) = dir.parent() {
        DirBuilder::new().recursive(true).mode(mode).create(parent)?;
    }
    match DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => {
            let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed();
            let made = OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
            check_owner(&made.metadata()?).map_err(io::Error::other)?;
            made.set_permissions(Permissions::from_mode(mode))?;
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        Err(error) => return Err(error),
    }
    check_directory(dir).map_err(io::Error::other)
}

/// Renames a file of any type to `NAME.set-aside-1`; earlier ones are renumbered, and the oldest is removed.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = free_aside(path);
    fs::rename(path, &aside)?;
    Ok(aside)
}

/// The same with a hard link: the file also stays in place until it is replaced.
pub fn copy_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = free_aside(path);
    fs::hard_link(path, &aside)?;
    Ok(aside)
}

fn free_aside(path: &Path) -> PathBuf {
    let name = |number: u32| {
        let mut name: OsString = path.as_os_str().to_owned();
        name.push(format!(".set-aside-{number}"));
        PathBuf::from(name)
    };
    // Where one of these fails, the rename or link that follows fails too and says why.
    let oldest = name(ASIDE_MAX);
    let _ = fs::remove_file(&oldest).or_else(|_| fs::remove_dir_all(&oldest));
    for number in (1..ASIDE_MAX).rev() {
        let _ = fs::rename(name(number), name(number + 1));
    }
    name(1)
}

/// Checks that a directory, if it exists, belongs to root or the daemon's user, that no other user can write to it, and that
/// no other user can replace it: the directories and links of its path are checked too.
///
/// # Errors
/// When a component of the path is not trusted.
pub fn check_directory(path: &Path) -> Result<(), UnsafePath> {
    check_path(path, |found| check_owner(found).and_then(|()| check_writers(found, OTHERS_WRITE | GROUP_WRITE)))
}

/// Checks that only root and the daemon's user can change a configuration file, if it exists. It may be a symbolic link of
/// theirs.
///
/// # Errors
/// When a component of the path is not trusted, or it is not a regular file.
pub fn check_config(path: &Path) -> Result<(), UnsafePath> {
    check_path(path, |found| match found.is_file() {
        true => check_owner(found).and_then(|()| check_writers(found, writers(found))),
        false => Err(Distrust::Type { found: type_name(found), expected: REGULAR }),
    })
}

/// Follows a path as the kernel does, and checks each directory and symbolic link.
fn check_path(path: &Path, check_last: impl Fn(&Metadata) -> Result<(), Distrust>) -> Result<(), UnsafePath> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut at = PathBuf::from("/");
    let mut rest = reversed(&absolute);
    let (mut links, mut shared) = (0, false);
    loop {
        // The daemon creates what is missing, below the checked directories.
        let Ok(found) = fs::symlink_metadata(&at) else { return Ok(()) };
        let is_last = rest.is_empty();
        let checked = if found.is_symlink() {
            links += 1;
            check_link(&found, shared, links)
        } else if is_last {
            check_last(&found)
        } else {
            shared = found.mode() & STICKY != 0;
            check_parent(&found)
        };
        checked.map_err(|why| UnsafePath { used: path.to_owned(), culprit: at.clone(), why })?;
        if found.is_symlink() {
            let Ok(target) = fs::read_link(&at) else { return Ok(()) };
            at.pop();
            rest.extend(reversed(&target));
        } else if is_last {
            return Ok(());
        }
        match rest.pop().as_deref() {
            None => {}
            Some(name) if name == ".." => drop(at.pop()),
            Some(name) => at.push(name),
        }
    }
}

/// The components of a path in reverse. Pushing the root replaces the path so far.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components().rev().filter(|one| *one != Component::CurDir).map(|one| one.as_os_str().to_owned()).collect()
}

/// In a directory that users share, a symbolic link may be theirs.
fn check_link(found: &Metadata, shared: bool, links: usize) -> Result<(), Distrust> {
    if links > LINKS {
        return Err(Distrust::Type { found: "loop of symbolic links", expected: "path" });
    }
    if !shared && is_unmapped(found.uid()) { Ok(()) } else { check_owner(found) }
}

/// A parent directory: other users must not be able to replace its entries.
fn check_parent(found: &Metadata) -> Result<(), Distrust> {
    if !is_unmapped(found.uid()) {
        check_owner(found)?;
    }
    if found.mode() & STICKY == 0 { check_writers(found, writers(found)) } else { Ok(()) }
}

/// Whether this user namespace does not map the uid, as for the directories of the host in a rootless container. In the initial
/// namespace every uid is mapped.
fn is_unmapped(uid: u32) -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !maps(&map, uid))
}

/// Whether a uid_map(5) table maps a uid; its first column has those of the namespace.
fn maps(map: &str, uid: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|number| number.parse::<u64>().unwrap_or_default());
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        first.zip(count).is_some_and(|(first, count)| (first..first + count).contains(&u64::from(uid)))
    })
}

/// The permission bits with which other users can write. The groups of root and of the daemon are trusted.
fn writers(found: &Metadata) -> u32 {
    let own_group = found.gid() == 0 || found.gid() == getegid().as_raw();
    if own_group { OTHERS_WRITE } else { OTHERS_WRITE | GROUP_WRITE }
}

const REGULAR: &str = "regular file";

fn check_file(found: &Metadata) -> Result<(), Distrust> {
    if !found.is_file() {
        return Err(Distrust::Type { found: type_name(found), expected: REGULAR });
    }
    check_owner(found)?;
    check_writers(found, OTHERS_WRITE | GROUP_WRITE)
}

fn check_owner(found: &Metadata) -> Result<(), Distrust> {
    let owner = found.uid();
    if owner == 0 || owner == geteuid().as_raw() { Ok(()) } else { Err(Distrust::Owner { owner }) }
}

fn check_writers(found: &Metadata, bits: u32) -> Result<(), Distrust> {
    let mode = found.mode() & 0o7777;
    if mode & bits == 0 { Ok(()) } else { Err(Distrust::Writable { mode }) }
}

fn type_name(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    let names = [
        (kind.is_dir(), "directory"),
        (kind.is_symlink(), "symbolic link"),
        (kind.is_fifo(), "FIFO"),
        (kind.is_socket(), "socket"),
        (kind.is_char_device(), "character device"),
        (kind.is_block_device(), "block device"),
    ];
    names.into_iter().find(|(is, _)| *is).map_or(REGULAR, |(_, name)| name)
}

fn own_user() -> String {
    match geteuid().as_raw() {
        0 => String::new(),
        uid => format!(" or uid {uid}"),
    }
}

#[cfg(test)]
#[path = "trusted_file_tests.rs"]
mod tests;
