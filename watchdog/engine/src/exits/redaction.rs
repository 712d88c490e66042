//! The facts about other users' processes that a user may see.

use super::text;
use watchdog_api::DeathFacts;
use watchdog_types::Uid;

/// The headline for the journal, as the owner of the process may see it.
pub(super) fn headline_for_owner(facts: &DeathFacts) -> String {
    let mut facts = facts.clone();
    if let Some(uid) = facts.uid {
        redact_for(Uid(uid), &mut facts);
    }
    text::headline(&facts)
}

/// Removes the identity of other users' processes; their memory stays. The summary must be rebuilt afterwards.
pub(super) fn redact_for(viewer: Uid, facts: &mut DeathFacts) {
    let others = |uid: Option<u32>| uid != Some(viewer.0);
    facts.died_with.retain(|other| !others(other.uid));
    facts.died_with_count = facts.died_with_count.min(facts.died_with.len() as u64);
    let companions = facts.died_with.iter_mut().chain(&mut facts.passed_on_from);
    let senders =
        companions.filter_map(|other| other.sender.as_mut()).chain(&mut facts.sender).chain(&mut facts.origin);
    // The names of a program outside every session are not those of a user's work.
    for sender in senders.filter(|sender| others(Some(sender.uid)) && sender.session.is_some()) {
        (sender.session, sender.name) = (None, None);
    }
    let memory = facts.oom.as_mut().map(|oom| &mut oom.memory);
    for memory in memory.into_iter().chain(&mut facts.memory_holders) {
        for holder in memory.holders.iter_mut().filter(|holder| others(Some(holder.uid))) {
            (holder.session, holder.profile) = (None, None);
        }
        memory.largest.retain(|large| !others(Some(large.uid)));
    }
}
