//! `watchdogctl`: the program of [`watchdog_ctl`].

use std::process::ExitCode;

fn main() -> ExitCode {
    watchdog_ctl::main()
}
