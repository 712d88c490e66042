//! `cargo xtask test-guests`: the kernel-facing tests on kernels other than the running one.
//!
//! Debian's kernel, an initramfs with busybox and statically linked tests, QEMU without acceleration: guests run the same on
//! a laptop and on a CI machine without KVM. `tests/src/bin/guest-init.rs` is PID 1 of a guest.

pub(crate) mod debian;
mod dpkg;
pub(crate) mod guest;
mod guest_tests;
pub(crate) mod initramfs;
pub(crate) mod modules;
mod packages;
mod python;
pub(crate) mod suite;
mod systemd;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;

use crate::dist::Architecture;
use crate::test_totals::Totals;
use crate::workers::in_parallel;
use debian::Kernel;
use guest::{Boot, Guest};
use suite::{GuestScope, Suite};
use xtask::cargo::target_directory;
use xtask::host_info::processors;

/// `cargo xtask test-guests [--kernel SERIES] [--boot HOW] [--keep] [FILTER]`
#[derive(clap::Args)]
pub(crate) struct GuestOptions {
    /// Only this kernel; may be given more than once.
    #[arg(long = "kernel", value_enum, value_name = "SERIES")]
    kernels: Vec<Kernel>,
    /// The release check: also 5.10 and arm64, and each test on each kernel.
    #[arg(long, conflicts_with = "kernels")]
    all: bool,
    /// Only guests with this kind of boot; may be given more than once.
    #[arg(long = "boot", value_enum, value_name = "HOW")]
    boots: Vec<Boot>,
    /// Keep the root file system and the initramfs, and print the command that boots them.
    #[arg(long)]
    keep: bool,
    /// Fetch the kernels and build the tests without booting a guest.
    #[arg(long)]
    build_only: bool,
    /// Seconds per guest.
    #[arg(long, default_value = "2400")]
    timeout: u64,
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// Boots the guests in parallel and prints the totals of each.
///
/// # Errors
/// When something that the guests need is missing. A failing guest counts as a failed test.
pub(crate) fn run(options: &GuestOptions) -> Result<ExitCode> {
    let GuestOptions { kernels, all, boots, keep, build_only, timeout, filter } = options;
    ensure!(cfg!(target_arch = "x86_64"), "guests are x86-64 and can only be built on x86-64");
    let started = Instant::now();
    let kernels = match &kernels[..] {
        [] if *all => Kernel::value_variants(),
        [] => &Kernel::DEFAULT,
        kernels => kernels,
    };
    let boots = match (&boots[..], filter) {
        ([], None) => Boot::value_variants(),
        // A guest without tests fails, and a filter rarely matches those of systemd.
        ([], Some(_)) => &[Boot::WithLsm, Boot::WithoutLsm],
        (boots, _) => boots,
    };
    let work = target_directory().join("guests");
    // Kernels first: a missing network fails before the long build.
    let images: Vec<PathBuf> = kernels.iter().map(|kernel| kernel.image(&work)).collect::<Result<_>>()?;
    let scope = if *all { GuestScope::ReleaseCheck } else { GuestScope::Usual };
    let suites = Suites::build(kernels, boots, filter.as_deref(), scope, &work.join("build"))?;
    println!("the tests of the guests are ready after {:.0?}", started.elapsed());
    if *build_only {
        return Ok(ExitCode::SUCCESS);
    }

    let mut guests: Vec<Guest> = kernels
        .iter()
        .zip(images)
        .flat_map(|(kernel, image)| boots.iter().map(move |boot| (*kernel, image.clone(), *boot)))
        .filter(|(kernel, _, boot)| suites.of(*kernel).is_some_and(|suite| suite.is_for(*kernel, *boot)))
        .map(|(kernel, image, boot)| {
            let name = Guest::name_of(kernel, boot);
            let log = work.join(format!("{name}.log"));
            let (plan, timeout) = (suite::plan_of(kernel, boot), Duration::from_secs(*timeout));
            let initramfs = work.join(root_of(kernel, boot)).with_extension("initramfs");
            Guest { name, kernel, boot, plan, image, initramfs, log, timeout }
        })
        .collect();
    ensure!(!guests.is_empty(), "no test matches in these guests");
    // The longest first.
    guests.sort_by_key(|guest| (guest.boot != Boot::WithLsm, guest.kernel != guest_tests::ONE_KERNEL));
    // The guests of each root file system.
    let mut roots: BTreeMap<&str, Vec<(Kernel, Boot)>> = BTreeMap::new();
    for guest in &guests {
        roots.entry(root_of(guest.kernel, guest.boot)).or_default().push((guest.kernel, guest.boot));
    }
    for (name, guests) in &roots {
        let (root, image) = (work.join(name), work.join(name).with_extension("initramfs"));
        let Some(&(kernel, boot)) = guests.first() else { continue };
        let Some(suite) = suites.of(kernel) else { continue };
        let busybox = match kernel.architecture() {
            Architecture::Amd64 => None,
            foreign @ Architecture::Arm64 => Some(debian::busybox(&work, foreign)?),
        };
        match boot {
            Boot::WithLsm | Boot::WithoutLsm => {
                let mut contents = suite.contents(guests, busybox);
                for (kernel, _) in guests {
                    contents.files.extend(modules::files(&kernel.modules(&work))?);
                }
                initramfs::write(&contents, &root, &image)?;
            }
            Boot::Systemd | Boot::Package => systemd::write(suite, boot, &work, &root, &image)?,
        }
    }
    // One guest more at a time than there are processors: the two processors of a guest share one of the host's, and a
    // guest is idle for a fifth of its time.
    let outcomes = in_parallel(&guests, processors() + 1, |guest| guest.run(|_| {}));

    let mut sum = Totals::default();
    for (guest, outcome) in guests.iter().zip(outcomes) {
        let outcome = outcome.with_context(|| format!("guest {}", guest.name))?;
        sum += outcome.report(guest);
    }
    if *keep {
        for guest in &guests {
            println!("to boot {} again: {:?}", guest.name, guest.command());
        }
    } else {
        for root in roots.keys().map(|name| work.join(name)) {
            let image = root.with_extension("initramfs");
            std::fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
            std::fs::remove_file(&image).with_context(|| format!("removing {}", image.display()))?;
        }
    }
    let Totals { passed, failed, .. } = sum;
    println!("guests: {passed} passed, {failed} failed in {} guests in {:.0?}", guests.len(), started.elapsed());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The tests for each architecture that has a guest.
struct Suites {
    amd64: Option<Suite>,
    arm64: Option<Suite>,
}

impl Suites {
    fn build(
        kernels: &[Kernel],
        boots: &[Boot],
        filter: Option<&str>,
        scope: GuestScope,
        target: &Path,
    ) -> Result<Self> {
        let has = |architecture| kernels.iter().any(|kernel| kernel.architecture() == architecture);
        let amd64 = has(Architecture::Amd64).then(|| suite::build(target, boots, filter, scope)).transpose()?;
        let arm64 = has(Architecture::Arm64).then(|| suite::build_arm64(target, filter)).transpose()?;
        Ok(Self { amd64, arm64 })
    }

    fn of(&self, kernel: Kernel) -> Option<&Suite> {
        match kernel.architecture() {
            Architecture::Amd64 => self.amd64.as_ref(),
            Architecture::Arm64 => self.arm64.as_ref(),
        }
    }
}

/// The directory of the root file system; with another extension its initramfs.
fn root_of(kernel: Kernel, boot: Boot) -> &'static str {
    match boot {
        Boot::WithLsm | Boot::WithoutLsm if kernel.architecture() == Architecture::Arm64 => "root-arm64",
        Boot::WithLsm | Boot::WithoutLsm => "root",
        Boot::Systemd => "root-systemd",
        Boot::Package => "root-package",
    }
}
