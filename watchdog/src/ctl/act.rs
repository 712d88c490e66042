//! What `reap` and `end` have in common: a person is shown what will happen and asked once, then it is done, and waited for.

use std::collections::HashMap;
use std::io::{BufRead, IsTerminal, stdin, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::client::Client;
use super::failure::Failure;
use super::output::{Output, complain};
use super::receipt;
use crate::api::{
    ActionState, ActionTarget, Actions, EndRequest, Planned, ReapRequest, Receipt, Shown, Spared, Subject,
};

/// The first pause between two looks at an action, and the longest: most are over in a moment.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// What an action may take besides its grace: looks before it, SIGKILL, and what was forked meanwhile.
const BESIDES: Duration = Duration::from_secs(30);

/// How it is to be done.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct How {
    /// Shows what would be ended, why, and what that frees; does nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Asks nobody; where no person is at a terminal this is needed
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Does not wait until it is over: `watchdogctl actions` tells what came of it
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// These, or all that was left behind.
    Reap(Vec<Subject>),
    /// This session.
    End(u64),
    /// This session, or this process with what it started, and what of that is meant to stay too.
    EndKept(Subject),
}

impl Order {
    async fn ask(
        &self,
        client: &Client,
        dry_run: bool,
        expect: Option<Vec<Shown>>,
    ) -> Result<super::client::Answer<Planned>, Failure> {
        match self {
            Self::Reap(subjects) => {
                let subjects = subjects.clone();
                client.post("/v1/reap", &ReapRequest { subjects, dry_run, expect }).await
            }
            Self::End(session) => {
                let (session, pid, kept) = (Some(*session), None, false);
                client.post("/v1/end", &EndRequest { session, pid, kept, dry_run, expect }).await
            }
            Self::EndKept(subject) => {
                let (session, pid) = match *subject {
                    Subject::Session(session) => (Some(session), None),
                    Subject::Pid(pid) => (None, Some(pid)),
                };
                client.post("/v1/end", &EndRequest { session, pid, kept: true, dry_run, expect }).await
            }
        }
    }

    const fn nothing(&self) -> &'static str {
        match self {
            Self::Reap(_) => "nothing to reap: nothing was left behind\n",
            Self::End(_) | Self::EndKept(_) => "nothing to end: it is gone\n",
        }
    }
}

/// A person is there, who can be asked.
fn is_person(output: &Output<'_>) -> bool {
    !output.json && stdin().is_terminal() && stdout().is_terminal()
}

/// Whether it is clear that it may be done, or somebody can be asked.
///
/// # Errors
/// When neither is so.
pub(super) fn may_begin(how: How, output: &Output<'_>) -> Result<(), Failure> {
    let clear = how.yes || how.dry_run || is_person(output);
    if clear { Ok(()) } else { Err(Failure::Usage(NOBODY_TO_ASK.into())) }
}

/// Does it for whoever is there.
pub(super) async fn run(
    client: &Client,
    order: &Order,
    how: How,
    output: &mut Output<'_>,
) -> Result<ExitCode, Failure> {
    let mut terminal = is_person(output).then(|| stdin().lock());
    let person = terminal.as_mut().map(|person| person as &mut dyn BufRead);
    obey(client, order, how, person, output).await
}

/// Does it, for a person if there is one.
async fn obey(
    client: &Client,
    order: &Order,
    how: How,
    person: Option<&mut dyn BufRead>,
    output: &mut Output<'_>,
) -> Result<ExitCode, Failure> {
    if how.dry_run {
        let answer = order.ask(client, true, None).await?;
        let nothing = order.nothing();
        output.show(&answer.text, |screen| receipt::plan(&answer.document, nothing, screen))?;
        return Ok(ExitCode::SUCCESS);
    }
    let expect = match person {
        _ if how.yes => None,
        None => return Err(Failure::Usage(NOBODY_TO_ASK.into())),
        Some(person) => {
            let planned = order.ask(client, true, None).await?.document;
            output.text(&receipt::plan(&planned, order.nothing(), &output.screen))?;
            if planned.actions.is_empty() {
                return Ok(code(planned.spared.is_empty()));
            }
            output.text(&receipt::question(&planned))?;
            if !agrees(person) {
                output.text("nothing was done\n")?;
                return Ok(ExitCode::from(1));
            }
            Some(shown(&planned))
        }
    };
    let asked = expect.is_some();
    let mut planned = order.ask(client, false, expect).await?.document;
    let waited = !how.no_wait;
    if waited {
        watch(client, &mut planned).await?;
    }
    planned.spared = spared(&planned);
    if output.json {
        let document = serde_json::to_string(&planned).map_err(|error| Failure::No(error.to_string()))?;
        output.line(&super::show::safe_json(&document))?;
    } else {
        // Who was asked has seen that there was something.
        let nothing = if asked { "nothing was done: they are gone already\n" } else { order.nothing() };
        output.text(&told(&planned, nothing, output))?;
    }
    Ok(if denied(&planned) { ExitCode::from(NOT_PERMITTED) } else { code(is_well(&planned, waited)) })
}

/// The exit code of a request that the kernel's rule about signals forbids.
const NOT_PERMITTED: u8 = 77;
const NOBODY_TO_ASK: &str =
    "nobody is there to be asked: --yes does it without asking, --dry-run shows what would be done";

fn code(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Whoever was to go is gone, or will be. What is left alone beside them, since it is meant to stay, is as it should be; nothing
/// but that is a "no".
fn is_well(planned: &Planned, waited: bool) -> bool {
    let gone = |receipt: &Receipt| {
        let dead = receipt.targets.iter().all(|target| target.died_at.is_some());
        dead && !matches!(receipt.state, ActionState::Incomplete | ActionState::CalledOff)
    };
    match planned.actions.as_slice() {
        [] => planned.spared.is_empty(),
        actions => !waited || actions.iter().all(gone),
    }
}

/// Nothing was done to any process, and at least one of them the kernel does not let this user signal.
fn denied(planned: &Planned) -> bool {
    let untouched = |target: &ActionTarget| target.sent.is_empty() && target.died_at.is_none();
    let over = |action: &Receipt| action.state.is_over() && action.targets.iter().all(untouched);
    planned.actions.iter().all(over) && planned.spared.iter().any(|spared| spared.not_permitted)
}

fn agrees(person: &mut dyn BufRead) -> bool {
    let mut answer = String::new();
    // What cannot be read is no consent.
    person.read_line(&mut answer).is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Whom a person was shown.
fn shown(planned: &Planned) -> Vec<Shown> {
    let targets = planned.actions.iter().flat_map(|action| &action.targets);
    targets.map(|target| Shown { pid: target.pid, start_time: target.start_time }).collect()
}

/// All who were left alone, before it began and after.
fn spared(planned: &Planned) -> Vec<Spared> {
    let mut all = planned.spared.clone();
    for later in planned.actions.iter().flat_map(|action| &action.spared) {
        if !all.iter().any(|known| (known.pid, known.start_time) == (later.pid, later.start_time)) {
            all.push(later.clone());
        }
    }
    all
}

/// Waits for the receipts, as long as that may take.
async fn watch(client: &Client, planned: &mut Planned) -> Result<(), Failure> {
    let grace = Duration::try_from_secs_f64(planned.kill_after_seconds).unwrap_or_default();
    let until = Instant::now() + grace.saturating_add(BESIDES).min(Duration::from_secs(86_400));
    let mut pause = FIRST_PAUSE;
    while planned.actions.iter().any(|action| !action.state.is_over()) && Instant::now() < until {
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        let open: Vec<&mut Receipt> = planned.actions.iter_mut().filter(|action| !action.state.is_over()).collect();
        let path = match open.as_slice() {
            [one] => format!("/v1/actions?id={}", one.id),
            _ => "/v1/actions".to_owned(),
        };
        let answer = client.get::<Actions>(&path).await.inspect_err(|_| {
            for action in &open {
                let id = action.id;
                complain(&format!("watchdogctl: action {id} was begun, and goes on without this program\n"));
            }
        })?;
        let mut now: HashMap<u64, Receipt> =
            answer.document.actions.into_iter().map(|action| (action.id, action)).collect();
        for action in open {
            if let Some(now) = now.remove(&action.id) {
                *action = now;
            }
        }
    }
    Ok(())
}

fn told(planned: &Planned, nothing: &str, output: &Output<'_>) -> String {
    let screen = &output.screen;
    let mut parts: Vec<String> = planned.actions.iter().map(|action| receipt::outcome(action, screen)).collect();
    if !planned.spared.is_empty() {
        parts.push(receipt::left_alone(&planned.spared, screen).trim_end().to_owned() + "\n");
    }
    for action in planned.actions.iter().filter(|action| !action.state.is_over()) {
        let id = action.id;
        parts.push(format!("action {id} is under way: `watchdogctl actions {id}` tells what comes of it\n"));
    }
    if parts.is_empty() { nothing.to_owned() } else { parts.join("\n") }
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;
