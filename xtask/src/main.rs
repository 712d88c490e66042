//! What a person or CI runs: `cargo xtask COMMAND`. One module a command.

mod build_ebpf;

use clap::{Parser, Subcommand};

/// Commands of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Builds the kernel programs, or checks that the committed object belongs to its sources.
    BuildEbpf(build_ebpf::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::BuildEbpf(options) => build_ebpf::run(&options),
    }
}
