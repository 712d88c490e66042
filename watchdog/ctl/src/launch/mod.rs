//! `watchdogctl launch`: asks the gate, waits in its queue, and executes CMD in place.
//!
//! [`program`] finds CMD before the gate is asked. [`admission`] talks to the daemon while [`progress`] shows the position
//! in the queue. [`env`] builds the environment. [`signal_state`] restores what the Rust runtime changed at start. With
//! `--retries` the same happens in a child of [`retry`], which waits for [`signals`].

mod admission;
mod env;
mod program;
mod progress;
mod retry;
mod signal_state;
mod signals;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap_complete::{ArgValueCandidates, ArgValueCompleter};

use self::admission::{AdmissionRequest, LaunchDecision};
use self::progress::{ProgressStyle, QueueProgress};
use self::retry::Supervisor;
use crate::args::{duration, memory};
use crate::completion::{self, CommandCompleter};
use crate::error::CtlError;
use crate::output::print_error;
use crate::render::{escape, safe_json, size, span};
use watchdog_api::client::ControlClient;
use watchdog_api::{LaunchRequest, Occupant, Problem, Refused};

/// Limits of what the daemon receives of the command line.
const MAX_ARGUMENTS: usize = 16;
const MAX_ARGUMENT: usize = 1 << 10;
/// Limit of the holders that a refusal names.
const MAX_NAMED: usize = 8;

pub(crate) const HELP: &str = "\
Waits in the gate's queue, then executes CMD in place of this process. CMD inherits the terminal, directory,
environment, descriptors and signals, and its exit status is returned. No other process remains, except with --retries.
The profile's variables are set unless they are already set; its options are added to NODE_OPTIONS, JAVA_TOOL_OPTIONS and
JDK_JAVA_OPTIONS unless they are already given. The launch keeps its position in the queue if the daemon restarts. An
unreachable daemon is retried until --timeout, or for 30m.

Refusals are printed to stderr; with --json as one JSON document with granted (false), reason, detail and
retry_after_seconds. Other errors are printed as a document with error. Exit codes besides those of CMD: 2 unknown profile, 69 no
daemon, 75 refused, 77 not permitted, 126 CMD cannot be executed, 127 command not found (the gate is not contacted).

Examples:
  watchdogctl launch -- claude
  watchdogctl launch --profile my-agent --timeout 10m --memory 2GiB -- ./my-agent --task 7
  watchdogctl launch --no-wait --json -- claude -p 'fix it' 2> refusal.json
  watchdogctl launch --retries 3 --backoff 10s -- claude -p 'fix it'";

#[derive(Debug, Args)]
pub(crate) struct LaunchOptions {
    /// Apply this profile's limits in addition to those of the profile that matches CMD
    #[arg(long, value_name = "P", add = ArgValueCandidates::new(completion::profiles))]
    profile: Option<String>,
    /// Priority in the queue, -100 to 100, highest first; only root's launches overtake those of other users
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-100..=100))]
    priority: i32,
    /// Fail after this time in the queue, such as 30s or 5m, including restarts of the daemon
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
    /// Fail instead of queueing
    #[arg(long)]
    no_wait: bool,
    /// Run CMD anyway if the daemon is unreachable (for 5 s if it was reachable before)
    #[arg(long)]
    fail_open: bool,
    /// Expected memory of the session, such as 800MiB or 10% of RAM; default: configured or learned
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,
    /// Use the fleet slot that `watchdogctl fleet place` reserved on this host
    #[arg(long, value_name = "T")]
    ticket: Option<String>,
    /// Set a variable, overriding its inherited value; can be repeated
    #[arg(long, value_name = "K=V", value_parser = OsStringValueParser::new().try_map(env::parse_assignment))]
    env: Vec<(OsString, OsString)>,
    /// Relaunch CMD up to N times if it fails or is refused; a small supervisor process stays
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    retries: Option<u32>,
    /// Pause before the first retry; doubles with each retry, up to 5m
    #[arg(long, value_name = "D", value_parser = duration, default_value = "5s", requires = "retries")]
    backoff: Duration,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", add = ArgValueCompleter::new(CommandCompleter))]
    command: Vec<OsString>,
}

/// Returns only if CMD was not started, or after a supervisor has waited for it.
pub(crate) fn run(client: &ControlClient, json: bool, options: &LaunchOptions) -> ExitCode {
    let began = Instant::now();
    let program = match find(options) {
        Ok(program) => program,
        Err(error) => return report(&LaunchError::Failed(error), json).into(),
    };
    let attempt = |began| launch(client, json, options, &program, began);
    let Some(retries) = options.retries else { return report(&attempt(began), json).into() };
    let name = escape(&options.command[0].to_string_lossy()).into_owned();
    let supervisor = Supervisor { name: &name, retries, backoff: options.backoff, quiet: json };
    let one_of_many = |left| {
        let error = attempt(Instant::now());
        // Programs expect one document: that of the last attempt.
        if json && left > 0 && retry::is_temporary(error.code()) { error.code() } else { report(&error, json) }
    };
    supervisor.run(one_of_many).unwrap_or_else(|error| report(&LaunchError::Failed(error), json).into())
}

/// Why CMD was not started.
enum LaunchError {
    Refused(Refused),
    Failed(CtlError),
}

impl LaunchError {
    fn code(&self) -> u8 {
        match self {
            Self::Refused(_) => 75,
            Self::Failed(error) => error.code(),
        }
    }
}

fn find(options: &LaunchOptions) -> Result<PathBuf, CtlError> {
    let name = options.command.first().map(OsString::as_os_str).unwrap_or_default();
    let own = options.env.iter().rfind(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    program::find(name, own.or_else(|| std::env::var_os("PATH")).as_deref())
}

/// Asks the gate and executes the program. Returns only on failure.
fn launch(client: &ControlClient, json: bool, options: &LaunchOptions, program: &Path, began: Instant) -> LaunchError {
    let inherited = std::env::vars_os().collect();
    let environment = match admit(client, json, options, program, began) {
        Ok(LaunchDecision::Granted(grant)) => {
            if let Err(error) = raise_oom_score(grant.oom_score_adj)
                && !json
            {
                print_error(&format!("watchdogctl: cannot raise oom_score_adj: {error}\n"));
            }
            env::merge(inherited, &grant.environment, &options.env)
        }
        Ok(LaunchDecision::Ungated(error)) => {
            if !json {
                let why = CtlError::from(error).summary();
                print_error(&format!("watchdogctl: started without the gate (--fail-open): {}\n", escape(&why)));
            }
            env::merge(inherited, &BTreeMap::new(), &options.env)
        }
        Ok(LaunchDecision::Refused(refused)) => return LaunchError::Refused(refused),
        Err(error) => return LaunchError::Failed(error),
    };
    LaunchError::Failed(program::execute(program, &options.command, &environment))
}

fn admit(
    client: &ControlClient,
    json: bool,
    options: &LaunchOptions,
    program: &Path,
    began: Instant,
) -> Result<LaunchDecision, CtlError> {
    let request = LaunchRequest {
        profile: options.profile.clone(),
        path: program::absolute(program),
        argv: shortened(&options.command),
        priority: options.priority,
        no_wait: options.no_wait,
        memory_bytes: options.memory,
        ticket: options.ticket.clone(),
        ..LaunchRequest::default()
    };
    let progress = QueueProgress::new(ProgressStyle::of_stderr(json), began);
    AdmissionRequest::new(client, request, options.timeout, options.fail_open, progress, began).send()
}

fn shortened(command: &[OsString]) -> Vec<String> {
    let short = |argument: &OsString| {
        let mut text = argument.to_string_lossy().into_owned();
        text.truncate(text.floor_char_boundary(MAX_ARGUMENT));
        text
    };
    command.iter().take(MAX_ARGUMENTS).map(short).collect()
}

/// Raises oom_score_adj to at least this value. Never lowers it.
fn raise_oom_score(least: i32) -> std::io::Result<()> {
    const FILE: &str = "/proc/self/oom_score_adj";
    let now: i32 = fs::read_to_string(FILE)?.trim().parse().map_err(std::io::Error::other)?;
    if now < least { fs::write(FILE, least.to_string()) } else { Ok(()) }
}

/// Prints to standard error why CMD was not started, and returns the exit code.
fn report(error: &LaunchError, json: bool) -> u8 {
    let (document, text) = match error {
        LaunchError::Refused(refused) => (serde_json::to_string(refused), refusal(refused)),
        LaunchError::Failed(error) => {
            let problem = Problem { error: error.to_string(), starting: false };
            (serde_json::to_string(&problem), error.message())
        }
    };
    if json {
        print_error(&format!("{}\n", safe_json(&document.unwrap_or_default())));
    } else {
        print_error(&text);
    }
    error.code()
}

fn refusal(refused: &Refused) -> String {
    let mut text = format!("watchdogctl: refused: {}\n", escape(&refused.detail));
    if !refused.bound.is_empty() {
        text += &format!("  limit: {}\n", escape(&refused.bound));
    }
    let named: Vec<String> = refused.holders.iter().take(MAX_NAMED).map(holder).collect();
    if !named.is_empty() {
        let more = refused.holders.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text += &format!("  held by: {}{more}\n", named.join(", "));
    }
    let again = refused.retry_after_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.ceil()).ok());
    text += &match again {
        Some(again) => format!("  try again in {}\n", span(again.max(Duration::from_secs(1)))),
        None => "  retrying will not help; see `watchdogctl queue` for running and waiting launches\n".into(),
    };
    text
}

fn holder(holder: &Occupant) -> String {
    let (profile, user) = (escape(&holder.profile), escape(&holder.user));
    format!("session {} ({profile}, pid {}, {user}, {})", holder.session, holder.pid, size(holder.memory_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_api::RefusalReason;

    fn occupant(session: u64) -> Occupant {
        let pid = 4_000 + u32::try_from(session).unwrap();
        Occupant { session, pid, profile: "claude-code".into(), user: "ada".into(), memory_bytes: session << 30 }
    }

    fn refused(holders: u64, retry_after_seconds: Option<f64>) -> Refused {
        Refused {
            granted: false,
            reason: RefusalReason::Quota,
            detail: "2 of 2 sessions run".into(),
            retry_after_seconds,
            bound: "[gate] max_sessions".into(),
            holders: (1..=holders).map(occupant).collect(),
        }
    }

    #[test]
    fn refusal_has_limit_holders_and_retry() {
        insta::assert_snapshot!(refusal(&refused(2, Some(39.2))), @r"
        watchdogctl: refused: 2 of 2 sessions run
          limit: [gate] max_sessions
          held by: session 1 (claude-code, pid 4001, ada, 1.0 GiB), session 2 (claude-code, pid 4002, ada, 2.0 GiB)
          try again in 40s
        ");
        insta::assert_snapshot!(refusal(&refused(0, None)), @r"
        watchdogctl: refused: 2 of 2 sessions run
          limit: [gate] max_sessions
          retrying will not help; see `watchdogctl queue` for running and waiting launches
        ");
        assert!(refusal(&refused(11, None)).contains(" and 3 more\n"));
    }

    #[test]
    fn arguments_are_shortened() {
        let long = "é".repeat(MAX_ARGUMENT);
        let command: Vec<OsString> = (0..40).map(|_| OsString::from(&long)).collect();
        let shown = shortened(&command);
        assert_eq!((shown.len(), shown[0].len()), (MAX_ARGUMENTS, MAX_ARGUMENT));
    }
}
