//! Which tests run in a guest, and how they are built.

use std::path::Path;

use anyhow::{Result, ensure};

use super::guest::Boot;
use super::initramfs::Contents;
use crate::cargo::{Executable, Kind, cargo, executables};

/// Integration tests that need what a guest does not have (node, npm, a network), or that are about the daemon more than
/// about the kernel: an emulated processor would run those for minutes each.
const NOT_IN_GUESTS: &[&str] = &[
    "real_programs",
    "act_spares",
    "agents",
    "launch",
    "contract",
    "daemon",
    "heap",
    "history",
    "floods",
    "hostile_clients",
    "kept",
    "leaks",
    "many",
    "packaging",
    "recording",
    "recordings",
    "stage",
    "users",
    "watchdogctl",
];

/// Of the library's unit tests, those that talk to the kernel: what their names contain, any of it. The others test the same
/// thing on every kernel.
const LIBRARY_FILTER: &[&str] = &["kernel::", "host::cgroup"];

/// The tests for which it makes a difference whether the kernel calls LSM programs: of one binary those whose names contain
/// this,
const LSM_TESTS: (&str, &str) = ("kernel_live", "gate");
/// and all of this one, from end to end.
const LSM_BINARY: &str = "gate";

/// The tests of the installed daemon, as systemd runs it: they have a guest of their own.
const SYSTEMD_BINARY: &str = "systemd_unit";

/// How long one test binary may take in a guest, in seconds.
pub(super) const TIMEOUT_SECONDS: u64 = 1_200;

/// What goes into the guests.
pub(crate) struct Suite {
    /// The test binaries, in the order in which they run.
    pub(crate) tests: Vec<Test>,
    /// The programs that the tests start, and `guest-init`.
    pub(crate) programs: Vec<Executable>,
}

/// A test binary.
pub(crate) struct Test {
    /// Its name in the guest.
    pub(crate) name: String,
    /// The binary.
    pub(crate) executable: Executable,
    /// What it is called with.
    pub(crate) arguments: Vec<String>,
}

impl Test {
    /// Its line of the plan of this boot, if it is part of it.
    pub(crate) fn plan(&self, boot: Boot) -> Option<String> {
        let Self { name, executable, arguments } = self;
        if (executable.name == SYSTEMD_BINARY) != (boot == Boot::Systemd) {
            return None;
        }
        let arguments = match boot {
            Boot::WithLsm | Boot::Systemd => arguments.join(" "),
            Boot::WithoutLsm if executable.name == LSM_BINARY => arguments.join(" "),
            // Filters are alternatives, so the one that was asked for takes the place of this one.
            Boot::WithoutLsm if executable.name == LSM_TESTS.0 => match &arguments[..] {
                [] => LSM_TESTS.1.to_owned(),
                [filter] if filter.contains(LSM_TESTS.1) => filter.clone(),
                _ => return None,
            },
            Boot::WithoutLsm => return None,
        };
        Some(format!("{name} {TIMEOUT_SECONDS} {arguments}\n"))
    }
}

impl Suite {
    /// What of it goes into a guest without systemd.
    pub(crate) fn contents(&self) -> Contents<'_> {
        let Self { tests, programs } = self;
        let boots = [Boot::WithLsm, Boot::WithoutLsm];
        let plan = |boot| tests.iter().filter_map(|test| test.plan(boot)).collect::<String>();
        let plans = boots.map(|boot| (boot.plan().to_owned(), plan(boot)));
        let planned = tests.iter().filter(|test| boots.iter().any(|boot| test.plan(*boot).is_some()));
        let tests = planned.map(|test| (test.name.as_str(), test.executable.path.as_path())).collect();
        Contents { programs, tests, plans: plans.into(), files: Vec::new() }
    }
}

/// Has cargo build statically: a guest has no library of ours.
fn cargo_static(target: &Path, arguments: &[&str]) -> Result<Vec<Executable>> {
    let mut command = cargo();
    command.args(arguments).args(["--profile", "guest", "--target", "x86_64-unknown-linux-gnu"]);
    command.args(["--package", "watchdog", "--package", "watchdog-tests"]).arg("--target-dir").arg(target);
    // A target of its own name keeps these flags away from build scripts and procedural macros.
    executables(command.env("RUSTFLAGS", "-C target-feature=+crt-static"))
}

/// Builds the programs alone.
///
/// # Errors
/// When cargo fails.
pub(crate) fn programs(target: &Path) -> Result<Vec<Executable>> {
    let built = cargo_static(target, &["build", "--bins"])?;
    Ok(built.into_iter().filter(|it| it.kind == Kind::Program).collect())
}

/// Builds programs, and the tests that these boots run.
///
/// # Errors
/// When cargo fails.
pub(crate) fn build(target: &Path, boots: &[Boot], filter: Option<&str>) -> Result<Suite> {
    let programs = programs(target)?;
    let one: &[&str] = if boots == [Boot::Systemd] { &["--test", SYSTEMD_BINARY] } else { &[] };
    let built = cargo_static(target, &[&["test", "--no-run"], one].concat())?;
    let mut tests: Vec<_> = built.into_iter().filter_map(|executable| select(executable, filter)).collect();
    tests.sort_by(|one, other| one.name.cmp(&other.name));
    ensure!(!tests.is_empty(), "no test binary was built for the guests");
    Ok(Suite { tests, programs })
}

fn select(executable: Executable, filter: Option<&str>) -> Option<Test> {
    let arguments: Vec<String> = match executable.kind {
        Kind::LibraryTests if executable.package == "watchdog" => {
            let filters = filter.as_ref().map_or(LIBRARY_FILTER, std::slice::from_ref);
            filters.iter().map(|&filter| filter.to_owned()).collect()
        }
        Kind::IntegrationTests if !NOT_IN_GUESTS.contains(&executable.name.as_str()) => {
            filter.iter().map(|&filter| filter.to_owned()).collect()
        }
        Kind::LibraryTests | Kind::IntegrationTests | Kind::Program | Kind::ProgramTests => return None,
    };
    Some(Test { name: format!("{}-{}", executable.package, executable.name), executable, arguments })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn plan(name: &str, filter: Option<&str>, boot: Boot) -> Option<String> {
        let package = "watchdog".to_owned();
        let executable =
            Executable { package, name: name.to_owned(), kind: Kind::IntegrationTests, path: PathBuf::new() };
        select(executable, filter).and_then(|test| test.plan(boot))
    }

    #[test]
    fn a_guest_with_lsm_programs_runs_everything_and_one_without_what_tells_the_difference() {
        assert_eq!(plan("kernel_live", None, Boot::WithLsm).as_deref(), Some("watchdog-kernel_live 1200 \n"));
        assert_eq!(plan("kernel_live", None, Boot::WithoutLsm).as_deref(), Some("watchdog-kernel_live 1200 gate\n"));
        assert_eq!(plan("other", None, Boot::WithLsm).as_deref(), Some("watchdog-other 1200 \n"));
        assert_eq!(plan("other", None, Boot::WithoutLsm), None);
        assert_eq!(plan("gate", None, Boot::WithoutLsm).as_deref(), Some("watchdog-gate 1200 \n"));
    }

    #[test]
    fn the_installed_daemon_has_a_guest_to_itself() {
        assert_eq!(plan(SYSTEMD_BINARY, None, Boot::Systemd).as_deref(), Some("watchdog-systemd_unit 1200 \n"));
        for boot in [Boot::WithLsm, Boot::WithoutLsm] {
            assert_eq!(plan(SYSTEMD_BINARY, None, boot), None);
        }
        assert_eq!(plan("other", None, Boot::Systemd), None);
    }

    #[test]
    fn of_the_library_what_talks_to_the_kernel_is_tested() {
        let library = |filter| {
            let (package, name) = ("watchdog".to_owned(), "watchdog".to_owned());
            let executable = Executable { package, name, kind: Kind::LibraryTests, path: PathBuf::new() };
            select(executable, filter).and_then(|test| test.plan(Boot::WithLsm))
        };
        assert_eq!(library(None).as_deref(), Some("watchdog-watchdog 1200 kernel:: host::cgroup\n"));
        assert_eq!(library(Some("gate")).as_deref(), Some("watchdog-watchdog 1200 gate\n"));
    }

    #[test]
    fn a_filter_holds_in_both_and_a_guest_that_has_nothing_to_run_is_not_booted() {
        let narrow = Some("watchdog-kernel_live 1200 gate::a_fork\n");
        for boot in [Boot::WithLsm, Boot::WithoutLsm] {
            assert_eq!(plan("kernel_live", Some("gate::a_fork"), boot).as_deref(), narrow);
        }
        assert_eq!(plan("kernel_live", Some("lineage"), Boot::WithoutLsm), None);
    }
}
