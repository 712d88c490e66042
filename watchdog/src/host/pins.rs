//! What stays in the kernel when the daemon ends: programs, links and maps, pinned on the BPF file system.
//!
//! `BPFFS/agent-watchdog/HASH/v1-LAYOUT` holds the pins of one layout. HASH names the runtime directory, which two symbolic
//! links beside the layouts tell in plain text; the directory is locked while a daemon uses it. LAYOUT names everything that
//! the programs and maps depend on, so that pins of the same name can be used as they are.
//!
//! A layout is built as `new-LAYOUT` and renamed when it is complete. (Names with dots are reserved on this file system.)

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};
use watchdog_common::name_hash;

use crate::lock_file::Lock;

/// Where the file system is mounted.
const BPFFS: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` of include/uapi/linux/magic.h.
const BPFFS_MAGIC: u64 = 0xcafe_4a11;
/// The directory of all daemons of this host.
const BASE: &str = "agent-watchdog";
/// Symbolic links that say whose pins these are: the runtime directory, and device and inode of the root directory from which
/// it was seen. A container that shares this file system has another root.
const RUNTIME_DIR: &str = "runtime-dir";
const ROOT: &str = "root";
/// Before the name of a layout that is complete: the version of what is in its maps. Counted up when the value of `TRACKED`, of
/// the maps of deaths or of a record of the rings changes, since another version's cannot be imported.
const COMPLETE: &str = "v1-";
/// Before the number of a complete layout that was set aside.
const ASIDE: &str = "v1-aside-";
/// Before the name of any complete layout, of another version too.
const ANY_VERSION: char = 'v';
/// Before the name of a layout that is being built.
const UNFINISHED: &str = "new-";
/// A directory that another process removes between two calls is made again this many times.
const TRIES: usize = 4;
/// A daemon that starts looks at the pins of all others, and has them locked for that long at most.
const LOCKED_WITHIN: Duration = Duration::from_millis(500);
const LOCK_AGAIN: Duration = Duration::from_millis(10);

/// Why nothing can be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// No BPF file system.
    #[error("no BPF file system is mounted at {BPFFS}, and mounting one failed: {0}")]
    NotMounted(io::Error),
    /// No BPF file system, and one that is mounted now would be lost with this process's mount namespace.
    #[error("no BPF file system is mounted at {BPFFS}")]
    Absent,
    /// Without root nothing can be pinned, nor found out what is.
    #[error("only root can pin programs and maps")]
    NotRoot,
    /// A daemon uses these pins.
    #[error("the pins in {0} are in use by another watchdogd")]
    InUse(PathBuf),
    /// A daemon in another root directory made these pins.
    #[error(
        "the pins in {0} belong to a watchdogd with another root directory, as in a container, which may still run. Give \
         each its own --runtime-dir, or remove the pins with `watchdogd --unpin`"
    )]
    OtherRoot(PathBuf),
    /// The file system refused something.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A map, program or link could not be pinned, or what is pinned not be opened.
    #[error("cannot use the pin of {name} in {path}: {reason}")]
    Object {
        /// Its name.
        name: String,
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl PinError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

/// The pins of one runtime directory, locked for as long as this lives.
#[derive(Debug)]
pub struct Pins {
    dir: PathBuf,
    _lock: Lock,
}

/// What is pinned for a runtime directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedLayout {
    /// Where.
    pub path: PathBuf,
    /// The runtime directory, as its daemon named it.
    pub runtime_dir: PathBuf,
    /// Since when.
    pub since: SystemTime,
}

impl Pins {
    /// Takes the pins of this runtime directory, and removes those of runtime directories that do not exist any more.
    ///
    /// # Errors
    /// When there is no BPF file system, another daemon uses these pins (one in another mount namespace, whose runtime
    /// directory has the same path), one in another root directory made them that a process may still have, or the file system
    /// refuses.
    pub fn take(runtime_dir: &Path) -> Result<Self, PinError> {
        as_root()?;
        let base = base(mounted()?);
        make_private(&base)?;
        let runtime_dir = canonical(runtime_dir);
        let dir = base.join(name_of(&runtime_dir));
        let lock = take_directory(&dir)?;
        let own_root = root_identity();
        if let Ok(root) = fs::read_link(dir.join(ROOT))
            && root != Path::new(&own_root)
            && !is_unused_root(&root)
        {
            return Err(PinError::OtherRoot(dir));
        }
        for (name, target) in [(RUNTIME_DIR, runtime_dir.as_path()), (ROOT, Path::new(&own_root))] {
            let link = dir.join(name);
            if fs::read_link(&link).is_ok_and(|known| known == target) {
                continue;
            }
            remove_if_there(&link)?;
            symlink(target, &link).map_err(PinError::io("make the symbolic link", &link))?;
        }
        sweep(&base, &dir);
        let pins = Self { dir, _lock: lock };
        for unfinished in pins.layouts(|name| name.starts_with(UNFINISHED))? {
            remove(&unfinished)?;
        }
        Ok(pins)
    }

    /// Where the complete pins of this layout are.
    pub(crate) fn complete(&self, layout: u64) -> PathBuf {
        self.dir.join(format!("{COMPLETE}{layout:016x}"))
    }

    /// Makes the directory for a layout that is being built.
    pub(crate) fn begin(&self, layout: u64) -> Result<PathBuf, PinError> {
        let path = self.dir.join(format!("{UNFINISHED}{layout:016x}"));
        DirBuilder::new().mode(0o700).create(&path).map_err(PinError::io("make the directory", &path))?;
        Ok(path)
    }

    /// Names the layout in this directory complete, and gives the name.
    pub(crate) fn finish(&self, unfinished: &Path, layout: u64) -> Result<PathBuf, PinError> {
        let complete = self.complete(layout);
        fs::rename(unfinished, &complete).map_err(PinError::io("rename", unfinished))?;
        Ok(complete)
    }

    /// Gives pins that cannot be used as they are a name that no layout has, so that they can be imported.
    pub(crate) fn set_aside(&self, complete: &Path) -> Result<PathBuf, PinError> {
        let mut names = (0_u32..).map(|number| self.dir.join(format!("{ASIDE}{number}")));
        let aside = names.find(|name| !name.exists()).unwrap_or_default();
        fs::rename(complete, &aside).map_err(PinError::io("rename", complete))?;
        Ok(aside)
    }

    /// Detaches the programs of a layout, and keeps its maps under a name that no layout has.
    pub(crate) fn detach(&self, layout: &Path) -> Result<PathBuf, PinError> {
        let aside = if file_name(layout).starts_with(ASIDE) { layout.to_owned() } else { self.set_aside(layout)? };
        remove_links(&aside)?;
        Ok(aside)
    }

    /// The complete layouts but this one, and whether what is in their maps is of this version.
    pub(crate) fn others(&self, complete: &Path) -> Result<Vec<(PathBuf, bool)>, PinError> {
        let others = self.layouts(|name| name.starts_with(ANY_VERSION))?.into_iter().filter(|path| path != complete);
        Ok(others.map(|path| (path.clone(), file_name(&path).starts_with(COMPLETE))).collect())
    }

    fn layouts(&self, of: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, PinError> {
        let entries = fs::read_dir(&self.dir).map_err(PinError::io("read the directory", &self.dir))?;
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        Ok(paths.filter(|path| of(&file_name(path))).collect())
    }
}

/// Removes everything that is pinned for this runtime directory, and names the removed layouts; empty when nothing was.
///
/// # Errors
/// When a daemon uses it, or the file system refuses.
pub fn unpin(runtime_dir: &Path) -> Result<Vec<PathBuf>, PinError> {
    as_root()?;
    let dir = base(Path::new(BPFFS)).join(name_of(&canonical(runtime_dir)));
    let Some(lock) = wait_for_lock(&dir)? else { return Ok(Vec::new()) };
    let pins = Pins { dir: dir.clone(), _lock: lock };
    let layouts = pins.layouts(|name| name.starts_with(ANY_VERSION) || name.starts_with(UNFINISHED))?;
    remove_all(&dir)?;
    // Goes with the last daemon's pins.
    let _ = fs::remove_dir(base(Path::new(BPFFS)));
    Ok(layouts)
}

/// What is pinned on this host, of all daemons; empty without the right to look.
#[must_use]
pub fn pinned() -> Vec<PinnedLayout> {
    let directories = fs::read_dir(base(Path::new(BPFFS))).into_iter().flatten().flatten().map(|entry| entry.path());
    let of = |dir: PathBuf| {
        let runtime_dir = fs::read_link(dir.join(RUNTIME_DIR)).ok()?;
        let layouts = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let complete = layouts.filter(|path| file_name(path).starts_with(ANY_VERSION));
        Some(complete.filter_map(move |path| {
            let since = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok()?;
            Some(PinnedLayout { path, runtime_dir: runtime_dir.clone(), since })
        }))
    };
    let mut found: Vec<PinnedLayout> = directories.filter_map(of).flatten().collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Removes a layout. It is renamed first: what an interruption leaves of it is then not complete.
pub(crate) fn remove(layout: &Path) -> Result<(), PinError> {
    let name = file_name(layout);
    let unfinished = if name.starts_with(UNFINISHED) {
        layout.to_owned()
    } else {
        let unfinished = layout.with_file_name(format!("{UNFINISHED}{name}"));
        fs::rename(layout, &unfinished).map_err(PinError::io("rename", layout))?;
        unfinished
    };
    remove_links(&unfinished)?;
    fs::remove_dir_all(&unfinished).map_err(PinError::io("remove", &unfinished))
}

/// Removes the links of a layout: those that enter processes into a map before those that see their exits.
fn remove_links(layout: &Path) -> Result<(), PinError> {
    let found = fs::read_dir(layout).map_err(PinError::io("read the directory", layout))?.flatten();
    let links = found.map(|entry| entry.path()).filter(|path| file_name(path).starts_with("link_"));
    let first = ["link_fork", "link_exec"].map(|name| layout.join(name));
    first.into_iter().chain(links).try_for_each(|link| remove_if_there(&link))
}

/// Removes everything that is pinned for a runtime directory.
fn remove_all(dir: &Path) -> Result<(), PinError> {
    for entry in fs::read_dir(dir).map_err(PinError::io("read the directory", dir))?.flatten() {
        if file_name(&entry.path()).starts_with(ANY_VERSION) {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir_all(dir).map_err(PinError::io("remove", dir))
}

fn as_root() -> Result<(), PinError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(PinError::NotRoot) }
}

fn base(bpffs: &Path) -> PathBuf {
    bpffs.join(BASE)
}

/// The mounted file system. Mounts it where the mount lasts: in the mount namespace of the host's first process.
fn mounted() -> Result<&'static Path, PinError> {
    let bpffs = Path::new(BPFFS);
    let is_there = || statfs(bpffs).is_ok_and(|fs| u64::try_from(fs.f_type) == Ok(BPFFS_MAGIC));
    if is_there() {
        return Ok(bpffs);
    }
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    if std::process::id() == 1 || namespace("self") != namespace("1") {
        return Err(PinError::Absent);
    }
    mount("bpf", bpffs, "bpf", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)
        .map_err(|errno| PinError::NotMounted(errno.into()))?;
    tracing::info!("mounted a BPF file system at {BPFFS}");
    Ok(bpffs)
}

/// Makes a directory of our own that no other user can enter. What stands there instead is renamed: every user may
/// make directories at the top of this file system.
fn make_private(dir: &Path) -> Result<(), PinError> {
    for _ in 0..TRIES {
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(PinError::io("make the directory", dir)(error)),
        }
        let found = fs::symlink_metadata(dir).map_err(PinError::io("read the attributes of", dir))?;
        let ours = found.uid() == rustix::process::geteuid().as_raw();
        if found.is_dir() && ours && found.mode() & 0o077 == 0 {
            return Ok(());
        }
        let aside = dir.with_file_name(format!("{BASE}-set-aside-{}", std::process::id()));
        tracing::warn!(
            "{} is not a directory that only this user can enter (owner {}, mode {:o}): it is renamed to {}",
            dir.display(),
            found.uid(),
            found.mode(),
            aside.display()
        );
        fs::rename(dir, &aside).map_err(PinError::io("rename", dir))?;
    }
    Err(PinError::io("make the directory", dir)(io::ErrorKind::AlreadyExists.into()))
}

/// Makes the directory where it is missing, and locks it.
fn take_directory(dir: &Path) -> Result<Lock, PinError> {
    for _ in 0..TRIES {
        make_private(dir)?;
        if let Some(lock) = wait_for_lock(dir)? {
            return Ok(lock);
        }
    }
    Err(PinError::io("lock", dir)(io::ErrorKind::NotFound.into()))
}

/// As [`lock`]; one that is held for a moment only is waited for.
fn wait_for_lock(dir: &Path) -> Result<Option<Lock>, PinError> {
    let began = Instant::now();
    loop {
        match lock(dir) {
            Err(PinError::InUse(_)) if began.elapsed() < LOCKED_WITHIN => std::thread::sleep(LOCK_AGAIN),
            locked => return locked,
        }
    }
}

/// Locks a directory; `None` when there is none, or none any more.
fn lock(dir: &Path) -> Result<Option<Lock>, PinError> {
    let file = match File::open(dir) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(PinError::io("open", dir)(error)),
    };
    let lock = Lock::take(file).map_err(|(_, error)| match error.kind() {
        io::ErrorKind::WouldBlock => PinError::InUse(dir.to_owned()),
        _ => PinError::io("lock", dir)(error),
    })?;
    let locked = lock.file().metadata().map(|metadata| metadata.ino()).map_err(PinError::io("lock", dir))?;
    Ok(fs::metadata(dir).is_ok_and(|there| there.ino() == locked).then_some(lock))
}

/// Removes the pins of daemons whose runtime directory does not exist any more.
fn sweep(base: &Path, own: &Path) {
    let directories = fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path());
    for dir in directories.filter(|dir| dir != own) {
        // One that is in use, or whose root is another container's, stays.
        let Ok(Some(_lock)) = lock(&dir) else { continue };
        let seen_from_here = fs::read_link(dir.join(ROOT)).is_ok_and(|root| root == Path::new(&root_identity()));
        let runtime_dir = fs::read_link(dir.join(RUNTIME_DIR));
        let removed = match runtime_dir {
            Ok(runtime_dir) if seen_from_here && !runtime_dir.exists() => {
                tracing::info!("removing the pins of {}, which does not exist any more", runtime_dir.display());
                remove_all(&dir)
            }
            // Its daemon ended before it could say more: there are no pins in it.
            Err(_) => fs::remove_dir(&dir).or(Ok(())),
            Ok(_) => Ok(()),
        };
        if let Err(error) = removed {
            tracing::warn!("{error}");
        }
    }
}

/// Removes a file, if there is one.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), PinError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(PinError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// The path without symbolic links, also of a directory that does not exist any more.
fn canonical(dir: &Path) -> PathBuf {
    dir.canonicalize().or_else(|_| std::path::absolute(dir)).unwrap_or_else(|_| dir.to_owned())
}

fn name_of(runtime_dir: &Path) -> String {
    format!("{:016x}", name_hash(runtime_dir.as_os_str().as_bytes()))
}

fn root_identity() -> String {
    fs::metadata("/").map(|root| identity(&root)).unwrap_or_default()
}

fn identity(root: &fs::Metadata) -> String {
    format!("{}:{}", root.dev(), root.ino())
}

/// Whether no process of this host has this root directory. Only the initial PID namespace shows all processes.
fn is_unused_root(root: &Path) -> bool {
    /// `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
    const INITIAL: &str = "pid:[4026531836]";
    let sees_all = fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace == Path::new(INITIAL));
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let mut processes = processes.flatten().filter(|entry| file_name(&entry.path()).parse::<u32>().is_ok());
    sees_all
        && processes.all(|process| match fs::metadata(process.path().join("root")) {
            Ok(found) => Path::new(&identity(&found)) != root,
            // It has exited.
            Err(error) => error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
        })
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_root_is_in_use() {
        assert!(!is_unused_root(Path::new(&root_identity())));
    }

    #[test]
    fn aside_names_do_not_collide() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::open(dir.path()).unwrap();
        let pins = Pins { dir: dir.path().to_owned(), _lock: Lock::take(file).map_err(|(_, error)| error).unwrap() };
        let aside = [1, 2].map(|layout| {
            let unfinished = pins.begin(layout).unwrap();
            fs::write(unfinished.join("link_exit"), "").unwrap();
            fs::write(unfinished.join("TRACKED"), "").unwrap();
            let complete = pins.finish(&unfinished, layout).unwrap();
            pins.detach(&complete).unwrap()
        });
        assert_ne!(aside[0], aside[1]);
        for dir in &aside {
            assert!(!dir.join("link_exit").exists() && dir.join("TRACKED").exists(), "{dir:?}");
        }
        assert_eq!(pins.detach(&aside[0]).unwrap(), aside[0]);
        let mut others: Vec<_> = pins.others(&pins.complete(3)).unwrap();
        others.sort();
        assert_eq!(others, aside.map(|dir| (dir, true)));
    }

    #[test]
    fn removal_renames_layout_first() {
        let dir = tempfile::tempdir().unwrap();
        let layout = dir.path().join("v1-0");
        fs::create_dir(&layout).unwrap();
        // A directory where a link should be cannot be removed as a file.
        fs::create_dir(layout.join("link_fork")).unwrap();
        assert!(remove(&layout).is_err());
        assert!(!layout.exists() && dir.path().join("new-v1-0").exists());
    }
}
