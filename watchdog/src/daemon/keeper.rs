//! The thread that writes what outlives the host into the state directory: the disk may be slow.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::grumble::Grumble;
use super::{ids, peaks};
use crate::engine::gate::Peaks;
use crate::engine::id::LastIds;

/// Stack of the thread. Only what is touched counts.
const STACK: usize = 256 * 1024;
/// The time between two tries while the disk takes nothing.
const RETRY: Duration = Duration::from_secs(5);

/// Something to be kept. Each replaces an earlier one of its kind.
#[derive(Debug)]
pub(super) enum Lasting {
    /// What sessions took.
    Peaks(Peaks),
    /// The ids that may have been given.
    Ids(LastIds),
}

/// Starts the thread; it ends with the last sender, when all is written.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn start(state_dir: &Path) -> io::Result<(Sender<Lasting>, JoinHandle<()>)> {
    let (sender, lasting) = mpsc::channel();
    let dir = state_dir.to_owned();
    let builder = thread::Builder::new().name("state".to_owned()).stack_size(STACK);
    let thread = builder.spawn(move || keep(&dir, &lasting))?;
    Ok((sender, thread))
}

fn keep(dir: &Path, lasting: &Receiver<Lasting>) {
    let (mut peaks, mut ids) = (None, None);
    let mut failed = Grumble::default();
    let mut ended = false;
    while !ended {
        let first = match peaks.is_none() && ids.is_none() {
            true => lasting.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => lasting.recv_timeout(RETRY),
        };
        ended = matches!(first, Err(RecvTimeoutError::Disconnected));
        for one in first.into_iter().chain(lasting.try_iter()) {
            match one {
                Lasting::Peaks(new) => peaks = Some(new),
                Lasting::Ids(new) => ids = Some(new),
            }
        }
        let mut say = |what: &str, error: io::Error| {
            failed.say(format_args!("{what}: cannot write into {}: {error}", dir.display()));
        };
        if let Some(wanted) = ids {
            match ids::write(dir, wanted) {
                Ok(()) => ids = None,
                Err(error) => say("ids may be given again by a later daemon", error),
            }
        }
        if let Some(wanted) = &peaks {
            match peaks::write(dir, wanted) {
                Ok(()) => peaks = None,
                Err(error) => say("what sessions took is not kept", error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::set_aside::StateNotes;
    use crate::engine::id::{Bytes, SessionId};

    fn peaks_of(bytes: u64) -> Peaks {
        [("claude-code".to_owned(), vec![Bytes(bytes), Bytes(7)])].into()
    }

    #[test]
    fn the_last_of_each_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (state_dir, notes) = (dir.path().join("state"), StateNotes::default());
        assert_eq!(peaks::read(&state_dir, &notes), Peaks::default());
        let (sender, thread) = start(&state_dir).unwrap();
        for number in 1..=100 {
            sender.send(Lasting::Peaks(peaks_of(number))).unwrap();
            sender.send(Lasting::Ids(LastIds { session: SessionId(number), ..LastIds::default() })).unwrap();
        }
        drop(sender);
        thread.join().unwrap();
        assert_eq!(peaks::read(&state_dir, &notes), peaks_of(100));
        assert_eq!(ids::last(&state_dir, LastIds::default(), &notes).session, SessionId(100));
        let mut names: Vec<_> =
            std::fs::read_dir(&state_dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["ids", "peaks.json"]);
        assert_eq!(notes.all(), []);
    }
}
