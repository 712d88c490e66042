//! `watchdogctl explain`: why a process or a session died, or was found.

use serde_json::{Map, Value};

use super::adopt::Target;
use super::client::{Answer, Client};
use super::failure::Failure;
use super::output::{Output, complain};
use super::receipt;
use super::show::{Ink, Screen, age, count, evidence_lines, span, visible};
use crate::api::{Death, Explanation};

/// What stands below the paragraph begins here.
const INDENT: usize = 2;
/// Deaths of a session that are listed.
const LISTED: usize = 20;
/// What is told by the paragraph, by the line above, or by nothing but a program.
const SAID: [&str; 9] = [
    "summary",
    "while_no_daemon_ran",
    "started_at",
    "pid",
    "start_time",
    "session",
    "profile",
    "name",
    "died_with_count",
];

pub(super) async fn run(client: &Client, target: Target, output: &mut Output<'_>) -> Result<(), Failure> {
    let (pid, answer) = match target {
        Target::Pid(pid) => (Some(pid), of_process(client, pid).await?),
        Target::Session(id) => (None, of_session(client, id).await?),
        Target::Number(number) => of_number(client, number).await?,
    };
    output.show(&answer.text, |screen| render(&answer.document, pid, screen))
}

async fn of_process(client: &Client, pid: u32) -> Result<Answer<Explanation>, Failure> {
    client.get(&format!("/v1/explain?pid={pid}")).await
}

async fn of_session(client: &Client, id: u64) -> Result<Answer<Explanation>, Failure> {
    client.get(&format!("/v1/explain?session={id}")).await
}

/// What a plain number means: a process that is known, alive or dead, or else a session. As `adopt` does it. The pid comes
/// with it, if it is one.
async fn of_number(client: &Client, number: u32) -> Result<(Option<u32>, Answer<Explanation>), Failure> {
    match of_process(client, number).await {
        Ok(process) => {
            if of_session(client, number.into()).await.is_ok() {
                complain(&format!(
                    "watchdogctl: {number} is a process and a session: the process is meant. \
                     `session:{number}` names the session.\n"
                ));
            }
            Ok((Some(number), process))
        }
        Err(Failure::Unknown(_)) => match of_session(client, number.into()).await {
            Err(Failure::Unknown(_)) => Err(Failure::No(format!(
                "nothing is known of {number}, neither as a process nor as a session: it was in no session, or it ended too \
                 long ago\n`watchdogctl tree` lists those that live."
            ))),
            other => Ok((None, other?)),
        },
        Err(other) => Err(other),
    }
}

fn render(explanation: &Explanation, pid: Option<u32>, screen: &Screen) -> String {
    let mut out = screen.fold(&visible(&explanation.summary));
    out.push('\n');
    let told = match (&explanation.process, explanation.deaths.as_slice()) {
        // A process that is dead: its numbers.
        (None, [death]) => {
            out.push('\n');
            out.push_str(&numbers(death, screen));
            1
        }
        _ => 0,
    };
    let deaths = explanation.deaths.iter().skip(told);
    let more = deaths.len().saturating_sub(LISTED);
    let lines: Vec<String> = deaths.take(LISTED).map(|death| line(death, screen)).collect();
    if !lines.is_empty() {
        out.push_str("\ndeaths, the latest first\n");
        lines.iter().for_each(|line| out.push_str(line));
        if more > 0 {
            out.push_str(&format!("{:INDENT$}and {}\n", "", count(more as u64, "other", "others")));
        }
    }
    for finding in &explanation.findings {
        let state = if finding.closed_at.is_some() { "closed" } else { "open" };
        let (kind, severity) = (finding.kind.name(), finding.severity.name());
        out.push_str(&format!("\nfinding {}: {kind}, {severity}, {state}\n", finding.id));
        out.push_str(&format!("{:INDENT$}{}\n", "", visible(&finding.summary)));
        out.push_str(&evidence_lines(&finding.evidence, INDENT, screen));
    }
    for receipt in &explanation.receipts {
        out.push('\n');
        out.push_str(&receipt::about(receipt, pid, LISTED, screen));
    }
    out
}

/// The facts of a death, those that belong together below their common name.
fn numbers(death: &Death, screen: &Screen) -> String {
    let Ok(Value::Object(mut facts)) = serde_json::to_value(death) else { return String::new() };
    facts.retain(|key, _| !SAID.contains(&key.as_str()));
    let (groups, single): (Map<String, Value>, _) = facts.into_iter().partition(|(_, value)| value.is_object());
    let mut out = evidence_lines(&single, INDENT, screen);
    for (name, group) in &groups {
        if let Value::Object(group) = group {
            out.push_str(&format!("{:INDENT$}{}\n", "", screen.paint(Ink::Faint, name.replace('_', " "))));
            out.push_str(&evidence_lines(group, 2 * INDENT, screen));
        }
    }
    out
}

fn line(death: &Death, screen: &Screen) -> String {
    let facts = &death.facts;
    let ago = age(&death.died_at, screen.now).map_or_else(|| death.died_at.clone(), |age| format!("{} ago", span(age)));
    format!("{:INDENT$}{ago}  {}  {}  {}\n", "", facts.pid, facts.cause.name(), visible(&facts.name))
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
