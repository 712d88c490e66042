//! Builds the tests that run in each guest, and selects them by the tables of `guest_tests`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::debian::Kernel;
use super::guest::{Boot, Guest};
use super::guest_tests::Tests::{self, All, Named};
use super::guest_tests::{
    INTEGRATION_TESTS, LIBRARY_TESTS, LSM_TESTS, OLD_KERNEL_BINARY, ONE_KERNEL, PACKAGE_BINARY, Row, SYSTEMD_BINARY,
};
use super::initramfs::Contents;
use crate::dist::Architecture;
use crate::output::output;
use xtask::cargo::{BuiltBinary, Kind, cargo, executables};

/// Which kernels run the tests of [`Row::one_kernel`].
#[derive(Clone, Copy)]
pub(crate) enum GuestScope {
    /// [`ONE_KERNEL`].
    Usual,
    /// All.
    ReleaseCheck,
}

/// The packages whose programs and tests go into the guests.
const PACKAGES: &[&str] = &["watchdogd", "watchdogctl", "watchdog-host", "watchdog-kernel", "watchdog-tests"];

/// Not in the guest for arm64.
const NEEDS_PYTHON: &str = "kernel_live";

/// Seconds per test binary in a guest.
pub(super) const TIMEOUT_SECONDS: u64 = 1_200;

pub(crate) struct Suite {
    /// In the order in which they run.
    pub(crate) tests: Vec<GuestTest>,
    /// Include `guest-init`.
    pub(crate) programs: Vec<BuiltBinary>,
}

/// A test binary, with its arguments in each kind of guest; `None` where it does not run.
pub(crate) struct GuestTest {
    /// In the guest.
    pub(crate) name: String,
    pub(crate) executable: BuiltBinary,
    every_kernel: Option<Vec<String>>,
    pub(super) one_kernel: Option<Vec<String>>,
    without_lsm: Option<Vec<String>>,
}

impl GuestTest {
    /// The line of this binary in the plan of a guest.
    pub(crate) fn plan(&self, kernel: Kernel, boot: Boot) -> Option<String> {
        if (self.executable.name == OLD_KERNEL_BINARY) != (kernel == Kernel::V5_10) {
            return None;
        }
        let own_guest = match self.executable.name.as_str() {
            SYSTEMD_BINARY => Some(Boot::Systemd),
            PACKAGE_BINARY => Some(Boot::Package),
            _ => None,
        };
        let arguments = match boot {
            Boot::WithLsm if own_guest.is_some() => return None,
            Boot::WithLsm if kernel == ONE_KERNEL => &self.one_kernel,
            Boot::WithLsm => &self.every_kernel,
            Boot::WithoutLsm if kernel == ONE_KERNEL => &self.without_lsm,
            Boot::Systemd | Boot::Package if kernel == ONE_KERNEL && own_guest == Some(boot) => &self.one_kernel,
            Boot::WithoutLsm | Boot::Systemd | Boot::Package => return None,
        };
        arguments.as_ref().map(|arguments| format!("{} {TIMEOUT_SECONDS} {}\n", self.name, arguments.join(" ")))
    }
}

impl Suite {
    /// Whether this guest has tests.
    pub(crate) fn is_for(&self, kernel: Kernel, boot: Boot) -> bool {
        self.tests.iter().any(|test| test.plan(kernel, boot).is_some())
    }

    /// The content of these guests, which have no systemd.
    pub(crate) fn contents(&self, guests: &[(Kernel, Boot)], foreign_busybox: Option<PathBuf>) -> Contents<'_> {
        let Self { tests, programs } = self;
        let plan = |(kernel, boot)| tests.iter().filter_map(|test| test.plan(kernel, boot)).collect::<String>();
        let plans = guests.iter().map(|&(kernel, boot)| (plan_of(kernel, boot), plan((kernel, boot)))).collect();
        let planned =
            tests.iter().filter(|test| guests.iter().any(|(kernel, boot)| test.plan(*kernel, *boot).is_some()));
        let tests = planned.map(|test| (test.name.as_str(), test.executable.path.as_path())).collect();
        Contents { programs, tests, plans, files: Vec::new(), foreign_busybox }
    }
}

/// The name of a plan in the guest's `/guest`, or a target of systemd.
pub(crate) fn plan_of(kernel: Kernel, boot: Boot) -> String {
    match boot {
        Boot::WithLsm | Boot::WithoutLsm => format!("plan-{}", Guest::name_of(kernel, boot)),
        Boot::Systemd | Boot::Package => "multi-user.target".to_owned(),
    }
}

/// Builds statically: a guest has no libraries.
fn cargo_static(target: &Path, architecture: Architecture, arguments: &[&str]) -> Result<Vec<BuiltBinary>> {
    let mut command = cargo();
    command.args(arguments).args(["--profile", "guest"]);
    // The tests list the programs of this machine's architecture, for which it has a C library.
    architecture.configure(
        &mut command,
        match architecture {
            Architecture::Amd64 => "x86_64-unknown-linux-gnu",
            Architecture::Arm64 => architecture.musl_target(),
        },
    )?;
    command.args(PACKAGES.iter().flat_map(|package| ["--package", package])).arg("--target-dir").arg(target);
    executables(&mut command)
}

/// Builds the programs. With a test, so that their dependencies have the same features as in [`build`] and are compiled once.
pub(crate) fn programs(target: &Path) -> Result<Vec<BuiltBinary>> {
    let built = cargo_static(target, Architecture::Amd64, &["build", "--bins", "--test", SYSTEMD_BINARY])?;
    Ok(built.into_iter().filter(|it| it.kind == Kind::Program).collect())
}

/// Builds the programs, and the tests of these boots.
pub(crate) fn build(target: &Path, boots: &[Boot], filter: Option<&str>, scope: GuestScope) -> Result<Suite> {
    let (rows, has_library_tests) = match boots {
        [Boot::Systemd] => (vec![SYSTEMD_BINARY], false),
        [Boot::Package] => (vec![PACKAGE_BINARY], false),
        _ => (INTEGRATION_TESTS.iter().map(|row| row.binary).collect(), true),
    };
    // Together: tests enable other features of dependencies, so separate builds would compile them twice.
    let arguments: Vec<&str> =
        ["build", "--bins"].into_iter().chain(rows.iter().flat_map(|name| ["--test", name])).collect();
    let mut built = cargo_static(target, Architecture::Amd64, &arguments)?;
    if has_library_tests {
        built.extend(cargo_static(target, Architecture::Amd64, &["test", "--no-run", "--lib"])?);
    }
    let (programs, built): (Vec<_>, Vec<_>) = built.into_iter().partition(|it| it.kind == Kind::Program);
    let mut tests = Vec::new();
    for executable in built {
        check_names(&executable)?;
        tests.extend(select(executable, filter, scope, list)?);
    }
    tests.sort_by(|one, other| one.name.cmp(&other.name));
    ensure!(!tests.is_empty(), "no test of the guests matches");
    Ok(Suite { tests, programs })
}

/// The integration tests of every kernel that need no Python, for arm64. This machine cannot run them, so a filter goes to
/// them as it is.
pub(crate) fn build_arm64(target: &Path, filter: Option<&str>) -> Result<Suite> {
    let rows = INTEGRATION_TESTS.iter().filter(|row| row.every_kernel.is_some());
    let names: Vec<&str> =
        rows.map(|row| row.binary).filter(|name| ![NEEDS_PYTHON, OLD_KERNEL_BINARY].contains(name)).collect();
    let arguments: Vec<&str> = names.iter().flat_map(|name| ["--test", name]).collect();
    let built = cargo_static(target, Architecture::Arm64, &[&["build", "--bins"], &arguments[..]].concat())?;
    let (programs, built): (Vec<_>, Vec<_>) = built.into_iter().partition(|it| it.kind == Kind::Program);
    let mut tests = Vec::new();
    for executable in built {
        let Some(mut test) = select(executable, None, GuestScope::Usual, list)? else { continue };
        if let Some(filter) = filter {
            test.every_kernel = Some(vec![filter.to_owned()]);
        }
        tests.push(test);
    }
    Ok(Suite { tests, programs })
}

/// Fails when a test of [`INTEGRATION_TESTS`] does not exist: it would silently not run.
fn check_names(executable: &BuiltBinary) -> Result<()> {
    let Some(row) = INTEGRATION_TESTS.iter().find(|row| executable.name == row.binary) else { return Ok(()) };
    for tests in [row.every_kernel, row.one_kernel].into_iter().flatten() {
        let Named(names) = tests else { continue };
        let existing = list(&executable.path)?;
        for name in names {
            ensure!(existing.iter().any(|test| test.contains(name)), "{} has no test {name}: {}", row.binary, row.why);
        }
    }
    Ok(())
}

/// The names of a binary's tests. A static binary runs on this host too.
fn list(binary: &Path) -> Result<Vec<String>> {
    let text = output(Command::new(binary).args(["--list", "--format", "terse"]))?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The tests of a binary that run in guests; `None` without any. With a filter, all of its tests that match run on every
/// kernel.
fn select(
    executable: BuiltBinary,
    filter: Option<&str>,
    scope: GuestScope,
    list: impl Fn(&Path) -> Result<Vec<String>>,
) -> Result<Option<GuestTest>> {
    let (every_kernel, one_kernel) = match executable.kind {
        Kind::LibraryTests => match LIBRARY_TESTS.iter().find(|(package, _)| executable.package() == *package) {
            Some((_, tests)) => (Some(*tests), None),
            None => return Ok(None),
        },
        Kind::IntegrationTests => match INTEGRATION_TESTS.iter().find(|row| executable.name == row.binary) {
            Some(Row { every_kernel, one_kernel, binary: _, why: _ }) => (*every_kernel, *one_kernel),
            None => return Ok(None),
        },
        Kind::Program | Kind::ProgramTests => return Ok(None),
    };
    let lsm = LSM_TESTS.iter().find(|(binary, _)| executable.name == *binary).map(|(_, names)| *names);
    let name = format!("{}-{}", executable.package(), executable.name);
    let Some(filter) = filter else {
        let arguments = |tests: Tests| match tests {
            All => Vec::new(),
            Named(names) => names.iter().map(|&name| name.to_owned()).collect(),
        };
        let one_kernel = match (every_kernel, one_kernel, scope) {
            (Some(All), _, _) | (_, Some(All), _) | (None, None, GuestScope::ReleaseCheck) => Some(Vec::new()),
            (every, one, _) => every.into_iter().chain(one).map(arguments).reduce(|all, more| [all, more].concat()),
        };
        let without_lsm = lsm.map(|names| arguments(Named(names)));
        if one_kernel.is_none() {
            return Ok(None);
        }
        return Ok(Some(GuestTest {
            name,
            executable,
            every_kernel: match scope {
                GuestScope::Usual => every_kernel.map(arguments),
                GuestScope::ReleaseCheck => one_kernel.clone(),
            },
            one_kernel,
            without_lsm,
        }));
    };
    let mut names = list(&executable.path)?;
    names.retain(|name| name.contains(filter));
    let exactly = |names: Vec<String>| {
        (!names.is_empty()).then(|| std::iter::once("--exact".to_owned()).chain(names).collect::<Vec<_>>())
    };
    let without_lsm = lsm.and_then(|lsm| {
        exactly(names.iter().filter(|name| lsm.iter().any(|part| name.contains(part))).cloned().collect())
    });
    let Some(matching) = exactly(names) else { return Ok(None) };
    Ok(Some(GuestTest {
        name,
        executable,
        every_kernel: Some(matching.clone()),
        one_kernel: Some(matching),
        without_lsm,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replaces the binary.
    fn listed(_: &Path) -> Result<Vec<String>> {
        Ok(["gate::a_fork", "decode::gate", "lineage::b"].map(str::to_owned).to_vec())
    }

    fn plan_in(
        package: &str,
        kind: Kind,
        name: &str,
        filter: Option<&str>,
        (kernel, boot): (Kernel, Boot),
    ) -> Option<String> {
        let executable = BuiltBinary { directory: package.into(), name: name.to_owned(), kind, path: PathBuf::new() };
        select(executable, filter, GuestScope::Usual, listed).unwrap().and_then(|test| test.plan(kernel, boot))
    }

    fn plan(name: &str, filter: Option<&str>, kernel: Kernel, boot: Boot) -> Option<String> {
        plan_in("watchdog-kernel", Kind::IntegrationTests, name, filter, (kernel, boot))
    }

    #[test]
    fn guest_without_lsm_runs_lsm_tests() {
        let plan = |name, boot| plan(name, None, ONE_KERNEL, boot);
        assert_eq!(plan("kernel_live", Boot::WithLsm).as_deref(), Some("watchdog-kernel-kernel_live 1200 \n"));
        assert_eq!(plan("kernel_live", Boot::WithoutLsm).as_deref(), Some("watchdog-kernel-kernel_live 1200 gate\n"));
        assert_eq!(plan("losses", Boot::WithoutLsm), None);
        assert!(plan("gate", Boot::WithoutLsm).unwrap().contains("denied_"));
    }

    #[test]
    fn installed_daemon_has_own_guest() {
        let plan = |name, boot| plan(name, None, ONE_KERNEL, boot);
        assert_eq!(plan(SYSTEMD_BINARY, Boot::Systemd).as_deref(), Some("watchdog-kernel-systemd_unit 1200 \n"));
        for boot in [Boot::WithLsm, Boot::WithoutLsm] {
            assert_eq!(plan(SYSTEMD_BINARY, boot), None);
        }
        assert_eq!(plan("kernel_live", Boot::Systemd), None);
    }

    #[test]
    fn other_kernels_run_kernel_tests() {
        let on_sid = |name, filter, boot| plan(name, filter, Kernel::Sid, boot);
        assert_eq!(
            on_sid("memory", None, Boot::WithLsm).as_deref(),
            Some("watchdog-kernel-memory 1200 exit_event_has_peak tree_shows_burst_and_peak\n")
        );
        assert!(on_sid("losses", None, Boot::WithLsm).is_none());
        assert!(on_sid("kernel_live", None, Boot::WithoutLsm).is_none());
        assert!(on_sid(SYSTEMD_BINARY, None, Boot::Systemd).is_none());
        assert!(on_sid("throttle", None, Boot::WithLsm).is_none());
        assert!(on_sid("throttle", Some("lineage"), Boot::WithLsm).is_some(), "explicitly requested");
        assert!(on_sid("contract", None, Boot::WithLsm).is_none());
    }

    #[test]
    fn release_check_runs_each_test() {
        let plan = |name: &str, scope| {
            let kind = Kind::IntegrationTests;
            let executable = BuiltBinary { directory: "tests".into(), name: name.into(), kind, path: PathBuf::new() };
            let test = select(executable, None, scope, listed).unwrap();
            test.and_then(|test| test.plan(Kernel::Sid, Boot::WithLsm))
        };
        assert_eq!(plan("model", GuestScope::Usual), None);
        assert_eq!(plan("model", GuestScope::ReleaseCheck).as_deref(), Some("tests-model 1200 \n"));
        assert_eq!(plan("throttle", GuestScope::Usual), None);
        assert_eq!(plan("throttle", GuestScope::ReleaseCheck).as_deref(), Some("tests-throttle 1200 \n"));
    }

    #[test]
    fn library_tests_that_call_kernel_run() {
        let library =
            |package, filter| plan_in(package, Kind::LibraryTests, "library", filter, (ONE_KERNEL, Boot::WithLsm));
        assert_eq!(
            library("watchdog-host", None).as_deref(),
            Some("watchdog-host-library 1200 cgroup page_out pidfd\n")
        );
        assert_eq!(library("watchdog-kernel", None).as_deref(), Some("watchdog-kernel-library 1200 \n"));
        let narrow = "watchdog-kernel-library 1200 --exact decode::gate\n";
        assert_eq!(library("watchdog-kernel", Some("decode")).as_deref(), Some(narrow));
        assert_eq!(library("watchdog-engine", None), None);
    }

    #[test]
    fn filter_skips_guests_without_tests() {
        let plan = |name, filter, boot| plan(name, Some(filter), ONE_KERNEL, boot);
        let narrow = Some("watchdog-kernel-kernel_live 1200 --exact gate::a_fork\n");
        for boot in [Boot::WithLsm, Boot::WithoutLsm] {
            assert_eq!(plan("kernel_live", "gate::a_fork", boot).as_deref(), narrow);
        }
        assert_eq!(plan("kernel_live", "lineage", Boot::WithoutLsm), None);
        assert_eq!(plan("losses", "nothing", Boot::WithLsm), None);
    }
}
