//! The daemon. All of it is in [`watchdog_daemon`].

use std::process::ExitCode;

use clap::Parser;
use watchdog_daemon::{WatchdogdOptions, run};

fn main() -> ExitCode {
    match run(&WatchdogdOptions::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("watchdogd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
