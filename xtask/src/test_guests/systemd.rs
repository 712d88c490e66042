//! The guest whose PID 1 is systemd: the daemon runs as its unit has it, sandbox and all, and a test stands beside it.
//!
//! Debian's systemd, the libraries that it is linked to, and of its units those that bring a machine up. The verdict comes
//! from the unit that runs the test, in the words of `guest-init`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::guest::Boot;
use super::initramfs;
use super::suite::{ONE_KERNEL, Suite, TIMEOUT_SECONDS, Test};
use crate::cargo::workspace;
use crate::output::output;

/// Where Debian's libraries are, in a package and in the guest.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// What runs of systemd. Since version 255 a program of its own brings services into their sandboxes.
const PROGRAMS: &[&str] = &["lib/systemd/systemd", "lib/systemd/systemd-journald", "bin/systemctl", "bin/journalctl"];
const PROGRAMS_OF_LATER_VERSIONS: &[&str] = &["lib/systemd/systemd-executor"];

/// The units that a service is started after, and the journal.
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

/// Which unit is wanted by which, besides what units say themselves.
const WANTED: &[(&str, &str)] = &[
    ("sysinit.target", "sys-kernel-tracing.mount"),
    ("sysinit.target", "systemd-journald.service"),
    ("sockets.target", "systemd-journald-audit.socket"),
    ("sockets.target", "systemd-journald-dev-log.socket"),
    ("sockets.target", "systemd-journald.socket"),
    ("multi-user.target", DAEMON),
    ("multi-user.target", TEST),
];

/// The unit under test, as it is shipped, and the one that tests it.
const DAEMON: &str = "watchdogd.service";
const TEST: &str = "guest-test.service";

/// The applets of busybox that the test, the units and systemd call.
const APPLETS: &[&str] = &["cat", "kill", "mount", "sh", "sleep", "umount", "uname"];

/// Lays the guest's root out in `root`, and packs it into `image`. Packages come from the cache in `work`, or the archive.
///
/// # Errors
/// When a package cannot be fetched, or lacks what is expected in it, or a file cannot be written.
pub(crate) fn write(suite: &Suite, work: &Path, root: &Path, image: &Path) -> Result<()> {
    let Some(test) = suite.tests.iter().find(|test| test.plan(ONE_KERNEL, Boot::Systemd).is_some()) else {
        bail!("there is no test for this guest");
    };
    let packages = packages(work)?;
    initramfs::lay_out(root, &["home", "usr/lib", "usr/lib64", "usr/lib/systemd/system", "var/lib", "var/tmp"])?;
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

    initramfs::copy(&test.executable.path, &root.join("guest/tests").join(&test.name))?;
    for program in &suite.programs {
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

/// The unit that runs the test: its end is the guest's.
fn test_unit(Test { name, arguments, .. }: &Test) -> String {
    let arguments = arguments.join(" ");
    format!(
        "[Unit]
Wants={DAEMON}
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

/// What systemd calls after the test, with its result in the environment. The console gets time to show it before the power
/// goes.
fn verdict(Test { name, .. }: &Test) -> String {
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

fn units(packages: &Path, root: &Path, test: &Test) -> Result<()> {
    let directory = root.join("usr/lib/systemd/system");
    for unit in UNITS {
        take(packages, &format!("lib/systemd/system/{unit}"), root)?;
    }
    initramfs::copy(&workspace().join("packaging").join(DAEMON), &directory.join(DAEMON))?;
    std::fs::write(directory.join(TEST), test_unit(test)).with_context(|| format!("writing {TEST}"))?;
    for (target, unit) in WANTED {
        let wants = directory.join(format!("{target}.wants"));
        std::fs::create_dir_all(&wants).with_context(|| format!("making {}", wants.display()))?;
        link_to(format!("../{unit}"), &wants.join(unit))?;
    }
    Ok(())
}

/// The tree of unpacked packages.
fn packages(work: &Path) -> Result<PathBuf> {
    let tree = work.join("systemd");
    if !tree.exists() {
        fetch(work, &tree).context("no systemd for the guest")?;
    }
    Ok(tree)
}

/// Fetches systemd and the libraries below it: not what its package's scripts need, since none of those runs.
fn fetch(work: &Path, tree: &Path) -> Result<()> {
    let depends = output(Command::new("apt-cache").args(["depends", "--recurse", "--important", "systemd"]))?;
    // Packages stand at the margin, what they depend on is indented.
    let names: Vec<&str> = depends.lines().filter(|line| *line == "systemd" || line.starts_with("lib")).collect();
    ensure!(names.contains(&"systemd"), "apt-cache finds no systemd: try apt-get update");

    println!("fetching systemd and {} libraries", names.len() - 1);
    let scratch = work.join("systemd-packages");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))?;
    }
    let unpacked = scratch.join("unpacked");
    std::fs::create_dir_all(&unpacked).with_context(|| format!("making {}", unpacked.display()))?;
    output(Command::new("apt-get").args(["--quiet", "download"]).args(names).current_dir(&scratch))?;
    for package in entries(&scratch)?.iter().filter(|path| path.extension().is_some_and(|it| it == "deb")) {
        output(Command::new("dpkg").arg("--extract").arg(package).arg(&unpacked))?;
    }
    // The tree gets its name last: what has the name is whole.
    std::fs::rename(&unpacked, tree).with_context(|| format!("moving {}", unpacked.display()))?;
    std::fs::remove_dir_all(&scratch).with_context(|| format!("removing {}", scratch.display()))
}

/// Copies every library, with the names that lead to it.
fn libraries(packages: &Path, root: &Path) -> Result<()> {
    for (from, to) in [("", ""), ("usr", ""), ("", "systemd"), ("usr", "systemd")] {
        let directory = packages.join(from).join(LIBRARIES).join(to);
        let target = root.join("usr").join(LIBRARIES).join(to);
        std::fs::create_dir_all(&target).with_context(|| format!("making {}", target.display()))?;
        // Debian moves what is in /lib to /usr/lib, one package after the other.
        for path in if directory.exists() { entries(&directory)? } else { Vec::new() } {
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

/// Copies a file of the packages to the same place below the guest's `/usr`.
fn take(packages: &Path, path: &str, root: &Path) -> Result<()> {
    let Some(found) = find(packages, path) else { bail!("no {path} in {}", packages.display()) };
    initramfs::copy(&found, &root.join("usr").join(path))
}

/// Where packages have a file: `lib/…` may be in `/lib` or in `/usr/lib`.
fn find(packages: &Path, path: &str) -> Option<PathBuf> {
    [packages.join("usr").join(path), packages.join(path)].into_iter().find(|path| path.exists())
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()
        .with_context(|| format!("reading {}", directory.display()))
}

fn link_to(target: impl AsRef<Path>, link: &Path) -> Result<()> {
    symlink(target, link).with_context(|| format!("linking {}", link.display()))
}
