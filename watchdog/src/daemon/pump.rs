//! The loop of the task that owns the engine: takes what comes in, in the order of its urgency, and has done what the
//! engine asks for.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::core::Core;
use super::hands::{Act, Admission, Deed, Hands, Look, Order, Probe, Report};
use super::heartbeat::Heartbeat;
use super::keeper::Lasting;
use super::members::MemberFile;
use super::request::Request;
use super::rescan::Rescan;
use super::run_file::RunFile;
use super::{ids, nature};
use crate::engine::effect::Effect;
use crate::engine::gate::GateRecord;
use crate::engine::id::LastIds;
use crate::engine::input::{Input, KernelEvent};
use crate::host::clock;
use crate::kernel::EventStream;

/// Batches of lifecycle events that go before everything else, one after the other; then one other thing gets its turn.
const STREAK: u32 = 16;

/// How often free memory is returned to the kernel.
const TRIM_INTERVAL: Duration = Duration::from_secs(60);

/// The rings of the kernel's programs.
pub(super) struct Rings {
    /// What lives and dies.
    pub(super) lifecycle: EventStream,
    /// Steps of memory.
    pub(super) memory: EventStream,
}

/// How far the table is. The programs are attached by then, and their events are kept, not lost, at every stage.
enum Stage {
    /// The first scan is under way. Events stay in the ring: those that a killed daemon had taken out would be lost. What the ring
    /// has no room for is counted, and a scan repairs it.
    Building,
    /// The second is: for what was forked between the first and the tracking of its parent.
    Checking,
    /// The table is right.
    Ready,
}

/// Where is kept what the gate has to know when the daemon was gone.
pub(super) struct Kept {
    /// Leases and places in the queue.
    pub(super) file: RunFile<GateRecord>,
    /// Where the ids that may have been given are kept beside that: on a tmpfs, so writing it blocks nothing.
    pub(super) runtime_dir: PathBuf,
    /// What outlives the host.
    pub(super) lasting: std::sync::mpsc::Sender<Lasting>,
    /// Where processes belong; none where the kernel keeps that.
    pub(super) members: Option<MemberFile>,
}

/// The loop's state.
pub(super) struct Pump {
    core: Core,
    hands: Hands,
    rings: Option<Rings>,
    reports: mpsc::Receiver<Report>,
    requests: mpsc::Receiver<Request>,
    rescan: Rescan,
    stage: Stage,
    ready: Option<oneshot::Sender<()>>,
    kept: Kept,
    /// What was asked before the table was right and the host's memory known.
    early: Vec<Request>,
    /// When the engine is next told that time has passed.
    tick: Instant,
    heartbeat: Heartbeat,
    /// When freed memory was last returned to the kernel.
    trimmed: Instant,
    streak: u32,
    /// Records at the head of the lifecycle ring whose events the engine has: taken out once what follows is recorded.
    told: Option<usize>,
}

/// What comes next.
enum Turn {
    Lifecycle(Vec<KernelEvent>),
    Memory(Vec<KernelEvent>),
    Report(Option<Report>),
    Request(Option<Request>),
    Tick,
    Rescan,
    /// Nothing came, and the service manager wants to know that the loop runs.
    Beat,
}

impl Pump {
    /// A loop that will say `ready` when the table has been built and checked.
    pub(super) fn new(
        core: Core,
        hands: Hands,
        rings: Option<Rings>,
        reports: mpsc::Receiver<Report>,
        requests: mpsc::Receiver<Request>,
        ready: oneshot::Sender<()>,
        kept: Kept,
    ) -> Self {
        let tick = Instant::now();
        let rescan = Rescan::wanted_at(Instant::now());
        let (stage, ready, streak) = (Stage::Building, Some(ready), 0);
        let (early, heartbeat, trimmed) = (Vec::new(), Heartbeat::wanted(), tick);
        Self {
            core,
            hands,
            rings,
            reports,
            requests,
            rescan,
            stage,
            ready,
            kept,
            early,
            tick,
            heartbeat,
            trimmed,
            streak,
            told: None,
        }
    }

    /// Carries out `first`, and runs until `stop` is told, or a hand has gone.
    ///
    /// # Errors
    /// When a ring cannot be read, or a thread has ended that must not.
    pub(super) async fn run(mut self, first: Vec<Effect>, mut stop: oneshot::Receiver<()>) -> io::Result<()> {
        self.carry_out(first)?;
        loop {
            let turn = tokio::select! {
                biased;
                _ = &mut stop => {
                    self.wind_up();
                    return Ok(());
                }
                turn = self.next() => turn?,
            };
            let mut effects = Vec::new();
            self.take(turn, &mut effects)?;
            // Something that was just told may have to be concluded sooner.
            self.tick = self.tick.min(Instant::now() + self.core.next_tick(clock::now()));
            self.carry_out(effects)?;
            self.skip_told();
            self.heartbeat.turn_completed(&self.hands);
        }
    }

    fn skip_told(&mut self) {
        if let (Some(told), Some(rings)) = (self.told.take(), &mut self.rings) {
            rings.lifecycle.skip(told);
        }
    }

    /// Writes what the next daemon needs of this one, which is told nothing more.
    fn wind_up(&mut self) {
        // No more ids are given: the rest of the reserved ones is free.
        self.keep_ids(self.core.last_ids());
        if let (Some(members), Stage::Ready) = (&mut self.kept.members, &self.stage) {
            members.write_now(self.core.moves(), || self.core.lineages());
        }
    }

    /// Keeps ids where a later daemon of this boot finds them, however long the disk takes to keep them for later boots.
    fn keep_ids(&mut self, ids: LastIds) {
        if let Err(error) = ids::write(&self.kept.runtime_dir, ids) {
            tracing::warn!(
                "ids may be given again by a later daemon: cannot write into {}: {error}",
                self.kept.runtime_dir.display()
            );
        }
        // The thread that writes them ends with us, and not before.
        let _ = self.kept.lasting.send(Lasting::Ids(ids));
    }

    /// Lifecycle events before everything else, unless they have been for a long time; of the rest whichever is there.
    async fn next(&mut self) -> io::Result<Turn> {
        let Self { core, rings, reports, requests, rescan, stage, tick, heartbeat, streak, .. } = self;
        let (mut lives, mut steps) = (Vec::new(), Vec::new());
        let (lifecycle, memory) = match rings {
            Some(Rings { memory, .. }) if matches!(stage, Stage::Building) => (None, Some(memory)),
            Some(Rings { lifecycle, memory }) => (Some(lifecycle), Some(memory)),
            None => (None, None),
        };
        let others = async {
            tokio::select! {
                report = reports.recv() => Ok(Turn::Report(report)),
                request = requests.recv() => Ok(Turn::Request(request)),
                read = read(memory, &mut steps, |_| true) => read.map(|()| Turn::Memory(steps)),
                () = sleep_until(*tick) => Ok(Turn::Tick),
                () = due(rescan.due()) => Ok(Turn::Rescan),
                () = due(heartbeat.due()) => Ok(Turn::Beat),
            }
        };
        let tired = *streak >= STREAK;
        tokio::select! {
            biased;
            read = read(lifecycle, &mut lives, |event| core.is_urgent(event)), if !tired => {
                *streak += 1;
                read.map(|()| Turn::Lifecycle(lives))
            }
            other = others => {
                *streak = 0;
                other
            }
            () = std::future::ready(()), if tired => {
                *streak = 0;
                Ok(Turn::Lifecycle(Vec::new()))
            }
        }
    }

    fn take(&mut self, turn: Turn, effects: &mut Vec<Effect>) -> io::Result<()> {
        match turn {
            Turn::Lifecycle(events) => self.tell_all(events, effects),
            Turn::Memory(events) => {
                self.drain(effects);
                self.tell_all(events, effects);
            }
            Turn::Report(None) => return Err(io::Error::other("every thread that reads the host has ended")),
            Turn::Report(Some(report)) => {
                self.drain(effects);
                self.learn(report, effects)?;
            }
            // Nobody is left to ask: the daemon is about to stop.
            Turn::Request(None) => {}
            // Its client has timed out and may retry: carried out now, it would be carried out twice.
            Turn::Request(Some(request)) if request.is_abandoned() => {}
            Turn::Request(Some(request)) => {
                if let Request::Reconfigure { config, .. } = &request {
                    self.order(Order::Configure(Arc::clone(config)))?;
                }
                self.answer(request, effects);
            }
            Turn::Tick => {
                // There may be events of which no notice came: rare, see `EventStream`.
                self.drain(effects);
                let now = clock::now();
                self.core.tick(now, effects);
                if let (Some(members), Stage::Ready) = (&mut self.kept.members, &self.stage) {
                    members.bring_up_to_date(self.core.moves(), || self.core.lineages());
                }
                self.tick = Instant::now() + self.core.next_tick(now);
                if self.trimmed.elapsed() >= TRIM_INTERVAL {
                    self.trimmed = Instant::now();
                    nature::trim();
                }
            }
            Turn::Beat => {}
            Turn::Rescan => {
                self.rescan.started(Instant::now());
                self.order(Order::Scan)?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, request: Request, effects: &mut Vec<Effect>) {
        if !request.is_early() && !self.is_complete() {
            self.early.retain(|held| !held.is_abandoned());
            self.early.push(request);
            return;
        }
        // What happened before the request is in the answer; the fork of the requesting process among it.
        self.drain(effects);
        self.core.answer(clock::now(), request, effects);
    }

    /// The table is right, and the host's memory was looked at: answers hold no zeros that only mean "not known yet".
    fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Ready) && self.core.knows_host()
    }

    /// Says that the daemon is ready, and answers what waited for that.
    fn answer_early(&mut self, effects: &mut Vec<Effect>) {
        if self.is_complete() {
            self.core.facts_mut().ready = true;
            if let Some(ready) = self.ready.take() {
                // The receiver has been dropped only when the daemon is stopping.
                let _ = ready.send(());
            }
            for request in std::mem::take(&mut self.early) {
                if !request.is_abandoned() {
                    self.answer(request, effects);
                }
            }
        }
    }

    /// Tells the engine what the lifecycle ring holds now: every other input comes after the events before it.
    fn drain(&mut self, effects: &mut Vec<Effect>) {
        if let (Some(rings), Stage::Checking | Stage::Ready) = (&mut self.rings, &self.stage) {
            let mut events = Vec::new();
            rings.lifecycle.drain(&mut events);
            self.tell_all(events, effects);
        }
    }

    fn tell_all(&mut self, events: Vec<KernelEvent>, effects: &mut Vec<Effect>) {
        let now = clock::now();
        for event in events {
            self.core.tell(now, Input::Kernel(event), effects);
        }
    }

    fn learn(&mut self, report: Report, effects: &mut Vec<Effect>) -> io::Result<()> {
        let now = clock::now();
        match report {
            Report::Input(Input::Scan(scan)) => {
                self.rescan.ended();
                self.core.tell(now, Input::Scan(scan), effects);
                self.advance(effects)?;
            }
            Report::Input(input) => {
                self.core.tell(now, input, effects);
                self.answer_early(effects);
            }
            Report::Lost { lifecycle, memory, missed } => {
                self.core.facts_mut().tracking.missed_runs += missed;
                self.core.lost(now, lifecycle, memory, effects);
            }
            Report::Left { events, unread } => {
                self.tell_all(events, effects);
                self.told = Some(unread);
                if matches!(self.stage, Stage::Building) {
                    self.stage = Stage::Checking;
                    self.rescan = Rescan::wanted_at(Instant::now());
                }
            }
            Report::Untracked(processes) => self.core.facts_mut().tracking.untracked = processes,
            Report::CloseWatch(on) => self.core.facts_mut().tracking.close_watch = on,
            Report::NoScan => {
                self.rescan.ended();
                self.rescan.want();
            }
        }
        Ok(())
    }

    /// A scan is in the table. After the first one, events of an earlier layout come before those in the ring.
    fn advance(&mut self, effects: &mut Vec<Effect>) -> io::Result<()> {
        match self.stage {
            Stage::Building => self.order(Order::ReadLeft)?,
            Stage::Checking => {
                self.stage = Stage::Ready;
                self.order(Order::TableIsRight)?;
            }
            Stage::Ready => {}
        }
        self.answer_early(effects);
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> io::Result<()> {
        let (mut looks, mut limits, mut resumed) = (Vec::new(), Vec::new(), Vec::new());
        let whole = self.kept.file.is_due();
        if whole {
            self.kept.file.rewrite(&self.core.gate_records());
        }
        for effect in effects {
            match effect {
                Effect::Track(process, lineage) => self.order(Order::Track(process, lineage))?,
                Effect::Untrack(process) => self.order(Order::Untrack(process))?,
                Effect::CloseWatch(on) => self.order(Order::CloseWatch(on))?,
                Effect::Inspect(process) => looks.push(process),
                Effect::FindLimits(process) => limits.push(process),
                Effect::Rescan => self.rescan.want(),
                Effect::MeasureShared(process) => self.probe(Probe::Shared(process))?,
                Effect::LookAtActivity(processes) => self.probe(Probe::Activity(processes))?,
                Effect::LookAtTmpfs => self.probe(Probe::Tmpfs)?,
                Effect::FindContainers { client, from, to } => self.probe(Probe::Containers { client, from, to })?,
                Effect::LookIntoOom { number, victim, cgroup, others } => {
                    self.probe(Probe::Oom { number, victim, cgroup, others })?;
                }
                // It is in what was just written.
                Effect::Remember(_) if whole => {}
                // Where that fails it was said, and the whole file is tried again later: nobody is kept from anything.
                Effect::Remember(record) => drop(self.kept.file.append(&record)),
                Effect::Bound(root, bounds) => {
                    self.order(Order::Bound(root, bounds))?;
                    resumed.extend(self.core.session_of(root).map(|session| (root, session)));
                }
                Effect::Unbound(root) => self.order(Order::Unbound(root))?,
                Effect::Granted(granted) => {
                    // It is confined, if at all, by its admission: there is nothing to ask for.
                    resumed.retain(|(root, _)| *root != granted.lease.process);
                    let client = self.core.granted(&granted);
                    self.order(Order::Admit(Box::new(Admission { granted: *granted, client })))?;
                }
                Effect::Refused(refused) => self.core.refused(*refused),
                Effect::Waits(waits) => self.core.waits(*waits),
                // The thread that keeps them ends with us, and not before.
                Effect::Learned(peaks) => drop(self.kept.lasting.send(Lasting::Peaks(peaks))),
                Effect::ReserveIds(ids) => self.keep_ids(ids),
                Effect::FindRoom(process) => self.probe(Probe::Room(process))?,
                Effect::LookAtHost => self.order(Order::LookAtHost)?,
                Effect::LookIntoCgroup(session, cgroup) => self.probe(Probe::Members(session, cgroup))?,
                Effect::RaiseOomScore(process, least) => self.deed(Deed::RaiseOomScore(process, least))?,
                Effect::EndUngated(process, authority) => self.deed(Deed::End(process, authority))?,
                Effect::BeginAction(action) => self.act(Act::Begin(action))?,
                Effect::Strike(wave) => self.act(Act::Strike(wave))?,
                Effect::EndAction(action) => self.act(Act::End(action))?,
                Effect::Receipt(_)
                | Effect::Asked(_)
                | Effect::Journal(_)
                | Effect::Latency(_)
                | Effect::Died(_)
                | Effect::Subagent(_) => {
                    debug_assert!(false, "the core keeps these to itself");
                }
            }
        }
        for (root, session) in resumed {
            self.deed(Deed::Resume(root, session))?;
        }
        if !limits.is_empty() {
            self.probe(Probe::Limits(limits))?;
        }
        if looks.is_empty() {
            return Ok(());
        }
        let peers = self.core.peers();
        self.hands.inspector.send(Look { processes: looks, peers }).map_err(|_| gone("inspector"))
    }

    fn order(&self, order: Order) -> io::Result<()> {
        self.hands.tracer.send(order).map_err(|_| gone("tracer"))
    }

    fn deed(&self, deed: Deed) -> io::Result<()> {
        self.hands.warden.send(deed).map_err(|_| gone("warden"))
    }

    fn act(&self, act: Act) -> io::Result<()> {
        self.hands.reaper.send(act).map_err(|_| gone("reaper"))
    }

    fn probe(&self, probe: Probe) -> io::Result<()> {
        self.hands.prober.send(probe).map_err(|_| gone("prober"))
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

async fn due(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

fn gone(thread: &str) -> io::Error {
    io::Error::other(format!("the thread `{thread}` has ended"))
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
