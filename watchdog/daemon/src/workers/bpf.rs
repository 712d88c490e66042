//! Owns the kernel programs: keeps their map of tracked processes, counts their losses, and samples memory through them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::denied_files::DeniedFileSearch;
use super::event_sender::EventSender;
use super::memory_sampler::MemorySampler;
use super::{ConfineTask, PendingGrant, ScanTask, WorkerEvent, confinement};
use crate::log_throttle::ThrottledWarning;
use crate::worker::{ChannelClosed, CommandSender, Worker};
use watchdog_api::{self as api, LaunchUpdate, RefusalReason};
use watchdog_config::{Candidates, Config, DeniedFiles, denied_names};
use watchdog_engine::effect::BpfCommand;
use watchdog_engine::input::Input;
use watchdog_kernel::{KernelError, Lost, Tracer, TrackOutcome};
use watchdog_types::{Bounds, Confinement, Lineage, ProcessId};

/// Processes that are tried again in a row, of those that could not be tracked.
const RETRY_BATCH: usize = 256;
/// The time between two reads of the loss counters. With the scan that follows, the table is correct within a second.
const LOST_INTERVAL: Duration = Duration::from_millis(500);
/// Timers that are due this soon run now: a wake-up of its own costs more than the work of most.
const WAKE_SLACK: Duration = Duration::from_millis(50);
/// The time between two attempts to track processes that could not be tracked.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long refusals by the kernel programs count as untracked processes. By then a scan has found those that are alive.
const REFUSAL_WINDOW: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) enum BpfTask {
    Engine(BpfCommand),
    Configure(Arc<Config>),
    /// Scan all processes, with the content of the map.
    Scan,
    /// Read the events that earlier daemons left in their rings.
    ReadInherited,
    /// The table holds everything that earlier daemons left: a later daemon can start from here.
    TableComplete,
    /// Execute and answer a grant. Its root must have been tracked before.
    Grant(Box<PendingGrant>),
}

pub(super) struct BpfChannels {
    pub(super) scanner: CommandSender<ScanTask>,
    pub(super) confinement: CommandSender<ConfineTask>,
    pub(super) events: EventSender,
}

pub(super) struct BpfWorker {
    tracer: Tracer,
    channels: BpfChannels,
    sampler: MemorySampler,
    /// Names of agents that must not start outside the gate.
    denied: Vec<Vec<u8>>,
    search: DeniedFileSearch,
    /// The kernel programs deny agents now.
    denials_active: bool,
    /// Roots whose session the kernel does not track or limit as a grant requires, and why.
    unconfined: HashMap<ProcessId, String>,
    /// Processes that could not be added to the map.
    track_retry_queue: VecDeque<(ProcessId, Lineage)>,
    /// Number of scans requested.
    scans: u32,
    /// [`BpfTask::TableComplete`] was received.
    table_complete: bool,
    /// As last reported.
    lost: Lost,
    /// Processes that the kernel programs recently could not track, and the time of the last.
    refused: (u64, Instant),
    /// As last reported.
    untracked: u64,
    next_lost: Instant,
    next_retry: Instant,
    warning: ThrottledWarning,
}

impl Worker for BpfWorker {
    type Command = BpfTask;

    /// Waiting commands precede timers: a launch may wait for them.
    const MAX_BURST: usize = 64;

    fn handle(&mut self, task: BpfTask) -> Result<(), ChannelClosed> {
        match task {
            BpfTask::Engine(command) => self.execute(command)?,
            BpfTask::Configure(config) => {
                self.sampler.configure(&config);
                if let Err(error) = self.tracer.set_candidates(&Candidates::of(&config.profiles)) {
                    self.warning.warn(format_args!("failed to apply the new profiles to the kernel programs: {error}"));
                }
                self.denied = denied_names(&config);
                self.search.set_targets(DeniedFiles::of(&config));
                self.apply_denials();
            }
            BpfTask::Scan => {
                self.scans = self.scans.saturating_add(1);
                self.apply_denials();
                self.scan()?;
            }
            BpfTask::ReadInherited => {
                let (events, unread) = self.tracer.unread_events();
                self.send(WorkerEvent::InheritedEvents { events, unread })?;
            }
            BpfTask::TableComplete => {
                self.table_complete = true;
                self.tracer.remove_imported();
                // Record at once what was read: this daemon may not run for long.
                self.next_lost = Instant::now();
            }
            BpfTask::Grant(pending) => self.grant(pending)?,
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Instant> {
        Some(self.next_lost.min(self.next_retry).min(self.sampler.next_due()))
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        let now = Instant::now() + WAKE_SLACK;
        if now >= self.next_lost {
            self.next_lost = now + LOST_INTERVAL;
            self.report_lost_events(now)?;
            self.report_untracked(now)?;
        }
        if now >= self.next_retry {
            self.next_retry = now + RETRY_INTERVAL;
            self.retry_tracking()?;
            if let Some(programs) = self.search.found()
                && let Err(error) = self.tracer.set_denied_files(&programs.files)
            {
                self.warning.warn(format_args!("denied agents can start under another name: {error}"));
            }
            self.tracer.flush_log();
        }
        self.sampler.run_due_timers(now, &mut self.tracer)
    }
}

impl BpfWorker {
    fn execute(&mut self, command: BpfCommand) -> Result<(), ChannelClosed> {
        match command {
            BpfCommand::Track(process, lineage) => self.track(process, lineage)?,
            BpfCommand::Untrack(process) => {
                self.unconfined.remove(&process);
                self.track_retry_queue.retain(|(waiting, _)| *waiting != process);
                if let Err(error) = self.tracer.untrack(process) {
                    self.warning.warn(format_args!("failed to untrack {process}: {error}"));
                }
            }
            BpfCommand::CloseWatch(on) => {
                if let Err(error) = self.tracer.set_close_watch(on) {
                    let verb = if on { "attach" } else { "detach" };
                    self.warning.warn(format_args!("failed to {verb} the memory programs: {error}"));
                }
                self.send(WorkerEvent::CloseWatch(self.tracer.close_watch()))?;
            }
            BpfCommand::ApplyLimits(root, bounds) => self.apply_limits(root, bounds),
            BpfCommand::ClearLimits(root) => {
                if let Err(error) = self.tracer.unlimit_session(root) {
                    self.warning.warn(format_args!("failed to remove the limits of the session of {root}: {error}"));
                }
                self.channels.confinement.send(ConfineTask::Release(root))?;
            }
            BpfCommand::ReadHost => self.sampler.sample_host().map(drop)?,
            BpfCommand::ReadMemory(processes) => self.sampler.report_next(&processes),
        }
        Ok(())
    }

    pub(super) fn new(config: &Config, tracer: Tracer, channels: BpfChannels, reported: Lost) -> Self {
        let now = Instant::now();
        Self {
            tracer,
            sampler: MemorySampler::new(config, channels.events.clone()),
            channels,
            denied: denied_names(config),
            search: DeniedFileSearch::start(DeniedFiles::of(config)),
            denials_active: false,
            unconfined: HashMap::new(),
            track_retry_queue: VecDeque::new(),
            scans: 0,
            table_complete: false,
            lost: reported,
            refused: (0, now),
            untracked: 0,
            next_lost: now,
            next_retry: now,
            warning: ThrottledWarning::default(),
        }
    }

    fn track(&mut self, process: ProcessId, lineage: Lineage) -> Result<(), ChannelClosed> {
        self.track_retry_queue.retain(|(waiting, _)| *waiting != process);
        match self.tracer.track(process, &lineage) {
            Ok(placed) => {
                self.unconfined.remove(&process);
                match placed {
                    TrackOutcome::Alive => Ok(()),
                    // The kernel may report no exit, so this takes its place.
                    TrackOutcome::Exiting | TrackOutcome::NotFound => self.send_input(Input::Inspected(process, None)),
                }
            }
            Err(error) => {
                self.warning.warn(format_args!("failed to track {process}: {error}"));
                if lineage.root == process {
                    self.unconfined.insert(process, not_tracked(&error));
                }
                self.track_retry_queue.push_back((process, lineage));
                Ok(())
            }
        }
    }

    /// The exit of an untracked process would not be reported.
    fn retry_tracking(&mut self) -> Result<(), ChannelClosed> {
        let some = self.track_retry_queue.len().min(RETRY_BATCH);
        let again: Vec<_> = self.track_retry_queue.drain(..some).collect();
        again.into_iter().try_for_each(|(process, lineage)| self.track(process, lineage))
    }

    fn apply_limits(&mut self, root: ProcessId, bounds: Bounds) {
        // The agent itself is no helper.
        let max_processes = bounds.max_helpers.map(|helpers| helpers.saturating_add(1));
        let Err(error) = self.tracer.limit_session(root, max_processes) else { return };
        self.warning.warn(format_args!("failed to limit the session of {root}: {error}"));
        // The kernel programs would take an uncounted session for one that was started outside the gate.
        if self.denials_active && !matches!(self.tracer.session_count(root), Ok(Some(_))) {
            self.unconfined.entry(root).or_insert_with(|| {
                format!("agents are denied that the kernel does not count, and it cannot count this one: {error}")
            });
        }
    }

    fn grant(&mut self, pending: Box<PendingGrant>) -> Result<(), ChannelClosed> {
        match self.unconfined.remove(&pending.granted.lease.process) {
            Some(why) => self.reject_grant(*pending, why),
            // The kernel takes about 25 ms to move a process into a cgroup, and this thread must not wait.
            None if pending.granted.limits.cgroup => self.channels.confinement.send(ConfineTask::Grant(pending)),
            None => {
                let PendingGrant { granted, client } = *pending;
                if let Some(client) = client {
                    client.send(LaunchUpdate::Granted(confinement::grant_answer(&granted, &Confinement::default())));
                }
                Ok(())
            }
        }
    }

    /// Refuses a grant that the kernel programs cannot support: the exit of its process would not be reported, or the process
    /// would be denied the agent. The lease ends as if the process had exited, and a scan repairs the table.
    fn reject_grant(
        &mut self,
        PendingGrant { granted, client }: PendingGrant,
        detail: String,
    ) -> Result<(), ChannelClosed> {
        if let Some(client) = client {
            client.send(LaunchUpdate::Refused(api::Refused {
                granted: false,
                reason: RefusalReason::Quota,
                detail,
                retry_after_seconds: None,
                bound: "[tracking] max_processes".to_owned(),
                holders: Vec::new(),
            }));
        }
        self.send_input(Input::Inspected(granted.lease.process, None))?;
        self.send(WorkerEvent::Lost { lifecycle: 1, memory: 0, missed: 0 })
    }

    /// Denies what the configuration denies, from the second scan on. Before that, the sessions that an earlier daemon granted
    /// have no limits yet, and their processes would be taken for ungated ones.
    fn apply_denials(&mut self) {
        if self.scans < 2 {
            return;
        }
        let on = !self.denied.is_empty() || self.search.is_active();
        let denied = self.tracer.set_denied(&self.denied, on);
        self.denials_active = denied.is_ok() && on;
        if let Err(error) = denied {
            self.warning.warn(format_args!("failed to deny agents outside the gate: {error}"));
        }
    }

    fn report_lost_events(&mut self, now: Instant) -> Result<(), ChannelClosed> {
        if let Err(error) = self.tracer.save_heartbeat() {
            self.warning.warn(format_args!("ungated agents are not killed: {error}"));
        }
        match self.tracer.lost() {
            Ok(lost) => {
                let before = std::mem::replace(&mut self.lost, lost);
                let refused = lost.untracked().saturating_sub(before.untracked());
                if refused > 0 {
                    self.refused = (self.refused.0 + refused, now);
                }
                self.send_losses(lost, before)?;
                if self.table_complete
                    && let Err(error) = self.tracer.save_reader_state(&lost)
                {
                    self.warning.warn(format_args!("cannot record for the next daemon what was read: {error}"));
                }
            }
            Err(error) => self.warning.warn(format_args!("cannot read the loss counters: {error}")),
        }
        Ok(())
    }

    /// Reports the number of untracked processes: those found, and those that the kernel programs refused and that no scan
    /// has looked for yet.
    fn report_untracked(&mut self, now: Instant) -> Result<(), ChannelClosed> {
        if now.duration_since(self.refused.1) >= REFUSAL_WINDOW {
            self.refused.0 = 0;
        }
        let untracked = self.refused.0.max(self.track_retry_queue.len() as u64);
        if std::mem::replace(&mut self.untracked, untracked) != untracked {
            self.send(WorkerEvent::Untracked(untracked))?;
        }
        Ok(())
    }

    pub(super) fn send_losses(&self, now: Lost, before: Lost) -> Result<(), ChannelClosed> {
        let lifecycle = now.lifecycle().saturating_sub(before.lifecycle());
        let all = now.total().saturating_sub(before.total());
        if all == 0 {
            return Ok(());
        }
        let missed = now.missed().saturating_sub(before.missed());
        self.send(WorkerEvent::Lost { lifecycle, memory: all.saturating_sub(lifecycle), missed })
    }

    fn scan(&mut self) -> Result<(), ChannelClosed> {
        match self.tracer.repaired_entries() {
            Ok(entries) => {
                let entries: HashMap<_, _> =
                    entries.iter().map(|entry| (entry.process.pid, (entry.process, entry.lineage))).collect();
                self.channels.scanner.send(ScanTask::Scan(entries))
            }
            Err(error) => {
                self.warning.warn(format_args!("cannot scan: {error}"));
                self.send(WorkerEvent::ScanFailed)
            }
        }
    }

    fn send_input(&self, input: Input) -> Result<(), ChannelClosed> {
        self.channels.events.send_input(input)
    }

    fn send(&self, event: WorkerEvent) -> Result<(), ChannelClosed> {
        self.channels.events.send(event)
    }
}

/// Why a grant whose root could not be tracked is refused.
fn not_tracked(error: &KernelError) -> String {
    match error {
        KernelError::Full(_) | KernelError::ShareFull(_) => error.to_string(),
        error => format!("the kernel does not track the process: {error}"),
    }
}

#[cfg(test)]
#[path = "bpf_tests.rs"]
mod tests;
