use std::process::ExitCode;

use clap::Args;
use clap_complete::ArgValueCandidates;

use super::confirm::{self, ActionFlags};
use crate::completion;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::target::{TargetArg, resolve_all};
use watchdog_api::client::{ConfirmedAction, ControlClient};

pub(crate) const HELP: &str = "\
The agent and all processes of its session receive SIGTERM, children before their parents, and SIGKILL after [actions]
kill_after. Kept processes are spared unless --kept is given; with --kept, a pid terminates that process and its
descendants. Users can terminate their own processes, and root can terminate all. A process that the user cannot signal
(see kill(2)) is spared; the exit code is 77 if nothing else could be done. To terminate only orphans, use `reap`.

Examples:
  watchdogctl end 3 --dry-run
  watchdogctl end 3
  watchdogctl end --kept pid:41231
  watchdogctl end 3 --yes --no-wait";

#[derive(Debug, Args)]
pub(crate) struct EndOptions {
    /// The session; with --kept also a pid, as in `adopt`
    #[arg(value_name = "SESSION", add = ArgValueCandidates::new(completion::targets))]
    target: TargetArg,
    /// Terminate kept processes too
    #[arg(long)]
    kept: bool,
    #[command(flatten)]
    flags: ActionFlags,
}

pub(crate) fn run(
    client: &ControlClient,
    options: &EndOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let action = match options.target {
        TargetArg::Session(id) if !options.kept => ConfirmedAction::End(id),
        TargetArg::Number(id) if !options.kept => ConfirmedAction::End(u64::from(id)),
        TargetArg::Pid(_) if !options.kept => {
            return Err(CtlError::Usage(
                "`end` expects a session, such as 3 or session:3; for a process use --kept, or `reap` for an orphan"
                    .into(),
            ));
        }
        target => {
            let subjects = resolve_all(client, &[target])?;
            let subject = subjects.first().copied();
            ConfirmedAction::EndKept(subject.ok_or_else(|| CtlError::Usage("missing session or process".into()))?)
        }
    };
    confirm::run(client, &action, options.flags, output)
}
