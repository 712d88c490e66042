//! The daemon. All of it is in [`watchdog::daemon`].

use std::process::ExitCode;

use clap::Parser;
use watchdog::daemon::{Options, run};

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("watchdogd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
