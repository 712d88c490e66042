//! Common flow of `reap` and `end`: preview, ask once, act, wait for the result.

use std::io::{BufRead, IsTerminal, stdin, stdout};
use std::process::ExitCode;

use clap::Args;

use crate::error::CtlError;
use crate::output::{CommandOutput, print_error};
use crate::render::receipt;
use watchdog_api::client::{ConfirmedAction, ControlClient};
use watchdog_api::{ActionState, ActionTarget, Planned, Receipt, Spared};

const NOT_PERMITTED: u8 = 77;
const NO_CONSENT: &str = "stdin is not a terminal; use --yes to proceed or --dry-run to preview";

#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ActionFlags {
    /// Show the targets, the reason and the memory to be freed; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask; required unless stdin and stdout are terminals
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Do not wait for the result; `watchdogctl actions` shows it later
    #[arg(long)]
    pub(crate) no_wait: bool,
}

const fn nothing(action: &ConfirmedAction) -> &'static str {
    match action {
        ConfirmedAction::Reap(_) => "nothing to reap: no orphans\n",
        ConfirmedAction::End(_) | ConfirmedAction::EndKept(_) => "nothing to end: all processes have exited\n",
    }
}

fn is_interactive(output: &CommandOutput<'_>) -> bool {
    !output.json && stdin().is_terminal() && stdout().is_terminal()
}

pub(super) fn run(
    client: &ControlClient,
    action: &ConfirmedAction,
    flags: ActionFlags,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let mut input = is_interactive(output).then(|| stdin().lock());
    let input = input.as_mut().map(|input| input as &mut dyn BufRead);
    run_with(client, action, flags, input, output)
}

/// `input` answers the question; without it none is asked.
fn run_with(
    client: &ControlClient,
    action: &ConfirmedAction,
    flags: ActionFlags,
    input: Option<&mut dyn BufRead>,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    if flags.dry_run {
        let reply = action.request(client, true, None)?;
        output.show(&reply.text, |terminal| receipt::preview(&reply.document, nothing(action), terminal))?;
        return Ok(ExitCode::SUCCESS);
    }
    let expect = match input {
        _ if flags.yes => None,
        None => {
            // Consent does not help if the request fails.
            action.request(client, true, None)?;
            return Err(CtlError::Usage(NO_CONSENT.into()));
        }
        Some(input) => {
            let planned = action.request(client, true, None)?.document;
            output.text(&receipt::preview(&planned, nothing(action), &output.terminal))?;
            if planned.actions.is_empty() {
                return Ok(exit_code(planned.spared.is_empty()));
            }
            output.text(&receipt::question(&planned))?;
            if !is_confirmed(input) {
                output.text("cancelled; nothing was changed\n")?;
                return Ok(ExitCode::from(1));
            }
            Some(planned.shown())
        }
    };
    let asked = expect.is_some();
    let mut planned = action.request(client, false, expect)?.document;
    if !output.json && !flags.no_wait && !planned.actions.is_empty() {
        // Before the wait: `end` may terminate this process too, if it runs inside the session.
        output.text(&receipt::started(&planned))?;
    }
    if !flags.no_wait {
        client.wait_for_actions(&mut planned).inspect_err(|_| {
            for action in planned.actions.iter().filter(|action| !action.state.is_over()) {
                print_error(&format!("watchdogctl: action {} has started and continues\n", action.id));
            }
        })?;
    }
    planned.spared = all_spared(&planned);
    output.show_value(&planned, |terminal| {
        // The preview has shown targets.
        let none = if asked { "nothing was done: all targets have exited\n" } else { nothing(action) };
        receipt::outcomes(&planned, none, terminal)
    })?;
    let code = exit_code(is_success(&planned, !flags.no_wait));
    Ok(if is_denied(&planned) { ExitCode::from(NOT_PERMITTED) } else { code })
}

fn exit_code(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// All targets exited, or will when not waited for. Spared processes beside them are no failure; nothing but spared
/// processes is one.
fn is_success(planned: &Planned, waited: bool) -> bool {
    let complete = |receipt: &Receipt| {
        let dead = receipt.targets.iter().all(|target| target.died_at.is_some());
        dead && !matches!(receipt.state, ActionState::Incomplete | ActionState::CalledOff)
    };
    match planned.actions.as_slice() {
        [] => planned.spared.is_empty(),
        actions => !waited || actions.iter().all(complete),
    }
}

/// No process was signalled, and the kernel did not permit it for at least one.
fn is_denied(planned: &Planned) -> bool {
    let untouched = |target: &ActionTarget| target.sent.is_empty() && target.died_at.is_none();
    let over = |action: &Receipt| action.state.is_over() && action.targets.iter().all(untouched);
    planned.actions.iter().all(over) && planned.spared.iter().any(|spared| spared.not_permitted)
}

pub(super) fn is_confirmed(input: &mut dyn BufRead) -> bool {
    let mut answer = String::new();
    // An unreadable answer is no consent.
    input.read_line(&mut answer).is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// The processes spared before the action began, and those spared since.
fn all_spared(planned: &Planned) -> Vec<Spared> {
    let mut all = planned.spared.clone();
    for later in planned.actions.iter().flat_map(|action| &action.spared) {
        if !all.iter().any(|known| (known.pid, known.start_time) == (later.pid, later.start_time)) {
            all.push(later.clone());
        }
    }
    all
}

#[cfg(test)]
#[path = "confirm_tests.rs"]
mod tests;
