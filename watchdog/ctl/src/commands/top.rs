use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::CtlError;
use crate::output::CommandOutput;
use watchdog_api::client::ControlClient;
use watchdog_top::{TopError, TopOptions};

pub(crate) const HELP: &str = "\
Sessions are trees of processes; a folded row shows the sum below it. Press ? for all keys: sort, filter, search, fold,
explain, reap, end, adopt, thaw, page out. An action shows its targets, asks, and then shows the receipt. Press h for the
history and @ for a time of it, such as \"yesterday 03:00\", and F for the hosts of the fleet. While the daemon is away, the
last state stays on the screen.

Sizes on narrow screens are short: 812M is 812 MiB. /MIN is the growth per minute over the last minute. Bytes count as in
`tree`: anonymous, shared and swapped memory. PEAK is the highest resident set of a process, and the highest memory of a
session.

Examples:
  watchdogctl top
  watchdogctl top --replay night.rec";

pub(crate) fn run(
    client: ControlClient,
    replay: Option<PathBuf>,
    output: &CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    if output.json {
        return Err(CtlError::Usage("`top` has no JSON; use `watchdogctl tree --json`".into()));
    }
    let options = TopOptions { client, replay, colour: output.terminal.colour };
    watchdog_top::run(options).map_err(|error| match error {
        TopError::NoTerminal | TopError::DumbTerminal => CtlError::Usage(error.to_string()),
        TopError::Recording { .. } | TopError::Terminal(_) => CtlError::Failed(error.to_string()),
    })
}
