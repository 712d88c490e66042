//! dpkg in a guest with systemd, and the packages of two versions.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{initramfs, packages};
use crate::dist::{Architecture, Release, deb_of_version};
use crate::output::output;

/// The programs that install a package, and those of its scripts. Perl is for deb-systemd-helper.
const PACKAGES: [&str; 4] = ["dpkg", "init-system-helpers", "perl-base", "tar"];

/// Not needed to install a package.
const LEFT_OUT: [&str; 5] =
    ["./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/lintian", "./etc"];

/// Applets of busybox that dpkg, its scripts and those of the package run.
const APPLETS: [&str; 9] = ["chmod", "diff", "mkdir", "mv", "rm", "rmdir", "sed", "tr", "true"];

/// dpkg's list of what is installed: what the package depends on.
const STATUS: &str = "\
Package: init-system-helpers
Status: install ok installed
Maintainer: guest
Architecture: all
Version: 1.65
Description: in the guest's root
";

/// The directories of that package: dpkg removes those that no package has, and in a guest some are links.
const DIRECTORIES: &str = "\
/.
/etc
/usr
/usr/bin
/usr/lib
/usr/lib/systemd
/usr/lib/systemd/system
/usr/share
";

/// Adds dpkg to `root`, and the workspace's version with a later one to `/guest/packages`.
pub(super) fn add(work: &Path, root: &Path) -> Result<()> {
    let tree = packages::unpacked(work, "dpkg", &PACKAGES)?;
    copy_tree(&tree, root)?;
    for applet in APPLETS {
        // The packages may have brought it.
        let path = root.join("bin").join(applet);
        if !path.exists() {
            std::os::unix::fs::symlink("busybox", &path).with_context(|| format!("linking {}", path.display()))?;
        }
    }
    for directory in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "guest/packages", "var/log"]
    {
        let path = root.join(directory);
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
    }
    // Nothing here uses the cache of shared libraries.
    let ldconfig = root.join("bin/ldconfig");
    if !ldconfig.exists() {
        std::os::unix::fs::symlink("true", &ldconfig).context("linking ldconfig")?;
    }
    for (name, text) in [("status", STATUS), ("available", ""), ("info/init-system-helpers.list", DIRECTORIES)] {
        let path = root.join("var/lib/dpkg").join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    let Release { version, .. } = Release::of_workspace()?;
    for version in [version.clone(), format!("{version}+later")] {
        let package = deb_of_version(Architecture::Amd64, &version)?;
        initramfs::copy(&package, &root.join("guest/packages").join(package.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Copies a tree of packages into the root, whose directories may be links.
fn copy_tree(tree: &Path, root: &Path) -> Result<()> {
    let mut pack = Command::new("tar");
    pack.arg("--directory").arg(tree).arg("--create");
    pack.args(LEFT_OUT.map(|path| format!("--exclude={path}"))).arg(".");
    let mut packing = pack.stdout(Stdio::piped()).spawn().context("running tar")?;
    let packed = packing.stdout.take().context("tar's output was not piped")?;
    let mut unpack = Command::new("tar");
    unpack.arg("--directory").arg(root).args(["--extract", "--keep-directory-symlink"]);
    output(unpack.stdin(packed))?;
    let status = packing.wait().context("waiting for tar")?;
    ensure!(status.success(), "packing {}: tar {status}", tree.display());
    Ok(())
}
