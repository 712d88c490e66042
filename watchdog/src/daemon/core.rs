//! The engine with what stands closest to it: it counts what the engine is told, writes the journal that it asks for, and
//! answers requests. No input or output but two clocks and the names of users; what else the engine asks for is handed on.

mod act;
mod gate;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::chronicle::{self, Chronicle};
use super::clients::Clients;
use super::historian::Historian;
use super::journal::{Audience, Journal};
use super::metrics::{Metrics, Scrape};
use super::notify::Notifier;
use super::recorder::Recorder;
use super::request::{Reply, Request};
use crate::api::{Capability, Status, SubagentAnswer, Tracking};
use crate::config::Config;
use crate::engine::Engine;
use crate::engine::effect::{Effect, Happening, JournalEntry};
use crate::engine::gate::{GateRecord, Withdrawal};
use crate::engine::id::{ActionId, BootTime, ProcessId, SessionId, Uid};
use crate::engine::input::{HostMemory, Input, KernelEvent, Lineage};
use crate::engine::view::{Naming, Viewer};
use crate::host::clock;
use crate::host::users::Users;

/// The engine, its journal and its counters.
pub(super) struct Core {
    engine: Engine,
    journal: Journal,
    chronicle: Chronicle,
    clients: Clients,
    /// Who waits for the decision about a subagent, while the engine makes it.
    subagent: Option<Reply<SubagentAnswer>>,
    /// The actions that the request just told to the engine began.
    begun: Vec<ActionId>,
    profiles: BTreeSet<String>,
    metrics: Arc<Metrics>,
    users: RefCell<Users>,
    /// Whose agent a session belongs to: the journal still asks when the agent has long been dead.
    session_owners: HashMap<SessionId, Uid>,
    started: BootTime,
    facts: Facts,
    recorder: Option<Recorder>,
    notifier: Option<Notifier>,
}

/// What the daemon knows about itself and its host.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// How processes are followed.
    pub(super) tracking: Tracking,
    /// Something that the daemon relies on is missing.
    pub(super) degraded: bool,
    /// What this host gives.
    pub(super) capabilities: Vec<Capability>,
    /// Memory of the host, as last read.
    pub(super) host: HostMemory,
    /// The table has been built, and checked once.
    pub(super) ready: bool,
}

impl Core {
    /// An engine that knows nothing yet.
    pub(super) fn new(config: Arc<Config>, metrics: Arc<Metrics>, history: Historian, facts: Facts) -> Self {
        Self {
            journal: Journal::new(config.daemon.journal_events),
            chronicle: Chronicle::new(history, &config),
            clients: Clients::default(),
            subagent: None,
            begun: Vec::new(),
            profiles: gate::names(&config),
            engine: Engine::new(config),
            metrics,
            users: RefCell::default(),
            session_owners: HashMap::new(),
            started: clock::now(),
            facts,
            recorder: None,
            notifier: None,
        }
    }

    /// Has everything recorded that the engine will be told.
    pub(super) fn record_to(&mut self, recorder: Option<Recorder>) {
        self.recorder = recorder;
    }

    /// Has others told what is done.
    pub(super) fn notify_through(&mut self, notifier: Notifier) {
        self.notifier = Some(notifier);
    }

    /// What the daemon knows about itself, to be brought up to date.
    pub(super) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Whether the host's memory was looked at.
    pub(super) fn knows_host(&self) -> bool {
        self.facts.host != HostMemory::default()
    }

    /// Tells the engine something, and appends what is to be done about it to `effects`.
    pub(super) fn tell(&mut self, now: BootTime, input: Input, effects: &mut Vec<Effect>) {
        match &input {
            Input::Kernel(event) => self.metrics.event(event),
            Input::Host(host) => self.facts.host = *host,
            Input::Lost(_)
            | Input::Scan(_)
            | Input::Samples(_)
            | Input::Zombies(_)
            | Input::Containers(..)
            | Input::Inspected(..)
            | Input::Limits(..)
            | Input::OomSeen(_)
            | Input::Watchdog(_)
            | Input::Activity(_)
            | Input::Tmpfs(_)
            | Input::Adopt(_)
            | Input::Launch(_)
            | Input::Room(..)
            | Input::Withdraw(..)
            | Input::Restore(_)
            | Input::Absence(_)
            | Input::Subagent(_)
            | Input::Confined(..)
            | Input::CgroupMembers(..)
            | Input::Rights(_)
            | Input::Resume(_)
            | Input::Ask(_)
            | Input::Struck(_)
            | Input::UserIds(_)
            | Input::Unadopt(_)
            | Input::Tick => {}
        }
        // Asked now: after an exit the engine may have forgotten the process.
        let subject = subject(&input).and_then(|process| Some((process, self.engine.owner(process)?)));
        let measured = matches!(input, Input::Host(_));
        if let Some(recorder) = &mut self.recorder {
            recorder.told(now, &input);
        }
        let mut asked = Vec::new();
        self.engine.step(now, input, &mut asked);
        self.absorb(asked, subject, effects);
        if measured {
            self.with_naming(|engine, naming| self.chronicle.host(now, &self.facts.host, engine, naming));
        }
    }

    /// The kernel dropped records: of the lives and deaths of processes, and of close watch.
    pub(super) fn lost(&mut self, now: BootTime, lifecycle: u64, memory: u64, effects: &mut Vec<Effect>) {
        self.metrics.lost(lifecycle + memory);
        if lifecycle > 0 {
            self.tell(now, Input::Lost(lifecycle), effects);
        }
    }

    /// Who may hold the other end of a helper's stdin.
    pub(super) fn peers(&self) -> Vec<ProcessId> {
        self.engine.agents()
    }

    /// Counts what may change where processes belong.
    pub(super) fn moves(&self) -> u64 {
        self.engine.moves()
    }

    /// Where the living processes belong.
    pub(super) fn lineages(&self) -> Vec<(ProcessId, Lineage)> {
        self.engine.lineages()
    }

    /// How long the next [`tick`](Self::tick) may be in coming.
    pub(super) fn next_tick(&self, now: BootTime) -> Duration {
        self.engine.next_tick(now)
    }

    /// Whether an event must be told at once.
    pub(super) fn is_urgent(&self, event: &KernelEvent) -> bool {
        self.engine.is_urgent(event)
    }

    /// Does what is due from time to time.
    pub(super) fn tick(&mut self, now: BootTime, effects: &mut Vec<Effect>) {
        self.tell(now, Input::Tick, effects);
        self.journal.tend();
    }

    /// Answers a request. An asker that has gone away is no error.
    pub(super) fn answer(&mut self, now: BootTime, request: Request, effects: &mut Vec<Effect>) {
        match request {
            Request::Status(viewer, reply) => drop(reply.send(self.status(viewer))),
            Request::Tree(viewer, reply) => {
                drop(reply.send(self.with_naming(|engine, naming| engine.tree(viewer, naming))));
            }
            Request::Findings { viewer, all, reply } => {
                drop(reply.send(self.with_naming(|engine, naming| engine.findings(viewer, naming, all))));
            }
            Request::Explain(viewer, who, reply) => {
                drop(reply.send(self.with_naming(|engine, naming| engine.explain(viewer, naming, now, who))));
            }
            Request::Events(viewer, since, reply) => drop(reply.send(self.journal.read(viewer, since))),
            Request::Follow(viewer, since, reply) => drop(reply.send(self.journal.follow(viewer, since))),
            Request::Adopt { viewer, subject, undo, reply } => {
                let adopted = self.adopt(now, viewer, subject, undo, effects);
                drop(reply.send(adopted));
            }
            Request::Act { ask, dry_run, reply } => {
                let planned = self.act(now, ask, dry_run, effects);
                drop(reply.send(planned));
            }
            Request::Actions(viewer, reply) => {
                drop(reply.send(self.with_naming(|engine, naming| engine.actions(viewer, naming))));
            }
            Request::Launch(launch, reply) => self.launch(now, launch, reply, effects),
            Request::Left(process, ticket) => {
                if self.clients.left(process, ticket) {
                    self.tell(now, Input::Withdraw(process, Withdrawal::Gone), effects);
                }
            }
            Request::Queue(viewer, reply) => {
                drop(reply.send(self.with_naming(|engine, naming| engine.queue(now, viewer, naming))));
            }
            Request::Cancel(viewer, pid, reply) => {
                let cancelled = self.cancel(now, viewer, pid, effects);
                drop(reply.send(cancelled));
            }
            Request::Subagent(call, reply) => {
                self.subagent = Some(reply);
                self.tell(now, Input::Subagent(call), effects);
            }
            Request::Scrape(reply) => drop(reply.send(self.scrape())),
            Request::Ready(reply) => drop(reply.send(self.facts.ready)),
            Request::Reconfigure { config, text, reply } => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.configured(now, &text);
                }
                self.journal.resize(config.daemon.journal_events);
                self.chronicle.reconfigure(&config);
                if let Some(notifier) = &self.notifier {
                    notifier.reconfigure(&config.actions.notify);
                }
                self.profiles = gate::names(&config);
                let mut asked = Vec::new();
                self.engine.reconfigure(now, config, &mut asked);
                self.absorb(asked, None, effects);
                let _ = reply.send(());
            }
        }
    }

    /// Does itself what needs nobody else, and hands on the rest.
    fn absorb(&mut self, asked: Vec<Effect>, subject: Option<(ProcessId, Uid)>, effects: &mut Vec<Effect>) {
        // Whose grant is new: it is to be remembered. One that is told once more, to a client that lost the answer, is not.
        let mut new = BTreeSet::new();
        for effect in asked {
            match &effect {
                Effect::Remember(GateRecord::Granted(lease)) => drop(new.insert(lease.process)),
                Effect::Granted(granted) if new.contains(&granted.lease.process) => {
                    self.metrics.granted(self.label(&granted.lease.profile), granted.waited);
                }
                _ => {}
            }
            match effect {
                Effect::Journal(entry) => self.record(&entry, subject),
                Effect::Latency(latency) => self.metrics.latency(latency),
                Effect::Died(death) => {
                    self.metrics.death(death.facts.cause);
                    self.with_naming(|_, naming| self.chronicle.death(&death, naming));
                }
                Effect::Subagent(decision) => {
                    if let Some(reply) = self.subagent.take() {
                        drop(reply.send(gate::subagent_answer(decision)));
                    }
                }
                Effect::EndUngated(process, authority) => {
                    // Told before it is done.
                    let (owner, session) = (self.engine.owner(process), self.engine.session_of(process));
                    self.with_naming(|_, naming| {
                        self.chronicle.ended_ungated(process, session, owner, naming.moment(clock::now()));
                    });
                    effects.push(Effect::EndUngated(process, authority));
                }
                Effect::BeginAction(action) => {
                    self.tell_receipt(action.id);
                    effects.push(Effect::BeginAction(action));
                }
                Effect::Receipt(action) => self.tell_receipt(action),
                Effect::Asked(begun) => self.begun = begun,
                other => effects.push(other),
            }
        }
    }

    /// Writes down how far an action is, and has those told who are to know.
    fn tell_receipt(&self, action: ActionId) {
        self.with_naming(|engine, naming| {
            if let Some((owner, receipt)) = engine.receipt(action, naming) {
                self.metrics.action(&receipt);
                if let Some(notifier) = &self.notifier {
                    notifier.receipt(&receipt);
                }
                self.chronicle.action(receipt, owner, naming.moment(clock::now()));
            }
        });
    }

    fn record(&mut self, entry: &JournalEntry, subject: Option<(ProcessId, Uid)>) {
        let owner = entry.process.and_then(|process| {
            let before = subject.filter(|(known, _)| *known == process).map(|(_, uid)| uid);
            self.engine.owner(process).or(before)
        });
        if let Happening::SessionStarted { .. } = entry.what
            && let (Some(session), Some(owner)) = (entry.session, owner)
        {
            self.session_owners.insert(session, owner);
        }
        let audience = self.audience(entry, owner);
        if let (Happening::SessionEnded, Some(session)) = (&entry.what, entry.session) {
            self.session_owners.remove(&session);
        }
        let moment = self.with_naming(|engine, naming| {
            self.chronicle.journal(entry, owner, engine, naming);
            naming.moment(entry.at)
        });
        if let (Happening::ActionsHeldBack { detail }, Some(notifier)) = (&entry.what, &self.notifier) {
            notifier.held_back(moment.clone(), detail);
        }
        self.journal.write(entry, moment, audience);
    }

    fn audience(&self, entry: &JournalEntry, owner: Option<Uid>) -> Audience {
        // An exec carries argv, which a user may see of own processes only; a session can hold another user's.
        let carries_argv = matches!(entry.what, Happening::Exec { .. });
        let of_session = entry.session.filter(|_| !carries_argv).and_then(|session| self.session_owners.get(&session));
        match (owner.or(of_session.copied()), entry.process, entry.session) {
            (Some(owner), _, _) => Audience::Owner(owner),
            (None, None, None) => Audience::Everyone,
            (None, _, _) => Audience::Root,
        }
    }

    fn status(&self, viewer: Viewer) -> Status {
        let Facts { tracking, degraded, capabilities, host, ready: _ } = &self.facts;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_at: self.with_naming(|_, naming| naming.moment(self.started)),
            degraded: *degraded || tracking.untracked > 0,
            tracking: *tracking,
            capabilities: capabilities.clone(),
            counts: self.engine.counts(viewer),
            host: chronicle::shown_host(host),
            breaker_open: self.engine.breaker_open(),
            lost_events: self.metrics.lost_so_far(),
            reconciles: self.engine.gauges().reconciles,
            history: Some(self.chronicle.state()),
            set_aside: self.chronicle.set_aside(),
        }
    }

    fn scrape(&self) -> Scrape {
        Scrape {
            gauges: self.engine.gauges(),
            host: self.facts.host,
            tracking: self.facts.tracking,
            degraded: self.facts.degraded,
            follower_drops: self.journal.dropped(),
            history: self.chronicle.state(),
            queue_depth: self.engine.queue_depth() as u64,
            breaker_open: self.engine.breaker_open(),
        }
    }

    fn with_naming<T>(&self, look: impl FnOnce(&Engine, &Naming<'_>) -> T) -> T {
        let user = |uid| self.users.borrow_mut().name(uid);
        look(&self.engine, &Naming { boot: clock::boot_wall_time(), user: &user })
    }
}

/// The one process that an input is about.
fn subject(input: &Input) -> Option<ProcessId> {
    match input {
        Input::Kernel(event) => match event {
            KernelEvent::Fork(fork) => Some(fork.process),
            KernelEvent::Exec(exec) => Some(exec.process),
            KernelEvent::Exit(exit) => Some(exit.process),
            KernelEvent::Oom(oom) => oom.process,
            KernelEvent::Signal(signal) => Some(signal.process),
            KernelEvent::MemoryStep(sample) => Some(sample.process),
            KernelEvent::Reclaim(reclaim) => Some(reclaim.process),
            KernelEvent::Denied(denied) => Some(denied.process),
        },
        Input::Inspected(process, _)
        | Input::Containers(process, _)
        | Input::Limits(process, _)
        | Input::Adopt(process)
        | Input::Unadopt(process) => Some(*process),
        Input::Lost(_)
        | Input::Scan(_)
        | Input::Samples(_)
        | Input::Zombies(_)
        | Input::OomSeen(_)
        | Input::Watchdog(_)
        | Input::Host(_)
        | Input::Activity(_)
        | Input::Tmpfs(_)
        | Input::Launch(_)
        | Input::Room(..)
        | Input::Withdraw(..)
        | Input::Restore(_)
        | Input::Absence(_)
        | Input::Subagent(_)
        | Input::Confined(..)
        | Input::CgroupMembers(..)
        | Input::Rights(_)
        | Input::Resume(_)
        | Input::Ask(_)
        | Input::Struck(_)
        | Input::UserIds(_)
        | Input::Tick => None,
    }
}

#[cfg(test)]
mod notify_tests;
