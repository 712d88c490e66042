//! `cargo xtask COMMAND`: commands for developers and CI. One module per command.

mod bench;
mod build_ebpf;
mod dist;
mod fuzz;
mod output;
mod programs;
mod run;
mod scenarios;
mod test;
mod test_guests;
mod test_totals;
mod workers;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(about = "Commands of the agent-watchdog workspace", bin_name = "cargo xtask")]
enum XtaskCommand {
    /// Build watchdogd and a static watchdogctl
    Build(programs::BuildOptions),
    /// Build the daemon and run it on its built-in configuration, as root.
    Run(run::RunOptions),
    /// Build packages, a tarball, checksums and an SBOM in target/dist
    Dist(dist::DistOptions),
    /// Run all tests of the workspace against the running kernel, as root.
    Test(test::TestOptions),
    /// Run the kernel-facing tests on other kernels, in emulated guests.
    TestGuests(test_guests::GuestOptions),
    /// Compare agent-watchdog with earlyoom and nohang in emulated guests.
    Scenarios(scenarios::ScenarioOptions),
    /// Build the kernel programs, or check that the committed object matches its sources.
    BuildEbpf(build_ebpf::BuildEbpfOptions),
    /// Run the fuzz targets on the stable toolchain.
    Fuzz(fuzz::FuzzOptions),
    /// Measure overhead and latency on the running kernel, as root.
    Bench(bench::BenchOptions),
    /// Score the leak detector against simpler rules.
    Eval(bench::BenchOptions),
    /// Run a test binary as root with a time limit per test (cargo's runner in `test`).
    #[command(hide = true)]
    RunTest(test::runner::RunnerOptions),
}

fn main() -> ExitCode {
    let result = match XtaskCommand::parse() {
        XtaskCommand::Build(options) => programs::run(&options),
        XtaskCommand::Run(options) => run::run(&options),
        XtaskCommand::Dist(options) => dist::run(&options),
        XtaskCommand::Test(options) => test::run(&options),
        XtaskCommand::TestGuests(options) => test_guests::run(&options),
        XtaskCommand::Scenarios(options) => scenarios::run(&options),
        XtaskCommand::BuildEbpf(options) => build_ebpf::run(&options).map(|()| ExitCode::SUCCESS),
        XtaskCommand::Fuzz(options) => fuzz::run(&options),
        XtaskCommand::Bench(options) => bench::bench(&options),
        XtaskCommand::Eval(options) => bench::eval(&options),
        XtaskCommand::RunTest(options) => test::runner::run(&options),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
