//! `watchdogctl launch`: asks the gate, waits in the queue if it must, and becomes CMD.
//!
//! [`program`] finds CMD before anything is asked for, [`ask`] talks to the daemon over [`wire`] while [`progress`] says where it
//! stands, [`env`] makes the environment, and [`origin`] puts back what this program's own start changed. With
//! `--retries` the same is done by a child of [`retry`], which hears [`signals`].

mod ask;
mod env;
mod origin;
mod program;
mod progress;
mod retry;
mod signals;
mod wire;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};

use self::ask::{Asking, Decision};
use self::progress::{Listener, Progress};
use self::retry::Supervised;
use super::cli::{duration, memory};
use super::client::Client;
use super::failure::Failure;
use super::output::complain;
use super::show::{safe_json, size, span, visible};
use crate::api::{LaunchRequest, Occupant, Problem, Refused};

/// Of the command's arguments so many are shown to the daemon, each
const ARGUMENTS: usize = 16;
/// up to so many bytes.
const ARGUMENT: usize = 1 << 10;
/// Holders of a bound that are named.
const NAMED: usize = 8;

pub(super) const HELP: &str = "\
CMD replaces this program: terminal, directory, environment, descriptors, signals and exit status are its own, and
nothing stays behind, unless --retries asks for it. The profile's variables are set where they are not set already; of
NODE_OPTIONS, JAVA_TOOL_OPTIONS and JDK_JAVA_OPTIONS those options are added that are not given. While it waits, a
daemon that is restarted keeps its place; one that stays away is asked again until --timeout, or for 30m.

A refusal is told on standard error; with --json as one JSON document, and nothing else is said there: granted (false),
reason, detail, retry_after_seconds; of any other failure: error. Exit codes besides those of CMD: 2 no such
profile; 69 no daemon; 75 refused; 77 not permitted; 126 CMD cannot be executed; 127 there is no such command (no place is
asked for then).

Examples:
  watchdogctl launch -- claude
  watchdogctl launch --profile my-agent --timeout 10m --memory 2GiB -- ./my-agent --task 7
  watchdogctl launch --no-wait --json -- claude -p 'fix it' 2> refusal.json
  watchdogctl launch --retries 3 --backoff 10s -- claude -p 'fix it'";

/// What `watchdogctl launch` was asked for.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The profile whose limits hold beside those of the one that recognises CMD; the tighter of both hold
    #[arg(long, value_name = "P")]
    profile: Option<String>,
    /// Higher goes first among your own launches: -100 to 100; above 0 it goes before other users' only for root
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-100..=100))]
    priority: i32,
    /// Gives up after this time in the queue, such as 30s or 5m; restarts of the daemon count
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
    /// Gives up at once where it would have to wait
    #[arg(long)]
    no_wait: bool,
    /// Starts CMD without the gate when there is no daemon, or it went away for 5 s
    #[arg(long)]
    fail_open: bool,
    /// What the session is expected to take, such as 800MiB or 10% of RAM; otherwise what is configured or learned
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,
    /// Sets a variable, whatever it was set to before; may be given several times
    #[arg(long, value_name = "K=V", value_parser = OsStringValueParser::new().try_map(env::assignment))]
    env: Vec<(OsString, OsString)>,
    /// When CMD fails, or the launch is refused, launches it again, as many times; a small supervisor stays for that
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    retries: Option<u32>,
    /// Before the first retry; twice as long before each further one, up to 5m
    #[arg(long, value_name = "D", value_parser = duration, default_value = "5s", requires = "retries")]
    backoff: Duration,
    /// The command with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The whole command: comes back only when CMD was not started, or when a supervisor has waited for it.
pub(super) fn run(client: &Client, json: bool, options: &Options) -> ExitCode {
    let began = Instant::now();
    let program = match find(options) {
        Ok(program) => program,
        Err(failure) => return told(&Stop::Failed(failure), json).into(),
    };
    let attempt = |began| launch(client, json, options, &program, began);
    let Some(retries) = options.retries else { return told(&attempt(began), json).into() };
    let name = visible(&options.command[0].to_string_lossy()).into_owned();
    let supervised = Supervised { name: &name, retries, backoff: options.backoff, quiet: json };
    let one_of_many = |left| {
        let stop = attempt(Instant::now());
        // What a program reads is one document: that of the last try.
        if json && left > 0 && retry::is_worth_another(stop.code()) { stop.code() } else { told(&stop, json) }
    };
    supervised.run(one_of_many).unwrap_or_else(|failure| told(&Stop::Failed(failure), json).into())
}

/// Why CMD was not started.
enum Stop {
    Refused(Refused),
    Failed(Failure),
}

impl Stop {
    fn code(&self) -> u8 {
        match self {
            Self::Refused(_) => 75,
            Self::Failed(failure) => failure.code(),
        }
    }
}

fn find(options: &Options) -> Result<PathBuf, Failure> {
    let name = options.command.first().map(OsString::as_os_str).unwrap_or_default();
    let own = options.env.iter().rfind(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    program::find(name, own.or_else(|| std::env::var_os("PATH")).as_deref())
}

/// Asks, and becomes the program.
fn launch(client: &Client, json: bool, options: &Options, program: &Path, began: Instant) -> Stop {
    let inherited = std::env::vars_os().collect();
    let environment = match decide(client, json, options, program, began) {
        Ok(Decision::Granted(grant)) => {
            if let Err(error) = raise_oom_score(grant.oom_score_adj)
                && !json
            {
                complain(&format!("watchdogctl: oom_score_adj stays as it is: {error}\n"));
            }
            env::merge(inherited, &grant.environment, &options.env)
        }
        Ok(Decision::Ungated(failure)) => {
            if !json {
                let why = failure.to_string();
                let why = why.lines().next().unwrap_or_default();
                complain(&format!("watchdogctl: started without the gate (--fail-open): {}\n", visible(why)));
            }
            env::merge(inherited, &BTreeMap::new(), &options.env)
        }
        Ok(Decision::Refused(refused)) => return Stop::Refused(refused),
        Err(failure) => return Stop::Failed(failure),
    };
    Stop::Failed(program::execute(program, &options.command, &environment))
}

fn decide(client: &Client, json: bool, options: &Options, program: &Path, began: Instant) -> Result<Decision, Failure> {
    let request = LaunchRequest {
        profile: options.profile.clone(),
        path: program::absolute(program),
        argv: shown(&options.command),
        priority: options.priority,
        no_wait: options.no_wait,
        memory_bytes: options.memory,
        ..LaunchRequest::default()
    };
    let progress = Progress::new(Listener::of_stderr(json), began);
    Asking::new(client, request, options.timeout, options.fail_open, progress, began).decide()
}

/// The arguments as far as the daemon has to know them.
fn shown(command: &[OsString]) -> Vec<String> {
    let short = |argument: &OsString| {
        let mut text = argument.to_string_lossy().into_owned();
        text.truncate(text.floor_char_boundary(ARGUMENT));
        text
    };
    command.iter().take(ARGUMENTS).map(short).collect()
}

/// Sees to it that this process goes before those with a lower score. It is never lowered.
fn raise_oom_score(least: i32) -> std::io::Result<()> {
    const FILE: &str = "/proc/self/oom_score_adj";
    let now: i32 = fs::read_to_string(FILE)?.trim().parse().map_err(std::io::Error::other)?;
    if now < least { fs::write(FILE, least.to_string()) } else { Ok(()) }
}

/// Says on standard error why CMD was not started. The exit code.
fn told(stop: &Stop, json: bool) -> u8 {
    let (document, text) = match stop {
        Stop::Refused(refused) => (serde_json::to_string(refused), refusal(refused)),
        Stop::Failed(failure) => {
            let problem = Problem { error: failure.to_string(), starting: false };
            (serde_json::to_string(&problem), failure.message())
        }
    };
    if json {
        complain(&format!("{}\n", safe_json(&document.unwrap_or_default())));
    } else {
        complain(&text);
    }
    stop.code()
}

/// The bound, its value, its holders, and when to try again.
fn refusal(refused: &Refused) -> String {
    let mut text = format!("watchdogctl: not granted: {}\n", visible(&refused.detail));
    if !refused.bound.is_empty() {
        text += &format!("  bound: {}\n", visible(&refused.bound));
    }
    let named: Vec<String> = refused.holders.iter().take(NAMED).map(holder).collect();
    if !named.is_empty() {
        let more = refused.holders.len() - named.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text += &format!("  held by: {}{more}\n", named.join(", "));
    }
    let again = refused.retry_after_seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.ceil()).ok());
    text += &match again {
        Some(again) => format!("  try again in {}\n", span(again.max(Duration::from_secs(1)))),
        None => "  waiting does not change that; `watchdogctl queue` shows who runs and who waits\n".into(),
    };
    text
}

fn holder(holder: &Occupant) -> String {
    let (profile, user) = (visible(&holder.profile), visible(&holder.user));
    format!("session {} ({profile}, pid {}, {user}, {})", holder.session, holder.pid, size(holder.memory_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::RefusalReason;

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
    fn a_refusal_names_the_bound_its_holders_and_when_to_try_again() {
        insta::assert_snapshot!(refusal(&refused(2, Some(39.2))), @r"
        watchdogctl: not granted: 2 of 2 sessions run
          bound: [gate] max_sessions
          held by: session 1 (claude-code, pid 4001, ada, 1.0 GiB), session 2 (claude-code, pid 4002, ada, 2.0 GiB)
          try again in 40s
        ");
        insta::assert_snapshot!(refusal(&refused(0, None)), @r"
        watchdogctl: not granted: 2 of 2 sessions run
          bound: [gate] max_sessions
          waiting does not change that; `watchdogctl queue` shows who runs and who waits
        ");
        assert!(refusal(&refused(11, None)).contains(" and 3 more\n"));
    }

    #[test]
    fn the_daemon_is_shown_the_beginning_of_the_arguments() {
        let long = "é".repeat(ARGUMENT);
        let command: Vec<OsString> = (0..40).map(|_| OsString::from(&long)).collect();
        let shown = shown(&command);
        assert_eq!((shown.len(), shown[0].len()), (ARGUMENTS, ARGUMENT));
    }
}
