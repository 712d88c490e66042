//! `cargo xtask test-guests`: the kernel-facing tests on kernels other than the running one.
//!
//! Debian's kernel, an initramfs of busybox and the statically linked tests, QEMU without acceleration: what runs on a
//! laptop runs the same on a CI machine that has no KVM. `tests/src/bin/guest-init.rs` is the guest's side.

pub(crate) mod debian;
pub(crate) mod guest;
pub(crate) mod initramfs;
mod python;
pub(crate) mod suite;
mod systemd;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum as _;

use crate::cargo::target_directory;
use crate::totals::Totals;
use debian::Kernel;
use guest::{Boot, Guest, Outcome};

/// `cargo xtask test-guests [--kernel SERIES] [--boot HOW] [--keep] [FILTER]`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this kernel; may be given more than once.
    #[arg(long = "kernel", value_enum, value_name = "SERIES")]
    kernels: Vec<Kernel>,
    /// Only guests that are booted so; may be given more than once.
    #[arg(long = "boot", value_enum, value_name = "HOW")]
    boots: Vec<Boot>,
    /// Keep the root file system and the initramfs, and print how to boot it again.
    #[arg(long)]
    keep: bool,
    /// Fetch the kernels and build the tests, and boot no guest.
    #[arg(long)]
    build_only: bool,
    /// How long a guest may take, in seconds.
    #[arg(long, default_value = "2400")]
    timeout: u64,
    /// Only tests whose name contains this.
    filter: Option<String>,
}

/// Boots the guests side by side and prints the totals of each.
///
/// # Errors
/// When something that the guests need is missing. A guest that fails is not an error but a failed test.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let Options { kernels, boots, keep, build_only, timeout, filter } = options;
    ensure!(cfg!(target_arch = "x86_64"), "the guests are x86-64, and are only built for on x86-64");
    let started = Instant::now();
    let kernels = if kernels.is_empty() { Kernel::value_variants() } else { kernels.as_slice() };
    let boots = match (&boots[..], filter) {
        ([], None) => Boot::value_variants(),
        // A guest that runs no test has failed, and the few of systemd's are hardly meant.
        ([], Some(_)) => &[Boot::WithLsm, Boot::WithoutLsm],
        (boots, _) => boots,
    };
    let work = target_directory().join("guests");
    // Kernels first: a missing network shows before the long build.
    let images: Vec<PathBuf> = kernels.iter().map(|kernel| kernel.image(&work)).collect::<Result<_>>()?;
    let suite = suite::build(&work.join("build"), boots, filter.as_deref())?;
    println!("{} test binaries for the guests, ready after {:.0?}", suite.tests.len(), started.elapsed());
    if *build_only {
        return Ok(ExitCode::SUCCESS);
    }

    let mut guests: Vec<Guest> = kernels
        .iter()
        .zip(images)
        .flat_map(|(kernel, image)| boots.iter().map(move |boot| (*kernel, image.clone(), *boot)))
        .filter(|(kernel, _, boot)| suite.is_for(*kernel, *boot))
        .map(|(kernel, image, boot)| {
            let name = Guest::name_of(kernel, boot);
            let log = work.join(format!("{name}.log"));
            let (plan, timeout) = (suite::plan_of(kernel, boot), Duration::from_secs(*timeout));
            let initramfs = work.join(root_of(boot)).with_extension("initramfs");
            Guest { name, kernel, boot, plan, image, initramfs, log, timeout }
        })
        .collect();
    ensure!(!guests.is_empty(), "no guest has anything to run");
    // The longest first: those that run everything, and of these the kernel that runs most.
    guests.sort_by_key(|guest| (guest.boot != Boot::WithLsm, guest.kernel != suite::ONE_KERNEL));
    let plain = guests.iter().map(|guest| (guest.kernel, guest.boot)).filter(|(_, boot)| *boot != Boot::Systemd);
    let plain: Vec<(Kernel, Boot)> = plain.collect();
    let roots: BTreeMap<&str, Boot> = guests.iter().map(|guest| (root_of(guest.boot), guest.boot)).collect();
    for (name, boot) in &roots {
        let (root, image) = (work.join(name), work.join(name).with_extension("initramfs"));
        match boot {
            Boot::WithLsm | Boot::WithoutLsm => initramfs::write(&suite.contents(&plain), &root, &image)?,
            Boot::Systemd => systemd::write(&suite, &work, &root, &image)?,
        }
    }
    let outcomes = run_all(&guests);

    let mut sum = Totals::default();
    for (guest, outcome) in guests.iter().zip(outcomes) {
        let outcome = outcome.with_context(|| format!("guest {}", guest.name))?;
        sum += outcome.report(guest);
    }
    if *keep {
        for guest in &guests {
            println!("boot {} again: {:?}", guest.name, guest.command());
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

/// Runs the guests, as many at a time as there are processors: the two of a guest take turns on one of the host's.
fn run_all(guests: &[Guest]) -> Vec<Result<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(guest) = guests.get(at) else { return done };
            done.push((at, guest.run(|_| {})));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let mut outcomes: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors.min(guests.len())).map(|_| scope.spawn(work)).collect();
        let join = |worker: ScopedJoinHandle<'_, _>| worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        workers.into_iter().flat_map(join).collect()
    });
    outcomes.sort_by_key(|(at, _)| *at);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The root file system of guests that are booted so: its directory, and with another ending its initramfs.
fn root_of(boot: Boot) -> &'static str {
    match boot {
        Boot::WithLsm | Boot::WithoutLsm => "root",
        Boot::Systemd => "root-systemd",
    }
}
