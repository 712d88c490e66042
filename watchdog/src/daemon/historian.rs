//! The thread that writes the history. Whoever has something to write puts it into a queue and goes on at once: when the
//! disk is slow, full or gone, the history loses records, and nothing else loses anything.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::set_aside::StateNotes;
use crate::api::{HistoryState, Past, Record, Repeats};
use crate::history::{self, Limits, Repair, Store, StoreError, line};

/// Records that wait to be taken by the thread at most.
const QUEUE: usize = 1_024;
/// Records are written this long after the first of them came: with the disk's own time this stays below a second.
const BATCH: Duration = Duration::from_millis(500);
/// So much is written at once, however young it is.
const BATCH_BYTES: usize = 64 * 1024;
/// What is held in memory while the disk takes nothing; then the oldest go.
const PENDING_BYTES: usize = 256 * 1024;
/// The time between two tries while the disk takes nothing.
const RETRY: Duration = Duration::from_secs(5);
/// The time between two tries to make room in the file.
const RETIRE_AGAIN: Duration = Duration::from_secs(60);
/// Stack of the thread. Only what is touched counts.
const STACK: usize = 256 * 1024;

/// One thing for the thread to do.
#[derive(Debug)]
enum Message {
    Record(Box<Record>),
    Limits(Limits),
    Stop,
}

/// How the writing goes, for whoever asks.
#[derive(Debug, Default)]
struct Progress {
    lost: AtomicU64,
    bytes: AtomicU64,
    problem: Mutex<Option<String>>,
}

/// What is known of the daemon when it starts.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The state directory.
    pub(super) state_dir: PathBuf,
    /// The name of this run: when it began.
    pub(super) run: String,
    /// The present boot.
    pub(super) boot_id: String,
    /// Files that could not be believed.
    pub(super) notes: StateNotes,
}

/// The way to the history.
#[derive(Clone, Debug)]
pub(super) struct Historian {
    origin: Arc<Origin>,
    messages: SyncSender<Message>,
    progress: Arc<Progress>,
}

impl Origin {
    /// A run that begins now.
    pub(super) fn now(state_dir: &Path, notes: StateNotes) -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let run = wall_clock().to_string();
        Self { state_dir: state_dir.to_owned(), run, boot_id: boot_id.trim().to_owned(), notes }
    }
}

/// Starts the thread. It opens the file by itself: a history that cannot be written keeps nobody from starting.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn start(origin: Origin, limits: Limits) -> io::Result<(Historian, oneshot::Receiver<()>)> {
    let (messages, inbox) = mpsc::sync_channel(QUEUE);
    let (done, when_done) = oneshot::channel();
    let historian = Historian { origin: Arc::new(origin), messages, progress: Arc::default() };
    let (origin, progress) = (Arc::clone(&historian.origin), Arc::clone(&historian.progress));
    let mut writer = Writer::new(origin, progress, limits);
    thread::Builder::new().name("history".to_owned()).stack_size(STACK).spawn(move || {
        writer.run(&inbox);
        // Nobody waits for it: the daemon was not told to stop.
        let _ = done.send(());
    })?;
    Ok((historian, when_done))
}

impl Historian {
    /// Writes a record within about half a second, unless too many wait already. Never waits.
    pub(super) fn write(&self, at: String, owner_uid: Option<u32>, what: Past) {
        self.send(at, owner_uid, None, what);
    }

    /// Writes a record that stands for several events.
    pub(super) fn write_counted(&self, owner_uid: Option<u32>, repeats: Repeats, what: Past) {
        self.send(repeats.last_at.clone(), owner_uid, Some(repeats), what);
    }

    fn send(&self, at: String, owner_uid: Option<u32>, repeats: Option<Repeats>, what: Past) {
        let record = Box::new(Record { at, run: self.origin.run.clone(), owner_uid, repeats, what });
        if self.messages.try_send(Message::Record(record)).is_err() {
            self.progress.lost.fetch_add(1, Relaxed);
        }
    }

    /// Keeps this long and this much from now on.
    pub(super) fn limit(&self, limits: Limits) {
        // A full queue is a disk that takes nothing: then how much is kept does not matter.
        let _ = self.messages.try_send(Message::Limits(limits));
    }

    /// Has what waits written, and the thread end.
    pub(super) fn stop(&self) {
        // If it does not fit, the disk does not take it either.
        let _ = self.messages.try_send(Message::Stop);
    }

    /// What is known of this run.
    pub(super) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// How the writing goes.
    pub(super) fn state(&self) -> HistoryState {
        HistoryState {
            path: self.origin.state_dir.join(history::FILE).display().to_string(),
            bytes: self.progress.bytes.load(Relaxed),
            lost_records: self.progress.lost.load(Relaxed),
            problem: self.progress.problem.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// Lines that wait for the disk.
#[derive(Debug, Default)]
struct Pending {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Pending {
    /// Adds a line, and gives the number of those that had to go for it.
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

/// The thread's own state.
struct Writer {
    origin: Arc<Origin>,
    progress: Arc<Progress>,
    limits: Limits,
    store: Option<Store>,
    /// This run is named in the file that is open.
    begun: bool,
    pending: Pending,
    /// When the next batch is due, if anything waits.
    due: Option<Instant>,
    retire_at: Instant,
}

impl Writer {
    fn new(origin: Arc<Origin>, progress: Arc<Progress>, limits: Limits) -> Self {
        let (pending, retire_at) = (Pending::default(), Instant::now());
        Self { origin, progress, limits, store: None, begun: false, pending, due: Some(Instant::now()), retire_at }
    }

    fn run(&mut self, inbox: &Receiver<Message>) {
        loop {
            let message = match self.due {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => inbox.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match message {
                Ok(Message::Record(record)) => self.take(&record),
                Ok(Message::Limits(limits)) => {
                    self.limits = limits;
                    self.retire_at = Instant::now();
                    self.due.get_or_insert_with(Instant::now);
                }
                Ok(Message::Stop) => {
                    self.take(&self.of_this_run(Past::DaemonStopped));
                    self.flush();
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => {
                    self.flush();
                    return;
                }
            }
        }
    }

    fn take(&mut self, record: &Record) {
        let dropped = self.pending.push(line::encode(record));
        self.progress.lost.fetch_add(dropped, Relaxed);
        let now = Instant::now();
        let due = *self.due.get_or_insert(now + BATCH);
        let troubled = self.problem().is_some();
        if due <= now || self.pending.bytes >= BATCH_BYTES && !troubled {
            self.flush();
        }
    }

    /// Writes what waits. What cannot be written goes on waiting.
    fn flush(&mut self) {
        match self.try_flush() {
            Ok(()) => {
                self.due = None;
                self.recovered();
            }
            Err(error) => {
                self.due = Some(Instant::now() + RETRY);
                if matches!(error, StoreError::Gone(_)) {
                    self.store = None;
                    self.due = Some(Instant::now());
                }
                self.trouble(&error);
            }
        }
    }

    fn try_flush(&mut self) -> Result<(), StoreError> {
        let mut store = match self.store.take() {
            Some(store) => store,
            None => self.open()?,
        };
        // Whatever fails, the store stays open: to open it is to read the whole file.
        let result = self.begin(&mut store).and_then(|()| self.write(&mut store));
        self.progress.bytes.store(store.bytes(), Relaxed);
        self.store = Some(store);
        result
    }

    /// Opens the file, and repairs it where it must be.
    fn open(&mut self) -> Result<Store, StoreError> {
        let (mut store, repairs) = Store::open(&self.origin.state_dir)?;
        let file = self.origin.state_dir.join(history::FILE);
        let mut damaged = false;
        for repair in repairs {
            match repair {
                Repair::Torn(bytes) => {
                    tracing::info!("{}: the last line was torn: {bytes} bytes were cut off", file.display());
                }
                Repair::Damaged(lines) => {
                    self.origin.notes.note(&file, format_args!("{lines} lines are damaged and left out"), None);
                    damaged = true;
                }
                Repair::SetAside { because, aside } => {
                    self.origin.notes.note(&file, format_args!("{because}; a new history is begun"), Some(aside));
                }
            }
        }
        if damaged && let Err(error) = store.retire(&self.limits, wall_clock()) {
            tracing::warn!("the damaged lines stay where they are: {error}");
        }
        self.begun = false;
        Ok(store)
    }

    /// Names this run in the file before anything else of it is there.
    fn begin(&mut self, store: &mut Store) -> Result<(), StoreError> {
        if self.begun {
            return Ok(());
        }
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let boot_id = self.origin.boot_id.clone();
        let started = self.of_this_run(Past::DaemonStarted { version, pid: std::process::id(), boot_id });
        store.append(&line::encode(&Record { at: self.origin.run.clone(), ..started }))?;
        self.begun = true;
        Ok(())
    }

    fn write(&mut self, store: &mut Store) -> Result<(), StoreError> {
        let now = wall_clock();
        if store.is_overdue(&self.limits, now) && self.retire_at <= Instant::now() {
            self.retire_at = Instant::now() + RETIRE_AGAIN;
            if let Err(error) = store.retire(&self.limits, now) {
                tracing::warn!("the oldest records stay in the history: {error}");
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
        // A burst has made it long; it will not come again soon.
        self.pending.lines.shrink_to(64);
        Ok(())
    }

    fn of_this_run(&self, what: Past) -> Record {
        let (at, run) = (wall_clock().to_string(), self.origin.run.clone());
        Record { at, run, owner_uid: None, repeats: None, what }
    }

    fn problem(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.progress.problem.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once what is wrong, and again when it is something else.
    fn trouble(&self, error: &StoreError) {
        let error = error.to_string();
        let mut problem = self.problem();
        if problem.as_ref() != Some(&error) {
            tracing::warn!("the history is not written: {error}; it is tried again every {} s", RETRY.as_secs());
            *problem = Some(error);
        }
    }

    fn recovered(&self) {
        if self.problem().take().is_some() {
            let lost = self.progress.lost.load(Relaxed);
            tracing::info!("the history is written again; {lost} records were lost since the daemon started");
        }
    }
}

/// Now, to the millisecond.
fn wall_clock() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

#[cfg(test)]
#[path = "historian_tests.rs"]
mod tests;
