//! Keep-evidence: what says that a process is meant to stay, what leaves it open, and what says nothing.
//!
//! Terminal, age, CPU time, comm or equal arguments alone prove nothing, neither guilt nor innocence.

use super::classify;
use super::id::ProcessId;
use super::input::{Inspection, Stdin};
use super::process::{Launcher, Process};
use crate::api::ProcessKind;
use crate::config::Orphans;

/// What the evidence says about keeping a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing says that it should stay.
    #[default]
    Clear,
    /// The evidence does not decide: it is reported, and nothing is proposed.
    Unknown(String),
    /// It is meant to stay.
    Kept(String),
}

/// What a verdict needs to know beyond the process itself.
pub(super) struct Context<'a> {
    /// `[orphans]`
    pub(super) configured: &'a Orphans,
    /// The agent itself ignores SIGHUP, so that its helpers inherited that; `None` when nobody has looked.
    pub(super) agent_ignores_hup: Option<bool>,
    /// A process is an agent of another session, and alive.
    pub(super) other_agent: &'a dyn Fn(ProcessId) -> bool,
}

impl Verdict {
    pub(super) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

/// Weighs the evidence: what is certain first, what leaves it open last.
pub(super) fn weigh(process: &Process, context: &Context<'_>) -> Verdict {
    if let Some(reason) = meant_to_stay(process, context) {
        return Verdict::Kept(reason);
    }
    in_doubt(process, context).map_or(Verdict::Clear, Verdict::Unknown)
}

fn meant_to_stay(process: &Process, context: &Context<'_>) -> Option<String> {
    let (image, comm) = (&process.image, process.comm.as_str());
    if process.adopted {
        return Some("adopted".into());
    }
    // tmux's server is a fork of its first client, and executes nothing.
    if let Some(name) = classify::multiplexer(image, comm) {
        return Some(format!("a terminal multiplexer's server: {name}"));
    }
    if process.forked && classify::forks_multiplexer(image) {
        return Some("a terminal multiplexer's server: screen".into());
    }
    // Many daemons are a fork of what was executed: gpg-agent, ssh-agent, dbus-daemon.
    if context.configured.keeps(image) {
        return Some("listed in [orphans] keep".into());
    }
    if let Some(name) = classify::build_server(image, comm)
        && !works_in_a_removed_directory(process)
    {
        return Some(format!("a build server: {name}"));
    }
    if let Some(name) = classify::user_daemon(image) {
        return Some(format!("a daemon of the user: {name}"));
    }
    if !process.forked && classify::agent_daemon(image) {
        return Some("the agent's own background daemon".into());
    }
    if process.launched_by == Some(Launcher::Nohup) {
        return Some("started through nohup".into());
    }
    let seen = process.inspection.as_deref()?;
    if seen.ignores_hup && context.agent_ignores_hup == Some(false) && !process.is_agent() {
        return Some("SIGHUP is ignored, as nohup leaves it".into());
    }
    if process.kind != ProcessKind::Browser
        && leads_own_session(process, seen)
        && let Some(address) = seen.listens.first()
    {
        return Some(format!("leads a session of its own and listens on {address}"));
    }
    if let Stdin::Peer(holders) = &seen.stdin
        && let Some(holder) = holders.iter().find(|holder| (context.other_agent)(**holder))
    {
        return Some(format!("its stdin is held by the agent {}, which lives", holder.pid));
    }
    None
}

fn in_doubt(process: &Process, context: &Context<'_>) -> Option<String> {
    if let Some(name) = classify::build_server(&process.image, &process.comm) {
        return Some(format!("{name}, whose directory was removed: nothing will ask for it again"));
    }
    if !process.forked && classify::browser_daemon(&process.image) {
        return Some("a browser's daemon, which later commands may look for".into());
    }
    if process.launched_by == Some(Launcher::Setsid) {
        return Some("started through setsid".into());
    }
    let seen = process.inspection.as_deref()?;
    if seen.ignores_hup && context.agent_ignores_hup.is_none() && !process.is_agent() {
        return Some("SIGHUP is ignored, as nohup leaves it, or as its agent left it: nobody looked in time".into());
    }
    if process.kind == ProcessKind::Browser {
        return None;
    }
    seen.listens.first().map(|address| format!("listens on {address}"))
}

/// A build server is there for the next build in its directory.
fn works_in_a_removed_directory(process: &Process) -> bool {
    process.inspection.as_deref().is_some_and(|seen| seen.cwd_deleted)
}

fn leads_own_session(process: &Process, seen: &Inspection) -> bool {
    seen.sid == process.id.pid.0
}
