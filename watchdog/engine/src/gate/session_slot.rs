//! Sessions that count against quotas.

use std::collections::BTreeSet;

use super::launch::UNPROFILED;
use super::profiles::LimitingProfiles;
use crate::Engine;
use crate::session::TrackedSession;
use watchdog_api::ProcessKind;
use watchdog_types::{ProcessId, SessionId, Uid};

/// A session that counts: its agent is running, or its grant is too recent to be in the table.
#[derive(Clone, Debug)]
pub(super) struct SessionSlot {
    pub(super) session: Option<SessionId>,
    pub(super) profiles: LimitingProfiles,
    pub(super) uid: Uid,
}

impl Engine {
    pub(super) fn occupied_slots(&self) -> Vec<SessionSlot> {
        let open: Vec<&TrackedSession> = self.sessions.iter().filter(|session| session.members > 0).collect();
        let headless: BTreeSet<SessionId> =
            open.iter().filter(|session| self.table.alive(session.root).is_none()).map(|session| session.id).collect();
        // A launcher may have exited while the agent behind it runs.
        let behind: BTreeSet<SessionId> = if headless.is_empty() {
            headless.clone()
        } else {
            let agents = self.table.living().filter(|process| process.kind == ProcessKind::Agent);
            agents.map(|process| process.session).filter(|session| headless.contains(session)).collect()
        };
        let living: Vec<&&TrackedSession> = open
            .iter()
            .filter(|session| !headless.contains(&session.id) || behind.contains(&session.id))
            // An agent that requests its own launch does not block itself.
            .filter(|session| self.gate.queue.of(session.root).is_none())
            .collect();
        // A wrapper and the agent inside it count once.
        let inside: BTreeSet<ProcessId> =
            living.iter().filter_map(|session| session.granted.filter(|root| *root != session.root)).collect();
        let wraps = |session: &TrackedSession| session.profile == UNPROFILED && inside.contains(&session.root);
        let mut slots: Vec<SessionSlot> = living
            .into_iter()
            .filter(|session| !wraps(session))
            .map(|session| SessionSlot { session: Some(session.id), profiles: session.profiles(), uid: session.uid })
            .collect();
        let young = self.gate.commitments().filter(|held| held.session.is_none());
        slots.extend(young.map(|held| SessionSlot {
            session: None,
            profiles: LimitingProfiles { own: held.lease.profile.clone(), matched: held.matched.clone() },
            uid: held.lease.uid,
        }));
        slots
    }
}
