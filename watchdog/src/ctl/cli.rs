//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use super::adopt::Target;
use super::{actions, end, hook, launch, plan, queue, reap, thaw};
use crate::config::Size;
use crate::host::meminfo;

/// Shows which processes belong to which AI agent, what they cost in memory, and what was left behind.
#[derive(Debug, Parser)]
#[command(name = "watchdogctl", version, max_term_width = 100, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// The daemon's control socket
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "WATCHDOG_SOCKET",
        hide_env_values = true,
        default_value = "/run/agent-watchdog/control.sock"
    )]
    pub(crate) socket: PathBuf,

    /// Print exactly one JSON document (with --follow: one a line) instead of text for people
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where a daemon keeps its history unless it is told otherwise.
const STATE_DIR: &str = "/var/lib/agent-watchdog";

const EXIT_CODES: &str = "\
Exit codes:
   0  done
   1  the answer is \"no\", or it failed
   2  the command line is wrong
  69  the daemon is not reachable
  75  refused for now: try again later
  77  not permitted
`launch` gives those of the command it starts, and 126 or 127 where that cannot be executed or is not there.

Another user than root sees and acts on that user's processes only.
Colours are used on a terminal only, and not with NO_COLOR=1, CLICOLOR=0 or TERM=dumb.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How the daemon and the host are: tracking, counts, memory, pressure, lost events
    #[command(after_help = "\
Examples:
  watchdogctl status
  watchdogctl status --json | jq .host.memory_available_bytes")]
    Status,

    /// Sessions with their process trees and memory
    #[command(after_help = "\
A process is shown with the arguments that say what it runs, and no others: prompts and secrets stand there.
--json gives all arguments. PEAK is the highest resident set so far.

Examples:
  watchdogctl tree
  watchdogctl tree 3
  watchdogctl tree --json | jq '.sessions[] | {id, profile, memory_bytes}'")]
    Tree {
        /// Only this session, by its number
        #[arg(value_parser = session)]
        session: Option<u64>,
    },

    /// Forks, execs, exits, signals and findings as they happened
    #[command(after_help = "\
The daemon remembers a bounded number of events; those before its last start are not among them.

Examples:
  watchdogctl events --since 10m
  watchdogctl events --follow --since 30s
  watchdogctl events --follow --json | jq 'select(.type == \"exit\")'")]
    Events {
        /// Go on with what happens from now on, until interrupted
        #[arg(long, short)]
        follow: bool,
        /// Only what happened within this time, such as 30s, 5m, 2h or 1d
        #[arg(long, value_name = "D", value_parser = duration)]
        since: Option<Duration>,
    },

    /// What was found, with the evidence: orphans, detached and abandoned processes
    #[command(after_help = "\
Examples:
  watchdogctl findings
  watchdogctl findings --all
  watchdogctl findings --json | jq '.findings[] | select(.kind == \"orphan\") | .pid'")]
    Findings {
        /// Closed ones too, as far as the daemon remembers them
        #[arg(long)]
        all: bool,
    },

    /// What happened, as far back as it is remembered: sessions, findings, deaths, actions
    #[command(after_help = "\
It outlives the daemon and the host: 7 days by default. The daemon is asked; if none is reachable, the file is read, for
which one has to be root. An id of a session, finding or action is never given twice. Of the host's memory, which
is recorded every 10 s, only the moments are shown in which it was short.

Examples:
  watchdogctl history --since 1d
  watchdogctl history --session 3
  watchdogctl history --json | jq '.records[] | select(.type == \"host\") | .memory_available_bytes'")]
    History {
        /// Only what happened within this time, such as 30s, 5m, 2h or 1d
        #[arg(long, value_name = "D", value_parser = duration)]
        since: Option<Duration>,
        /// Only what concerns the sessions of this number
        #[arg(long, value_name = "N", value_parser = session)]
        session: Option<u64>,
        /// Every record of the host's memory (--json has them in any case)
        #[arg(long)]
        host: bool,
        /// Where the daemon keeps its history
        #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
        state_dir: PathBuf,
    },

    /// The last minutes before the host or the daemon went down: who grew, who was left behind, what was killed
    #[command(after_help = "\
Without --boot it tells of the last run of the daemon that has ended, however it ended. Works with and without a daemon;
without one, one has to be root to read the history.

Examples:
  watchdogctl postmortem
  watchdogctl postmortem --boot -1
  watchdogctl postmortem --json | jq '.processes[0]'")]
    Postmortem {
        /// The last end in this boot of the host: 0 is the present one, -1 the one before
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(..=0))]
        boot: Option<i64>,
        /// Where the daemon keeps its history
        #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
        state_dir: PathBuf,
    },

    /// Asks the gate, waits in the queue if it must, and becomes CMD
    #[command(after_help = launch::HELP)]
    Launch(launch::Options),

    /// Who waits for a launch, who was launched, who was refused and why, and what room there is
    #[command(after_help = queue::HELP)]
    Queue(queue::Options),

    /// How many agents fit, what heap each gets, when a leak ends it, and what is in the way; works without a daemon
    #[command(after_help = plan::HELP)]
    Plan(plan::Options),

    /// What an agent runs before and after its subagents: asks the gate, and tells the daemon
    #[command(after_help = hook::HELP)]
    Hook(hook::Hook),

    /// One short line: agents, memory, what is free, findings; for a status line or a prompt
    #[command(after_help = "\
Standard input is not read. Without a daemon it says so, and the exit code is 0.

Example, for ~/.claude/settings.json:
  \"statusLine\": {\"type\": \"command\", \"command\": \"watchdogctl statusline\"}")]
    Statusline,

    /// Ends what dead agents left behind: all of it, or what is named; shows it and asks first
    #[command(after_help = reap::HELP)]
    Reap(reap::Options),

    /// Ends a whole session, its agent too; shows it and asks first
    #[command(after_help = end::HELP)]
    End(end::Options),

    /// Lets go of what policy has frozen or throttled
    #[command(after_help = thaw::HELP)]
    Thaw(thaw::Options),

    /// What is being done to processes, and what was: why, what was sent to whom, and what came of it
    #[command(after_help = actions::HELP)]
    Actions(actions::Options),

    /// Marks a process or a session as meant to stay: it is never an orphan again
    #[command(after_help = "\
A plain number is the pid of a process of a session, or else the number of a session. If it is both, the process is
meant, and a note says so. `pid:N` and `session:N` leave no doubt.

Examples:
  watchdogctl adopt 41231
  watchdogctl adopt session:3
  watchdogctl adopt 41231 --undo")]
    Adopt {
        /// A pid, a session's number, `pid:N` or `session:N`
        #[arg(value_name = "PID|SESSION")]
        target: Target,
        /// Takes it back: it may be found an orphan again
        #[arg(long)]
        undo: bool,
    },

    /// Why a process or a session died, or why it was found
    #[command(after_help = "\
Of the dead: exit code or signal and who sent it, the OOM killer and who held the memory, a full V8 heap, peak and growth,
the host's memory then, and what died within a second. Of the living: what was found, with the evidence. Of both: what
agent-watchdog did to them. A plain number is a pid, or else the number of a session, as in `adopt`. The daemon remembers a bounded number of deaths.

Examples:
  watchdogctl explain 41231
  watchdogctl explain session:3
  watchdogctl explain pid:41231 --json | jq '.deaths[0] | {cause, sender, oom}'")]
    Explain {
        /// A pid, a session's number, `pid:N` or `session:N`
        #[arg(value_name = "PID|SESSION")]
        target: Target,
    },

    /// Runs the engine over a recording of `watchdogd --record`, and shows what it finds; needs no daemon
    #[command(after_help = "\
The same recording gives the same output each time. A recording that a crash tore is replayed up to the tear; standard
error says where that is. Times are counted from the beginning of the recording (days:hours:minutes:seconds).
A recording is JSON in gzip: zcat shows it.

Examples:
  watchdogctl replay night.rec
  watchdogctl replay night.rec --json | jq '.findings[] | {kind, pid, changes}'")]
    Replay {
        /// The recording
        file: PathBuf,
    },

    /// Works on configuration files; needs no daemon
    #[command(subcommand)]
    Config(ConfigCommand),

    /// What this host gives, what is missing, what that costs, and what to do about it
    #[command(after_help = "\
It probes this host itself, as the user who runs it: use sudo to see what the daemon would see. If a daemon is
reachable, it is asked too. The exit code is 0 if everything essential is there.

Examples:
  sudo watchdogctl doctor
  sudo watchdogctl doctor --json | jq '.capabilities[] | select(.on | not)'")]
    Doctor,
}

/// Works on configuration files.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Says whether a configuration is valid, and names file, line, key and what is allowed where it is not
    #[command(after_help = "\
Examples:
  watchdogctl config check /etc/agent-watchdog/config.toml && sudo kill -HUP \"$(pidof watchdogd)\"
  watchdogctl config check new.toml --json | jq -r '.errors[]'")]
    Check {
        /// The file
        file: PathBuf,
    },
}

/// A session by its number.
pub(super) fn session(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(Target::Session(id)) => Ok(id),
        Ok(Target::Number(id)) => Ok(u64::from(id)),
        Ok(Target::Pid(_)) | Err(_) => Err("a session is given by its number, such as 3 or session:3".into()),
    }
}

/// An amount of memory, in bytes.
pub(super) fn memory(text: &str) -> Result<u64, String> {
    match text.parse::<Size>().map_err(|error| error.to_string())? {
        Size::Bytes(bytes) => Ok(bytes.0),
        share @ Size::PercentOfHost(_) => {
            let host = meminfo::host_memory().map_err(|error| error.to_string())?;
            Ok(share.on_host(host.total).0)
        }
    }
}

/// A span, in whole seconds at least.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a span is a whole number and its unit: 30s, 5m, 2h or 1d".to_owned();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "cli_act_tests.rs"]
mod act_tests;
