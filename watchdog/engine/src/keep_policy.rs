//! Keep-evidence: what shows that a process should stay, what leaves it open, and what shows nothing.
//!
//! A terminal that others share, age, CPU time, comm or equal arguments alone prove nothing, neither guilt nor innocence.

use std::fmt;

use super::effect::Effect;
use super::ownership::{self, Ownership};
use super::process::{Launcher, TrackedProcess, Verdict};
use super::{Engine, Step};
use watchdog_api::ProcessKind;
use watchdog_classify as classify;
use watchdog_config::OrphansConfig;
use watchdog_types::{Inspection, ProcessId, Stdin, Uid};

/// The facts beyond the process itself that a verdict depends on.
struct Context<'a> {
    /// `[orphans]`
    configured: &'a OrphansConfig,
    /// The agent itself ignores SIGHUP, so that its helpers inherited that; `None` before its first inspection.
    agent_ignores_hup: Option<bool>,
    /// Its nearest agent is dead.
    left_behind: &'a dyn Fn() -> bool,
    /// The dead keeper that left it behind, where that held programs of a person.
    of_dead_keeper: &'a dyn Fn() -> Option<String>,
    /// It belongs to a browser that nothing drives.
    persons_browser: &'a dyn Fn() -> bool,
    /// The session's user; `None` for root, which may kill any process.
    user: Option<Uid>,
    /// Why keep-evidence counts no longer: it leaks, or passes a limit.
    excess: Option<&'static str>,
    /// A process is an agent of another session, and alive.
    other_agent: &'a dyn Fn(ProcessId) -> bool,
}

/// Weighs the evidence: what is certain first, what leaves it open last.
fn verdict_of(process: &TrackedProcess, context: &Context<'_>) -> Verdict {
    if process.adopted {
        return Verdict::Kept("adopted".into());
    }
    // Many daemons are a fork of what was executed: gpg-agent, ssh-agent, dbus-daemon.
    if context.configured.keeps(&process.image) {
        return Verdict::Kept("listed in [orphans] keep".into());
    }
    let mut doubt = None;
    if let Some(service) = Service::of(process) {
        doubt = service.doubt(process, context);
        if doubt.is_none() {
            return bounded(service.to_string(), context);
        }
    }
    if let Some(reason) = keep_reason(process, context) {
        return bounded(reason, context);
    }
    if let Some(doubt) = doubt {
        return Verdict::Unknown(doubt);
    }
    uncertain_reason(process, context).map_or(Verdict::Clear, Verdict::Unknown)
}

/// Evidence that a process can make itself lasts only as long as the process is no burden.
fn bounded(reason: String, context: &Context<'_>) -> Verdict {
    match context.excess {
        None => Verdict::Kept(reason),
        Some(excess) => Verdict::Unknown(format!("{excess}, so that this does not keep it: {reason}")),
    }
}

/// A program that outlives its agent on purpose, as its name says: any process can take that name.
#[derive(Clone, Copy)]
enum Service {
    Multiplexer(&'static str),
    UserDaemon(&'static str),
    BuildServer(&'static str),
    EditorServer,
    AgentDaemon,
}

impl Service {
    fn of(process: &TrackedProcess) -> Option<Self> {
        let (image, comm) = (&process.image, process.comm.as_str());
        // tmux's server is a fork of its first client, and executes nothing.
        if let Some(name) = classify::multiplexer(image, comm) {
            return Some(Self::Multiplexer(name));
        }
        if process.forked && classify::forks_multiplexer(image) {
            return Some(Self::Multiplexer("screen"));
        }
        if let Some(name) = classify::user_daemon(image) {
            return Some(Self::UserDaemon(name));
        }
        if let Some(name) = classify::build_server(image, comm)
            && !works_in_a_removed_directory(process)
        {
            return Some(Self::BuildServer(name));
        }
        if classify::editor_server(image) {
            return Some(Self::EditorServer);
        }
        (!process.forked && classify::agent_daemon(image)).then_some(Self::AgentDaemon)
    }

    /// Why the name proves nothing; `None` when the executable confirms it. Recordings of earlier versions have none.
    fn doubt(self, process: &TrackedProcess, context: &Context<'_>) -> Option<String> {
        let Some(seen) = process.inspection.as_deref() else {
            return Some(format!("named as {self} is, and its executable has not been read yet"));
        };
        let executable = seen.executable.as_ref()?;
        let (image, path) = (&process.image, &executable.path);
        let is_confirmed = match self {
            Self::Multiplexer(name) => classify::bears_name(name, path),
            Self::UserDaemon(_) => classify::can_be_user_daemon(image, path),
            Self::BuildServer(_) => classify::can_be_build_server(image, &process.comm, path),
            Self::EditorServer => classify::can_be_editor_server(image, path),
            Self::AgentDaemon => classify::can_be_agent_daemon(image, path),
        };
        if !is_confirmed {
            return Some(format!("named as {self} is, but it executes {path}"));
        }
        // These are installed for the whole host; a user can give any file such a name.
        let is_of_host = matches!(self, Self::Multiplexer(_) | Self::UserDaemon(_));
        (is_of_host && !executable.of_root && context.user.is_some())
            .then(|| format!("named as {self} is, but others than root can change {path}"))
    }
}

impl fmt::Display for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Multiplexer(name) => write!(out, "a terminal multiplexer's server: {name}"),
            Self::UserDaemon(name) => write!(out, "a daemon of the user: {name}"),
            Self::BuildServer(name) => write!(out, "a build server: {name}"),
            Self::EditorServer => out.write_str("a daemon of the user: an editor's server"),
            Self::AgentDaemon => out.write_str("the agent's own background daemon"),
        }
    }
}

fn keep_reason(process: &TrackedProcess, context: &Context<'_>) -> Option<String> {
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

fn uncertain_reason(process: &TrackedProcess, context: &Context<'_>) -> Option<String> {
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
        Some(Launcher::Daemonize) => return Some("started as a daemon, as start-stop-daemon does".into()),
        Some(Launcher::Desktop) => return Some("opened on the desktop, as xdg-open does".into()),
        Some(Launcher::Nohup) | None => {}
    }
    if let Some(keeper) = (context.of_dead_keeper)() {
        return Some(format!("ran below {keeper}, which has exited: a person may have started it"));
    }
    if (context.persons_browser)() {
        return Some("a browser that nothing drives: a person may".into());
    }
    if classify::stays_connected(&process.image) {
        return Some("a connection that was sent to the background, as ssh -f does".into());
    }
    if let Some(name) = classify::not_half_done(&process.image) {
        return Some(format!("{name}, whose work must not be left half done"));
    }
    if !process.forked && classify::holds_containers(&process.image) {
        return Some("takes the containers that it started with it".into());
    }
    let seen = process.inspection.as_deref()?;
    if seen.ignores_hup && context.agent_ignores_hup.is_none() && !process.is_agent() {
        return Some(
            "SIGHUP is ignored, as nohup leaves it, or as its agent left it: it was not inspected in time".into(),
        );
    }
    if process.kind == ProcessKind::Browser {
        return None;
    }
    // The other end is held open: by a terminal window or a multiplexer. A living agent holds those of its commands.
    let serves = matches!(process.kind, ProcessKind::Tool | ProcessKind::Other);
    if serves && seen.tty && leads_own_session(process, seen) && (context.left_behind)() {
        return Some("has a terminal of its own".into());
    }
    seen.listens.first().map(|address| format!("listens on {address}"))
}

/// A build server is there for the next build in its directory.
fn works_in_a_removed_directory(process: &TrackedProcess) -> bool {
    process.inspection.as_deref().is_some_and(|seen| seen.cwd_deleted)
}

fn leads_own_session(process: &TrackedProcess, seen: &Inspection) -> bool {
    seen.sid == process.id.pid.0
}

impl Engine {
    /// The dead keeper of a process, where it ran what a person asked for: a pane of tmux, a window of an editor.
    fn dead_keeper_of_persons_programs(&self, process: &TrackedProcess) -> Option<String> {
        let keeper = ownership::dead_keeper(&self.table, &self.sessions, process)?;
        let service = Service::of(keeper)?;
        let runs_any_program = match service {
            Service::Multiplexer(_) | Service::UserDaemon(_) | Service::EditorServer | Service::AgentDaemon => true,
            Service::BuildServer(_) => false,
        };
        runs_any_program.then(|| format!("{service} (pid {})", keeper.id.pid))
    }

    /// It is, or belongs to, a browser that neither its own arguments nor a server above it say to be driven by a program.
    fn is_persons_browser(&self, process: &TrackedProcess) -> bool {
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
    pub(super) fn update_verdict(&mut self, process: ProcessId) {
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
            left_behind: &|| matches!(engine.ownership(known), Ownership::Orphan { .. }),
            of_dead_keeper: &|| engine.dead_keeper_of_persons_programs(known),
            persons_browser: &|| engine.is_persons_browser(known),
            user: session.map(|session| session.uid).filter(|user| *user != Uid::ROOT),
            excess: engine.excesses.get(&process).copied(),
            other_agent: &other_agent,
        };
        let verdict = verdict_of(known, &context);
        if let Some(known) = self.engine.table.get_mut(process)
            && known.verdict != verdict
        {
            if verdict == Verdict::Clear {
                known.cleared = Some(self.now);
            }
            let uninspected = verdict != Verdict::Clear && known.inspection.is_none();
            known.verdict = verdict;
            self.engine.detectors.changed();
            self.engine.table.bump_generation();
            // What its name says is checked against its executable.
            if uninspected {
                self.effect(Effect::Inspect(process));
            }
        }
    }

    /// An agent died that may have held the stdin of another agent's helper, which kept that.
    pub(super) fn update_verdicts_of_peers(&mut self, dead: ProcessId) {
        if !self.engine.table.get(dead).is_some_and(TrackedProcess::is_agent) {
            return;
        }
        let holds = |process: &&TrackedProcess| {
            let stdin = process.inspection.as_deref().map(|seen| &seen.stdin);
            matches!(stdin, Some(Stdin::Peer(holders)) if holders.contains(&dead))
        };
        let held: Vec<ProcessId> = self.engine.table.living().filter(holds).map(|process| process.id).collect();
        for process in held {
            self.update_verdict(process);
            self.place(process);
        }
    }

    /// A keeper died: what it left has its group from now on.
    pub(super) fn update_verdicts_below_keeper(&mut self, dead: ProcessId) {
        if !self.engine.table.get(dead).is_some_and(|dead| dead.verdict.is_kept()) {
            return;
        }
        let left: Vec<ProcessId> = self.engine.table.living_below(dead).map(|process| process.id).collect();
        for process in left {
            self.update_verdict(process);
            self.place(process);
        }
    }

    pub(super) fn update_verdicts(&mut self) {
        // Evidence about dead parents is lost, but it still protects their children.
        let all: Vec<ProcessId> = self.engine.table.living().map(|process| process.id).collect();
        for process in all {
            self.update_verdict(process);
            self.place(process);
        }
    }
}
