//! What a person or CI runs: `cargo xtask COMMAND`. One module a command.

mod bench;
mod build_ebpf;
mod cargo;
mod eval;
mod fuzz;
mod machine;
mod output;
mod privilege;
#[cfg(any(feature = "bench", feature = "eval"))]
mod quantile;
mod run;
mod scenarios;
mod test;
mod test_guests;
mod totals;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Commands of the agent-watchdog workspace", bin_name = "cargo xtask")]
enum Command {
    /// Build the daemon and run it on its built-in configuration, as root.
    Run(run::Options),
    /// Run all tests of the workspace against the running kernel, as root.
    Test(test::Options),
    /// Run the kernel-facing tests on other kernels, in emulated guests.
    TestGuests(test_guests::Options),
    /// Stage what kills the wrong process elsewhere, in an emulated guest, beside earlyoom and nohang.
    Scenarios(scenarios::Options),
    /// Build the kernel programs, or check that the committed object belongs to its sources.
    BuildEbpf(build_ebpf::Options),
    /// Run the fuzz targets for a while, on the stable toolchain.
    Fuzz(fuzz::Options),
    /// Measure what watching costs and how quick it is, on the running kernel, as root.
    Bench(bench::Options),
    /// Measure. For `bench`, which builds this program for it.
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchMeasure(bench::Options),
    /// Be a process that is measured. For `bench-measure`.
    #[cfg(feature = "bench")]
    #[command(hide = true)]
    BenchWorker(bench::worker::Options),
    /// See how well leaks are told from what healthy programs do, beside other rules.
    Eval(eval::Options),
    /// See it. For `eval`, which builds this program for it.
    #[cfg(feature = "eval")]
    #[command(hide = true)]
    EvalRun(eval::Options),
    /// Run a test binary as root, each of its tests with a time limit. For `test`, which has cargo call it.
    #[command(hide = true)]
    RunTest(test::runner::Options),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Run(options) => run::run(&options),
        Command::Test(options) => test::run(&options),
        Command::TestGuests(options) => test_guests::run(&options),
        Command::Scenarios(options) => scenarios::run(&options),
        Command::BuildEbpf(options) => build_ebpf::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Bench(options) => bench::run(&options),
        #[cfg(feature = "bench")]
        Command::BenchMeasure(options) => bench::measure(&options).map(|()| ExitCode::SUCCESS),
        #[cfg(feature = "bench")]
        Command::BenchWorker(options) => bench::worker::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Eval(options) => eval::run(&options),
        #[cfg(feature = "eval")]
        Command::EvalRun(options) => eval::evaluate(&options).map(|()| ExitCode::SUCCESS),
        Command::RunTest(options) => test::runner::run(&options),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
