//! `ids` in the state directory: the highest ids of sessions, findings and actions, over all runs and boots. While the
//! daemon runs it holds the end of a reserved block, after a clean stop the last id given.
//!
//! The runtime directory, a tmpfs, holds a copy: a daemon that crashes before a slow disk took the reservation does not
//! give the same ids again. After a crash of the host neither such ids nor their records are on the disk.

use std::path::{Path, PathBuf};

use super::set_aside::StateNotes;
use watchdog_engine::ID_BLOCK;
use watchdog_files::trusted_file;
use watchdog_history::{self as history, codec};
use watchdog_types::LastIds;

const FILE: &str = "ids";
/// The file holds one line.
const MAX_BYTES: u64 = 4096;

/// The last ids that an earlier run may have given; `seen` are those in other files. Where the file is missing or damaged,
/// they are read from the history, and a whole block is skipped, since its last records may be missing.
pub(super) fn last(state_dir: &Path, seen: LastIds, notes: &StateNotes) -> LastIds {
    let kept = read(state_dir, "ids continue after the highest in the history", notes);
    let kept = kept.unwrap_or_else(|| {
        let found = history::last_ids(state_dir);
        if found == LastIds::default() { found } else { found.plus(ID_BLOCK) }
    });
    kept.max(seen)
}

/// The copy in the runtime directory; zeros where there is none, or it is unusable.
pub(super) fn of_this_boot(runtime_dir: &Path, notes: &StateNotes) -> LastIds {
    read(runtime_dir, "using those in the state directory", notes).unwrap_or_default()
}

/// The ids in a directory. An unusable file is renamed, with this consequence.
fn read(dir: &Path, consequence: &str, notes: &StateNotes) -> Option<LastIds> {
    let decoded = |content: &[u8]| decode(content).ok_or_else(|| "it is damaged".to_owned());
    notes.read(&path(dir), MAX_BYTES, consequence, decoded)
}

/// Writes and syncs the file.
pub(super) fn write(dir: &Path, ids: LastIds) -> std::io::Result<()> {
    trusted_file::make_directory(dir, 0o700)?;
    let content = codec::encode_json(&serde_json::to_string(&ids)?);
    trusted_file::replace(&path(dir), &content, true).map(drop)
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

fn decode(content: &[u8]) -> Option<LastIds> {
    serde_json::from_str(codec::decode(content.strip_suffix(b"\n")?)?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use watchdog_history::Store;
    use watchdog_types::{ActionId, FindingId, SessionId};

    const IDS: LastIds = LastIds { session: SessionId(7), finding: FindingId(8), action: ActionId(9) };

    fn last_of(dir: &Path) -> (LastIds, usize) {
        let notes = StateNotes::default();
        (last(dir, LastIds::default(), &notes), notes.all().len())
    }

    #[test]
    fn written_ids_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        assert_eq!(last_of(&state), (LastIds::default(), 0));
        write(&state, IDS).unwrap();
        assert_eq!((last_of(&state), of_this_boot(&state, &StateNotes::default())), ((IDS, 0), IDS));
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
            store.append(&codec::encode_json(json)).unwrap();
        }
        let beyond = LastIds { session: SessionId(41), finding: FindingId(55), action: ActionId(66) }.plus(ID_BLOCK);
        assert_eq!(last_of(dir.path()), (beyond, 0));
        write(dir.path(), IDS).unwrap();
        let path = dir.path().join(FILE);
        let good = fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(last_of(dir.path()), (beyond, 1), "byte {at}");
        }
        fs::create_dir(&path).unwrap();
        assert_eq!(last_of(dir.path()), (beyond, 1));
        write(dir.path(), IDS).unwrap();
        assert_eq!(last_of(dir.path()), (IDS, 0));
    }

    #[test]
    fn unusable_copy_is_set_aside() {
        let (dir, notes) = (tempfile::tempdir().unwrap(), StateNotes::default());
        let path = dir.path().join(FILE);
        fs::create_dir(&path).unwrap();
        assert_eq!(of_this_boot(dir.path(), &notes), LastIds::default());
        fs::write(&path, "00000000 {}\n").unwrap();
        assert_eq!((of_this_boot(dir.path(), &notes), notes.all().len()), (LastIds::default(), 2));
        write(dir.path(), IDS).unwrap();
        assert_eq!((of_this_boot(dir.path(), &notes), notes.all().len()), (IDS, 2));
    }
}
