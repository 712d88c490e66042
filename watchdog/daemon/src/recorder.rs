//! `--record`: writes the inputs of the engine to a file.
//!
//! The engine's thread puts a copy into a queue and continues; another thread removes private data, compresses and writes.
//! When that thread falls behind, or cannot write, the recording ends: tracking never waits for it.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TrySendError;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::worker::{self, BoundedSender, ChannelClosed, Worker, bounded_channel};
use watchdog_config::{self as config, Config};
use watchdog_engine::input::Input;
use watchdog_host::clock;
use watchdog_recording::Redactor;
use watchdog_recording::{RecordingEnd, RecordingEntry, RecordingHeader, RecordingWriter, VERSION};
use watchdog_types::BootTime;

/// Capacity of the queue: a second of the highest measured load, and some MB.
const QUEUE: usize = 16_384;
/// The longest time until a recorded input is in the file, where it outlives the daemon.
const FLUSH: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("cannot record to {0}: the file exists and is not empty; choose another file")]
    Taken(PathBuf),
    /// Another user could read or replace what is written there.
    #[error("cannot record to {0}: not a regular file of this user")]
    NotOurs(PathBuf),
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordOptions<'a> {
    pub(super) file: &'a Path,
    /// Record arguments unchanged.
    pub(super) whole_argv: bool,
}

/// The engine's end of the queue. It costs a copy of each input.
#[derive(Debug)]
pub(super) struct Recorder {
    /// `None` when the recording has ended.
    queue: Option<BoundedSender<Box<RecordingEntry>>>,
    fell_behind: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) struct RecordingThread {
    thread: JoinHandle<()>,
}

/// Starts a recording.
///
/// # Errors
///
/// When the file is unsuitable, or the thread cannot be started.
pub(super) fn start(
    options: RecordOptions<'_>,
    config: &Config,
    text: &str,
) -> Result<(Recorder, RecordingThread), RecordError> {
    let path = options.file.to_owned();
    let failed = |doing| {
        let path = path.clone();
        move |source| RecordError::Io { doing, path, source }
    };
    let file = open(options.file)?;
    let writer = RecordingWriter::new(file, &header(options, text)).map_err(failed("write"))?;
    let redactor = (!options.whole_argv).then(|| Redactor::new(&config.profiles));
    let (queue, entries) = bounded_channel(QUEUE);
    let fell_behind = Arc::new(AtomicBool::new(false));
    let work = RecordingWork::new(writer, redactor, path.clone(), Arc::clone(&fell_behind));
    let thread = worker::spawn("recorder", entries, move || work).map_err(failed("start the thread that writes to"))?;
    let arguments = if options.whole_argv { "with all arguments" } else { "without arguments" };
    tracing::info!("recording to {}, {arguments}", path.display());
    Ok((Recorder { queue: Some(queue), fell_behind }, RecordingThread { thread }))
}

/// Opens a new file, or an empty one of this user. In a directory that others can write to, a link or another user's file
/// is refused.
fn open(path: &Path) -> Result<File, RecordError> {
    let failed = |doing| move |source| RecordError::Io { doing, path: path.to_owned(), source };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(failed("record to"))?;
    let found = file.metadata().map_err(failed("look at"))?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.nlink() != 1 {
        return Err(RecordError::NotOurs(path.to_owned()));
    }
    if found.len() > 0 {
        return Err(RecordError::Taken(path.to_owned()));
    }
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed("set the permissions of"))?;
    Ok(file)
}

fn header(options: RecordOptions<'_>, text: &str) -> RecordingHeader {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    RecordingHeader {
        agent_watchdog_recording: VERSION,
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        boot_id: boot_id.trim().to_owned(),
        booted_ns: u64::try_from(clock::boot_wall_time().as_nanos()).unwrap_or(u64::MAX),
        began: clock::now(),
        whole_argv: options.whole_argv,
        config: without_comments(text),
    }
}

/// The text was parsed successfully before.
fn without_comments(text: &str) -> String {
    text.parse::<toml::Table>().map_or_else(|_| text.to_owned(), |table| table.to_string())
}

impl Recorder {
    pub(super) fn record_input(&mut self, now: BootTime, input: &Input) {
        if self.queue.is_some() {
            self.send(RecordingEntry::Input(now, input.clone()));
        }
    }

    pub(super) fn configured(&mut self, now: BootTime, text: &str) {
        self.send(RecordingEntry::Configured(now, without_comments(text)));
    }

    fn send(&mut self, entry: RecordingEntry) {
        let Some(queue) = &self.queue else { return };
        match queue.offer(Box::new(entry)) {
            Ok(()) => {}
            Err(TrySendError::Full(())) => {
                self.fell_behind.store(true, Ordering::Release);
                // The thread writes the rest of the queue, and ends.
                self.queue = None;
            }
            // The thread has logged why it ended.
            Err(TrySendError::Disconnected(())) => self.queue = None,
        }
    }
}

impl RecordingThread {
    /// Waits until everything is written. The recorder must be dropped before.
    pub(super) fn finish(self) {
        // A panic of that thread was printed, and affects the recording only.
        let _ = self.thread.join();
    }
}

struct RecordingWork {
    writer: RecordingWriter<File>,
    redactor: Option<Redactor>,
    path: PathBuf,
    fell_behind: Arc<AtomicBool>,
    flush_at: Instant,
}

impl Worker for RecordingWork {
    type Command = Box<RecordingEntry>;

    fn handle(&mut self, entry: Box<RecordingEntry>) -> Result<(), ChannelClosed> {
        let entry = self.prepared(*entry);
        self.writer.push(&entry).map_err(|error| self.fail(&error))
    }

    fn next_due(&self) -> Option<Instant> {
        Some(self.flush_at)
    }

    fn run_due_timers(&mut self) -> Result<(), ChannelClosed> {
        let now = Instant::now();
        if self.flush_at > now {
            return Ok(());
        }
        self.flush_at = now + FLUSH;
        self.writer.flush().map_err(|error| self.fail(&error))
    }

    fn finish(&mut self) {
        if let Err(error) = self.writer.flush() {
            self.fail(&error);
        } else if self.fell_behind.load(Ordering::Acquire) {
            tracing::error!(
                "recording to {} stopped: inputs arrived faster than they were written. Tracking continues",
                self.path.display()
            );
            self.end(RecordingEnd::FellBehind);
        } else {
            self.end(RecordingEnd::Stopped);
        }
    }
}

impl RecordingWork {
    fn new(
        writer: RecordingWriter<File>,
        redactor: Option<Redactor>,
        path: PathBuf,
        fell_behind: Arc<AtomicBool>,
    ) -> Self {
        Self { writer, redactor, path, fell_behind, flush_at: Instant::now() + FLUSH }
    }

    /// Ends a recording whose file cannot be written.
    fn fail(&mut self, error: &io::Error) -> ChannelClosed {
        tracing::error!("recording to {} stopped: {error}. Tracking continues", self.path.display());
        self.remove_truncated_member();
        self.end(RecordingEnd::Failed(error.to_string()));
        ChannelClosed
    }

    fn end(&mut self, end: RecordingEnd) {
        // A full disk may have no room for this either; the reader then reports the end as unknown.
        let last = self.writer.push(&RecordingEntry::Ended(clock::now(), end)).and_then(|()| self.writer.flush());
        if last.is_err() {
            self.remove_truncated_member();
        }
    }

    /// Removes private data.
    fn prepared(&mut self, mut entry: RecordingEntry) -> RecordingEntry {
        let Some(redactor) = &mut self.redactor else { return entry };
        match &mut entry {
            RecordingEntry::Input(_, input) => redactor.input(input),
            // The daemon has parsed this text before.
            RecordingEntry::Configured(_, text) => {
                if let Ok(config) = config::parse(&self.path, text) {
                    redactor.set_profiles(&config.profiles);
                }
            }
            RecordingEntry::Ended(..) => {}
        }
        entry
    }

    /// Removes an incomplete gzip member from the end of the file.
    fn remove_truncated_member(&mut self) {
        let whole = self.writer.whole();
        let file = self.writer.target();
        // If it cannot be removed, the reader reports it.
        let _ = file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole)));
    }
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
