//! `watchdogctl`: the program of [`watchdog::ctl`].

use std::process::ExitCode;

fn main() -> ExitCode {
    watchdog::ctl::main()
}
