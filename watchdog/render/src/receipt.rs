//! Actions as text: the preview, the outcome, and one line.

use jiff::Timestamp;

use super::escape::escape;
use super::evidence::lines as evidence_lines;
use super::table::{Cell, Column, TextTable};
use super::terminal::{Style, Terminal};
use watchdog_api::{ActionKind, ActionState, ActionTarget, DecidedBy, Planned, ProcessKind, Receipt, Sent, Spared};
use watchdog_types::units::{count, seconds, size};

/// Columns before the text below a heading.
const INDENT: usize = 2;
/// Targets named in one line.
const NAMED: usize = 3;

/// Targets with the reason and their memory, then spared processes. `nothing` is the text if there are neither.
pub fn preview(planned: &Planned, nothing: &str, terminal: &Terminal) -> String {
    let mut out = String::new();
    for action in &planned.actions {
        out.push_str(&heading(&action.reason, terminal));
        let mut table = TextTable::new(
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
        out.push_str(&table.render(terminal));
        for agent in action.targets.iter().filter(|target| target.kind == ProcessKind::Agent) {
            let text = format!("warning: {} (pid {}) is a live agent", escape(&agent.name), agent.pid);
            out.push_str(&format!("{:INDENT$}{}\n", "", terminal.paint(Style::Bad, text)));
        }
        out.push('\n');
    }
    out.push_str(&spared(&planned.spared, terminal));
    if planned.spared.iter().any(|spared| !spared.not_permitted) {
        out.push_str(SPARED_HINT);
    }
    if planned.actions.is_empty() {
        out.push_str(if planned.spared.is_empty() { nothing } else { "no targets: all processes are spared\n" });
    } else {
        let (processes, memory) = (processes(targets(planned)), size(planned.memory_bytes));
        let kill_after = seconds(planned.kill_after_seconds);
        out.push_str(&format!(
            "Will free about {memory} from {processes} (SIGTERM, then SIGKILL after {kill_after})\n"
        ));
    }
    out
}

pub fn question(planned: &Planned) -> String {
    format!("Terminate {} ({})? [y/N] ", processes(targets(planned)), size(planned.memory_bytes))
}

/// `terminating 2 processes (84 MiB): action 7`
pub fn started(planned: &Planned) -> String {
    let ids: Vec<String> = planned.actions.iter().map(|action| action.id.to_string()).collect();
    let label = if ids.len() == 1 { "action" } else { "actions" };
    let processes = processes(targets(planned));
    format!("terminating {processes} ({}): {label} {}\n", size(planned.memory_bytes), ids.join(", "))
}

fn targets(planned: &Planned) -> u64 {
    planned.actions.iter().map(|action| action.targets.len() as u64).sum()
}

fn processes(number: u64) -> String {
    count(number, "process", "processes")
}

fn heading(text: &str, terminal: &Terminal) -> String {
    format!("{}\n", terminal.paint(Style::Strong, escape(text)))
}

/// The command that covers spared processes.
const SPARED_HINT: &str = "To end a spared process with its descendants: watchdogctl end --kept pid:PID\n";

/// Spared processes with the reason.
fn spared(spared: &[Spared], terminal: &Terminal) -> String {
    if spared.is_empty() {
        return String::new();
    }
    let mut table = TextTable::new(INDENT, vec![Column::right("PID"), Column::left("NAME"), Column::left("REASON")]);
    for spared in spared {
        let Spared { pid, start_time: _, name, because, not_permitted: _ } = spared;
        table.row(vec![
            Cell::new(pid.to_string()),
            Cell::new(if name.is_empty() { "-" } else { name }),
            Cell::new(because).style(Style::Warn),
        ]);
    }
    format!("{}{}\n", heading("spared", terminal), table.render(terminal))
}

/// Results of all actions, spared processes, and how to follow actions that still run. `nothing` if there is none of it.
pub fn outcomes(planned: &Planned, nothing: &str, terminal: &Terminal) -> String {
    let mut parts: Vec<String> = planned.actions.iter().map(|action| outcome(action, terminal)).collect();
    if !planned.spared.is_empty() {
        parts.push(spared(&planned.spared, terminal).trim_end().to_owned() + "\n");
    }
    for action in planned.actions.iter().filter(|action| !action.state.is_over()) {
        let id = action.id;
        parts.push(format!("action {id} is running; see `watchdogctl actions {id}` for its result\n"));
    }
    if parts.is_empty() { nothing.to_owned() } else { parts.join("\n") }
}

/// Signals and result of each target, then the result of the action.
fn outcome(receipt: &Receipt, terminal: &Terminal) -> String {
    let mut out = heading(&format!("action {}: {}", receipt.id, receipt.reason), terminal);
    let mut table = TextTable::new(
        INDENT,
        vec![
            Column::right("PID"),
            Column::left("NAME"),
            Column::right("MEMORY"),
            Column::left("SENT"),
            Column::left("RESULT"),
        ],
    );
    for target in &receipt.targets {
        let (result, style) = target_result(receipt, target);
        let result = Cell::new(result);
        table.row(vec![
            Cell::new(target.pid.to_string()),
            Cell::new(&target.name),
            Cell::new(size(target.memory_bytes)),
            Cell::new(sent(target)),
            match style {
                Some(style) => result.style(style),
                None => result,
            },
        ]);
    }
    if !receipt.targets.is_empty() {
        out.push_str(&table.render(terminal));
    }
    out.push_str(&format!("{:INDENT$}{}\n", "", terminal.paint(state_style(receipt.state), result(receipt))));
    out
}

fn result(receipt: &Receipt) -> String {
    let how = match receipt.state {
        ActionState::Planned => "planned",
        ActionState::Running => "running",
        ActionState::Holding if receipt.action == ActionKind::Throttle => "throttled until resumed",
        ActionState::Holding => "frozen until resumed",
        ActionState::Done => "done",
        ActionState::Incomplete => "incomplete",
        // The result text includes the state.
        ActionState::CalledOff if !receipt.result.is_empty() => return escape(&receipt.result).into_owned(),
        ActionState::CalledOff => "cancelled",
    };
    if receipt.result.is_empty() { how.to_owned() } else { format!("{how}: {}", escape(&receipt.result)) }
}

fn state_style(state: ActionState) -> Style {
    match state {
        ActionState::Done => Style::Good,
        ActionState::Incomplete => Style::Bad,
        ActionState::Planned | ActionState::Running => Style::Strong,
        ActionState::Holding | ActionState::CalledOff => Style::Warn,
    }
}

/// `TERM, KILL 10s later`; with the reason where the kernel refused.
pub fn sent(target: &ActionTarget) -> String {
    let first = target.sent.first().and_then(|sent| moment(&sent.at));
    let signals = target.sent.iter().enumerate().map(|(nth, sent)| {
        let Sent { at, what, answer } = sent;
        let later = match (nth, first.zip(moment(at))) {
            (0, _) | (_, None) => String::new(),
            (_, Some((first, at))) => format!(" {} later", between(first, at)),
        };
        let answer = match answer.as_str() {
            "sent" => String::new(),
            "gone" => " (already exited)".to_owned(),
            why => format!(" (failed: {why})"),
        };
        format!("{what}{later}{answer}")
    });
    let signals: Vec<String> = signals.collect();
    if signals.is_empty() { "nothing".to_owned() } else { signals.join(", ") }
}

pub fn target_result(receipt: &Receipt, target: &ActionTarget) -> (String, Option<Style>) {
    let since = target.sent.first().map_or(receipt.began_at.as_str(), |sent| sent.at.as_str());
    match &target.died_at {
        Some(died) => {
            let after = moment(since).zip(moment(died)).map(|(since, died)| format!(" after {}", between(since, died)));
            let how = if target.sent.is_empty() { "exited by itself" } else { "exited" };
            (format!("{how}{}", after.unwrap_or_default()), None)
        }
        None => match receipt.state {
            ActionState::Done | ActionState::Incomplete | ActionState::CalledOff => {
                ("still running".to_owned(), Some(Style::Bad))
            }
            ActionState::Planned | ActionState::Running => ("still running".to_owned(), None),
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

/// One action with everything that is known of it.
pub fn details(receipt: &Receipt, terminal: &Terminal) -> String {
    let mut out = outcome(receipt, terminal);
    let (kind, by) = (receipt.action.name(), by(receipt));
    let session = receipt.session.map_or_else(String::new, |session| format!(", session {session}"));
    let finding = match (receipt.finding, receipt.finding_kind) {
        (Some(finding), Some(kind)) => format!(", finding {finding} ({})", kind.name()),
        _ => String::new(),
    };
    out.push_str(&format!(
        "{:INDENT$}{kind} by {by}{session}{finding}, started {}\n",
        "",
        terminal.ago(&receipt.began_at)
    ));
    let before = size(receipt.available_before_bytes);
    let freed = size(receipt.freed_bytes);
    match receipt.available_after_bytes {
        Some(after) => {
            out.push_str(&format!("{:INDENT$}{freed} freed (available: {before} -> {})\n", "", size(after)));
        }
        None => out.push_str(&format!("{:INDENT$}available at the start: {before}\n", "")),
    }
    out.push_str(&evidence_lines(&receipt.evidence, INDENT, terminal));
    if !receipt.spared.is_empty() {
        out.push('\n');
        out.push_str(spared(&receipt.spared, terminal).trim_end());
        out.push('\n');
    }
    out
}

/// One row for each action.
pub fn list(receipts: &[Receipt], terminal: &Terminal) -> String {
    if receipts.is_empty() {
        return "no actions recorded\n".to_owned();
    }
    let mut table = TextTable::new(
        0,
        vec![
            Column::right("ID"),
            Column::right("STARTED"),
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
            Cell::new(terminal.ago(&receipt.began_at)),
            Cell::new(receipt.action.name()).style(Style::Strong),
            Cell::new(by(receipt)),
            Cell::new(receipt.session.map_or_else(|| "-".into(), |id| id.to_string())),
            Cell::new(receipt.targets.len().to_string()),
            Cell::new(size(receipt.freed_bytes)),
            Cell::new(result(receipt)).style(state_style(receipt.state)),
        ]);
    }
    table.render(terminal)
}

/// One line: a running action with its reason, a finished one with its result.
pub fn line(receipt: &Receipt) -> String {
    let (id, action, by) = (receipt.id, receipt.action.name(), by(receipt));
    let targets = named(&receipt.targets);
    if receipt.state.is_over() || receipt.state == ActionState::Holding {
        format!("#{id} {action} {targets}: {}", result(receipt))
    } else {
        format!("#{id} {action} {targets}, by {by}: {}", receipt.reason)
    }
}

fn named(targets: &[ActionTarget]) -> String {
    let shown: Vec<String> =
        targets.iter().take(NAMED).map(|target| format!("{} (pid {})", target.name, target.pid)).collect();
    match targets.len().saturating_sub(NAMED) {
        _ if shown.is_empty() => "no process".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// An action as `explain` shows it: only what concerns `pid`, or the first `listed` targets.
pub fn explanation(receipt: &Receipt, pid: Option<u32>, listed: usize, terminal: &Terminal) -> String {
    let (id, action, by, began) = (receipt.id, receipt.action.name(), by(receipt), terminal.ago(&receipt.began_at));
    let reason = escape(&receipt.reason);
    let mut out = format!("action {id} of agent-watchdog ({action}, by {by}, {began}): {reason}\n");
    let concerned = |of: u32| pid.is_none_or(|pid| pid == of);
    let targets: Vec<&ActionTarget> = receipt.targets.iter().filter(|target| concerned(target.pid)).collect();
    for target in targets.iter().take(listed) {
        let at = target.sent.first().map(|sent| format!(" at {}", terminal.local_time(&sent.at)));
        let at = at.unwrap_or_default();
        let (name, memory) = (escape(&target.name), size(target.memory_bytes));
        let (sent, result) = (sent(target), target_result(receipt, target).0);
        out.push_str(&format!(
            "{:INDENT$}{name} (pid {}, {memory}): {}{at}; {result}\n",
            "",
            target.pid,
            escape(&sent)
        ));
    }
    if targets.len() > listed {
        out.push_str(&format!("{:INDENT$}and {}\n", "", count((targets.len() - listed) as u64, "other", "others")));
    }
    for spared in receipt.spared.iter().filter(|spared| concerned(spared.pid)).take(listed) {
        let (name, because) = (escape(&spared.name), escape(&spared.because));
        out.push_str(&format!("{:INDENT$}{name} (pid {}) was spared ({because})\n", "", spared.pid));
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

#[cfg(test)]
#[path = "receipt_tests.rs"]
mod tests;
