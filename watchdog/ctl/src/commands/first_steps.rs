//! The part of `doctor` below the host's: running agents and next steps. Pure.

use jiff::Timestamp;
use serde::Serialize;

use super::hook::HookAgent;
use super::status::of_user;
use crate::render::{Style, Terminal, count, escape, size};
use watchdog_api::{
    ConfigStatus, Evidence, Finding, FindingKind, Process, ProcessKind, ProcessState, Severity, Status, Tree,
    UserAgents,
};

/// The agents of this host that the user may see.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct AgentOverview {
    /// Sessions with a living agent, as in `status`.
    pub(super) agents: u64,
    /// Living processes of sessions except agents and orphans.
    pub(super) helpers: u64,
    pub(super) memory_bytes: u64,
    /// Null if there are none.
    pub(super) orphans: Option<OrphanTotal>,
    /// Open findings except orphans.
    pub(super) critical: u64,
    pub(super) warnings: u64,
    /// Each user's agents together.
    pub(super) users: Vec<UserAgents>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct OrphanTotal {
    pub(super) processes: u64,
    pub(super) memory_bytes: u64,
    /// When the first of them was found, RFC 3339.
    pub(super) since: String,
}

/// One command, and why.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct NextStep {
    reason: String,
    command: String,
}

impl NextStep {
    pub(super) fn new(reason: impl Into<String>, command: impl Into<String>) -> Self {
        Self { reason: reason.into(), command: command.into() }
    }
}

pub(super) fn overview(status: &Status, tree: &Tree, findings: &[Finding]) -> AgentOverview {
    let counts = &status.counts;
    let is_helper = |process: &&Process| {
        process.kind != ProcessKind::Agent && !matches!(process.state, ProcessState::Zombie | ProcessState::Orphaned)
    };
    let mut overview = AgentOverview {
        agents: counts.sessions_running,
        helpers: tree.sessions.iter().flat_map(|session| &session.processes).filter(is_helper).count() as u64,
        memory_bytes: counts.memory_bytes,
        users: status.users.clone(),
        ..AgentOverview::default()
    };
    for finding in findings.iter().filter(|finding| finding.closed_at.is_none()) {
        match (&finding.evidence, finding.severity) {
            (Evidence::Orphan(group), _) => {
                let since = finding.opened_at.clone();
                let new = OrphanTotal { processes: 0, memory_bytes: 0, since: since.clone() };
                let total = overview.orphans.get_or_insert(new);
                total.processes += group.count as u64;
                total.memory_bytes = total.memory_bytes.saturating_add(group.memory_bytes.0);
                // Times of one format and zone sort as text.
                total.since = since.min(std::mem::take(&mut total.since));
            }
            (_, Severity::Critical) => overview.critical += 1,
            (_, Severity::Warning) => overview.warnings += 1,
            (_, Severity::Info) => {}
        }
    }
    overview
}

/// The most urgent first. `hooks`: agents of this user whose hook is not installed.
pub(super) fn next_steps(
    status: &Status,
    overview: &AgentOverview,
    findings: &[Finding],
    hooks: &[HookAgent],
) -> Vec<NextStep> {
    let mut steps = Vec::new();
    let config = status.config.as_ref();
    if let Some(ConfigStatus { file, problem: Some(problem), .. }) = config {
        let reason = format!("The daemon rejected its configuration file and keeps the old one: {problem}");
        steps.push(NextStep::new(reason, format!("watchdogctl config check {file}")));
    }
    let urgent = findings.iter().filter(|finding| {
        finding.closed_at.is_none() && finding.kind != FindingKind::Orphan && finding.severity > Severity::Info
    });
    if let Some(worst) = urgent.max_by_key(|finding| (finding.severity, std::cmp::Reverse(finding.id))) {
        let reason = format!("Look at the most severe finding: {}", worst.summary);
        steps.push(NextStep::new(reason, format!("watchdogctl findings {}", worst.id)));
    }
    if overview.orphans.is_some() {
        steps.push(NextStep::new("See the orphans, and terminate them after a question:", "watchdogctl reap"));
    }
    if config.is_some_and(|config| !config.enforce) {
        let reason = "Orphans are only reported. To let the daemon terminate them, and act when memory runs out:";
        steps.push(NextStep::new(reason, "sudo watchdogctl config set actions.enforce true"));
    }
    for agent in hooks {
        let reason = format!("Subagents inside {} are not seen. To install its hook:", agent.name());
        steps.push(NextStep::new(reason, format!("watchdogctl hook install {}", agent.name())));
    }
    let (reason, command) = match overview.agents {
        0 => ("No agent is running. Start one as usual, then see its processes:", "watchdogctl tree"),
        _ => ("See all processes and their memory:", "watchdogctl tree"),
    };
    steps.push(NextStep::new(reason, command));
    steps
}

pub(super) fn render_overview(overview: &AgentOverview, is_root: bool, terminal: &Terminal) -> String {
    let AgentOverview { agents, helpers, memory_bytes, orphans, critical, warnings, users } = overview;
    let helpers = || format!("{}, {}", count(*helpers, "helper", "helpers"), size(*memory_bytes));
    let mut facts = vec![match agents {
        0 => "no agent running".to_owned(),
        _ => format!("{} running, {}", count(*agents, "agent", "agents"), helpers()),
    }];
    if let Some(OrphanTotal { processes, memory_bytes, since }) = orphans {
        let number = count(*processes, "orphan", "orphans");
        facts.push(format!("{number} of {} {}", size(*memory_bytes), since_when(since, terminal)));
    }
    for (number, one, more) in
        [(*critical, "critical finding", "critical findings"), (*warnings, "warning", "warnings")]
    {
        if number > 0 {
            facts.push(count(number, one, more));
        }
    }
    let label = if is_root { "now" } else { "now, of your processes" };
    let mut out = terminal.wrap(&format!("{label}: {}", facts.join("; ")), 0);
    users.iter().for_each(|user| out.push_str(&terminal.wrap(&of_user(user), 5)));
    out
}

pub(super) fn render_steps(steps: &[NextStep], terminal: &Terminal) -> String {
    let mut out = String::from("next:\n");
    for NextStep { reason, command } in steps {
        out.push_str(&terminal.wrap(&escape(reason), 2));
        out.push_str(&format!("      {}\n", terminal.paint(Style::Strong, escape(command))));
    }
    out
}

/// `since 14:05`, `since yesterday`, `since 27 Nov`.
fn since_when(moment: &str, terminal: &Terminal) -> String {
    let Ok(moment) = moment.parse::<Timestamp>() else { return format!("since {}", escape(moment)) };
    let [then, now] = [moment, terminal.now].map(|moment| moment.to_zoned_datetime((terminal.zone)()));
    match now.date().since(then.date()).map_or(i32::MAX, |span| span.get_days()) {
        0 => format!("since {}", then.strftime("%H:%M")),
        1 => "since yesterday".to_owned(),
        _ => format!("since {}", then.strftime("%-d %b")),
    }
}

#[cfg(test)]
#[path = "first_steps_tests.rs"]
mod tests;
