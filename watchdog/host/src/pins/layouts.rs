//! The layouts of one daemon, and of all daemons.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use watchdog_common::name_hash;

use super::bpffs::{base, mount_point, mounted};
use super::pin_directory::{is_private, lock, make_private, take_directory, wait_for_lock};
use super::pin_error::PinError;
use super::root_identity::{is_unused_root, root_identity};
use watchdog_files::lock_file::Lock;

/// Symbolic links that identify the owner: the runtime directory, and device and inode of the root directory from which
/// it was seen, with the pid namespace unless that is the initial one. A container that shares this file system has another root, or
/// pids of its own.
const RUNTIME_DIR: &str = "runtime-dir";
const ROOT: &str = "root";
/// Prefix of a complete layout: the version of its map values. Increment it when the value of `TRACKED`, of the maps of deaths
/// or of a ring record changes, since values of another version cannot be imported.
const COMPLETE: &str = "v1-";
/// Prefix of a complete layout that was set aside.
const ASIDE: &str = "v1-aside-";
/// Prefix of complete layouts of all versions.
const ANY_VERSION: char = 'v';
/// Prefix of a layout that is being built.
const UNFINISHED: &str = "new-";
/// The pins of one runtime directory. Holds the lock.
#[derive(Debug)]
pub struct Pins {
    dir: PathBuf,
    _lock: Lock,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedLayout {
    pub path: PathBuf,
    /// As given to its daemon.
    pub runtime_dir: PathBuf,
    pub since: SystemTime,
}

impl Pins {
    /// Locks the pins of this runtime directory, and removes those of deleted runtime directories.
    ///
    /// # Errors
    /// Without a BPF file system; when another daemon uses these pins, as one in another mount namespace whose runtime directory
    /// has the same path; when they belong to a root directory that a process may still have; or when the file system refuses.
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

    /// The directory of this layout when it is complete.
    pub fn complete(&self, layout: u64) -> PathBuf {
        self.dir.join(format!("{COMPLETE}{layout:016x}"))
    }

    /// Creates the directory of a layout that is being built.
    pub fn begin(&self, layout: u64) -> Result<PathBuf, PinError> {
        let path = self.dir.join(format!("{UNFINISHED}{layout:016x}"));
        DirBuilder::new().mode(0o700).create(&path).map_err(PinError::io("make the directory", &path))?;
        Ok(path)
    }

    /// Renames the layout to its complete name, which is returned.
    pub fn finish(&self, unfinished: &Path, layout: u64) -> Result<PathBuf, PinError> {
        let complete = self.complete(layout);
        fs::rename(unfinished, &complete).map_err(PinError::io("rename", unfinished))?;
        Ok(complete)
    }

    /// Renames pins that cannot be used unchanged, so that they can be imported.
    pub fn set_aside(&self, complete: &Path) -> Result<PathBuf, PinError> {
        let mut names = (0_u32..).map(|number| self.dir.join(format!("{ASIDE}{number}")));
        let aside = names.find(|name| !name.exists()).unwrap_or_default();
        fs::rename(complete, &aside).map_err(PinError::io("rename", complete))?;
        Ok(aside)
    }

    /// Detaches the programs of a layout, and sets its maps aside.
    pub fn detach(&self, layout: &Path) -> Result<PathBuf, PinError> {
        let aside = if file_name(layout).starts_with(ASIDE) { layout.to_owned() } else { self.set_aside(layout)? };
        remove_links(&aside)?;
        Ok(aside)
    }

    /// The other complete layouts, and whether their map values have this version.
    pub fn others(&self, complete: &Path) -> Result<Vec<(PathBuf, bool)>, PinError> {
        let others = self.layouts(|name| name.starts_with(ANY_VERSION))?.into_iter().filter(|path| path != complete);
        Ok(others.map(|path| (path.clone(), file_name(&path).starts_with(COMPLETE))).collect())
    }

    fn layouts(&self, of: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>, PinError> {
        let entries = fs::read_dir(&self.dir).map_err(PinError::io("read the directory", &self.dir))?;
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        Ok(paths.filter(|path| of(&file_name(path))).collect())
    }
}

/// Removes all pins of this runtime directory. Returns the removed layouts.
///
/// # Errors
/// When a daemon uses it, or the file system refuses.
pub fn unpin(runtime_dir: &Path) -> Result<Vec<PathBuf>, PinError> {
    as_root()?;
    unpin_in(&base(mount_point()), &name_of(&canonical(runtime_dir)))
}

fn unpin_in(base: &Path, name: &str) -> Result<Vec<PathBuf>, PinError> {
    if !is_ours(base) {
        return Ok(Vec::new());
    }
    let dir = base.join(name);
    let Some(lock) = wait_for_lock(&dir)? else { return Ok(Vec::new()) };
    let pins = Pins { dir: dir.clone(), _lock: lock };
    let layouts = pins.layouts(|name| name.starts_with(ANY_VERSION) || name.starts_with(UNFINISHED))?;
    remove_all(&dir)?;
    // Succeeds after the last daemon's pins.
    let _ = fs::remove_dir(base);
    Ok(layouts)
}

/// Whether a daemon of this user made the directory of all daemons. Every user may create its name, as a directory or as a
/// symbolic link.
fn is_ours(base: &Path) -> bool {
    fs::symlink_metadata(base).is_ok_and(|found| is_private(&found))
}

/// The pinned layouts of all daemons on this host; empty without permission.
#[must_use]
pub fn pinned() -> Vec<PinnedLayout> {
    let base = Some(base(mount_point())).filter(|base| is_ours(base));
    let directories = base.and_then(|base| fs::read_dir(base).ok()).into_iter().flatten();
    let directories = directories.flatten().map(|entry| entry.path());
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

/// Removes a layout. Renames it first, so that an interruption leaves no complete layout.
pub fn remove(layout: &Path) -> Result<(), PinError> {
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

/// Removes the links of a layout: those that add processes to a map before those that remove them.
fn remove_links(layout: &Path) -> Result<(), PinError> {
    let found = fs::read_dir(layout).map_err(PinError::io("read the directory", layout))?.flatten();
    let links = found.map(|entry| entry.path()).filter(|path| file_name(path).starts_with("link_"));
    let first = ["link_fork", "link_exec"].map(|name| layout.join(name));
    first.into_iter().chain(links).try_for_each(|link| remove_if_there(&link))
}

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

/// Removes the pins of daemons whose runtime directory was deleted.
fn sweep(base: &Path, own: &Path) {
    let directories = fs::read_dir(base).into_iter().flatten().flatten().map(|entry| entry.path());
    for dir in directories.filter(|dir| dir != own) {
        // Skips pins in use, and those of other containers.
        let Ok(Some(_lock)) = lock(&dir) else { continue };
        let seen_from_here = fs::read_link(dir.join(ROOT)).is_ok_and(|root| root == Path::new(&root_identity()));
        let runtime_dir = fs::read_link(dir.join(RUNTIME_DIR));
        let removed = match runtime_dir {
            Ok(runtime_dir) if seen_from_here && !runtime_dir.exists() => {
                tracing::info!("removing the pins of {}, which does not exist any more", runtime_dir.display());
                remove_all(&dir)
            }
            // Its daemon exited before it created the links: no pins.
            Err(_) => fs::remove_dir(&dir).or(Ok(())),
            Ok(_) => Ok(()),
        };
        if let Err(error) = removed {
            tracing::warn!("{error}");
        }
    }
}

pub fn remove_if_there(path: &Path) -> Result<(), PinError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(PinError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// The path without symbolic links, also of a deleted directory.
fn canonical(dir: &Path) -> PathBuf {
    dir.canonicalize().or_else(|_| std::path::absolute(dir)).unwrap_or_else(|_| dir.to_owned())
}

fn name_of(runtime_dir: &Path) -> String {
    format!("{:016x}", name_hash(runtime_dir.as_os_str().as_bytes()))
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
    fn unpin_follows_no_foreign_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (planted, base) = (dir.path().join("planted"), dir.path().join("base"));
        let victim = planted.join("name/videos");
        fs::create_dir_all(&victim).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(unpin_in(&planted, "name").unwrap(), [""; 0].map(PathBuf::from));
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&planted, &base).unwrap();
        assert_eq!(unpin_in(&base, "name").unwrap(), [""; 0].map(PathBuf::from));
        assert!(victim.exists());
        assert_eq!(unpin_in(&planted, "name").unwrap(), [victim]);
        assert!(!planted.exists());
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
