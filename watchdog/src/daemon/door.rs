//! How many connections are open, and for whom there is room for one more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::id::Uid;

/// Connections of one user at most.
const PER_USER: usize = 64;
/// Connections of all users at most.
const IN_ALL: usize = 128;
/// Of these, places that only root gets: whatever others do, root gets in.
const FOR_ROOT: usize = 16;

/// Who is inside, shared by the door and every place.
type Inside = Arc<Mutex<HashMap<Uid, usize>>>;

/// Counts who is inside.
#[derive(Clone, Debug, Default)]
pub(super) struct Door {
    inside: Inside,
}

/// A place inside, held until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    inside: Inside,
    uid: Uid,
}

impl Door {
    /// A place for one more connection of this user, if there is one.
    pub(super) fn enter(&self, uid: Uid) -> Option<Place> {
        let mut inside = lock(&self.inside);
        let all: usize = inside.values().sum();
        let room = if uid == Uid::ROOT { IN_ALL } else { IN_ALL - FOR_ROOT };
        if all >= room || inside.get(&uid).is_some_and(|own| *own >= PER_USER) {
            return None;
        }
        *inside.entry(uid).or_default() += 1;
        Some(Place { inside: Arc::clone(&self.inside), uid })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = lock(&self.inside);
        if let Some(own) = inside.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                inside.remove(&self.uid);
            }
        }
    }
}

/// The counts are whole after every statement that changes them, so a panic elsewhere leaves nothing half done.
fn lock(inside: &Inside) -> MutexGuard<'_, HashMap<Uid, usize>> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(door: &Door, uid: u32) -> Vec<Place> {
        std::iter::from_fn(|| door.enter(Uid(uid))).collect()
    }

    #[test]
    fn one_user_cannot_take_every_place() {
        let door = Door::default();
        let greedy = fill(&door, 1000);
        assert_eq!(greedy.len(), PER_USER);
        assert!(door.enter(Uid(1001)).is_some());
    }

    #[test]
    fn root_gets_in_when_all_others_have_filled_the_place() {
        let door = Door::default();
        let _others: Vec<_> = (1..10).flat_map(|uid| fill(&door, uid)).collect();
        assert!(door.enter(Uid(99)).is_none());
        assert_eq!(fill(&door, 0).len(), FOR_ROOT);
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_ends() {
        let door = Door::default();
        let places = fill(&door, 1000);
        assert!(door.enter(Uid(1000)).is_none());
        drop(places);
        assert!(door.enter(Uid(1000)).is_some());
        assert!(lock(&door.inside).is_empty());
    }
}
