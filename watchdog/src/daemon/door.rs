//! How many connections are open, and for whom there is room for one more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::id::Uid;

/// How many a door lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Of one user at most.
    per_user: usize,
    /// Of all users at most.
    in_all: usize,
    /// Of these, places that only root gets: whatever others do, root gets in.
    for_root: usize,
}

impl Sizes {
    /// Connections that ask for anything but a launch.
    pub(super) const DESK: Self = Self { per_user: 64, in_all: 128, for_root: 16 };
    /// Descriptors that a connection takes: its own, and its process's.
    const DESCRIPTORS: usize = 2;

    /// All connections, where so many launches may wait and so many files may be open: half of them are left for looking at
    /// processes.
    pub(super) fn house(max_queue: usize, open_files: usize) -> Self {
        let Self { per_user, in_all, for_root } = Self::DESK;
        let most = open_files / 2 / Self::DESCRIPTORS;
        let queue = max_queue.min(most.saturating_sub(in_all));
        // A few launches more than may wait, so that the gate can refuse them in its own words.
        Self { per_user: queue + per_user, in_all: queue + in_all, for_root }
    }
}

/// Who is inside, shared by the door and every place.
type Inside = Arc<Mutex<Crowd>>;

#[derive(Debug)]
struct Crowd {
    sizes: Sizes,
    by_user: HashMap<Uid, usize>,
}

/// Counts who is inside.
#[derive(Clone, Debug)]
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
    /// One that lets so many in.
    pub(super) fn new(sizes: Sizes) -> Self {
        Self { inside: Arc::new(Mutex::new(Crowd { sizes, by_user: HashMap::new() })) }
    }

    /// Lets so many in from now on; whoever is inside stays.
    pub(super) fn resize(&self, sizes: Sizes) {
        lock(&self.inside).sizes = sizes;
    }

    /// A place for one more connection of this user, if there is one.
    pub(super) fn enter(&self, uid: Uid) -> Option<Place> {
        let mut inside = lock(&self.inside);
        let Crowd { sizes: Sizes { per_user, in_all, for_root }, by_user } = &mut *inside;
        let all: usize = by_user.values().sum();
        let room = if uid == Uid::ROOT { *in_all } else { *in_all - *for_root };
        if all >= room || by_user.get(&uid).is_some_and(|own| own >= per_user) {
            return None;
        }
        *by_user.entry(uid).or_default() += 1;
        drop(inside);
        Some(Place { inside: Arc::clone(&self.inside), uid })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = lock(&self.inside);
        if let Some(own) = inside.by_user.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                inside.by_user.remove(&self.uid);
            }
        }
    }
}

/// The counts are whole after every statement that changes them, so a panic elsewhere leaves nothing half done.
fn lock(inside: &Inside) -> MutexGuard<'_, Crowd> {
    inside.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_USER: usize = Sizes::DESK.per_user;
    const FOR_ROOT: usize = Sizes::DESK.for_root;

    fn fill(door: &Door, uid: u32) -> Vec<Place> {
        std::iter::from_fn(|| door.enter(Uid(uid))).collect()
    }

    #[test]
    fn one_user_cannot_take_every_place() {
        let door = Door::new(Sizes::DESK);
        let greedy = fill(&door, 1000);
        assert_eq!(greedy.len(), PER_USER);
        assert!(door.enter(Uid(1001)).is_some());
    }

    #[test]
    fn root_gets_in_when_all_others_have_filled_the_place() {
        let door = Door::new(Sizes::DESK);
        let _others: Vec<_> = (1..10).flat_map(|uid| fill(&door, uid)).collect();
        assert!(door.enter(Uid(99)).is_none());
        assert_eq!(fill(&door, 0).len(), FOR_ROOT);
    }

    #[test]
    fn a_place_is_free_again_when_its_connection_ends() {
        let door = Door::new(Sizes::DESK);
        let places = fill(&door, 1000);
        assert!(door.enter(Uid(1000)).is_none());
        drop(places);
        assert!(door.enter(Uid(1000)).is_some());
        assert!(lock(&door.inside).by_user.is_empty());
    }

    #[test]
    fn a_thousand_launches_of_one_user_or_of_several_can_wait_beside_all_others() {
        let sizes = Sizes::house(1_000, 1 << 20);
        let door = Door::new(sizes);
        let one = fill(&door, 1000);
        assert!(one.len() >= 1_000 && door.enter(Uid(1001)).is_some());
        drop(one);
        let several: Vec<_> = (1..=10).flat_map(|uid| (0..100).map(move |_| uid)).collect();
        let places: Vec<_> = several.into_iter().map(|uid| door.enter(Uid(uid)).expect("there is room")).collect();
        assert!(door.enter(Uid(1000)).is_some());
        drop(places);
    }

    #[test]
    fn few_descriptors_are_few_places_and_root_gets_in_all_the_same() {
        let door = Door::new(Sizes::house(1_000, 1_024));
        let others: Vec<_> = (1..10).flat_map(|uid| fill(&door, uid)).collect();
        assert!(others.len() * Sizes::DESCRIPTORS < 1_024 / 2, "{}", others.len());
        assert!(door.enter(Uid::ROOT).is_some());
    }

    #[test]
    fn a_door_that_gets_smaller_throws_nobody_out() {
        let door = Door::new(Sizes::house(10, 1 << 20));
        let places = fill(&door, 1000);
        door.resize(Sizes::house(0, 1 << 20));
        assert!(door.enter(Uid(1000)).is_none());
        assert!(door.enter(Uid(1001)).is_some());
        drop(places);
        assert_eq!(fill(&door, 1000).len(), PER_USER);
    }
}
