//! A hook must never break its agent: whatever fails, the exit code is 0 and the agent continues, with a note.

mod claude_code;
mod codex;
mod event;
mod gemini_cli;
mod hook_agent;
mod hook_event;
mod hook_install;
mod settings_edit;
mod undo_record;

use std::io::{IsTerminal, stdin};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

pub(crate) use self::hook_agent::{HookAgent, environment};
use self::hook_event::HookEvent;
use self::hook_install::HookTarget;
pub(crate) use self::hook_install::is_installed;
use crate::error::CtlError;
use crate::output::{CommandOutput, print_error};
use crate::render::escape;
use watchdog_api::client::{ClientError, ControlClient};
use watchdog_api::{SubagentAnswer, SubagentCall};

/// Limit of the delay that an unresponsive daemon causes the agent.
const TIMEOUT: Duration = Duration::from_millis(200);

pub(crate) const HELP: &str = "\
Before a subagent starts, the hook asks the gate. If the gate refuses, the agent receives the reason and when to retry.
Otherwise the hook prints nothing, so that the agent's own permission rules apply. At the end of a subagent and of the
session, the hook notifies the daemon. Without a daemon, or with an invalid event, the agent continues. The exit code is
always 0.

In Gemini CLI every call of a tool that the matcher accepts counts as a subagent. Versions without the tool invoke_agent
need the names of your own subagents there.

Examples:
  watchdogctl hook install claude-code
  watchdogctl hook gemini-cli --print-settings";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct HookOptions {
    #[command(subcommand)]
    command: Option<HookCommand>,
    /// The agent that runs the hook
    #[arg(required = true)]
    agent: Option<HookAgent>,
    /// Print the settings to merge into the agent's settings file, and exit
    #[arg(long)]
    print_settings: bool,
}

#[derive(Debug, Subcommand)]
enum HookCommand {
    /// Install the hook in an agent's settings; shows the change and asks first
    #[command(after_help = "\
Settings, comments and the order of keys are kept. A second installation changes nothing. Settings that are not valid are
refused and left alone. Claude Code: ~/.claude/settings.json; Codex: ~/.codex/hooks.json; Gemini CLI:
~/.gemini/settings.json; with --project the same files below the current directory.

Examples:
  watchdogctl hook install claude-code
  watchdogctl hook install codex --project --dry-run")]
    Install(HookTarget),
    /// Remove the hook from an agent's settings; shows the change and asks first
    #[command(after_help = "\
If the settings have not changed since the installation, the file becomes what it was, to the byte. Otherwise only the
hook is removed.

Example:
  watchdogctl hook uninstall claude-code")]
    Uninstall(HookTarget),
}

pub(crate) fn run(
    client: ControlClient,
    options: &HookOptions,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    match (&options.command, options.agent) {
        (Some(HookCommand::Install(target)), _) => hook_install::install(target, output),
        (Some(HookCommand::Uninstall(target)), _) => hook_install::uninstall(target, output),
        (None, Some(agent)) => handle(client, agent, options.print_settings, output).map(|()| ExitCode::SUCCESS),
        (None, None) => Err(CtlError::Usage("missing agent".into())),
    }
}

fn handle(
    client: ControlClient,
    agent: HookAgent,
    print_settings: bool,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    if print_settings {
        return output.line(&serde_json::to_string_pretty(&agent.settings("watchdogctl"))?);
    }
    if stdin().is_terminal() {
        return output.text(&installation(agent));
    }
    // If the output cannot be written, nothing can be reported either.
    if let Some(response) = respond(&client.with_timeout(TIMEOUT), agent) {
        let _ = output.line(&response.to_string());
    }
    Ok(())
}

/// For a user who runs the hook on a terminal.
fn installation(agent: HookAgent) -> String {
    let name = agent.name();
    format!(
        "The agent runs this command and sends an event on standard input.\n\
         To install it: watchdogctl hook install {name}\n\
         To print the settings only: watchdogctl hook {name} --print-settings\n"
    )
}

/// The output for the agent, if it needs any.
fn respond(client: &ControlClient, agent: HookAgent) -> Option<Value> {
    let event = match event::read(stdin().lock()) {
        Ok(event) => event,
        Err(problem) => {
            note(agent, &problem);
            return None;
        }
    };
    let (calls, is_request) = match agent.interpret(&event) {
        HookEvent::Ignored => return None,
        HookEvent::Request(call) => (vec![call], true),
        HookEvent::Notify(calls) => (calls, false),
    };
    match calls.iter().map(|call| send(client, call)).collect::<Result<Vec<_>, _>>() {
        Ok(answers) => {
            let refused = answers.iter().find(|answer| is_request && !answer.allowed)?;
            Some(agent.denial(&reason(refused)))
        }
        Err(error) => {
            let problem = format!("the gate was not asked: {}", CtlError::from(error).summary());
            note(agent, &problem);
            is_request.then(|| json!({ "systemMessage": format!("watchdogctl: {}", escape(&problem)) }))
        }
    }
}

fn send(client: &ControlClient, call: &SubagentCall) -> Result<SubagentAnswer, ClientError> {
    client.post("/v1/subagent", call).map(|reply| reply.document)
}

/// For the model to read.
fn reason(answer: &SubagentAnswer) -> String {
    match answer.retry_after_seconds {
        Some(seconds) if seconds.is_finite() => {
            format!("{}, try again in {} s", answer.detail, seconds.max(1.0).ceil())
        }
        _ => answer.detail.clone(),
    }
}

fn note(agent: HookAgent, problem: &str) {
    print_error(&format!("watchdogctl: hook {}: {}; the agent continues\n", agent.name(), escape(problem)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(retry_after_seconds: Option<f64>) -> SubagentAnswer {
        SubagentAnswer {
            allowed: false,
            reason: Some(watchdog_api::RefusalReason::Quota),
            detail: "3 of 3 subagents running, 1.2 GiB free".into(),
            running: 3,
            max_subagents: Some(3),
            retry_after_seconds,
            session: Some(1),
        }
    }

    #[test]
    fn reason_has_detail_and_retry() {
        assert_eq!(reason(&full(Some(39.5))), "3 of 3 subagents running, 1.2 GiB free, try again in 40 s");
        assert_eq!(reason(&full(Some(0.0))), "3 of 3 subagents running, 1.2 GiB free, try again in 1 s");
        assert_eq!(reason(&full(None)), "3 of 3 subagents running, 1.2 GiB free");
    }
}
