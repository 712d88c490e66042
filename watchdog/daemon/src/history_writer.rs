//! Writes the history, on its own thread. Senders never wait: when the disk is slow, full or gone, the history loses
//! records, and nothing else is affected.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::config_state::ConfigState;
use super::set_aside::StateNotes;
use super::wall_clock::wall_clock;
use super::worker::{self, BoundedSender, ChannelClosed, Worker, bounded_channel};
use super::workers::fleet::FleetClient;
use watchdog_api::{HistoryState, Past, Record, Repeats};
use watchdog_history::{self as history, Repair, StateDirLock, Store, StoreError, StoreLimits, codec};

/// Capacity of the queue to the thread, in records.
const QUEUE: usize = 1_024;
/// The time from the first record of a batch to its writing. With the disk's own time this stays below a second.
const BATCH: Duration = Duration::from_millis(500);
/// A batch of this size is written at once.
const BATCH_BYTES: usize = 64 * 1024;
/// Records that are kept in memory while the disk takes nothing, in bytes; beyond that the oldest are dropped.
const PENDING_BYTES: usize = 256 * 1024;
/// The time between two attempts while the disk takes nothing.
const RETRY: Duration = Duration::from_secs(5);
/// The time between two attempts to free space in the file.
const RETIRE_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum HistoryMessage {
    Record(Box<Record>),
    Limits(StoreLimits),
    Stop,
}

#[derive(Debug, Default)]
struct WriteProgress {
    lost: AtomicU64,
    bytes: AtomicU64,
    problem: Mutex<Option<String>>,
}

#[derive(Clone, Debug)]
pub(super) struct RunContext {
    pub(super) state_dir: PathBuf,
    /// The name of this run: its start, RFC 3339.
    pub(super) run: String,
    pub(super) boot_id: String,
    /// `None` where the directory could not be locked.
    pub(super) state_lock: Option<StateDirLock>,
    /// Files that were damaged or not trusted.
    pub(super) notes: StateNotes,
    pub(super) config: ConfigState,
    /// `None` without `[fleet] store`.
    pub(super) fleet: Option<FleetClient>,
}

/// The thread's handle.
#[derive(Clone, Debug)]
pub(super) struct HistoryWriter {
    origin: Arc<RunContext>,
    messages: BoundedSender<HistoryMessage>,
    progress: Arc<WriteProgress>,
}

impl RunContext {
    pub(super) fn now(state_dir: &Path, notes: StateNotes) -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let run = wall_clock().to_string();
        Self {
            state_dir: state_dir.to_owned(),
            run,
            boot_id: boot_id.trim().to_owned(),
            state_lock: None,
            notes,
            config: ConfigState::default(),
            fleet: None,
        }
    }
}

/// Starts the thread. It opens the file itself, so that a history that cannot be written does not stop the daemon.
pub(super) fn start(origin: RunContext, limits: StoreLimits) -> io::Result<(HistoryWriter, oneshot::Receiver<()>)> {
    let (messages, inbox) = bounded_channel(QUEUE);
    let (done, when_done) = oneshot::channel();
    let writer = HistoryWriter { origin: Arc::new(origin), messages, progress: Arc::default() };
    let (origin, progress) = (Arc::clone(&writer.origin), Arc::clone(&writer.progress));
    let thread = HistoryThread::new(origin, progress, limits);
    worker::spawn_thread("history", move || {
        worker::run(thread, &inbox);
        // There is no receiver when the daemon was not stopped.
        let _ = done.send(());
    })?;
    Ok((writer, when_done))
}

impl HistoryWriter {
    /// Writes a record within about half a second. Never waits; drops the record when the queue is full.
    pub(super) fn write(&self, at: String, owner_uid: Option<u32>, what: Past) {
        self.send(at, owner_uid, None, what);
    }

    /// Writes a record that stands for several events.
    pub(super) fn write_counted(&self, owner_uid: Option<u32>, repeats: Repeats, what: Past) {
        self.send(repeats.last_at.clone(), owner_uid, Some(repeats), what);
    }

    fn send(&self, at: String, owner_uid: Option<u32>, repeats: Option<Repeats>, what: Past) {
        let record = Box::new(Record { at, run: self.origin.run.clone(), owner_uid, repeats, what });
        if self.messages.offer(HistoryMessage::Record(record)).is_err() {
            self.progress.lost.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn limit(&self, limits: StoreLimits) {
        // A full queue means that the disk takes nothing; limits do not matter then.
        let _ = self.messages.offer(HistoryMessage::Limits(limits));
    }

    /// Writes what is pending, and ends the thread.
    pub(super) fn stop(&self) {
        // If the queue is full, the disk takes nothing either.
        let _ = self.messages.offer(HistoryMessage::Stop);
    }

    pub(super) fn origin(&self) -> &Arc<RunContext> {
        &self.origin
    }

    pub(super) fn state(&self) -> HistoryState {
        HistoryState {
            path: self.origin.state_dir.join(history::FILE).display().to_string(),
            bytes: self.progress.bytes.load(Relaxed),
            lost_records: self.progress.lost.load(Relaxed),
            problem: self.progress.problem.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// Lines that are not written yet.
#[derive(Debug, Default)]
struct PendingLines {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl PendingLines {
    /// Adds a line, and returns the number of lines dropped for it.
    fn push(&mut self, line: Vec<u8>) -> u64 {
        self.bytes += line.len();
        self.lines.push_back(line);
        let mut dropped = 0;
        while self.bytes > PENDING_BYTES && self.lines.len() > 1 {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
            dropped += 1;
        }
        dropped
    }
}

struct HistoryThread {
    origin: Arc<RunContext>,
    progress: Arc<WriteProgress>,
    limits: StoreLimits,
    store: Option<Store>,
    /// The open file names this run.
    run_named: bool,
    pending: PendingLines,
    /// When the next batch is due, if anything is pending.
    due: Option<Instant>,
    retire_at: Instant,
}

impl Worker for HistoryThread {
    type Command = HistoryMessage;

    fn handle(&mut self, message: HistoryMessage) -> Result<(), ChannelClosed> {
        match message {
            HistoryMessage::Record(record) => self.take(&record),
            HistoryMessage::Limits(limits) => {
                self.limits = limits;
                self.retire_at = Instant::now();
                self.due.get_or_insert_with(Instant::now);
            }
            HistoryMessage::Stop => {
                self.take(&self.record_of_run(Past::DaemonStopped));
                self.flush();
                return Err(ChannelClosed);
            }
        }
        Ok(())
    }

    fn next_due(&self) -> Option<Instant> {
        self.due
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        if self.due.is_some_and(|due| due <= Instant::now()) {
            self.flush();
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.flush();
    }
}

impl HistoryThread {
    fn new(origin: Arc<RunContext>, progress: Arc<WriteProgress>, limits: StoreLimits) -> Self {
        let (pending, retire_at) = (PendingLines::default(), Instant::now());
        Self { origin, progress, limits, store: None, run_named: false, pending, due: Some(Instant::now()), retire_at }
    }

    fn take(&mut self, record: &Record) {
        let dropped = self.pending.push(codec::encode(record));
        self.progress.lost.fetch_add(dropped, Relaxed);
        if self.pending.bytes >= BATCH_BYTES && self.problem().is_none() {
            self.due = Some(Instant::now());
        }
        self.due.get_or_insert_with(|| Instant::now() + BATCH);
    }

    /// Writes what is pending. What cannot be written stays pending.
    fn flush(&mut self) {
        match self.try_flush() {
            Ok(()) => {
                self.due = None;
                self.report_recovery();
            }
            Err(error) => {
                self.due = Some(Instant::now() + RETRY);
                if matches!(error, StoreError::Gone(_)) {
                    self.store = None;
                    self.due = Some(Instant::now());
                }
                self.report_problem(&error);
            }
        }
    }

    fn try_flush(&mut self) -> Result<(), StoreError> {
        let mut store = match self.store.take() {
            Some(store) => store,
            None => self.open()?,
        };
        // The store stays open after a failure: opening it reads the whole file.
        let result = self.begin(&mut store).and_then(|()| self.write(&mut store));
        self.progress.bytes.store(store.bytes(), Relaxed);
        self.store = Some(store);
        result
    }

    /// Opens the file, and repairs it.
    fn open(&mut self) -> Result<Store, StoreError> {
        let dir = &self.origin.state_dir;
        let held = self.origin.state_lock.clone().filter(|lock| lock.is_of(dir));
        let (mut store, repairs) = Store::open_locked(dir, held.map_or_else(|| StateDirLock::take(dir), Ok)?)?;
        let file = self.origin.state_dir.join(history::FILE);
        let mut damaged = false;
        for repair in repairs {
            match repair {
                Repair::Truncated(bytes) => {
                    tracing::info!("{}: removed a truncated last line ({bytes} bytes)", file.display());
                }
                Repair::Damaged(lines) => {
                    self.origin.notes.note(&file, format_args!("{lines} damaged lines are skipped"), None);
                    damaged = true;
                }
                Repair::Quarantined { because, aside } => {
                    self.origin.notes.note(&file, format_args!("{because}; starting a new history"), Some(aside));
                }
            }
        }
        if damaged && let Err(error) = store.retire(&self.limits, wall_clock()) {
            tracing::warn!("failed to remove the damaged lines: {error}");
        }
        self.run_named = false;
        Ok(store)
    }

    /// Writes the record that starts this run, before any other of it.
    fn begin(&mut self, store: &mut Store) -> Result<(), StoreError> {
        if self.run_named {
            return Ok(());
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let boot_id = self.origin.boot_id.clone();
        let started = self.record_of_run(Past::DaemonStarted { version, pid: std::process::id(), boot_id });
        store.append(&codec::encode(&Record { at: self.origin.run.clone(), ..started }))?;
        self.run_named = true;
        Ok(())
    }

    fn write(&mut self, store: &mut Store) -> Result<(), StoreError> {
        let now = wall_clock();
        if store.is_overdue(&self.limits, now) && self.retire_at <= Instant::now() {
            self.retire_at = Instant::now() + RETIRE_INTERVAL;
            if let Err(error) = store.retire(&self.limits, now) {
                tracing::warn!("failed to remove the oldest records of the history: {error}");
            }
        }
        if store.is_full(&self.limits) {
            return Err(store.full());
        }
        while !self.pending.lines.is_empty() {
            let mut batch = Vec::with_capacity(self.pending.bytes.min(BATCH_BYTES));
            let mut count = 0;
            for line in &self.pending.lines {
                if count > 0 && batch.len() + line.len() > BATCH_BYTES {
                    break;
                }
                batch.extend_from_slice(line);
                count += 1;
            }
            store.append(&batch)?;
            store.noted(now);
            self.pending.lines.drain(..count);
            self.pending.bytes -= batch.len();
        }
        // A burst has made the queue long; the next may be far off.
        self.pending.lines.shrink_to(64);
        Ok(())
    }

    fn record_of_run(&self, what: Past) -> Record {
        let (at, run) = (wall_clock().to_string(), self.origin.run.clone());
        Record { at, run, owner_uid: None, repeats: None, what }
    }

    fn problem(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.progress.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a problem once, and again when it changes.
    fn report_problem(&self, error: &StoreError) {
        let error = error.to_string();
        let mut problem = self.problem();
        if problem.as_ref() != Some(&error) {
            tracing::warn!("cannot write the history: {error}; retrying every {} s", RETRY.as_secs());
            *problem = Some(error);
        }
    }

    fn report_recovery(&self) {
        if self.problem().take().is_some() {
            let lost = self.progress.lost.load(Relaxed);
            tracing::info!("writing the history again; {lost} records were lost since the daemon started");
        }
    }
}

#[cfg(test)]
#[path = "history_writer_tests.rs"]
mod tests;
