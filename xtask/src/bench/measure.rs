//! Runs the benches that were asked for, and prints all their figures in one table at the end.

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::figures::Figures;
use super::stage::Stage;
use super::{Name, Options, close_watch, gate, idle, latency, overhead, programs, soak, storm};
use crate::machine;

/// Measures.
///
/// # Errors
/// When something cannot be measured; a goal that is missed is no error.
pub(crate) fn measure(Options { names, quick, minutes }: &Options) -> Result<()> {
    println!("{}", machine::description());
    let stage = Stage::build()?;
    let mut figures = Figures::default();
    for name in Name::value_variants().iter().filter(|name| names.is_empty() || names.contains(name)) {
        println!();
        let (stage, quick, figures) = (&stage, *quick, &mut figures);
        let measured = match name {
            Name::Overhead => overhead::run(stage, quick, figures),
            Name::CloseWatch => close_watch::run(stage, quick, figures),
            Name::Programs => programs::run(stage, quick, figures),
            Name::Idle => idle::run(stage, quick, figures),
            Name::Storm => storm::run(stage, quick, figures),
            Name::Latency => latency::run(stage, quick, figures),
            Name::Gate => gate::run(stage, quick, figures),
            Name::Soak => soak::run(stage, *minutes, figures),
        };
        measured.with_context(|| format!("measuring {name:?}"))?;
    }
    println!("\n{figures}");
    Ok(())
}
