//! Recent grants, and bounded lists.

use std::collections::VecDeque;

use super::launch::LaunchLease;

/// A grant that rate limits count.
#[derive(Clone, Debug)]
pub(super) struct RecentGrant {
    pub(super) lease: LaunchLease,
    pub(super) matched: Vec<String>,
}

/// Appends an element, and drops the oldest one beyond `max`.
pub(super) fn push_bounded<T>(list: &mut VecDeque<T>, element: T, max: usize) {
    list.push_back(element);
    if list.len() > max {
        list.pop_front();
    }
}
