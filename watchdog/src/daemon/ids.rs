//! `ids` in the state directory: the ids up to which sessions, findings and actions are numbered, over all runs and boots. It names
//! the end of a reserved block while the daemon runs, and the last id that was given after a clean stop. The runtime
//! directory holds a copy, which is on a tmpfs: ids that were given while the disk was too slow to reserve them are not given
//! again after a crash of the daemon. After a crash of the host neither such ids nor what was recorded with them is on the disk.

use std::path::{Path, PathBuf};

use super::set_aside::StateNotes;
use crate::engine::ID_BLOCK;
use crate::engine::id::LastIds;
use crate::history::{self, line};
use crate::trusted_file::{self, OpenError};

/// The file's name.
const FILE: &str = "ids";
/// The file holds one line.
const LONGEST: u64 = 4096;

/// The last ids that an earlier run may have given. `seen` is what other files show of them. Where the file is missing or
/// damaged, the history tells, and a whole block is skipped, since its last records may be lost.
pub(super) fn last(state_dir: &Path, seen: LastIds, notes: &StateNotes) -> LastIds {
    let path = path(state_dir);
    let kept = match trusted_file::read(&path, LONGEST) {
        Ok(Some(content)) => decode(&content).ok_or_else(|| Some("it is damaged".to_owned())),
        Ok(None) => Err(None),
        // The directory is no directory: the history says so.
        Err(OpenError::Io(error)) if error.kind() == std::io::ErrorKind::NotADirectory => Err(None),
        Err(error) => Err(Some(error.to_string())),
    };
    let kept = kept.unwrap_or_else(|problem| {
        let found = history::last_ids(state_dir);
        let skipped = if found == LastIds::default() { found } else { found.plus(ID_BLOCK) };
        if let Some(why) = problem {
            notes.moved(&path, format_args!("{why}; ids go on after the highest in the history"));
        }
        skipped
    });
    kept.max(seen)
}

/// The copy in the runtime directory; zeros where there is none, as after a boot, or it cannot be used.
pub(super) fn of_this_boot(runtime_dir: &Path) -> LastIds {
    let content = trusted_file::read(&path(runtime_dir), LONGEST).ok().flatten();
    content.and_then(|content| decode(&content)).unwrap_or_default()
}

/// Writes the file, durably.
pub(super) fn write(dir: &Path, ids: LastIds) -> std::io::Result<()> {
    trusted_file::make_directory(dir, 0o700)?;
    let content = line::of_json(&serde_json::to_string(&ids)?);
    trusted_file::replace(&path(dir), &content, true).map(drop)
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

fn decode(content: &[u8]) -> Option<LastIds> {
    serde_json::from_str(line::decode(content.strip_suffix(b"\n")?)?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::engine::id::{ActionId, FindingId, SessionId};
    use crate::history::Store;

    const IDS: LastIds = LastIds { session: SessionId(7), finding: FindingId(8), action: ActionId(9) };

    fn read(dir: &Path) -> (LastIds, usize) {
        let notes = StateNotes::default();
        (last(dir, LastIds::default(), &notes), notes.all().len())
    }

    #[test]
    fn written_ids_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        assert_eq!(read(&state), (LastIds::default(), 0));
        write(&state, IDS).unwrap();
        assert_eq!((read(&state), of_this_boot(&state)), ((IDS, 0), IDS));
        let seen = LastIds { session: SessionId(10), ..LastIds::default() };
        assert_eq!(last(&state, seen, &StateNotes::default()), LastIds { session: SessionId(10), ..IDS });
    }

    #[test]
    fn damaged_ids_skip_the_history() {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(dir.path()).unwrap();
        for json in [
            r#"{"at":"2026-01-02T00:00:00Z","run":"r","owner_uid":1,"type":"session_started","session":41}"#,
            r#"{"at":"2026-01-02T00:00:00Z","run":"r","owner_uid":1,"type":"finding","id":55,"session":12}"#,
            r#"{"at":"2026-01-02T00:00:00Z","run":"r","owner_uid":1,"type":"action","receipt":{"id":66}}"#,
        ] {
            store.append(&line::of_json(json)).unwrap();
        }
        let beyond = LastIds { session: SessionId(41), finding: FindingId(55), action: ActionId(66) }.plus(ID_BLOCK);
        assert_eq!(read(dir.path()), (beyond, 0));
        write(dir.path(), IDS).unwrap();
        let path = dir.path().join(FILE);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(read(dir.path()), (beyond, 1), "byte {at}");
        }
        fs::create_dir(&path).unwrap();
        assert_eq!(read(dir.path()), (beyond, 1));
        write(dir.path(), IDS).unwrap();
        assert_eq!(read(dir.path()), (IDS, 0));
    }
}
