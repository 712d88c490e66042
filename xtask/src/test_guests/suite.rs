//! Which tests run in a guest, and how they are built.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::debian::Kernel;
use super::guest::{Boot, Guest};
use super::initramfs::Contents;
use crate::cargo::{Executable, Kind, cargo, executables};
use crate::output::output;

/// Integration tests that do not run in guests, and why. An emulated processor would run most of them for minutes.
const NOT_IN_GUESTS: &[(&[&str], &str)] = &[
    (&["real_programs", "heap", "agents"], "they need node, npm or a network"),
    (
        &["watchdogctl", "launch", "packaging", "recordings"],
        "they start no daemon, and load no program into the kernel",
    ),
    (
        &["contract", "daemon", "floods", "history", "hostile_clients", "recording", "users"],
        "they are about sockets, files and HTTP",
    ),
    (
        &["kept", "leaks", "many", "act_spares"],
        "they are about verdicts of the engine, which takes the same input from every kernel",
    ),
    (&["stage"], "it tests the harness"),
];

/// Integration tests that run on one kernel only: what they do to processes and cgroups has been the same since 5.10, and no
/// program in the kernel takes part.
const ON_ONE_KERNEL: &[&str] = &["act", "act_written_down", "reap", "small_machine", "throttle"];

/// The kernel that [`ON_ONE_KERNEL`] is about, and the guests without LSM programs and with systemd.
pub(crate) const ONE_KERNEL: Kernel = Kernel::V6_12;

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
    /// It runs on [`ONE_KERNEL`] only.
    one_kernel: bool,
}

impl Test {
    /// Its line of the plan of this guest, if it is part of it.
    pub(crate) fn plan(&self, kernel: Kernel, boot: Boot) -> Option<String> {
        let Self { name, executable, arguments, one_kernel } = self;
        let elsewhere = kernel != ONE_KERNEL && (*one_kernel || boot != Boot::WithLsm);
        if elsewhere || (executable.name == SYSTEMD_BINARY) != (boot == Boot::Systemd) {
            return None;
        }
        let arguments = match boot {
            Boot::WithLsm | Boot::Systemd => arguments.join(" "),
            Boot::WithoutLsm if executable.name == LSM_BINARY => arguments.join(" "),
            Boot::WithoutLsm if executable.name == LSM_TESTS.0 => match &arguments[..] {
                [] => LSM_TESTS.1.to_owned(),
                [exact, names @ ..] => {
                    let names: Vec<&str> =
                        names.iter().map(String::as_str).filter(|name| name.contains(LSM_TESTS.1)).collect();
                    (!names.is_empty()).then(|| format!("{exact} {}", names.join(" ")))?
                }
            },
            Boot::WithoutLsm => return None,
        };
        Some(format!("{name} {TIMEOUT_SECONDS} {arguments}\n"))
    }
}

impl Suite {
    /// Whether this guest has anything to run.
    pub(crate) fn is_for(&self, kernel: Kernel, boot: Boot) -> bool {
        self.tests.iter().any(|test| test.plan(kernel, boot).is_some())
    }

    /// What of it goes into these guests, which have no systemd.
    pub(crate) fn contents(&self, guests: &[(Kernel, Boot)]) -> Contents<'_> {
        let Self { tests, programs } = self;
        let plan = |(kernel, boot)| tests.iter().filter_map(|test| test.plan(kernel, boot)).collect::<String>();
        let plans = guests.iter().map(|&(kernel, boot)| (plan_of(kernel, boot), plan((kernel, boot)))).collect();
        let planned =
            tests.iter().filter(|test| guests.iter().any(|(kernel, boot)| test.plan(*kernel, *boot).is_some()));
        let tests = planned.map(|test| (test.name.as_str(), test.executable.path.as_path())).collect();
        Contents { programs, tests, plans, files: Vec::new() }
    }
}

/// What a guest runs: the name of a plan, which is a file in its `/guest`, or a target of systemd.
pub(crate) fn plan_of(kernel: Kernel, boot: Boot) -> String {
    match boot {
        Boot::WithLsm | Boot::WithoutLsm => format!("plan-{}", Guest::name_of(kernel, boot)),
        Boot::Systemd => "multi-user.target".to_owned(),
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
    let tests: &[&str] = if boots == [Boot::Systemd] { &["--test", SYSTEMD_BINARY] } else { &["--tests"] };
    // Together: tests enable other features of the dependencies, and a build of the programs alone would compile all twice.
    let built = cargo_static(target, &[&["build", "--bins"], tests].concat())?;
    let (programs, built): (Vec<_>, Vec<_>) = built.into_iter().partition(|it| it.kind == Kind::Program);
    let mut tests = Vec::new();
    for executable in built {
        tests.extend(select(executable, filter, list)?);
    }
    tests.sort_by(|one, other| one.name.cmp(&other.name));
    ensure!(!tests.is_empty(), "the guests run no test with this name");
    Ok(Suite { tests, programs })
}

/// The names of a binary's tests that any of these filters lets through. A static binary runs here as in the guest.
fn list(binary: &Path, filters: &[&str]) -> Result<Vec<String>> {
    let text = output(Command::new(binary).args(["--list", "--format", "terse"]).args(filters))?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Whether, and with what, a binary runs in the guests. A filter narrows what runs there: it adds nothing.
fn select(
    executable: Executable,
    filter: Option<&str>,
    list: impl Fn(&Path, &[&str]) -> Result<Vec<String>>,
) -> Result<Option<Test>> {
    let of_guests = |name: &str| !NOT_IN_GUESTS.iter().any(|(names, _)| names.contains(&name));
    let filters = match executable.kind {
        Kind::LibraryTests if executable.package == "watchdog" => LIBRARY_FILTER,
        Kind::IntegrationTests if of_guests(&executable.name) => &[],
        Kind::LibraryTests | Kind::IntegrationTests | Kind::Program | Kind::ProgramTests => return Ok(None),
    };
    let arguments: Vec<String> = match filter {
        None => filters.iter().map(|&filter| filter.to_owned()).collect(),
        Some(filter) => {
            let mut names = list(&executable.path, filters)?;
            names.retain(|name| name.contains(filter));
            if names.is_empty() {
                return Ok(None);
            }
            std::iter::once("--exact".to_owned()).chain(names).collect()
        }
    };
    let one_kernel = filter.is_none() && ON_ONE_KERNEL.contains(&executable.name.as_str());
    Ok(Some(Test { name: format!("{}-{}", executable.package, executable.name), executable, arguments, one_kernel }))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Stands in for the binary.
    fn listed(_: &Path, filters: &[&str]) -> Result<Vec<String>> {
        let names = ["engine::gate::a", "gate::a_fork", "kernel::decode::gate", "lineage::b"];
        let passes = |name: &&str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
        Ok(names.into_iter().filter(passes).map(str::to_owned).collect())
    }

    fn plan_of_kind(kind: Kind, name: &str, filter: Option<&str>, kernel: Kernel, boot: Boot) -> Option<String> {
        let executable =
            Executable { package: "watchdog".to_owned(), name: name.to_owned(), kind, path: PathBuf::new() };
        select(executable, filter, listed).unwrap().and_then(|test| test.plan(kernel, boot))
    }

    fn plan(name: &str, filter: Option<&str>, boot: Boot) -> Option<String> {
        plan_of_kind(Kind::IntegrationTests, name, filter, ONE_KERNEL, boot)
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
    fn other_kernels_run_what_depends_on_them() {
        let on_sid = |name, filter, boot| plan_of_kind(Kind::IntegrationTests, name, filter, Kernel::Sid, boot);
        assert!(on_sid("kernel_live", None, Boot::WithLsm).is_some());
        assert!(on_sid("kernel_live", None, Boot::WithoutLsm).is_none());
        assert!(on_sid(SYSTEMD_BINARY, None, Boot::Systemd).is_none());
        assert!(on_sid("reap", None, Boot::WithLsm).is_none());
        assert!(on_sid("reap", Some("lineage"), Boot::WithLsm).is_some(), "it was asked for");
    }

    #[test]
    fn of_the_library_what_talks_to_the_kernel_is_tested() {
        let library = |filter| plan_of_kind(Kind::LibraryTests, "watchdog", filter, ONE_KERNEL, Boot::WithLsm);
        assert_eq!(library(None).as_deref(), Some("watchdog-watchdog 1200 kernel:: host::cgroup\n"));
        let narrow = "watchdog-watchdog 1200 --exact kernel::decode::gate\n";
        assert_eq!(library(Some("gate")).as_deref(), Some(narrow), "and of the engine nothing");
        assert_eq!(library(Some("engine")), None);
    }

    #[test]
    fn a_filter_holds_in_both_and_a_guest_that_has_nothing_to_run_is_not_booted() {
        let narrow = Some("watchdog-kernel_live 1200 --exact gate::a_fork\n");
        for boot in [Boot::WithLsm, Boot::WithoutLsm] {
            assert_eq!(plan("kernel_live", Some("gate::a_fork"), boot).as_deref(), narrow);
        }
        assert_eq!(plan("kernel_live", Some("lineage"), Boot::WithoutLsm), None);
        assert_eq!(plan("other", Some("nothing"), Boot::WithLsm), None);
    }
}
