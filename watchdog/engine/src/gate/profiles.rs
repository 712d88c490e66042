//! The profiles that limit a session. A profile named at the launch can only tighten the limits of the one that matches the
//! command.

use super::gate_record::GateRecord;
use super::launch::{Launch, UNPROFILED};
use crate::Step;
use crate::effect::{Effect, PersistCommand};
use crate::session::TrackedSession;
use watchdog_config::{Config, Profile};
use watchdog_types::SessionId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LimitingProfiles {
    /// The session's profile: named at the launch, or else the one that matches the command.
    pub(super) own: String,
    /// Further profiles that match commands which the process has executed.
    pub(super) matched: Vec<String>,
}

impl LimitingProfiles {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.own).chain(&self.matched).map(String::as_str)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    pub(super) fn of<'c>(&self, config: &'c Config) -> impl Iterator<Item = &'c Profile> {
        self.names().filter_map(|name| config.profile(name))
    }
}

impl TrackedSession {
    pub(super) fn profiles(&self) -> LimitingProfiles {
        LimitingProfiles { own: self.profile.clone(), matched: self.matched.clone() }
    }

    pub(crate) fn limited_by<'c>(&self, config: &'c Config) -> impl Iterator<Item = &'c Profile> {
        std::iter::once(&self.profile).chain(&self.matched).filter_map(|name| config.profile(name))
    }
}

impl Step<'_> {
    pub(super) fn profiles_of(&self, launch: &Launch) -> LimitingProfiles {
        let recognised = self.profile(&launch.image, &launch.comm).map(|profile| profile.name.clone());
        match launch.profile.clone() {
            Some(own) => {
                LimitingProfiles { matched: recognised.into_iter().filter(|matched| *matched != own).collect(), own }
            }
            None => LimitingProfiles { own: recognised.unwrap_or_else(|| UNPROFILED.to_owned()), matched: Vec::new() },
        }
    }

    /// An exec adds limits but never lifts one: otherwise a session could escape by executing the agent of a more permissive
    /// profile.
    pub(crate) fn add_matching_profile(&mut self, session: SessionId, profile: String) {
        let Some(known) = self.engine.sessions.get_mut(session) else { return };
        if known.profile == profile || !add_profile(&mut known.matched, profile.clone()) {
            return;
        }
        let root = known.root;
        if let Some(held) = self.engine.gate.leases.get_mut(&root) {
            add_profile(&mut held.matched, profile.clone());
            self.engine.gate.fleet.changed = true;
            self.effect(Effect::Persist(PersistCommand::Gate(GateRecord::Matched { root, profile })));
        }
        self.apply_limits(session);
    }
}

/// Returns `false` if the profile is there already.
pub(super) fn add_profile(profiles: &mut Vec<String>, profile: String) -> bool {
    let new = !profiles.contains(&profile);
    if new {
        profiles.push(profile);
    }
    new
}
