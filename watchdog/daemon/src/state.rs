//! The engine with its journal, counters and waiting clients: feeds the engine, answers requests, and handles the effects
//! that need no worker. Reads two clocks and user names; has no other I/O.

mod launches;
mod overview;
mod requests;
mod subject;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::history_filter::HistoryFilter;
use super::history_writer::HistoryWriter;
use super::journal::{Audience, Journal};
use super::launch_waiters::LaunchWaiters;
use super::metrics::Metrics;
use super::notify::Notifier;
use super::recorder::Recorder;
use super::request::{EngineRequest, Reply};
use watchdog_api::{Capability, SubagentAnswer, Tracking};
use watchdog_config::Config;
use watchdog_engine::Engine;
use watchdog_engine::effect::{
    ActionCommand, ClientReply, ConfineCommand, Effect, JournalEntry, JournalEvent, PersistCommand,
};
use watchdog_engine::gate::{Cancellation, GateRecord};
use watchdog_engine::input::Input;
use watchdog_engine::view::DisplayContext;
use watchdog_host::clock;
use watchdog_host::namespaces::PidNamespace;
use watchdog_host::passwd::UserNames;
use watchdog_types::{ActionId, BootTime, HostMemory, KernelEvent, Lineage, ProcessId, SessionId, Uid};

pub(super) struct DaemonState {
    engine: Engine,
    journal: Journal,
    history: HistoryFilter,
    waiters: LaunchWaiters,
    /// Waits for the decision about a subagent, while the engine makes it.
    subagent: Option<Reply<SubagentAnswer>>,
    /// The actions that the request in progress started.
    begun: Vec<ActionId>,
    profiles: BTreeSet<String>,
    metrics: Arc<Metrics>,
    users: RefCell<UserNames>,
    /// The user of a session's agent: the journal needs it after the agent's exit.
    session_owners: HashMap<SessionId, Uid>,
    started: BootTime,
    facts: DaemonFacts,
    recorder: Option<Recorder>,
    notifier: Option<Notifier>,
    /// A buffer for the effects of one input. A new allocation of this size for each made glibc consolidate its free chunks.
    asked: Vec<Effect>,
}

/// Effects that the kept buffer has room for.
const EFFECTS_KEPT: usize = 32;

#[derive(Clone, Debug, Default)]
pub(super) struct DaemonFacts {
    pub(super) tracking: Tracking,
    /// Something that the daemon relies on is missing.
    pub(super) degraded: bool,
    pub(super) capabilities: Vec<Capability>,
    /// `None` for the initial one.
    pub(super) pid_namespace: Option<PidNamespace>,
    /// As last read.
    pub(super) host: HostMemory,
    /// The process table is complete.
    pub(super) ready: bool,
}

impl DaemonState {
    pub(super) fn new(config: Arc<Config>, metrics: Arc<Metrics>, history: HistoryWriter, facts: DaemonFacts) -> Self {
        let profiles = launches::names(&config);
        metrics.know_profiles(&profiles);
        Self {
            journal: Journal::new(config.daemon.journal_events),
            history: HistoryFilter::new(history, &config),
            waiters: LaunchWaiters::default(),
            subagent: None,
            begun: Vec::new(),
            profiles,
            engine: Engine::new(config),
            metrics,
            users: RefCell::default(),
            session_owners: HashMap::new(),
            started: clock::now(),
            facts,
            recorder: None,
            notifier: None,
            asked: Vec::with_capacity(EFFECTS_KEPT),
        }
    }

    pub(super) fn record_to(&mut self, recorder: Option<Recorder>) {
        self.recorder = recorder;
    }

    pub(super) fn notify_through(&mut self, notifier: Notifier) {
        self.notifier = Some(notifier);
    }

    pub(super) fn facts_mut(&mut self) -> &mut DaemonFacts {
        &mut self.facts
    }

    pub(super) fn knows_host(&self) -> bool {
        self.facts.host != HostMemory::default()
    }

    pub(super) fn feed(&mut self, now: BootTime, input: Input, effects: &mut Vec<Effect>) {
        let measured = matches!(input, Input::Host(_));
        match &input {
            Input::Kernel(event) => self.metrics.event(event),
            Input::Host(host) => self.facts.host = *host,
            _ => {}
        }
        // Read before the step: after an exit the engine may have forgotten the process.
        let subject = subject::subject(&input).and_then(|process| Some((process, self.engine.owner(process)?)));
        if let Some(recorder) = &mut self.recorder {
            recorder.record_input(now, &input);
        }
        let mut asked = std::mem::take(&mut self.asked);
        self.engine.step(now, input, &mut asked);
        self.handle_effects(&mut asked, subject, effects);
        asked.shrink_to(EFFECTS_KEPT);
        self.asked = asked;
        if measured {
            self.with_naming(|engine, naming| self.history.host(now, &self.facts.host, engine, naming));
        }
    }

    /// The kernel dropped records: of process lifecycles, and of close watch.
    pub(super) fn lost(&mut self, now: BootTime, lifecycle: u64, memory: u64, effects: &mut Vec<Effect>) {
        self.metrics.lost(lifecycle + memory);
        if lifecycle > 0 {
            self.feed(now, Input::Lost(lifecycle), effects);
        }
    }

    /// Processes that may hold the other end of a helper's stdin.
    pub(super) fn stdin_peers(&self) -> Vec<ProcessId> {
        self.engine.agents()
    }

    /// Changes whenever the lineage of a process may have changed.
    pub(super) fn generation(&self) -> u64 {
        self.engine.generation()
    }

    pub(super) fn lineages(&self) -> Vec<(ProcessId, Lineage)> {
        self.engine.lineages()
    }

    /// The longest time until the next [`tick`](Self::tick).
    pub(super) fn next_tick(&self, now: BootTime) -> Duration {
        self.engine.next_tick(now)
    }

    /// Whether something waits for events of any kind.
    pub(super) fn awaits_events(&self) -> bool {
        self.engine.awaits_events()
    }

    /// Whether an event must be handled at once.
    pub(super) fn is_urgent(&self, event: &KernelEvent) -> bool {
        self.engine.is_urgent(event)
    }

    pub(super) fn tick(&mut self, now: BootTime, effects: &mut Vec<Effect>) {
        self.feed(now, Input::Tick, effects);
        self.journal.prune_followers();
    }

    /// Answers a request. A client that has disconnected is no error.
    pub(super) fn answer(&mut self, now: BootTime, request: EngineRequest, effects: &mut Vec<Effect>) {
        match request {
            EngineRequest::Status(viewer, reply) => drop(reply.send(self.status(now, viewer))),
            EngineRequest::Tree { viewer, processes_of, reply } => {
                drop(reply.send(self.tree(viewer, processes_of.as_ref())));
            }
            EngineRequest::Overview { viewer, parts, reply } => drop(reply.send(self.overview(now, viewer, &parts))),
            EngineRequest::Findings { viewer, all, reply } => {
                drop(reply.send(self.with_naming(|engine, naming| engine.findings(viewer, naming, all))));
            }
            EngineRequest::Explain(viewer, target, reply) => {
                drop(reply.send(self.with_naming(|engine, naming| engine.explain(viewer, naming, now, target))));
            }
            EngineRequest::Events(viewer, period, reply) => drop(reply.send(self.journal.read(viewer, period))),
            EngineRequest::Follow(viewer, period, reply) => drop(reply.send(self.journal.follow(viewer, period))),
            EngineRequest::Adopt { viewer, subject, undo, reply } => {
                let adopted = self.adopt(now, viewer, subject, undo, effects);
                drop(reply.send(adopted));
            }
            EngineRequest::Act { ask, dry_run, reply } => {
                let planned = self.act(now, ask, dry_run, effects);
                drop(reply.send(planned));
            }
            EngineRequest::Actions(viewer, reply) => {
                drop(reply.send(self.with_naming(|engine, naming| engine.actions(viewer, naming))));
            }
            EngineRequest::Reclaims(viewer, reply) => {
                drop(reply.send(self.with_naming(|engine, naming| engine.reclaims(now, viewer, naming))));
            }
            EngineRequest::Reclaim { demand, dry_run, reply } => {
                let run = self.reclaim(now, demand, dry_run, effects);
                drop(reply.send(run));
            }
            EngineRequest::Launch(launch, reply) => self.launch(now, launch, reply, effects),
            EngineRequest::Disconnected(process, ticket) => {
                if self.waiters.remove(process, ticket) {
                    self.feed(now, Input::CancelLaunch(process, Cancellation::ClientGone), effects);
                }
            }
            EngineRequest::Queue(viewer, reply) => {
                drop(reply.send(self.with_naming(|engine, naming| engine.queue(now, viewer, naming))));
            }
            EngineRequest::Cancel(viewer, pid, reply) => {
                let cancelled = self.cancel(now, viewer, pid, effects);
                drop(reply.send(cancelled));
            }
            EngineRequest::Subagent(call, reply) => {
                self.subagent = Some(reply);
                self.feed(now, Input::Subagent(call), effects);
            }
            EngineRequest::Scrape(reply) => drop(reply.send(self.scrape(now))),
            EngineRequest::Ready(reply) => drop(reply.send(self.facts.ready)),
            EngineRequest::Reconfigure { config, text, reply } => {
                if let Some(recorder) = &mut self.recorder {
                    recorder.configured(now, &text);
                }
                self.journal.resize(config.daemon.journal_events);
                self.history.reconfigure(&config);
                if let Some(notifier) = &self.notifier {
                    notifier.reconfigure(&config.actions.notify);
                }
                self.profiles = launches::names(&config);
                self.metrics.know_profiles(&self.profiles);
                let mut asked = Vec::new();
                self.engine.reconfigure(now, config, &mut asked);
                self.handle_effects(&mut asked, None, effects);
                let _ = reply.send(());
            }
        }
    }

    /// Handles the effects that need no worker, and passes on the rest.
    fn handle_effects(
        &mut self,
        asked: &mut Vec<Effect>,
        subject: Option<(ProcessId, Uid)>,
        effects: &mut Vec<Effect>,
    ) {
        // Only a new grant is remembered. A repeated one, for a client that lost the answer, is not counted again.
        let mut new = BTreeSet::new();
        for effect in asked.drain(..) {
            match &effect {
                Effect::Persist(PersistCommand::Gate(GateRecord::Granted(lease))) => drop(new.insert(lease.process)),
                Effect::Reply(ClientReply::Granted(granted)) if new.contains(&granted.lease.process) => {
                    self.metrics.granted(self.label(&granted.lease.profile), granted.waited);
                }
                _ => {}
            }
            match effect {
                Effect::Journal(entry) => self.record(entry, subject),
                Effect::Latency(latency) => self.metrics.latency(latency),
                Effect::Died(death) => {
                    self.metrics.death(&death.facts);
                    self.with_naming(|_, naming| self.history.death(&death, naming));
                }
                Effect::Reply(ClientReply::Subagent(decision)) => {
                    if let Some(reply) = self.subagent.take() {
                        drop(reply.send(launches::subagent_answer(decision)));
                    }
                }
                Effect::Confine(ConfineCommand::KillUngated(process, authority)) => {
                    // Recorded before it is executed.
                    let (owner, session) = (self.engine.owner(process), self.engine.session_of(process));
                    self.with_naming(|_, naming| {
                        self.history.ended_ungated(process, session, owner, naming.moment(clock::now()));
                    });
                    effects.push(Effect::Confine(ConfineCommand::KillUngated(process, authority)));
                }
                Effect::Act(ActionCommand::Begin(action)) => {
                    self.publish_receipt(action.id);
                    effects.push(Effect::Act(ActionCommand::Begin(action)));
                }
                Effect::Receipt(action) => self.publish_receipt(action),
                Effect::Reply(ClientReply::ActionsStarted(begun)) => self.begun = begun,
                other => effects.push(other),
            }
        }
    }

    /// Records the state of an action in the history and the metrics, and sends notifications.
    fn publish_receipt(&self, action: ActionId) {
        self.with_naming(|engine, naming| {
            if let Some((owner, receipt)) = engine.receipt(action, naming) {
                self.metrics.action(&receipt);
                if let Some(notifier) = &self.notifier {
                    notifier.receipt(&receipt);
                }
                self.history.action(receipt, owner, naming.moment(clock::now()));
            }
        });
    }

    fn record(&mut self, entry: JournalEntry, subject: Option<(ProcessId, Uid)>) {
        let owner = entry.process.and_then(|process| {
            let before = subject.filter(|(known, _)| *known == process).map(|(_, uid)| uid);
            self.engine.owner(process).or(before)
        });
        if let JournalEvent::SessionStarted { .. } = entry.what
            && let (Some(session), Some(owner)) = (entry.session, owner)
        {
            self.session_owners.insert(session, owner);
        }
        let audience = self.audience(&entry, owner);
        if let (JournalEvent::SessionEnded, Some(session)) = (&entry.what, entry.session) {
            self.session_owners.remove(&session);
        }
        let moment = self.with_naming(|engine, naming| {
            self.history.journal(&entry, owner, engine, naming);
            naming.moment(entry.at)
        });
        if let (JournalEvent::ActionsHeldBack { detail }, Some(notifier)) = (&entry.what, &self.notifier) {
            notifier.held_back(moment.clone(), detail);
        }
        self.journal.write(entry, moment, audience);
    }

    fn audience(&self, entry: &JournalEntry, owner: Option<Uid>) -> Audience {
        // An exec event carries argv, which a user may see of own processes only; a session can contain another user's.
        let carries_argv = matches!(entry.what, JournalEvent::Exec { .. });
        let of_session = entry.session.filter(|_| !carries_argv).and_then(|session| self.session_owners.get(&session));
        match (owner.or(of_session.copied()), entry.process, entry.session) {
            (Some(owner), _, _) => Audience::Owner(owner),
            (None, None, None) => Audience::Everyone,
            (None, _, _) => Audience::Root,
        }
    }

    fn with_naming<T>(&self, look: impl FnOnce(&Engine, &DisplayContext<'_>) -> T) -> T {
        // Once for all names of a response.
        let fresh = Cell::new(false);
        let user = |uid| {
            let mut users = self.users.borrow_mut();
            if !fresh.replace(true) {
                users.refresh();
            }
            users.known_name(uid)
        };
        look(&self.engine, &DisplayContext { boot: clock::boot_wall_time(), user: &user })
    }
}

#[cfg(test)]
impl DaemonState {
    /// A state with the default configuration, whose history is in `dir`.
    fn for_test(dir: &std::path::Path) -> Self {
        use crate::history_writer::{self, RunContext};
        let config = Config::default();
        let context = RunContext::now(dir, crate::set_aside::StateNotes::default());
        let (history, _) = history_writer::start(context, crate::history_filter::limits(&config)).unwrap();
        Self::new(Arc::new(config), Arc::new(Metrics::new().unwrap()), history, DaemonFacts::default())
    }
}

#[cfg(test)]
mod notification_tests;
