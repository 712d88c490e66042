//! What is done to processes, as a person reads it: before it is done, when it is over, and in a line. Pure.

use jiff::Timestamp;

use super::show::{Cell, Column, Ink, Screen, Table, age, clock, count, evidence_lines, seconds, size, span, visible};
use crate::api::{ActionKind, ActionState, ActionTarget, DecidedBy, Planned, ProcessKind, Receipt, Sent, Spared};

/// What stands below a heading begins here.
const INDENT: usize = 2;
/// Targets that are named in a line.
const NAMED: usize = 3;

/// What would be done, to whom and why, whom not and why, and what that frees.
pub(super) fn plan(planned: &Planned, nothing: &str, screen: &Screen) -> String {
    let mut out = String::new();
    for action in &planned.actions {
        out.push_str(&heading(&action.reason, screen));
        let mut table = Table::new(
            INDENT,
            vec![Column::right("PID"), Column::left("KIND"), Column::right("MEMORY"), Column::left("NAME")],
        );
        for target in &action.targets {
            table.row(vec![
                Cell::new(target.pid.to_string()),
                Cell::new(target.kind.name()),
                Cell::new(size(target.memory_bytes)),
                Cell::new(&target.name),
            ]);
        }
        out.push_str(&table.render(screen));
        for agent in action.targets.iter().filter(|target| target.kind == ProcessKind::Agent) {
            let text = format!("warning: {} (pid {}) is an agent, and it is alive", visible(&agent.name), agent.pid);
            out.push_str(&format!("{:INDENT$}{}\n", "", screen.paint(Ink::Bad, text)));
        }
        out.push('\n');
    }
    out.push_str(&left_alone(&planned.spared, screen));
    if planned.actions.is_empty() {
        out.push_str(if planned.spared.is_empty() { nothing } else { "nothing is left that may be ended\n" });
    } else {
        let (processes, frees) = (processes(targets(planned)), size(planned.memory_bytes));
        let kill_after = seconds(planned.kill_after_seconds);
        out.push_str(&format!(
            "{processes}, {frees} to be freed: SIGTERM, and SIGKILL for those that are there {kill_after} later\n"
        ));
    }
    out
}

/// What is asked before it is done.
pub(super) fn question(planned: &Planned) -> String {
    let (number, frees) = (targets(planned), size(planned.memory_bytes));
    let these = if number == 1 { "this process".to_owned() } else { format!("these {number} processes") };
    format!("End {these} ({frees})? [y/N] ")
}

fn targets(planned: &Planned) -> u64 {
    planned.actions.iter().map(|action| action.targets.len() as u64).sum()
}

fn processes(number: u64) -> String {
    count(number, "process", "processes")
}

fn heading(text: &str, screen: &Screen) -> String {
    format!("{}\n", screen.paint(Ink::Strong, visible(text)))
}

/// Who is left alone, and why.
pub(super) fn left_alone(spared: &[Spared], screen: &Screen) -> String {
    if spared.is_empty() {
        return String::new();
    }
    let mut table = Table::new(INDENT, vec![Column::right("PID"), Column::left("NAME"), Column::left("BECAUSE")]);
    for spared in spared {
        let Spared { pid, start_time: _, name, because, not_permitted: _ } = spared;
        table.row(vec![
            Cell::new(pid.to_string()),
            Cell::new(if name.is_empty() { "-" } else { name }),
            Cell::new(because).ink(Ink::Warn),
        ]);
    }
    format!("{}{}\n", heading("left alone", screen), table.render(screen))
}

/// What was sent to whom, what came of it, and the result.
pub(super) fn outcome(receipt: &Receipt, screen: &Screen) -> String {
    let mut out = heading(&format!("action {}: {}", receipt.id, receipt.reason), screen);
    let mut table = Table::new(
        INDENT,
        vec![
            Column::right("PID"),
            Column::left("NAME"),
            Column::right("MEMORY"),
            Column::left("SENT"),
            Column::left("CAME OF IT"),
        ],
    );
    for target in &receipt.targets {
        let (came, ink) = came_of_it(receipt, target);
        let came = Cell::new(came);
        table.row(vec![
            Cell::new(target.pid.to_string()),
            Cell::new(&target.name),
            Cell::new(size(target.memory_bytes)),
            Cell::new(sent(target)),
            match ink {
                Some(ink) => came.ink(ink),
                None => came,
            },
        ]);
    }
    if !receipt.targets.is_empty() {
        out.push_str(&table.render(screen));
    }
    out.push_str(&format!("{:INDENT$}{}\n", "", screen.paint(state_ink(receipt.state), result(receipt))));
    out
}

/// In words how it ended, or how far it is.
pub(super) fn result(receipt: &Receipt) -> String {
    let how = match receipt.state {
        ActionState::Planned => "planned",
        ActionState::Running => "under way",
        ActionState::Holding if receipt.action == ActionKind::Throttle => "throttled, until they are let go",
        ActionState::Holding => "stopped, until they are let go",
        ActionState::Done => "done",
        ActionState::Incomplete => "not all came out as it should",
        // The result says so itself.
        ActionState::CalledOff if !receipt.result.is_empty() => return visible(&receipt.result).into_owned(),
        ActionState::CalledOff => "called off",
    };
    if receipt.result.is_empty() { how.to_owned() } else { format!("{how}: {}", visible(&receipt.result)) }
}

fn state_ink(state: ActionState) -> Ink {
    match state {
        ActionState::Done => Ink::Good,
        ActionState::Incomplete => Ink::Bad,
        ActionState::Planned | ActionState::Running => Ink::Strong,
        ActionState::Holding | ActionState::CalledOff => Ink::Warn,
    }
}

/// `TERM, KILL 10s later`; what was not done is told with the reason.
fn sent(target: &ActionTarget) -> String {
    let first = target.sent.first().and_then(|sent| moment(&sent.at));
    let told = target.sent.iter().enumerate().map(|(nth, sent)| {
        let Sent { at, what, answer } = sent;
        let later = match (nth, first.zip(moment(at))) {
            (0, _) | (_, None) => String::new(),
            (_, Some((first, at))) => format!(" {} later", between(first, at)),
        };
        let answer = match answer.as_str() {
            "sent" => String::new(),
            "gone" => " (it was gone)".to_owned(),
            why => format!(" (not done: {why})"),
        };
        format!("{what}{later}{answer}")
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
}

fn came_of_it(receipt: &Receipt, target: &ActionTarget) -> (String, Option<Ink>) {
    let since = target.sent.first().map_or(receipt.began_at.as_str(), |sent| sent.at.as_str());
    match &target.died_at {
        Some(died) => {
            let after = moment(since).zip(moment(died)).map(|(since, died)| format!(" after {}", between(since, died)));
            let how = if target.sent.is_empty() { "ended by itself" } else { "gone" };
            (format!("{how}{}", after.unwrap_or_default()), None)
        }
        None => match receipt.state {
            ActionState::Done | ActionState::Incomplete | ActionState::CalledOff => {
                ("still there".to_owned(), Some(Ink::Bad))
            }
            ActionState::Planned | ActionState::Running => ("not yet gone".to_owned(), None),
            ActionState::Holding => ("held".to_owned(), None),
        },
    }
}

fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn between(first: Timestamp, then: Timestamp) -> String {
    seconds(then.duration_since(first).as_secs_f64().max(0.0))
}

/// One action whole: who decided it, why, with the numbers, and all that was sent.
pub(super) fn whole(receipt: &Receipt, screen: &Screen) -> String {
    let mut out = outcome(receipt, screen);
    let (kind, by) = (receipt.action.name(), by(receipt));
    let session = receipt.session.map_or_else(String::new, |session| format!(", session {session}"));
    let finding = match (receipt.finding, receipt.finding_kind) {
        (Some(finding), Some(kind)) => format!(", finding {finding} ({})", kind.name()),
        _ => String::new(),
    };
    out.push_str(&format!(
        "{:INDENT$}{kind} by {by}{session}{finding}, begun {}\n",
        "",
        ago(&receipt.began_at, screen)
    ));
    let before = size(receipt.available_before_bytes);
    let freed = size(receipt.freed_bytes);
    match receipt.available_after_bytes {
        Some(after) => out.push_str(&format!(
            "{:INDENT$}{freed} freed; available on the host: {before} before, {} after\n",
            "",
            size(after)
        )),
        None => out.push_str(&format!("{:INDENT$}available on the host when it began: {before}\n", "")),
    }
    out.push_str(&evidence_lines(&receipt.evidence, INDENT, screen));
    if !receipt.spared.is_empty() {
        out.push('\n');
        out.push_str(left_alone(&receipt.spared, screen).trim_end());
        out.push('\n');
    }
    out
}

/// Many actions, a row each.
pub(super) fn list(receipts: &[Receipt], screen: &Screen) -> String {
    if receipts.is_empty() {
        return "nothing was done to any process, as far as the daemon remembers\n".to_owned();
    }
    let mut table = Table::new(
        0,
        vec![
            Column::right("ID"),
            Column::right("BEGAN"),
            Column::left("ACTION"),
            Column::left("BY"),
            Column::right("SESSION"),
            Column::right("PROCESSES"),
            Column::right("FREED"),
            Column::left("RESULT"),
        ],
    );
    for receipt in receipts {
        table.row(vec![
            Cell::new(receipt.id.to_string()),
            Cell::new(ago(&receipt.began_at, screen)),
            Cell::new(receipt.action.name()).ink(Ink::Strong),
            Cell::new(by(receipt)),
            Cell::new(receipt.session.map_or_else(|| "-".into(), |id| id.to_string())),
            Cell::new(receipt.targets.len().to_string()),
            Cell::new(size(receipt.freed_bytes)),
            Cell::new(result(receipt)).ink(state_ink(receipt.state)),
        ]);
    }
    table.render(screen)
}

/// A receipt as one line of the history: what is begun with its reason, what is over with its result.
pub(super) fn line(receipt: &Receipt) -> String {
    let (id, action, by) = (receipt.id, receipt.action.name(), by(receipt));
    let whom = named(&receipt.targets);
    if receipt.state.is_over() || receipt.state == ActionState::Holding {
        format!("#{id} {action} {whom}: {}", result(receipt))
    } else {
        format!("#{id} {action} {whom}, by {by}: {}", receipt.reason)
    }
}

fn named(targets: &[ActionTarget]) -> String {
    let shown: Vec<String> =
        targets.iter().take(NAMED).map(|target| format!("{} (pid {})", target.name, target.pid)).collect();
    match targets.len().saturating_sub(NAMED) {
        _ if shown.is_empty() => "nobody".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// What an action did to one process, or to the first of all, below a line that says which action it was.
pub(super) fn about(receipt: &Receipt, pid: Option<u32>, listed: usize, screen: &Screen) -> String {
    let (id, action, by, began) = (receipt.id, receipt.action.name(), by(receipt), ago(&receipt.began_at, screen));
    let reason = visible(&receipt.reason);
    let mut out = format!("agent-watchdog, action {id} ({action}, by {by}, {began}): {reason}\n");
    let concerned = |of: u32| pid.is_none_or(|pid| pid == of);
    let targets: Vec<&ActionTarget> = receipt.targets.iter().filter(|target| concerned(target.pid)).collect();
    for target in targets.iter().take(listed) {
        let at = target.sent.first().and_then(|sent| clock(&sent.at, (screen.zone)()));
        let at = at.map_or_else(String::new, |at| format!(", from {at}"));
        let (name, memory) = (visible(&target.name), size(target.memory_bytes));
        let (sent, came) = (sent(target), came_of_it(receipt, target).0);
        out.push_str(&format!(
            "{:INDENT$}{name} (pid {}): {}{at}; {came}; it held {memory}\n",
            "",
            target.pid,
            visible(&sent)
        ));
    }
    if targets.len() > listed {
        out.push_str(&format!("{:INDENT$}and {}\n", "", count((targets.len() - listed) as u64, "other", "others")));
    }
    for spared in receipt.spared.iter().filter(|spared| concerned(spared.pid)).take(listed) {
        let (name, because) = (visible(&spared.name), visible(&spared.because));
        out.push_str(&format!("{:INDENT$}{name} (pid {}) was left alone: {because}\n", "", spared.pid));
    }
    out.push_str(&format!("{:INDENT$}{}\n", "", result(receipt)));
    out
}

/// `policy`, or `uid 1000`.
fn by(receipt: &Receipt) -> String {
    match (receipt.by, receipt.asked_by_uid) {
        (DecidedBy::Person, Some(uid)) => format!("uid {uid}"),
        (by, _) => by.name().to_owned(),
    }
}

fn ago(moment: &str, screen: &Screen) -> String {
    age(moment, screen.now).map_or_else(|| visible(moment).into_owned(), |age| format!("{} ago", span(age)))
}

#[cfg(test)]
#[path = "receipt_tests.rs"]
pub(super) mod tests;
