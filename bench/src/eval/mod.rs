//! `cargo xtask eval`: how well the leak detector separates leaks from healthy growth, beside other rules.
//!
//! The detector runs over every trace in `watchdog/fixtures/rss-traces`, and over made-up processes ([`generate`]): 10,000
//! healthy hours by default, and leaks from 20 MiB an hour to 50 MiB a minute. The same seed makes the same
//! processes. What it is compared with are rules that people use ([`baselines`]). [`evaluate`] runs them all, [`score`]
//! counts.
//!
//! It is built as the daemon is: the time that a sample takes is one of its figures.

mod baselines;
mod evaluate;
mod generate;
mod scales;
mod score;
mod shapes;

pub(crate) use evaluate::evaluate;

#[derive(clap::Args)]
pub(crate) struct EvalOptions {
    /// Healthy hours, over all families together.
    #[arg(long, default_value_t = 10_000)]
    hours: u32,
    /// Leaking processes of each family.
    #[arg(long, default_value_t = 400)]
    leaks: u32,
    /// Other numbers make other processes.
    #[arg(long, default_value_t = 1)]
    seed: u32,
}
