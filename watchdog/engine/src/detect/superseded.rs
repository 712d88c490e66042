//! Signs that a helper is stale: a younger equal has superseded it, or a finished subagent has left it.

use std::time::Duration;

use super::Facts;
use super::abandoned::ADOPTERS;
use super::survey::{Helper, HelperParent};
use crate::ownership::Ownership;
use crate::process::TrackedProcess;
use watchdog_api::ProcessKind;
use watchdog_types::{BootTime, Bytes, Stdin};

/// Equals that were started within this time are one generation: a pool of workers, or the servers of one task.
const GENERATION: Duration = Duration::from_secs(30);

/// Parents besides [`ADOPTERS`] below which any process may run: their life proves nothing.
const COMMON_PARENTS: &[&str] =
    &["conmon", "containerd-shim", "containerd-shim-runc-v2", "cron", "crond", "sshd", "supervisord"];

/// A helper that is not kept, and whose parent may have started others like it.
pub(super) fn may_have_equals(helper: &Helper, facts: &Facts<'_>) -> bool {
    let Some(top) = facts.table.alive(helper.top) else { return false };
    if top.verdict.is_kept() || helper.ownership != Ownership::Owned {
        return false;
    }
    let seen = top.inspection.as_deref();
    match (helper.parent, helper.role.kind) {
        // An agent with a terminal is a person's; one that a program keeps has none.
        (HelperParent::Outside(_), _) => seen.is_some_and(|seen| {
            let is_common = [ADOPTERS, COMMON_PARENTS].iter().any(|names| names.contains(&seen.parent_comm.as_str()));
            !seen.tty && seen.ppid == top.ppid.0 && !is_common
        }),
        (HelperParent::Within(_), ProcessKind::Agent) if helper.agent.is_none() => seen.is_some_and(|seen| !seen.tty),
        // Below kept processes (panes below a tmux server) commands are a person's, and no agent is concerned.
        (HelperParent::Within(_), ProcessKind::Tool | ProcessKind::Other) => helper.agent.is_some() && helper.is_top,
        (HelperParent::Within(_), _) => helper.is_top,
        (HelperParent::Gone, _) => false,
    }
}

/// When the last subagent finished that left these helpers, if subagents left all of them.
pub(super) fn finished_at(stale: &[&Helper], facts: &Facts<'_>) -> Option<BootTime> {
    let all: Option<Vec<BootTime>> = stale.iter().map(|helper| left_by_subagent(helper, facts)).collect();
    all?.into_iter().max()
}

/// When the subagent finished that left this helper, unless the helper is kept.
pub(super) fn left_by_subagent(helper: &Helper, facts: &Facts<'_>) -> Option<BootTime> {
    let top = facts.table.alive(helper.top)?;
    let owned = helper.is_top && helper.agent.is_some() && helper.ownership == Ownership::Owned;
    let finished = facts.gate.finished_subagent(helper.session, helper.started())?;
    (owned && !top.verdict.is_kept()).then_some(finished)
}

/// Those that are old enough to be looked at, and have a younger equal of another generation with the same environment, or
/// one in use while their own stdin is closed or unread.
pub(super) fn older<'h>(equals: &[&'h Helper], pace: Duration, facts: &Facts<'_>) -> Vec<&'h Helper> {
    let open = || equals.iter().filter(|helper| !stdin_closed(helper, facts));
    let in_use = open().next().is_some();
    let reads = open().any(|helper| !stdin_unread(helper, facts));
    let generation = facts.config.stale.idle.min(GENERATION);
    let supersedes = |younger: &Helper, helper: &Helper| {
        let counts = !in_use || !stdin_closed(younger, facts);
        counts
            && younger.started().since(helper.started()) > generation
            && may_share_environment(younger, helper, facts)
    };
    let is_older = |helper: &Helper| {
        let replaced = in_use && stdin_closed(helper, facts) || reads && stdin_unread(helper, facts);
        let is_superseded = || equals.iter().any(|younger| supersedes(younger, helper));
        facts.now.since(helper.started()) >= pace && (replaced || is_superseded())
    };
    equals.iter().copied().filter(|helper| is_older(helper)).collect()
}

/// With another environment it may serve something else, such as another account.
fn may_share_environment(one: &Helper, other: &Helper, facts: &Facts<'_>) -> bool {
    let environment = |helper: &Helper| facts.table.get(helper.top)?.inspection.as_deref()?.environment;
    environment(one).zip(environment(other)).is_none_or(|(one, other)| one == other)
}

/// Input waits in its open stdin, as of the last inspection. A helper that rests reads it no more.
pub(super) fn stdin_unread(helper: &Helper, facts: &Facts<'_>) -> bool {
    let seen = facts.table.get(helper.top).and_then(|top| top.inspection.as_deref());
    seen.is_some_and(|seen| seen.stdin != Stdin::Closed && seen.stdin_unread > Bytes(0))
}

/// As of the last inspection.
pub(super) fn stdin_closed(helper: &Helper, facts: &Facts<'_>) -> bool {
    let seen = facts.table.get(helper.top).and_then(|top| top.inspection.as_deref());
    seen.is_some_and(|seen| seen.stdin == Stdin::Closed)
}

/// Servers with other arguments serve something else; what an agent is asked to do does not make it another program.
pub(super) fn distinguishing_arguments(helper: &Helper) -> Option<u64> {
    match helper.role.kind {
        ProcessKind::Agent | ProcessKind::Subagent | ProcessKind::Browser => None,
        ProcessKind::McpServer | ProcessKind::LanguageServer | ProcessKind::Tool | ProcessKind::Other => {
            helper.arguments
        }
    }
}

/// A reason not to call the helper stale of which this process is a part.
pub(super) fn spares(process: &TrackedProcess) -> bool {
    let serves = matches!(process.kind, ProcessKind::Tool | ProcessKind::Other);
    let Some(seen) = process.inspection.as_deref() else { return process.verdict.is_kept() };
    // A terminal of its own has a person at its other end; a dev server waits for a browser.
    let interactive = seen.tty && seen.sid == process.id.pid.0;
    process.verdict.is_kept() || interactive || (serves && !seen.listens.is_empty())
}
