//! The root file system of a guest.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::python;
use xtask::cargo::BuiltBinary;

/// Environment of the tests in a guest. `WATCHDOG_GUEST` also extends their time limits for emulated processors.
pub(super) const ENVIRONMENT: &str = "\
PATH=/bin
HOME=/root
TMPDIR=/tmp
LANG=C.UTF-8
RUST_BACKTRACE=1
WATCHDOG_BIN_DIR=/guest/bin
WATCHDOG_GUEST=1
";

/// Users of a guest: tests look up names, and the control API distinguishes root from others.
const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
user:x:1000:1000:user:/tmp:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
";
const GROUP: &str = "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n";

/// Paths of a static busybox, on Debian and others.
const BUSYBOX: &[&str] = &["/bin/busybox", "/usr/bin/busybox", "/usr/bin/busybox.static", "/bin/busybox.static"];

/// Content of a guest besides busybox and Python.
pub(crate) struct Contents<'a> {
    /// Include `guest-init`.
    pub(crate) programs: &'a [BuiltBinary],
    /// Name in `/guest/tests`, and the file.
    pub(crate) tests: Vec<(&'a str, &'a Path)>,
    /// Name in `/guest`, and the text.
    pub(crate) plans: Vec<(String, String)>,
    /// Path in the guest without the first slash, and the file.
    pub(crate) files: Vec<(String, PathBuf)>,
    /// A guest of another architecture has this busybox, and no Python.
    pub(crate) foreign_busybox: Option<PathBuf>,
}

/// Creates the root file system in `root`, and packs it into `image`.
///
/// # Errors
/// When busybox, cpio or a program is missing, or a file cannot be written.
pub(crate) fn write(contents: &Contents<'_>, root: &Path, image: &Path) -> Result<()> {
    let Contents { programs, tests, plans, files, foreign_busybox } = contents;
    match foreign_busybox {
        None => {
            lay_out(root, &[], &busybox()?)?;
            python::copy(root)?;
        }
        Some(busybox) => lay_out(root, &[], busybox)?,
    }
    for (name, file) in files {
        let path = root.join(name);
        let directory = path.parent().unwrap_or(root);
        std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        copy(file, &path)?;
    }
    for (name, path) in tests {
        copy(path, &root.join("guest/tests").join(name))?;
    }
    let Some(init) = programs.iter().find(|program| program.name == "guest-init") else {
        bail!("cargo did not build guest-init");
    };
    copy(&init.path, &root.join("init"))?;
    for program in programs.iter().filter(|program| program.name != "guest-init") {
        copy(&program.path, &root.join("guest/bin").join(&program.name))?;
    }
    let plans = plans.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    for (name, text) in plans.chain([("env", ENVIRONMENT)]) {
        let path = root.join("guest").join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    pack(root, image)
}

/// Creates the base of every guest: directories, `besides` among them, busybox and users.
pub(super) fn lay_out(root: &Path, besides: &[&str], busybox: &Path) -> Result<()> {
    if root.exists() {
        std::fs::remove_dir_all(root).with_context(|| format!("removing {}", root.display()))?;
    }
    let directories =
        ["bin", "dev", "etc", "guest/bin", "guest/tests", "proc", "root", "run", "sys", "tmp", "usr", "var"];
    for directory in directories.iter().chain(besides) {
        let path = root.join(directory);
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    }
    // Relative, so that they lead to the same place from outside the guest.
    for (link, target) in [("sbin", "bin"), ("usr/bin", "../bin"), ("usr/sbin", "../bin")] {
        symlink(target, root.join(link)).with_context(|| format!("linking {link} in {}", root.display()))?;
    }
    copy(busybox, &root.join("bin/busybox"))?;
    for (name, text) in [("etc/passwd", PASSWD), ("etc/group", GROUP)] {
        std::fs::write(root.join(name), text).with_context(|| format!("writing {name} in {}", root.display()))?;
    }
    Ok(())
}

/// The static busybox of this machine.
pub(super) fn busybox() -> Result<PathBuf> {
    let found = BUSYBOX.iter().map(PathBuf::from).find(|path| path.exists());
    found.context("no busybox: on Debian, apt-get install busybox-static")
}

/// Copies a file instead of linking it: a link would be packed as a link.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    Ok(())
}

/// Packs the tree as an initramfs. Uncompressed: an emulated processor reads faster than it decompresses.
pub(super) fn pack(root: &Path, image: &Path) -> Result<()> {
    let file = File::create(image).with_context(|| format!("creating {}", image.display()))?;
    let mut find =
        Command::new("find").arg(".").current_dir(root).stdout(Stdio::piped()).spawn().context("running find")?;
    let names = find.stdout.take().context("find's output was not piped")?;
    let packed = Command::new("cpio")
        .args(["--create", "--format=newc", "--owner=+0:+0", "--quiet"])
        .current_dir(root)
        .stdin(names)
        .stdout(file)
        .status()
        .context("running cpio: on Debian, apt-get install cpio")?;
    let found = find.wait().context("waiting for find")?;
    ensure!(packed.success() && found.success(), "packing {}: find {found}, cpio {packed}", root.display());
    Ok(())
}
