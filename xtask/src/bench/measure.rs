//! Runs the benches that were asked for, and prints all their figures in one table at the end.

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::figures::Figures;
use super::stage::Stage;
use super::{Name, Options, close_watch, gate, idle, latency, overhead, programs, storm};
use crate::machine;

/// Measures.
///
/// # Errors
/// When something cannot be measured; a goal that is missed is no error.
pub(crate) fn measure(Options { names, quick }: &Options) -> Result<()> {
    println!("{}", machine::description());
    let stage = Stage::build()?;
    let mut figures = Figures::default();
    for name in Name::value_variants().iter().filter(|name| names.is_empty() || names.contains(name)) {
        println!();
        let bench = match name {
            Name::Overhead => overhead::run,
            Name::CloseWatch => close_watch::run,
            Name::Programs => programs::run,
            Name::Idle => idle::run,
            Name::Storm => storm::run,
            Name::Latency => latency::run,
            Name::Gate => gate::run,
        };
        bench(&stage, *quick, &mut figures).with_context(|| format!("measuring {name:?}"))?;
    }
    println!("\n{figures}");
    Ok(())
}
