//! The command line, and which command runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand};
use clap_complete::ArgValueCandidates;

use crate::args::{duration, session, socket};
use crate::commands::{
    actions, adopt, config, doctor, end, events, explain, findings, fleet, history, hook, plan, postmortem, queue,
    reap, reclaim, replay, status, statusline, thaw, top, tree, web,
};
use crate::completion;
use crate::error::CtlError;
use crate::launch;
use crate::output::CommandOutput;
use crate::target::TargetArg;
use watchdog_api::client::ControlClient;

/// Show which processes belong to which AI agent, how much memory they use, and what exited agents left behind
#[derive(Debug, Parser)]
#[command(name = "watchdogctl", version, max_term_width = 100, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    // Without clap's `env`, which makes error messages list --socket as required when the variable is set.
    #[arg(long, global = true, value_name = "PATH", help = SOCKET_HELP, display_order = 100)]
    socket: Option<PathBuf>,

    /// Print one JSON document instead of text (with --follow: one per line)
    #[arg(long, global = true, display_order = 101)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: CtlCommand,
}

const SOCKET_HELP: &str =
    "Control socket of the daemon [env: WATCHDOG_SOCKET] [default: /run/agent-watchdog/control.sock]";
/// The daemon's default.
const STATE_DIR: &str = "/var/lib/agent-watchdog";

const EXIT_CODES: &str = "\
Exit codes:
   0  success
   1  the answer is \"no\", or the command failed
   2  invalid command line
  69  the daemon is unreachable
  75  refused for now; try again later
  77  not permitted
`launch` exits with the status of its command, with 126 if it cannot be executed, or with 127 if it is not found.

Non-root users see and control only their own processes.
Colours are used on terminals only, and not with NO_COLOR=1, CLICOLOR=0 or TERM=dumb.";

#[derive(Debug, Subcommand)]
pub(crate) enum CtlCommand {
    /// Show the state of the daemon and the host: tracking, counts, memory, pressure, lost events
    #[command(after_help = "\
Examples:
  watchdogctl status
  watchdogctl status --json | jq .host.memory_available_bytes")]
    Status,

    /// Show sessions with their process trees and memory
    #[command(after_help = "\
Only arguments that identify the program are shown, because the others may be prompts or secrets. --json prints all
arguments. PEAK is the highest resident set size so far.

Examples:
  watchdogctl tree
  watchdogctl tree 3
  watchdogctl tree --json | jq '.sessions[] | {id, profile, memory_bytes}'")]
    Tree {
        /// Show this session only
        #[arg(value_parser = session, add = ArgValueCandidates::new(completion::sessions))]
        session: Option<u64>,
        /// Show ended sessions too (--json always prints them)
        #[arg(long)]
        ended: bool,
    },

    /// Show sessions, processes and findings on a screen, live, from the history or from a recording
    #[command(after_help = top::HELP)]
    Top {
        /// Play a recording of `watchdogd --record`; works without a daemon
        #[arg(long, value_name = "FILE")]
        replay: Option<PathBuf>,
    },

    /// Show forks, execs, exits, signals and findings in order of time
    #[command(after_help = "\
Events are kept in memory since the daemon started ([daemon] journal_events).

Examples:
  watchdogctl events --since 10m
  watchdogctl events --follow --since 30s
  watchdogctl events --follow --json | jq 'select(.type == \"exit\")'")]
    Events {
        /// Print new events as they happen, until interrupted
        #[arg(long, short)]
        follow: bool,
        /// Show events of this last period only, such as 30s, 5m, 2h or 1d
        #[arg(long, value_name = "D", value_parser = duration)]
        since: Option<Duration>,
    },

    /// Show findings: orphaned, detached and abandoned processes, leaks, exceeded limits
    #[command(after_help = findings::HELP)]
    Findings(findings::FindingsOptions),

    /// Show recorded sessions, findings, deaths and actions, across restarts of the daemon and the host
    #[command(after_help = "\
Records are kept for 7 days by default. If the daemon is unreachable, the file is read, which needs root. Ids of
sessions, findings and actions are never reused. The host's memory is recorded every 10 s; text output shows only the
records with little memory available.

Examples:
  watchdogctl history --since 1d
  watchdogctl history --session 3
  watchdogctl history --json | jq '.records[] | select(.type == \"host\") | .memory_available_bytes'")]
    History {
        /// Show records of this last period only, such as 30s, 5m, 2h or 1d
        #[arg(long, value_name = "D", value_parser = duration)]
        since: Option<Duration>,
        /// Show records of this session only
        #[arg(long, value_name = "N", value_parser = session, add = ArgValueCandidates::new(completion::sessions))]
        session: Option<u64>,
        /// Show all records of the host's memory (--json always prints them)
        #[arg(long)]
        host: bool,
        /// State directory of the daemon
        #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
        state_dir: PathBuf,
    },

    /// Show the last minutes before the host or the daemon went down: growth, orphans, kills
    #[command(after_help = "\
Default: the most recent daemon run that has ended. If the daemon is unreachable, the history file is read, which needs
root.

Examples:
  watchdogctl postmortem
  watchdogctl postmortem --boot -1
  watchdogctl postmortem --json | jq '.processes[0]'")]
    Postmortem {
        /// Show the last daemon run of this boot: 0 is the current boot, -1 the one before
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = boot)]
        boot: Option<i64>,
        /// State directory of the daemon
        #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
        state_dir: PathBuf,
    },

    /// Start a command through the gate, and wait in its queue if necessary
    #[command(after_help = launch::HELP)]
    Launch(launch::LaunchOptions),

    /// Show waiting, running and refused launches, and the memory that is free for more
    #[command(after_help = queue::HELP)]
    Queue(queue::QueueOptions),

    /// Show the hosts that share limits with this one, or launch a command on one of them
    #[command(after_help = fleet::HELP)]
    Fleet(fleet::FleetOptions),

    /// Calculate how many agents fit, their heap limits, and when a leak exhausts memory; works without a daemon
    #[command(after_help = plan::HELP)]
    Plan(plan::PlanOptions),

    /// Serve a page for this user's browser on 127.0.0.1, until interrupted; prints its address
    #[command(after_help = web::HELP)]
    Web(web::WebArgs),

    /// Gate and track subagents: install the hook of an agent, or handle its events
    #[command(after_help = hook::HELP)]
    Hook(hook::HookOptions),

    /// Print one short line for a status line or a prompt: agents, memory, findings
    #[command(after_help = "\
Standard input is not read. The exit code is 0 even without a daemon; the line then says so.

Example, for ~/.claude/settings.json:
  \"statusLine\": {\"type\": \"command\", \"command\": \"watchdogctl statusline\"}")]
    Statusline,

    /// Terminate orphans: all, or those of the given sessions and processes; asks first
    #[command(after_help = reap::HELP)]
    Reap(reap::ReapOptions),

    /// Terminate a session, including its agent; asks first
    #[command(after_help = end::HELP)]
    End(end::EndOptions),

    /// Page out idle sessions, or one session: their memory goes to swap until they are used again
    #[command(after_help = reclaim::HELP)]
    Reclaim(reclaim::ReclaimOptions),

    /// Resume frozen or throttled processes
    #[command(after_help = thaw::HELP)]
    Thaw(thaw::ThawOptions),

    /// Show running and past actions: reason, signals sent, result
    #[command(after_help = actions::HELP)]
    Actions(actions::ActionsOptions),

    /// Keep a process or a session: it is never reported as an orphan again
    #[command(after_help = "\
A plain number is the pid of a process in a session, or else a session. If both exist, the process is used, and a note
says so. Use pid:N or session:N to be explicit.

Examples:
  watchdogctl adopt 41231
  watchdogctl adopt session:3
  watchdogctl adopt 41231 --undo")]
    Adopt {
        /// A pid, a session, pid:N or session:N
        #[arg(value_name = "PID|SESSION", add = ArgValueCandidates::new(completion::targets))]
        target: TargetArg,
        /// Undo `adopt`: the process can be reported as an orphan again
        #[arg(long)]
        undo: bool,
    },

    /// Explain why a process or a session died, or why it has a finding
    #[command(after_help = "\
If it has exited: exit code or signal with its sender, the OOM killer, a full V8 heap, peak and growth of memory, the
host's memory at that time, and other deaths within a second. If it is running: findings with their evidence. In both
cases: actions of agent-watchdog. A plain number is a pid, or else a session, as in `adopt`. The daemon keeps a limited
number of deaths.

Examples:
  watchdogctl explain 41231
  watchdogctl explain session:3
  watchdogctl explain pid:41231 --json | jq '.deaths[0] | {cause, sender, oom}'")]
    Explain {
        /// A pid, a session, pid:N or session:N
        #[arg(value_name = "PID|SESSION", add = ArgValueCandidates::new(completion::targets))]
        target: TargetArg,
    },

    /// Run the detectors over a recording of `watchdogd --record`; works without a daemon
    #[command(after_help = "\
The same recording always gives the same output. A truncated recording is replayed up to the damage, and a warning on
standard error says where that is. Times count from the start of the recording (days:hours:minutes:seconds). A recording
is gzipped JSON; zcat prints it.

Examples:
  watchdogctl replay night.rec
  watchdogctl replay night.rec --json | jq '.findings[] | {kind, pid, changes}'")]
    Replay {
        /// The recording
        file: PathBuf,
    },

    /// Check, show and edit the configuration; works without a daemon
    #[command(subcommand)]
    Config(config::ConfigCommand),

    /// Check what this host supports, show what runs now, and suggest what to do next
    #[command(after_help = "\
A running daemon says what it can use. Without one, the host is probed as the current user; use sudo to see what the
daemon would see. The exit code is 0 if all required capabilities are available.

Examples:
  sudo watchdogctl doctor
  sudo watchdogctl doctor --json | jq '.capabilities[] | select(.on | not)'")]
    Doctor {
        /// Show available capabilities with their reason and overhead too (--json always prints them)
        #[arg(long)]
        all: bool,
    },
}

/// `launch ls` lacks the `--` before the command.
fn with_launch_tip(mut error: clap::Error) -> clap::Error {
    let is_launch = error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains(" launch "));
    if is_launch && error.kind() == ErrorKind::UnknownArgument {
        let tip = StyledStr::from("put the command after `--`: watchdogctl launch -- CMD");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

fn boot(text: &str) -> Result<i64, String> {
    let boot = text.parse().ok().filter(|boot| *boot <= 0);
    boot.ok_or_else(|| "expected 0 for the current boot, -1 for the one before, and so on".into())
}

impl Cli {
    /// Parses the arguments of the process. Exits with 2 if they are invalid.
    pub(crate) fn parse_or_exit() -> Self {
        Self::try_parse().unwrap_or_else(|error| with_launch_tip(error).exit())
    }

    fn socket(&self) -> PathBuf {
        socket(self.socket.clone())
    }

    pub(crate) fn run(&self, output: &mut CommandOutput<'_>) -> Result<ExitCode, CtlError> {
        let client = ControlClient::new(self.socket());
        match &self.command {
            CtlCommand::Status => status::run(&client, output)?,
            CtlCommand::Tree { session, ended } => tree::run(&client, *session, *ended, output)?,
            CtlCommand::Top { replay } => return top::run(client, replay.clone(), output),
            CtlCommand::Events { follow: true, since } => events::follow(&client, *since, output)?,
            CtlCommand::Events { follow: false, since } => events::run(&client, *since, output)?,
            CtlCommand::Findings(options) => findings::run(&client, options, output)?,
            CtlCommand::History { since, session, host, state_dir } => {
                let query = history::HistoryOptions { since: *since, session: *session, host: *host };
                return history::run(&client, state_dir, query, output);
            }
            CtlCommand::Postmortem { boot, state_dir } => postmortem::run(&client, state_dir, *boot, output)?,
            CtlCommand::Launch(options) => return Ok(launch::run(&client, self.json, options)),
            CtlCommand::Queue(options) => queue::run(&client, options, output)?,
            CtlCommand::Fleet(options) => return fleet::run(&client, options, output),
            CtlCommand::Plan(options) => return plan::run(&client, options, output),
            CtlCommand::Web(options) => web::run(&client, *options, output)?,
            CtlCommand::Hook(options) => return hook::run(client, options, output),
            CtlCommand::Statusline => statusline::run(client, output)?,
            CtlCommand::Reap(options) => return reap::run(&client, options, output),
            CtlCommand::End(options) => return end::run(&client, options, output),
            CtlCommand::Reclaim(options) => return reclaim::run(&client, *options, output),
            CtlCommand::Thaw(options) => thaw::run(&client, options, output)?,
            CtlCommand::Actions(options) => actions::run(&client, options, output)?,
            CtlCommand::Adopt { target, undo } => adopt::run(&client, *target, *undo, output)?,
            CtlCommand::Explain { target } => explain::run(&client, *target, output)?,
            CtlCommand::Replay { file } => replay::run(file, output)?,
            CtlCommand::Config(command) => return config::run(&client, command, output),
            CtlCommand::Doctor { all } => {
                return doctor::run(&client, watchdog_host::capability::probe(), *all, output);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "cli_actions_tests.rs"]
mod actions_tests;
