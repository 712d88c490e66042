//! `cargo xtask scenarios [NAME…]`: situations in which memory killers hit the wrong process, run with agent-watchdog and,
//! where applicable, with earlyoom and nohang, each on the same 2 GiB machine.
//!
//! Each scenario has its own guest, booted as in `test-guests`. There `tests/src/bin/scenario` runs it once per guard and
//! prints the outcome on the console; [`result`] parses that, [`table`] prints it. The numbers are from emulated
//! processors: machine and method are printed above the table.

mod peers;
mod result;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::test_guests::debian::Kernel;
use crate::test_guests::guest::{Boot, Guest};
use crate::test_guests::initramfs::{self, Contents};
use crate::test_guests::modules;
use crate::test_guests::suite;
use peers::Peers;
use result::RunReport;
use xtask::cargo::{BuiltBinary, target_directory};
use xtask::host_info;

/// `cargo xtask scenarios [NAME…]`
#[derive(clap::Args)]
pub(crate) struct ScenarioOptions {
    /// Scenarios to run [default: all].
    #[arg(ignore_case = true)]
    names: Vec<Scenario>,
    /// Only with this guard; may be given more than once.
    #[arg(long = "guard", value_enum, value_name = "GUARD")]
    guards: Vec<PeerGuard>,
}

/// The scenarios, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Four agents are killed and leave 80 helpers; a healthy agent, at oom_score_adj 200, then needs memory.
    A1,
    /// Twelve small helpers leak beside an unrelated process of 180 MiB.
    A2,
    /// A helper that ignores SIGTERM holds all but 7 % of the memory.
    A3,
    /// Victims exit between selection and signal, and their pids are reused at once.
    A7,
    /// A session thrashes below the memory.high of its cgroup, with most of the host's memory free.
    A9,
    /// The daemon is killed in the middle of a kill; with a read-only state directory; with hidepid=2.
    A11,
    /// A helper moves to another cgroup; a stranger sends SIGTERM.
    A12,
    /// Idle agents are started until one has to wait for memory or is killed, with compressed swap.
    R1,
    /// A launch needs as much memory as ten idle agents hold, with compressed swap.
    R2,
}

/// The memory killer of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerGuard {
    /// This project.
    #[value(name = "agent-watchdog")]
    Ours,
    /// earlyoom, as Debian configures it.
    Earlyoom,
    /// nohang, as Debian configures it.
    Nohang,
}

impl PeerGuard {
    /// In tables, and as an argument in the guest.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ours => "agent-watchdog",
            Self::Earlyoom => "earlyoom",
            Self::Nohang => "nohang",
        }
    }
}

impl Scenario {
    /// In tables, and as an argument in the guest.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::A1 => "A1",
            Self::A2 => "A2",
            Self::A3 => "A3",
            Self::A7 => "A7",
            Self::A9 => "A9",
            Self::A11 => "A11",
            Self::A12 => "A12",
            Self::R1 => "R1",
            Self::R2 => "R2",
        }
    }

    /// Guards that run it: others do not run what only agent-watchdog claims to do.
    fn guards(self) -> &'static [PeerGuard] {
        match self {
            Self::A1 | Self::A2 | Self::A3 | Self::A9 | Self::R1 | Self::R2 => {
                &[PeerGuard::Ours, PeerGuard::Earlyoom, PeerGuard::Nohang]
            }
            Self::A7 | Self::A11 | Self::A12 => &[PeerGuard::Ours],
        }
    }

    /// The situation and the winning condition.
    fn method(self) -> &'static str {
        match self {
            Self::A1 => {
                "4 agents x 20 helpers x 18 MiB, the agents killed at once; 20 s later a healthy agent (oom_score_adj 200, as its \
                 helper) takes 600 MiB. Ours has [orphans] grace 2s. Won: every orphan found within 1 s and ended, the \
                 healthy agent has its memory"
            }
            Self::A2 => {
                "12 helpers of one agent leak 5 MiB/s each beside a process of 180 MiB outside any session. Won: helpers \
                 died, and no other process. Times count from 12 % available"
            }
            Self::A3 => {
                "a helper that ignores SIGTERM takes memory until 7 % is available. Won: it is dead within kill_after (10 s) + \
                 1 s of the first SIGTERM. Times count from 12 % available"
            }
            Self::A7 => {
                "orphans are reaped by POST /v1/reap; each is killed, and its pid given to a process outside any session \
                 (clone3 with set_tid), after the daemon has chosen it and before a signal: the daemon is stopped for that \
                 moment. pid_max is low besides. Won: none of those other processes got a signal"
            }
            Self::A9 => {
                "3 helpers take 8 MiB/s each, for 60 s, in a cgroup with a memory.high of 96 MiB; most of the host's memory is \
                 free. nohang has psi_checking_enabled. Won: no process died"
            }
            Self::A11 => {
                "six orphans, of which three ignore SIGTERM; kill -9 of the daemon after the first SIGTERM, then a restart. Won: all \
                 exited, one receipt, no process had two SIGTERM. Again with a read-only state directory, and with hidepid=2"
            }
            Self::R1 => {
                "idle agents of 100 MiB each, which compress 3 to 1, are started one after another, with 3 GiB of zram; ours through \
                 the gate, with [reclaim] idle = 2s, and before that with mode = off. Won: no agent died, and twice as many \
                 as without reclaim started before one waited for 60 s"
            }
            Self::R2 => {
                "10 idle agents of 100 MiB, which compress 3 to 1; then a launch takes 1000 MiB, with 2 GiB of zram; ours through \
                 the gate, with [reclaim] idle = 2s, and before that with mode = off. Afterwards three agents, one after \
                 another, read all their memory: the slowest is the first answer. Won: no process died, and the launch has \
                 its memory (with mode = off it may wait)"
            }
            Self::A12 => {
                "a helper is moved to another cgroup, then its agent killed; another gets SIGTERM from a process of no session. \
                 Won: the first is still found, and explain names the sender of the second"
            }
        }
    }
}

/// The kernel: of the two that the tests run on, the newer.
const KERNEL: Kernel = Kernel::V6_12;
/// Name of the scenario program in the guest.
const RUNNER: &str = "scenario";
/// Seconds per scenario and guard.
const TIMEOUT: u64 = 1_800;

/// Runs the scenarios one after the other, and prints the outcomes.
///
/// # Errors
/// When something that the guests need is missing. An unfinished scenario is lost, not an error.
pub(crate) fn run(ScenarioOptions { names, guards }: &ScenarioOptions) -> Result<ExitCode> {
    ensure!(cfg!(target_arch = "x86_64"), "guests are x86-64 and can only be built on x86-64");
    let started = Instant::now();
    let work = target_directory().join("guests");
    let image = KERNEL.image(&work)?;
    let peers = peers::fetch(&work.join("peers"))?;
    let programs = suite::programs(&work.join("build"))?;
    let names = if names.is_empty() { Scenario::value_variants() } else { names };
    let plan = |scenario: Scenario| {
        let all = scenario.guards().iter().copied();
        all.filter(|guard| guards.is_empty() || guards.contains(guard)).collect::<Vec<_>>()
    };
    let plans: Vec<(Scenario, Vec<PeerGuard>)> = names.iter().map(|name| (*name, plan(*name))).collect();
    let initramfs = write(&work, &programs, &peers, &plans)?;

    let machine = host_info::description();
    let mut reports = Vec::new();
    for (scenario, guards) in plans.iter().filter(|(_, guards)| !guards.is_empty()) {
        reports.extend(stage(*scenario, guards, &image, &initramfs, &work)?);
    }

    println!("\n{machine}");
    println!("guest:   2 processors emulated by QEMU (TCG), 2048 MiB, Linux {}", kernel(&reports));
    println!("peers:   {}", peers.versions.join(", "));
    for (scenario, _) in &plans {
        println!("{:<8} {}", format!("{}:", scenario.name()), scenario.method());
    }
    println!("\n{}", table::table(&reports));
    let lost = reports.iter().filter(|report| report.guard == PeerGuard::Ours.name() && !report.win).count();
    println!("agent-watchdog lost {lost} scenarios; {} runs in {:.0?}", reports.len(), started.elapsed());
    Ok(if lost == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Boots a scenario's guest and parses its reports.
fn stage(
    scenario: Scenario,
    guards: &[PeerGuard],
    image: &Path,
    initramfs: &Path,
    work: &Path,
) -> Result<Vec<RunReport>> {
    let name = format!("scenario-{}", scenario.name());
    let guest = Guest {
        kernel: KERNEL,
        boot: Boot::WithLsm,
        plan: scenario.name().to_owned(),
        image: image.to_owned(),
        initramfs: initramfs.to_owned(),
        log: work.join(format!("{name}.log")),
        timeout: Duration::from_secs(TIMEOUT * guards.len() as u64 + 120),
        name,
    };
    let mut reports = Vec::new();
    let outcome = guest.run(|line| reports.extend(RunReport::parse(line)));
    let outcome = outcome.with_context(|| format!("guest {}", guest.name))?;
    if let Some(reason) = outcome.unfinished() {
        println!("guest {}: {reason}; its console is in {}", guest.name, guest.log.display());
    }
    let came: Vec<String> = reports.iter().map(|report| report.guard.clone()).collect();
    let missing = guards.iter().filter(|guard| !came.iter().any(|came| came == guard.name()));
    reports.extend(missing.map(|guard| RunReport::missing(scenario.name(), guard.name())));
    Ok(reports)
}

/// The root file system with a plan per scenario.
fn write(
    work: &Path,
    programs: &[BuiltBinary],
    peers: &Peers,
    plans: &[(Scenario, Vec<PeerGuard>)],
) -> Result<PathBuf> {
    let runner = programs.iter().find(|program| program.name == RUNNER);
    let runner = runner.context("cargo did not build the scenario program")?;
    let line =
        |scenario: Scenario, guard: &PeerGuard| format!("{RUNNER} {TIMEOUT} {} {}\n", scenario.name(), guard.name());
    let plans = plans.iter().map(|(scenario, guards)| {
        let lines = guards.iter().map(|guard| line(*scenario, guard)).collect();
        (scenario.name().to_owned(), lines)
    });
    let modules = modules::files(&KERNEL.modules(work))?;
    let peers = peers.files.iter().map(|(name, file)| ((*name).to_owned(), file.clone()));
    let contents = Contents {
        programs,
        tests: vec![(RUNNER, &runner.path)],
        plans: plans.collect(),
        files: modules.into_iter().chain(peers).collect(),
        foreign_busybox: None,
    };
    let (root, initramfs) = (work.join("scenarios-root"), work.join("scenarios-initramfs"));
    initramfs::write(&contents, &root, &initramfs)?;
    std::fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    Ok(initramfs)
}

/// Kernel release of the guests.
fn kernel(reports: &[RunReport]) -> &str {
    reports.iter().map(|report| report.kernel.as_str()).find(|kernel| !kernel.is_empty()).unwrap_or(KERNEL.series())
}
