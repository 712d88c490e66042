//! `watchdogctl hook AGENT`: what an agent runs before and after its subagents. It asks the gate, and tells the daemon.
//!
//! A hook must never break its agent: whatever goes wrong, the exit code is 0 and the agent goes on, with a note.

mod claude_code;
mod event;
mod gemini_cli;

use std::io::{IsTerminal, stdin};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::client::Client;
use super::failure::Failure;
use super::output::{Output, complain};
use super::show::visible;
use crate::api::{SubagentAnswer, SubagentCall, SubagentEvent};

/// How long the agent is held up by a daemon that does not answer.
const PATIENCE: Duration = Duration::from_millis(200);

pub(super) const HELP: &str = "\
Before a subagent starts the gate is asked. If there is no room, the agent is told so, with the reason and when to try
again; otherwise nothing is said, so that the agent's own rules for permissions hold. After it, and at the end of the
session, the daemon is told. Without a daemon, or with an event that makes no sense, the agent goes on: the exit code is
always 0.

Claude Code: to be merged into ~/.claude/settings.json. Gemini CLI: into ~/.gemini/settings.json; every call of a tool
that the matcher lets through counts as a subagent, so name your own subagents there.

Examples:
  watchdogctl hook claude-code --print-settings
  watchdogctl hook gemini-cli --print-settings";

/// Whose hook it is.
#[derive(Debug, Args)]
pub(crate) struct Hook {
    /// The agent that runs it
    agent: Agent,
    /// Print what has to be merged into the agent's settings, and do nothing else
    #[arg(long)]
    print_settings: bool,
}

/// Agents whose documentation says how their hooks work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Agent {
    ClaudeCode,
    GeminiCli,
}

/// What an event means to the gate.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// Nothing.
    Nothing,
    /// A subagent is about to start.
    Asks(SubagentCall),
    /// Something has happened: in this order.
    Tells(Vec<SubagentCall>),
}

fn call(event: SubagentEvent, call: Option<&str>) -> SubagentCall {
    SubagentCall { event, call: call.map(ToOwned::to_owned) }
}

impl Agent {
    fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::GeminiCli => "gemini-cli",
        }
    }

    fn settings_file(self) -> &'static str {
        match self {
            Self::ClaudeCode => "~/.claude/settings.json",
            Self::GeminiCli => "~/.gemini/settings.json",
        }
    }

    fn settings(self) -> Value {
        match self {
            Self::ClaudeCode => claude_code::settings("watchdogctl hook claude-code"),
            Self::GeminiCli => gemini_cli::settings("watchdogctl hook gemini-cli"),
        }
    }

    fn meaning(self, event: &Value) -> Meaning {
        match self {
            Self::ClaudeCode => claude_code::meaning(event),
            Self::GeminiCli => gemini_cli::meaning(event),
        }
    }

    /// How the agent is told not to start it.
    fn denial(self, reason: &str) -> Value {
        match self {
            Self::ClaudeCode => claude_code::denial(reason),
            Self::GeminiCli => gemini_cli::denial(reason),
        }
    }
}

pub(super) fn run(client: Client, hook: &Hook, output: &mut Output<'_>) -> Result<(), Failure> {
    let agent = hook.agent;
    if hook.print_settings || stdin().is_terminal() {
        let settings =
            serde_json::to_string_pretty(&agent.settings()).map_err(|error| Failure::No(error.to_string()))?;
        if hook.print_settings {
            return output.line(&settings);
        }
        return output.text(&explanation(agent, &settings));
    }
    let client = client.with_patience(PATIENCE);
    // Whatever the agent makes of what is printed: if it cannot be, there is nobody to tell.
    if let Some(answer) = answer(&client, agent) {
        let _ = output.line(&answer.to_string());
    }
    Ok(())
}

/// For a person who tries it.
fn explanation(agent: Agent, settings: &str) -> String {
    let (name, file) = (agent.name(), agent.settings_file());
    format!(
        "This is run by the agent, which gives it an event on standard input. To install it, merge this into {file}\n\
         (`watchdogctl hook {name} --print-settings` prints nothing else):\n\n{settings}\n"
    )
}

/// What the agent is to be told on standard output.
fn answer(client: &Client, agent: Agent) -> Option<Value> {
    let event = match event::read(stdin().lock()) {
        Ok(event) => event,
        Err(problem) => {
            note(agent, &problem);
            return None;
        }
    };
    let outcome = match agent.meaning(&event) {
        Meaning::Nothing => return None,
        Meaning::Asks(call) => super::wait(tell(client, &call)).map(Some),
        Meaning::Tells(calls) => super::wait(async {
            for call in &calls {
                tell(client, call).await?;
            }
            Ok(None)
        }),
    };
    match outcome {
        Ok(Some(answer)) if !answer.allowed => Some(agent.denial(&reason(&answer))),
        Ok(_) => None,
        Err(failure) => {
            let problem = format!("the gate was not asked: {}", first_line(&failure));
            note(agent, &problem);
            matches!(agent.meaning(&event), Meaning::Asks(_))
                .then(|| json!({ "systemMessage": format!("watchdogctl: {}", visible(&problem)) }))
        }
    }
}

async fn tell(client: &Client, call: &SubagentCall) -> Result<SubagentAnswer, Failure> {
    client.post::<SubagentAnswer>("/v1/subagent", call).await.map(|answer| answer.document)
}

/// For the model to read: what is full, and when to try again.
fn reason(answer: &SubagentAnswer) -> String {
    match answer.retry_after_seconds {
        Some(seconds) if seconds.is_finite() => {
            format!("{}, try again in {} s", answer.detail, seconds.max(1.0).ceil())
        }
        _ => answer.detail.clone(),
    }
}

fn note(agent: Agent, problem: &str) {
    complain(&format!("watchdogctl: hook {}: {}; the agent goes on\n", agent.name(), visible(problem)));
}

fn first_line(failure: &Failure) -> String {
    failure.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(retry_after_seconds: Option<f64>) -> SubagentAnswer {
        SubagentAnswer {
            allowed: false,
            reason: Some(crate::api::RefusalReason::Quota),
            detail: "3 of 3 subagents running, 1.2 GiB free".into(),
            running: 3,
            max_subagents: Some(3),
            retry_after_seconds,
            session: Some(1),
        }
    }

    #[test]
    fn the_model_is_told_what_is_full_and_when_to_try_again() {
        assert_eq!(reason(&full(Some(39.5))), "3 of 3 subagents running, 1.2 GiB free, try again in 40 s");
        assert_eq!(reason(&full(Some(0.0))), "3 of 3 subagents running, 1.2 GiB free, try again in 1 s");
        assert_eq!(reason(&full(None)), "3 of 3 subagents running, 1.2 GiB free");
    }
}
