//! The event loop of the engine's thread: feeds the engine with what comes in, the most urgent first, and passes its
//! effects on.

mod dispatch;

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::heartbeat::Heartbeat;
use super::member_file::MemberFile;
use super::request::EngineRequest;
use super::rescan::Rescan;
use super::state::DaemonState;
use super::state_file::StateFile;
use super::state_writer::DurableUpdate;
use super::worker::CommandSender;
use super::workers::{BpfTask, WorkerEvent, Workers};
use super::{id_store, process_setup};
use watchdog_engine::effect::Effect;
use watchdog_engine::gate::GateRecord;
use watchdog_engine::input::Input;
use watchdog_host::{clock, relative_paths};
use watchdog_kernel::EventStream;
use watchdog_types::{KernelEvent, LastIds};

/// Batches of lifecycle events in a row that precede everything else; then one other input is handled.
const FAIRNESS_BUDGET: u32 = 16;

/// Events that a kept buffer has room for, once there were as many.
const BATCH: usize = 64;

/// The time between two returns of free memory to the kernel.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct EventRings {
    pub(super) lifecycle: EventStream,
    pub(super) memory: EventStream,
}

/// The stages of building the process table. The kernel programs are attached before, and every stage keeps their events.
enum TableStage {
    /// The first scan is running. Events stay in the ring: a daemon that is killed after it took them would lose them. What
    /// exceeds the ring is counted, and a scan repairs it.
    Building,
    /// The second scan is running: it finds what was forked between the first and the tracking of its parent.
    Checking,
    /// The table is complete.
    Ready,
}

/// Where the state is kept that the next daemon needs.
pub(super) struct PersistedState {
    /// Leases and queued launches.
    pub(super) file: StateFile<GateRecord>,
    /// Holds the reserved ids too. It is on a tmpfs, so that writing blocks nothing.
    pub(super) runtime_dir: PathBuf,
    /// State that outlives the host.
    pub(super) durable: CommandSender<DurableUpdate>,
    /// The processes of sessions; `None` where the kernel keeps them.
    pub(super) members: Option<MemberFile>,
}

pub(super) struct EventLoop {
    state: DaemonState,
    workers: Workers,
    rings: Option<EventRings>,
    events: mpsc::Receiver<WorkerEvent>,
    requests: mpsc::Receiver<EngineRequest>,
    rescan: Rescan,
    stage: TableStage,
    ready: Option<oneshot::Sender<()>>,
    persisted: PersistedState,
    /// Requests that wait for the process table and the host's memory.
    deferred_requests: Vec<EngineRequest>,
    /// When the engine gets its next tick.
    tick: Instant,
    heartbeat: Heartbeat,
    trimmed: Instant,
    lifecycle_batches: u32,
    /// Records at the head of the lifecycle ring that were read already: they are removed once what follows is recorded.
    unskipped: Option<usize>,
    /// A buffer for a batch of events, kept between batches.
    batch: Vec<KernelEvent>,
}

/// The next item for the loop.
enum Wakeup {
    Lifecycle(Vec<KernelEvent>),
    Memory(Vec<KernelEvent>),
    WorkerEvent(Option<WorkerEvent>),
    Request(Option<EngineRequest>),
    Tick,
    Rescan,
    /// Nothing came in, and the service manager must be notified.
    Beat,
}

impl EventLoop {
    /// A loop that sends `ready` when the table is complete.
    pub(super) fn new(
        state: DaemonState,
        workers: Workers,
        rings: Option<EventRings>,
        events: mpsc::Receiver<WorkerEvent>,
        requests: mpsc::Receiver<EngineRequest>,
        ready: oneshot::Sender<()>,
        persisted: PersistedState,
    ) -> Self {
        let tick = Instant::now();
        let rescan = Rescan::requested_at(Instant::now());
        let (stage, ready, lifecycle_batches) = (TableStage::Building, Some(ready), 0);
        let (deferred_requests, heartbeat, trimmed) = (Vec::new(), Heartbeat::from_environment(), tick);
        Self {
            state,
            workers,
            rings,
            events,
            requests,
            rescan,
            stage,
            ready,
            persisted,
            deferred_requests,
            tick,
            heartbeat,
            trimmed,
            lifecycle_batches,
            unskipped: None,
            batch: Vec::new(),
        }
    }

    /// Dispatches `first`, and runs until `stop` is sent.
    ///
    /// # Errors
    ///
    /// When a ring cannot be read, or a worker has ended.
    pub(super) async fn run(mut self, first: Vec<Effect>, mut stop: oneshot::Receiver<()>) -> io::Result<()> {
        self.dispatch(first)?;
        loop {
            let wakeup = tokio::select! {
                biased;
                _ = &mut stop => {
                    self.save_state();
                    return Ok(());
                }
                wakeup = self.next() => wakeup?,
            };
            let mut effects = Vec::new();
            self.handle(wakeup, &mut effects)?;
            // The input may have made the next tick due sooner.
            self.tick = self.tick.min(Instant::now() + self.state.next_tick(clock::now()));
            self.dispatch(effects)?;
            self.skip_processed();
            self.heartbeat.iteration_completed(&self.workers);
        }
    }

    fn skip_processed(&mut self) {
        if let (Some(unskipped), Some(rings)) = (self.unskipped.take(), &mut self.rings) {
            rings.lifecycle.skip(unskipped);
        }
    }

    /// Writes the state that the next daemon needs. The engine gets no input after this.
    fn save_state(&mut self) {
        // The rest of the reserved ids is free again.
        self.persist_ids(self.state.last_ids());
        if let (Some(members), TableStage::Ready) = (&mut self.persisted.members, &self.stage) {
            members.write_now(self.state.generation(), || self.state.lineages());
        }
    }

    /// Writes ids where a later daemon of this boot finds them, however slow the disk is that keeps them for later boots.
    fn persist_ids(&mut self, ids: LastIds) {
        if let Err(error) = id_store::write(&self.persisted.runtime_dir, ids) {
            tracing::warn!(
                "a later daemon may reuse ids: cannot write to {}: {error}",
                self.persisted.runtime_dir.display()
            );
        }
        // The thread that writes them ends after this one.
        let _ = self.persisted.durable.send(DurableUpdate::Ids(ids));
    }

    /// Lifecycle events first, within their budget; otherwise whatever is ready.
    async fn next(&mut self) -> io::Result<Wakeup> {
        let Self { state, rings, events, requests, rescan, stage, tick, heartbeat, lifecycle_batches, batch, .. } =
            self;
        let mut memory_events = Vec::new();
        let (mut lifecycle, memory) = match rings {
            Some(EventRings { memory, .. }) if matches!(stage, TableStage::Building) => (None, Some(memory)),
            Some(EventRings { lifecycle, memory }) => (Some(lifecycle), Some(memory)),
            None => (None, None),
        };
        let others = async {
            tokio::select! {
                event = events.recv() => Ok(Wakeup::WorkerEvent(event)),
                request = requests.recv() => Ok(Wakeup::Request(request)),
                read = read(memory, &mut memory_events, |_| true) => read.map(|()| Wakeup::Memory(memory_events)),
                () = sleep_until(*tick) => Ok(Wakeup::Tick),
                () = sleep_until_due(rescan.due()) => Ok(Wakeup::Rescan),
                () = sleep_until_due(heartbeat.due()) => Ok(Wakeup::Beat),
            }
        };
        let budget_spent = *lifecycle_batches >= FAIRNESS_BUDGET;
        if let Some(ring) = lifecycle.as_deref_mut().filter(|_| state.awaits_events()) {
            ring.read_soon()?;
        }
        tokio::select! {
            biased;
            read = read(lifecycle, batch, |event| state.is_urgent(event)), if !budget_spent => {
                *lifecycle_batches += 1;
                read.map(|()| Wakeup::Lifecycle(std::mem::take(batch)))
            }
            other = others => {
                *lifecycle_batches = 0;
                other
            }
            () = std::future::ready(()), if budget_spent => {
                *lifecycle_batches = 0;
                Ok(Wakeup::Lifecycle(Vec::new()))
            }
        }
    }

    fn handle(&mut self, wakeup: Wakeup, effects: &mut Vec<Effect>) -> io::Result<()> {
        match wakeup {
            Wakeup::Lifecycle(events) => self.feed(events, effects),
            Wakeup::Memory(events) => {
                self.drain(effects);
                self.feed(events, effects);
            }
            Wakeup::WorkerEvent(None) => return Err(io::Error::other("every worker thread has ended")),
            Wakeup::WorkerEvent(Some(event)) => {
                self.drain(effects);
                self.on_worker_event(event, effects)?;
            }
            // The daemon is about to stop.
            Wakeup::Request(None) => {}
            // Its client has timed out and may retry: executed now, the request would be executed twice.
            Wakeup::Request(Some(request)) if request.is_abandoned() => {}
            Wakeup::Request(Some(request)) => {
                if let EngineRequest::Reconfigure { config, .. } = &request {
                    self.bpf(BpfTask::Configure(Arc::clone(config)))?;
                }
                self.answer(request, effects);
            }
            Wakeup::Tick => {
                // Some events come without a notification; see `EventStream`.
                self.drain(effects);
                let now = clock::now();
                self.state.tick(now, effects);
                if let (Some(members), TableStage::Ready) = (&mut self.persisted.members, &self.stage) {
                    members.write_if_changed(self.state.generation(), || self.state.lineages());
                }
                self.tick = Instant::now() + self.state.next_tick(now);
                if self.trimmed.elapsed() >= TRIM_INTERVAL {
                    self.trimmed = Instant::now();
                    process_setup::trim();
                }
            }
            Wakeup::Beat => {}
            Wakeup::Rescan => {
                self.rescan.started(Instant::now());
                self.bpf(BpfTask::Scan)?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: EngineRequest, effects: &mut Vec<Effect>) {
        if !request.allowed_before_ready() && !self.is_complete() {
            self.deferred_requests.retain(|held| !held.is_abandoned());
            self.deferred_requests.push(request);
            return;
        }
        // The answer includes everything that happened before the request, such as the fork of the client.
        self.drain(effects);
        self.state.answer(clock::now(), request, effects);
    }

    /// The table is complete, and the host's memory was read: no zero in an answer means "not known yet".
    fn is_complete(&self) -> bool {
        matches!(self.stage, TableStage::Ready) && self.state.knows_host()
    }

    /// Reports that the daemon is ready, and answers the requests that waited for it.
    fn answer_deferred(&mut self, effects: &mut Vec<Effect>) {
        if self.is_complete() {
            self.state.facts_mut().ready = true;
            if let Some(ready) = self.ready.take() {
                // The receiver is dropped only when the daemon is stopping.
                let _ = ready.send(());
            }
            for request in std::mem::take(&mut self.deferred_requests) {
                if !request.is_abandoned() {
                    self.answer(request, effects);
                }
            }
        }
    }

    /// Feeds the engine with the content of the lifecycle ring: every other input comes after the events before it.
    fn drain(&mut self, effects: &mut Vec<Effect>) {
        if let (Some(rings), TableStage::Checking | TableStage::Ready) = (&mut self.rings, &self.stage) {
            let mut events = std::mem::take(&mut self.batch);
            rings.lifecycle.drain(&mut events);
            self.feed(events, effects);
        }
    }

    fn feed(&mut self, mut events: Vec<KernelEvent>, effects: &mut Vec<Effect>) {
        let now = clock::now();
        for mut event in events.drain(..) {
            if let KernelEvent::Exec(exec) = &mut event
                && let Err(error) = relative_paths::resolve(exec.process, &mut exec.image)
            {
                tracing::debug!("a relative path stays as it is: {error}");
            }
            self.state.feed(now, Input::Kernel(event), effects);
        }
        events.shrink_to(BATCH);
        self.batch = events;
    }

    fn on_worker_event(&mut self, event: WorkerEvent, effects: &mut Vec<Effect>) -> io::Result<()> {
        let now = clock::now();
        match event {
            WorkerEvent::Input(Input::Scan(scan)) => {
                self.rescan.ended();
                self.state.feed(now, Input::Scan(scan), effects);
                self.advance(effects)?;
            }
            WorkerEvent::Input(input) => {
                self.state.feed(now, input, effects);
                self.answer_deferred(effects);
            }
            WorkerEvent::Lost { lifecycle, memory, missed } => {
                self.state.facts_mut().tracking.missed_runs += missed;
                self.state.lost(now, lifecycle, memory, effects);
            }
            WorkerEvent::InheritedEvents { events, unread } => {
                self.feed(events, effects);
                self.unskipped = Some(unread);
                if matches!(self.stage, TableStage::Building) {
                    self.stage = TableStage::Checking;
                    self.rescan = Rescan::requested_at(Instant::now());
                }
            }
            WorkerEvent::Untracked(processes) => self.state.facts_mut().tracking.untracked = processes,
            WorkerEvent::CloseWatch(on) => self.state.facts_mut().tracking.close_watch = on,
            WorkerEvent::ScanFailed => {
                self.rescan.ended();
                self.rescan.request();
            }
        }
        Ok(())
    }

    /// Called after a scan. After the first, the events in the rings of an earlier layout precede those in the present
    /// ring.
    fn advance(&mut self, effects: &mut Vec<Effect>) -> io::Result<()> {
        match self.stage {
            TableStage::Building => self.bpf(BpfTask::ReadInherited)?,
            TableStage::Checking => {
                self.stage = TableStage::Ready;
                self.bpf(BpfTask::TableComplete)?;
            }
            TableStage::Ready => {}
        }
        self.answer_deferred(effects);
        Ok(())
    }
}

async fn read(
    ring: Option<&mut EventStream>,
    events: &mut Vec<KernelEvent>,
    is_urgent: impl Fn(&KernelEvent) -> bool,
) -> io::Result<()> {
    match ring {
        Some(ring) => ring.next(events, is_urgent).await,
        None => pending().await,
    }
}

async fn sleep_until_due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
#[path = "event_loop_tests.rs"]
mod tests;
