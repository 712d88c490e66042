use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Args;

use super::fleet_place::{self, PlacementNeeds};
use super::remote_command;
use crate::args::duration;
use crate::error::CtlError;
use crate::output::CommandOutput;
use watchdog_api::client::ControlClient;

pub(crate) const HELP: &str = "\
Reserves a slot on the host, then runs `watchdogctl launch` there over ssh, which uses that slot and executes CMD. HOST
is a name from `watchdogctl fleet`, or `auto` for the host that `fleet place` chooses. Set its address, user and key for
ssh under that name in ~/.ssh/config. If the host is this one, CMD is launched without ssh. CMD gets standard input and
output, and a terminal if there is one. On another host, CMD runs in the home directory. The exit code is that of CMD, 75
if there is no slot, or 255 if ssh fails.

Examples:
  watchdogctl fleet run auto --memory 2GiB -- claude -p 'fix it'
  watchdogctl fleet run build-1 -- sh -c 'cd src/app && claude -p \"run the tests\"'";

#[derive(Debug, Args)]
pub(crate) struct RemoteRunOptions {
    #[command(flatten)]
    needs: PlacementNeeds,
    /// Priority in the queue of that host, -100 to 100
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-100..=100))]
    priority: Option<i32>,
    /// Fail after this time in the queue of that host, such as 30s or 5m
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
    /// A host of the fleet, or `auto`
    #[arg(value_name = "HOST|auto")]
    host: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Returns only if the launch could not be started.
pub(super) fn run(
    client: &ControlClient,
    options: &RemoteRunOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let named = (options.host != "auto").then_some(options.host.as_str());
    let (placement, _) = fleet_place::request(client, &options.needs, named)?;
    let (Some(host), Some(ticket)) = (placement.host, placement.ticket) else {
        return Err(CtlError::RefusedForNow(placement.detail));
    };
    // The name comes from the store. ssh would parse it as an option.
    if host.starts_with('-') {
        return Err(CtlError::Failed(format!("{host:?} is not a valid host name")));
    }
    let launch = launch_arguments(options, &ticket, output.json);
    let mut command = if placement.is_this_host {
        let own =
            std::env::current_exe().map_err(|error| CtlError::Failed(format!("cannot find this program: {error}")))?;
        let mut command = Command::new(own);
        command.arg("--socket").arg(client.socket()).args(launch);
        command
    } else {
        let mut command = Command::new("ssh");
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            command.arg("-t");
        }
        command.arg("--").arg(&host).arg(remote_command::line("watchdogctl", &launch));
        command
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let error = command.exec();
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => {
            CtlError::CommandNotFound(format!("{program}: not found; install an ssh client"))
        }
        _ => CtlError::NotExecutable(format!("cannot execute {program}: {error}")),
    })
}

/// The arguments of `watchdogctl` on the host.
fn launch_arguments(options: &RemoteRunOptions, ticket: &str, json: bool) -> Vec<OsString> {
    let PlacementNeeds { memory, label: _, profile } = &options.needs;
    let mut arguments: Vec<OsString> = if json { vec!["--json".into()] } else { Vec::new() };
    arguments.extend(["launch".into(), format!("--ticket={ticket}").into()]);
    arguments.extend(memory.map(|bytes| format!("--memory={bytes}B").into()));
    arguments.extend(profile.as_ref().map(|profile| format!("--profile={profile}").into()));
    arguments.extend(options.priority.map(|priority| format!("--priority={priority}").into()));
    arguments.extend(options.timeout.map(|timeout| format!("--timeout={}s", timeout.as_secs()).into()));
    arguments.push("--".into());
    arguments.extend(options.command.iter().cloned());
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_passed_on() {
        let options = RemoteRunOptions {
            needs: PlacementNeeds { memory: Some(1 << 30), label: vec!["gpu".into()], profile: Some("codex".into()) },
            priority: Some(-5),
            timeout: Some(Duration::from_secs(90)),
            host: "auto".into(),
            command: ["sh", "-c", "echo $HOME"].map(OsString::from).into(),
        };
        let expected = [
            "--json",
            "launch",
            "--ticket=t-1",
            "--memory=1073741824B",
            "--profile=codex",
            "--priority=-5",
            "--timeout=90s",
            "--",
            "sh",
            "-c",
            "echo $HOME",
        ];
        assert_eq!(launch_arguments(&options, "t-1", true), expected.map(OsString::from));
    }
}
