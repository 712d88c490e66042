//! Runs the selected benchmarks, and prints all figures in one table at the end.

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::figures::Figures;
use super::stage::BenchStage;
use super::{
    MeasureOptions, Name, attached, close_watch, fleet, gate, idle, latency, overhead, programs, reclaim, soak, storm,
};
use xtask::host_info;

/// Runs the selected benchmarks.
///
/// # Errors
/// When something cannot be measured; a missed goal is not an error.
pub(crate) fn measure(MeasureOptions { names, quick, against, minutes }: &MeasureOptions) -> Result<()> {
    println!("{}", host_info::description());
    let stage = BenchStage::build()?;
    let mut figures = Figures::default();
    for name in Name::value_variants().iter().filter(|name| names.is_empty() || names.contains(name)) {
        println!();
        let (stage, quick, figures) = (&stage, *quick, &mut figures);
        let measured = match name {
            Name::Overhead => overhead::run(stage, quick, figures),
            Name::CloseWatch => close_watch::run(stage, quick, figures),
            Name::Programs => programs::run(stage, quick, figures),
            Name::Idle => idle::run(stage, quick, figures),
            Name::Attached => attached::run(stage, quick, against.as_deref(), figures),
            Name::Storm => storm::run(stage, quick, figures),
            Name::Latency => latency::run(stage, quick, figures),
            Name::Gate => gate::run(stage, quick, figures),
            Name::Reclaim => reclaim::run(quick, figures),
            Name::Refault => reclaim::refault::run(stage, quick, figures),
            Name::Fleet => fleet::run(stage, quick, figures),
            Name::Soak => soak::run(stage, *minutes, figures),
        };
        measured.with_context(|| format!("measuring {name:?}"))?;
    }
    println!("\n{figures}");
    Ok(())
}
