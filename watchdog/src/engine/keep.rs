//! Keep-evidence: what says that a process is meant to stay, what leaves it open, and what says nothing.
//!
//! A terminal that others share, age, CPU time, comm or equal arguments alone prove nothing, neither guilt nor innocence.

use super::classify;
use super::effect::Effect;
use super::id::{ProcessId, Uid};
use super::input::{Inspection, Stdin};
use super::process::{Launcher, Process, Verdict};
use super::standing::Standing;
use super::{Engine, Step};
use crate::api::ProcessKind;
use crate::config::Orphans;

/// What a verdict needs to know beyond the process itself.
struct Context<'a> {
    /// `[orphans]`
    configured: &'a Orphans,
    /// The agent itself ignores SIGHUP, so that its helpers inherited that; `None` when nobody has looked.
    agent_ignores_hup: Option<bool>,
    /// Its nearest agent is dead.
    left_behind: &'a dyn Fn() -> bool,
    /// It belongs to a browser that nothing drives.
    persons_browser: &'a dyn Fn() -> bool,
    /// The session's user; `None` when it is root, who may end anybody.
    user: Option<Uid>,
    /// Why keep-evidence counts no longer: it leaks, or passes a limit.
    excess: Option<&'static str>,
    /// A process is an agent of another session, and alive.
    other_agent: &'a dyn Fn(ProcessId) -> bool,
}

/// Weighs the evidence: what is certain first, what leaves it open last.
fn weigh(process: &Process, context: &Context<'_>) -> Verdict {
    if process.adopted {
        return Verdict::Kept("adopted".into());
    }
    // Many daemons are a fork of what was executed: gpg-agent, ssh-agent, dbus-daemon.
    if context.configured.keeps(&process.image) {
        return Verdict::Kept("listed in [orphans] keep".into());
    }
    let forged = match named_daemon(process) {
        Some(name) => match contradiction(process, context) {
            None => return bounded(name, context),
            Some(forged) => Some(format!("named as {name} is, {forged}")),
        },
        None => None,
    };
    if let Some(reason) = shows_to_stay(process, context) {
        return bounded(reason, context);
    }
    if let Some(forged) = forged {
        return Verdict::Unknown(forged);
    }
    in_doubt(process, context).map_or(Verdict::Clear, Verdict::Unknown)
}

/// Evidence that a process can make itself lasts only as long as the process is no burden.
fn bounded(reason: String, context: &Context<'_>) -> Verdict {
    match context.excess {
        None => Verdict::Kept(reason),
        Some(excess) => Verdict::Unknown(format!("{excess}, so that this does not keep it: {reason}")),
    }
}

/// A daemon that people install for the whole host, by its name.
fn named_daemon(process: &Process) -> Option<String> {
    let (image, comm) = (&process.image, process.comm.as_str());
    // tmux's server is a fork of its first client, and executes nothing.
    if let Some(name) = classify::multiplexer(image, comm) {
        return Some(format!("a terminal multiplexer's server: {name}"));
    }
    if process.forked && classify::forks_multiplexer(image) {
        return Some("a terminal multiplexer's server: screen".into());
    }
    classify::user_daemon(image).map(|name| format!("a daemon of the user: {name}"))
}

/// Why the executable speaks against the name of such a daemon: the session's user can give any file that name, or any comm
/// and argv[0] to a program of the system. `None` as long as the process was not inspected.
fn contradiction(process: &Process, context: &Context<'_>) -> Option<String> {
    let executable = process.inspection.as_deref()?.executable.as_ref()?;
    let path = &executable.path;
    if !classify::bears_name(&process.image, path) {
        return Some(format!("but it executes {path}"));
    }
    (!executable.of_root && context.user.is_some()).then(|| format!("but others than root can change {path}"))
}

fn shows_to_stay(process: &Process, context: &Context<'_>) -> Option<String> {
    let (image, comm) = (&process.image, process.comm.as_str());
    if let Some(name) = classify::build_server(image, comm)
        && !works_in_a_removed_directory(process)
    {
        return Some(format!("a build server: {name}"));
    }
    if classify::editor_server(image) {
        return Some("a daemon of the user: an editor's server".into());
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
    // A package manager behind sudo, say: the user of the session could not end it either.
    if let Some(user) = context.user.filter(|user| *user != process.uid) {
        return Some(format!("runs as uid {}, and its session as uid {}", process.uid.0, user.0));
    }
    if let Some(name) = classify::build_server(&process.image, &process.comm) {
        return Some(format!("{name}, whose directory was removed: nothing will ask for it again"));
    }
    if !process.forked && classify::browser_daemon(&process.image) {
        return Some("a browser's daemon, which later commands may look for".into());
    }
    match process.launched_by {
        Some(Launcher::Setsid) => return Some("started through setsid".into()),
        Some(Launcher::Desktop) => return Some("opened on the desktop, as xdg-open does".into()),
        Some(Launcher::Nohup) | None => {}
    }
    if (context.persons_browser)() {
        return Some("a browser that nothing drives: a person may".into());
    }
    if let Some(name) = classify::not_half_done(&process.image) {
        return Some(format!("{name}, whose work must not be left half done"));
    }
    if !process.forked && classify::holds_containers(&process.image) {
        return Some("takes the containers that it started with it".into());
    }
    let seen = process.inspection.as_deref()?;
    if seen.ignores_hup && context.agent_ignores_hup.is_none() && !process.is_agent() {
        return Some("SIGHUP is ignored, as nohup leaves it, or as its agent left it: nobody looked in time".into());
    }
    if process.kind == ProcessKind::Browser {
        return None;
    }
    // The other end is held open: by the window in front of somebody, or a multiplexer. Of a living agent's commands, by it.
    let serves = matches!(process.kind, ProcessKind::Tool | ProcessKind::Other);
    if serves && seen.tty && leads_own_session(process, seen) && (context.left_behind)() {
        return Some("has a terminal of its own".into());
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

impl Engine {
    /// It is, or belongs to, a browser that neither its own arguments nor a server above it say to be driven by a program.
    fn is_persons_browser(&self, process: &Process) -> bool {
        if process.kind != ProcessKind::Browser {
            return false;
        }
        let mut all = std::iter::once(process).chain(self.table.above(process.id));
        let driver = all.find(|other| other.kind != ProcessKind::Browser || !classify::persons_browser(&other.image));
        driver.is_none_or(|driver| !matches!(driver.kind, ProcessKind::Browser | ProcessKind::McpServer))
    }
}

impl Step<'_> {
    /// Weighs the keep-evidence of a process anew.
    pub(super) fn judge(&mut self, process: ProcessId) {
        let engine = &*self.engine;
        let Some(known) = engine.table.get(process) else { return };
        let session = engine.sessions.get(known.session);
        let root = session.and_then(|session| engine.table.get(session.root));
        // An agent that was started inside another's session talks to that one: this is no reason to outlive it.
        let above = |session| {
            let mut outer = std::iter::successors(Some(known.session), |id| engine.sessions.get(*id)?.parent);
            outer.any(|id| id == session)
        };
        let other_agent = |holder: ProcessId| {
            engine.table.alive(holder).is_some_and(|agent| agent.is_agent() && !above(agent.session))
        };
        let context = Context {
            configured: &engine.config.orphans,
            agent_ignores_hup: session
                .and_then(|session| session.ignores_hup)
                .or_else(|| root?.inspection.as_deref().map(|seen| seen.ignores_hup)),
            left_behind: &|| matches!(engine.standing(known), Standing::Orphan { .. }),
            persons_browser: &|| engine.is_persons_browser(known),
            user: session.map(|session| session.uid).filter(|user| *user != Uid::ROOT),
            excess: engine.excesses.get(&process).copied(),
            other_agent: &other_agent,
        };
        let verdict = weigh(known, &context);
        if let Some(known) = self.engine.table.get_mut(process)
            && known.verdict != verdict
        {
            if verdict == Verdict::Clear {
                known.cleared = Some(self.now);
            }
            let uninspected = verdict.is_kept() && known.inspection.is_none();
            known.verdict = verdict;
            self.engine.orphans.changed();
            // What its name says is checked against its executable.
            if uninspected {
                self.effect(Effect::Inspect(process));
            }
        }
    }

    pub(super) fn judge_all(&mut self) {
        // What the dead showed is not known any more, and still protects what they forked.
        let all: Vec<ProcessId> = self.engine.table.living().map(|process| process.id).collect();
        for process in all {
            self.judge(process);
            self.may_be_orphan(process);
        }
    }
}
