//! What the processes of each session hold together.
//!
//! Displays poll this once a second, and a walk over thousands of processes costs a millisecond when their memory is not in the
//! processor's caches. So the sums are kept until a process changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::process::TrackedProcess;
use watchdog_types::{BootTime, Bytes, SessionId, Viewer};

/// Viewers whose sums are kept.
const VIEWERS: usize = 4;

/// Of the living processes and the zombies that a viewer may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionSums {
    /// Shared pages counted once.
    pub(super) memory: Bytes,
    pub(super) resident: Bytes,
    pub(super) swap: Bytes,
    pub(super) living: u64,
    pub(super) zombies: u64,
    pub(super) idle_since: Option<BootTime>,
}

/// Sessions without a process that the viewer may see have none.
type Sums = BTreeMap<SessionId, SessionSums>;

#[derive(Debug, Default)]
pub(super) struct SumsCache(RefCell<Vec<KeptSums>>);

#[derive(Debug)]
struct KeptSums {
    viewer: Viewer,
    changes: (u64, u64),
    sums: Arc<Sums>,
}

impl SumsCache {
    fn get(&self, viewer: Viewer, changes: (u64, u64), make: impl FnOnce() -> Sums) -> Arc<Sums> {
        let mut kept = self.0.borrow_mut();
        if let Some(found) = kept.iter().find(|kept| kept.viewer == viewer && kept.changes == changes) {
            return Arc::clone(&found.sums);
        }
        kept.retain(|kept| kept.viewer != viewer);
        if kept.len() >= VIEWERS {
            kept.remove(0);
        }
        let sums = Arc::new(make());
        kept.push(KeptSums { viewer, changes, sums: Arc::clone(&sums) });
        sums
    }
}

impl Engine {
    pub(super) fn session_sums(&self, viewer: Viewer) -> Arc<Sums> {
        let changes = (self.table.generation(), self.idle_changes());
        let sums = self.sums.get(viewer, changes, || self.sum_up(viewer));
        debug_assert_eq!(*sums, self.sum_up(viewer), "a change did not raise the generation");
        sums
    }

    fn sum_up(&self, viewer: Viewer) -> Sums {
        let mut members: BTreeMap<SessionId, Vec<&TrackedProcess>> = BTreeMap::new();
        for process in self.table.iter().filter(|process| process.is_shown() && viewer.sees(process.uid)) {
            members.entry(process.session).or_default().push(process);
        }
        members.into_iter().map(|(session, members)| (session, self.sum(&members))).collect()
    }

    fn sum(&self, members: &[&TrackedProcess]) -> SessionSums {
        let mut sums = SessionSums { idle_since: self.idle_since(members), ..SessionSums::default() };
        for process in members {
            sums.memory += self.charged(process);
            sums.resident += process.memory.rss();
            sums.swap += process.memory.swap;
            sums.living += u64::from(process.alive());
            sums.zombies += u64::from(process.zombie());
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use watchdog_types::Uid;

    use super::*;

    #[test]
    fn unchanged_sums_are_kept_per_viewer() {
        let cache = SumsCache::default();
        let made = |viewer, changes| {
            let mut made = false;
            let _ = cache.get(viewer, changes, || {
                made = true;
                Sums::new()
            });
            made
        };
        let user = |uid| Viewer::User(Uid(uid));
        assert!(made(Viewer::Root, (1, 1)) && made(user(1), (1, 1)));
        assert!(!made(Viewer::Root, (1, 1)) && !made(user(1), (1, 1)));
        assert!(made(Viewer::Root, (2, 1)) && made(Viewer::Root, (2, 2)) && !made(Viewer::Root, (2, 2)));
        assert!((2..6).all(|uid| made(user(uid), (1, 1))));
        assert!(made(Viewer::Root, (2, 2)), "the viewer that asked longest ago was dropped");
        assert_eq!(cache.0.borrow().len(), VIEWERS);
    }
}
