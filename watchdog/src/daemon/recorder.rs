//! `--record`: what the engine is told goes into a file as well.
//!
//! The engine's task puts a copy into a queue and goes on; a thread of its own takes out what is private, compresses and
//! writes. When that thread cannot keep up, or the file cannot be written, the recording ends: tracking never waits for it.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::config::{self, Config};
use crate::engine::classify::Redactor;
use crate::engine::id::BootTime;
use crate::engine::input::Input;
use crate::host::clock;
use crate::recording::{End, Entry, Header, VERSION, Writer};

/// Entries that wait at most: a second of the greatest storm that was measured, and some MB.
const WAITING: usize = 16_384;
/// What was recorded is in the file after this time at the latest, and outlives the daemon from then on.
const FLUSH: Duration = Duration::from_secs(1);
/// Stack of the thread. Only what is touched counts.
const STACK: usize = 512 * 1024;

/// Why there is no recording.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    /// There is something that must not be lost.
    #[error(
        "cannot record to {0}: it is there already and not empty, and nothing is ever written over: choose another file"
    )]
    Taken(PathBuf),
    /// What is written there would not stay with us.
    #[error("cannot record to {0}: it is no regular file of this user's")]
    NotOurs(PathBuf),
    /// Something about the file failed.
    #[error("cannot {doing} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// What is asked for on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    /// Where to.
    pub(super) file: &'a Path,
    /// Arguments as they are.
    pub(super) whole_argv: bool,
}

/// The engine's end of the queue. It costs a copy of each input.
#[derive(Debug)]
pub(super) struct Recorder {
    /// `None` when the recording has ended.
    queue: Option<SyncSender<Box<Entry>>>,
    fell_behind: Arc<AtomicBool>,
}

/// The thread that writes.
#[derive(Debug)]
pub(super) struct Scribe {
    thread: JoinHandle<()>,
}

/// Begins a recording.
///
/// # Errors
/// When the file is not one to write to, or the thread cannot be started.
pub(super) fn start(wish: Wish<'_>, config: &Config, text: &str) -> Result<(Recorder, Scribe), RecordError> {
    let path = wish.file.to_owned();
    let failed = |doing| {
        let path = path.clone();
        move |source| RecordError::Io { doing, path, source }
    };
    let file = open(wish.file)?;
    let writer = Writer::new(file, &header(wish, text)).map_err(failed("write"))?;
    let redactor = (!wish.whole_argv).then(|| Redactor::new(&config.profiles));
    let (queue, entries) = sync_channel(WAITING);
    let fell_behind = Arc::new(AtomicBool::new(false));
    let mut work = Work { writer, redactor, path: path.clone(), fell_behind: Arc::clone(&fell_behind) };
    let thread = thread::Builder::new()
        .name("recorder".to_owned())
        .stack_size(STACK)
        .spawn(move || work.run(&entries))
        .map_err(failed("start the thread that writes"))?;
    let arguments = if wish.whole_argv { "with all arguments" } else { "without arguments" };
    tracing::info!("recording to {}, {arguments}", path.display());
    Ok((Recorder { queue: Some(queue), fell_behind }, Scribe { thread }))
}

/// A new file, or an empty one of ours: a link or another user's file in a directory that all may write to is refused.
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

fn header(wish: Wish<'_>, text: &str) -> Header {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Header {
        agent_watchdog_recording: VERSION,
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        boot_id: boot_id.trim().to_owned(),
        booted_ns: u64::try_from(clock::boot_wall_time().as_nanos()).unwrap_or(u64::MAX),
        began: clock::now(),
        whole_argv: wish.whole_argv,
        config: without_comments(text),
    }
}

/// Comments are for the reader of the file. The text has been parsed before.
fn without_comments(text: &str) -> String {
    text.parse::<toml::Table>().map_or_else(|_| text.to_owned(), |table| table.to_string())
}

impl Recorder {
    /// The engine is about to be told this.
    pub(super) fn told(&mut self, now: BootTime, input: &Input) {
        if self.queue.is_some() {
            self.send(Entry::Told(now, input.clone()));
        }
    }

    /// The engine is about to get this configuration.
    pub(super) fn configured(&mut self, now: BootTime, text: &str) {
        self.send(Entry::Configured(now, without_comments(text)));
    }

    fn send(&mut self, entry: Entry) {
        let Some(queue) = &self.queue else { return };
        match queue.try_send(Box::new(entry)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.fell_behind.store(true, Ordering::Release);
                // The thread writes what is in the queue, and ends.
                self.queue = None;
            }
            // It has said why.
            Err(TrySendError::Disconnected(_)) => self.queue = None,
        }
    }
}

impl Scribe {
    /// Waits until everything is written. The recorder must be gone by then.
    pub(super) fn finish(self) {
        // A panic of that thread has been printed, and costs the recording only.
        let _ = self.thread.join();
    }
}

/// What the thread works on.
struct Work {
    writer: Writer<File>,
    redactor: Option<Redactor>,
    path: PathBuf,
    fell_behind: Arc<AtomicBool>,
}

impl Work {
    /// Writes until the engine's end is gone or the file cannot be written.
    fn run(&mut self, entries: &Receiver<Box<Entry>>) {
        let end = match self.write(entries) {
            Ok(()) if self.fell_behind.load(Ordering::Acquire) => {
                tracing::error!(
                    "the recording to {} ends here: more happened than could be written. Tracking goes on",
                    self.path.display()
                );
                End::FellBehind
            }
            Ok(()) => End::Stopped,
            Err(error) => {
                tracing::error!(
                    "the recording to {} ends here: it cannot be written: {error}. Tracking goes on",
                    self.path.display()
                );
                self.cut_off_torn();
                End::Failed(error.to_string())
            }
        };
        // On a full disk there may be no room for this either: then the reader says that it does not know.
        let last = self.writer.push(&Entry::Ended(clock::now(), end)).and_then(|()| self.writer.flush());
        if last.is_err() {
            self.cut_off_torn();
        }
    }

    fn write(&mut self, entries: &Receiver<Box<Entry>>) -> io::Result<()> {
        let mut due = Instant::now() + FLUSH;
        loop {
            let ended = match entries.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(entry) => {
                    let entry = self.prepared(*entry);
                    self.writer.push(&entry)?;
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            if ended || Instant::now() >= due {
                due = Instant::now() + FLUSH;
                self.writer.flush()?;
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// The entry as it may be written.
    fn prepared(&mut self, mut entry: Entry) -> Entry {
        let Some(redactor) = &mut self.redactor else { return entry };
        match &mut entry {
            Entry::Told(_, input) => redactor.input(input),
            // It was in force a moment ago, so that it can be read again.
            Entry::Configured(_, text) => {
                if let Ok(config) = config::parse(&self.path, text) {
                    redactor.set_profiles(&config.profiles);
                }
            }
            Entry::Ended(..) => {}
        }
        entry
    }

    /// Takes away what was written of a member that is not whole.
    fn cut_off_torn(&mut self) {
        let whole = self.writer.whole();
        let file = self.writer.target();
        // What cannot be taken away is told by the reader.
        let _ = file.set_len(whole).and_then(|()| file.seek(SeekFrom::Start(whole)));
    }
}

#[cfg(test)]
#[path = "recorder_tests.rs"]
mod tests;
