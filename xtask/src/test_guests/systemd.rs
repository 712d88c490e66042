//! The guest with systemd as PID 1: the daemon runs in its unit with the sandbox, beside a test.
//!
//! It has Debian's systemd with its libraries, and the units that boot a machine. The verdict comes from the unit of the
//! test, in the format of `guest-init`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::guest::Boot;
use super::guest_tests::ONE_KERNEL;
use super::suite::{GuestTest, Suite, TIMEOUT_SECONDS};
use super::{dpkg, initramfs, packages};
use xtask::cargo::{BuiltBinary, workspace};

/// Library directory, in a package and in the guest.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// Programs of systemd. Since version 255 a separate program sets up the sandboxes.
const PROGRAMS: &[&str] = &["lib/systemd/systemd", "lib/systemd/systemd-journald", "bin/systemctl", "bin/journalctl"];
const PROGRAMS_OF_LATER_VERSIONS: &[&str] = &["lib/systemd/systemd-executor"];

/// Units that precede a service, and the journal.
const UNITS: &[&str] = &[
    "basic.target",
    "local-fs.target",
    "multi-user.target",
    "paths.target",
    "shutdown.target",
    "slices.target",
    "sockets.target",
    "sys-kernel-tracing.mount",
    "sysinit.target",
    "systemd-journald-audit.socket",
    "systemd-journald-dev-log.socket",
    "systemd-journald.service",
    "systemd-journald.socket",
    "timers.target",
    "umount.target",
];

/// Wants= links that the units themselves lack.
const WANTED: &[(&str, &str)] = &[
    ("sysinit.target", "sys-kernel-tracing.mount"),
    ("sysinit.target", "systemd-journald.service"),
    ("sockets.target", "systemd-journald-audit.socket"),
    ("sockets.target", "systemd-journald-dev-log.socket"),
    ("sockets.target", "systemd-journald.socket"),
    ("multi-user.target", TEST),
];

const UNIT_DIRECTORY: &str = "usr/lib/systemd/system";

const PROGRAMS_OF_PACKAGE: [&str; 2] = ["watchdogd", "watchdogctl"];

/// The shipped unit, and the unit that tests it.
const DAEMON: &str = "watchdogd.service";
const TEST: &str = "guest-test.service";

/// Applets of busybox that the test, the units and systemd run.
const APPLETS: &[&str] = &["cat", "kill", "mount", "sh", "sleep", "umount", "uname"];

/// Creates the guest's root in `root`, and packs it into `image`. Packages come from the cache in `work` or the archive.
///
/// # Errors
/// When a package cannot be fetched or lacks a file, or a file cannot be written.
pub(crate) fn write(suite: &Suite, boot: Boot, work: &Path, root: &Path, image: &Path) -> Result<()> {
    let Some(test) = suite.tests.iter().find(|test| test.plan(ONE_KERNEL, boot).is_some()) else {
        bail!("no test for this guest");
    };
    let packages = packages::unpacked(work, "systemd", &["systemd"])?;
    initramfs::lay_out(
        root,
        &["home", "usr/lib", "usr/lib64", "usr/lib/systemd/system", "var/lib", "var/tmp"],
        &initramfs::busybox()?,
    )?;
    for (link, target) in [("lib", "usr/lib"), ("lib64", "usr/lib64"), ("init", "usr/lib/systemd/systemd")] {
        link_to(target, &root.join(link))?;
    }
    for applet in APPLETS {
        link_to("busybox", &root.join("bin").join(applet))?;
    }
    libraries(&packages, root)?;
    for program in PROGRAMS {
        take(&packages, program, root)?;
    }
    for program in PROGRAMS_OF_LATER_VERSIONS.iter().filter(|program| find(&packages, program).is_some()) {
        take(&packages, program, root)?;
    }
    units(&packages, root, test)?;
    if boot == Boot::Package {
        dpkg::add(work, root)?;
    } else {
        daemon(root)?;
    }

    initramfs::copy(&test.executable.path, &root.join("guest/tests").join(&test.name))?;
    // A package brings its own.
    let comes_packaged =
        |program: &&BuiltBinary| boot == Boot::Package && PROGRAMS_OF_PACKAGE.contains(&&*program.name);
    for program in suite.programs.iter().filter(|program| !comes_packaged(program)) {
        initramfs::copy(&program.path, &root.join("usr/bin").join(&program.name))?;
    }
    let environment = initramfs::ENVIRONMENT.replace("/guest/bin", "/usr/bin") + "WATCHDOG_SYSTEMD=1\n";
    let files = [
        ("etc/machine-id", "00000000000000000000000000000001\n"),
        ("etc/os-release", "ID=guest\nPRETTY_NAME=guest\n"),
        ("guest/env", &environment),
        ("guest/verdict", &verdict(test)),
    ];
    for (name, text) in files {
        std::fs::write(root.join(name), text).with_context(|| format!("writing {name} in {}", root.display()))?;
    }
    for (name, mode) in [("guest/verdict", 0o755), ("tmp", 0o1777), ("var/tmp", 0o1777), ("root", 0o700)] {
        std::fs::set_permissions(root.join(name), PermissionsExt::from_mode(mode))
            .with_context(|| format!("permissions of {name} in {}", root.display()))?;
    }
    initramfs::pack(root, image)
}

/// The unit that runs the test; the guest powers off when it ends.
fn test_unit(GuestTest { name, one_kernel, .. }: &GuestTest) -> String {
    let arguments = one_kernel.as_deref().unwrap_or_default().join(" ");
    format!(
        "[Unit]
After={DAEMON}
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate

[Service]
Type=oneshot
TimeoutStartSec={TIMEOUT_SECONDS}
EnvironmentFile=/guest/env
WorkingDirectory=/tmp
StandardOutput=file:/dev/console
StandardError=inherit
ExecStart=/guest/tests/{name} --test-threads=1 {arguments}
ExecStopPost=/guest/verdict
"
    )
}

/// The command after the test, with the result in its environment. It waits for the console before the guest powers
/// off.
fn verdict(GuestTest { name, .. }: &GuestTest) -> String {
    format!(
        "#!/bin/sh
if [ \"$SERVICE_RESULT\" = success ]; then
    echo 'guest verdict: ok, 1 test binaries'
else
    echo \"guest verdict: FAILED: {name} ($SERVICE_RESULT, $EXIT_STATUS)\"
fi
sleep 1
"
    )
}

fn units(packages: &Path, root: &Path, test: &GuestTest) -> Result<()> {
    let directory = root.join(UNIT_DIRECTORY);
    for unit in UNITS {
        take(packages, &format!("lib/systemd/system/{unit}"), root)?;
    }
    std::fs::write(directory.join(TEST), test_unit(test)).with_context(|| format!("writing {TEST}"))?;
    WANTED.iter().try_for_each(|(target, unit)| want(root, target, unit))
}

fn want(root: &Path, target: &str, unit: &str) -> Result<()> {
    let wants = root.join(UNIT_DIRECTORY).join(format!("{target}.wants"));
    std::fs::create_dir_all(&wants).with_context(|| format!("making {}", wants.display()))?;
    link_to(format!("../{unit}"), &wants.join(unit))
}

/// The shipped unit, started at boot.
fn daemon(root: &Path) -> Result<()> {
    initramfs::copy(&workspace().join("packaging").join(DAEMON), &root.join(UNIT_DIRECTORY).join(DAEMON))?;
    want(root, "multi-user.target", DAEMON)
}

/// Copies every library with its symbolic links.
fn libraries(packages: &Path, root: &Path) -> Result<()> {
    for (from, to) in [("", ""), ("usr", ""), ("", "systemd"), ("usr", "systemd")] {
        let directory = packages.join(from).join(LIBRARIES).join(to);
        let target = root.join("usr").join(LIBRARIES).join(to);
        std::fs::create_dir_all(&target).with_context(|| format!("making {}", target.display()))?;
        // Debian is moving packages from /lib to /usr/lib.
        for path in if directory.exists() { packages::entries(&directory)? } else { Vec::new() } {
            let Some(name) = path.file_name().filter(|name| name.to_string_lossy().contains(".so")) else { continue };
            let link = std::fs::read_link(&path).ok().filter(|link| link.parent() == Some(Path::new("")));
            match link {
                Some(link) => link_to(link, &target.join(name))?,
                None if path.is_file() => initramfs::copy(&path, &target.join(name))?,
                None => {}
            }
        }
    }
    let loader = "ld-linux-x86-64.so.2";
    link_to(Path::new("..").join(LIBRARIES).join(loader), &root.join("usr/lib64").join(loader))
}

/// Copies a file of the packages to the same path below the guest's `/usr`.
fn take(packages: &Path, path: &str, root: &Path) -> Result<()> {
    let Some(found) = find(packages, path) else { bail!("no {path} in {}", packages.display()) };
    initramfs::copy(&found, &root.join("usr").join(path))
}

/// The path of a file in the packages: `lib/…` may be in `/lib` or in `/usr/lib`.
fn find(packages: &Path, path: &str) -> Option<PathBuf> {
    [packages.join("usr").join(path), packages.join(path)].into_iter().find(|path| path.exists())
}

fn link_to(target: impl AsRef<Path>, link: &Path) -> Result<()> {
    symlink(target, link).with_context(|| format!("linking {}", link.display()))
}
