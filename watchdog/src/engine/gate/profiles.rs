//! Which profiles limit a session: the one that was named at the launch may only tighten the limits of the one that recognises
//! the command.

use super::{Launch, UNPROFILED};
use crate::config::{Config, Profile};
use crate::engine::Step;
use crate::engine::effect::Effect;
use crate::engine::gate::GateRecord;
use crate::engine::id::SessionId;
use crate::engine::session::Session;

/// The profiles that limit one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Profiles {
    /// The one that the session goes by: the one that was named, or else the one that recognises the command.
    pub(super) own: String,
    /// The one that recognises the command, where another was named.
    pub(super) matched: Option<String>,
}

impl Profiles {
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.own.as_str()).chain(self.matched.as_deref())
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names().any(|known| known == name)
    }

    pub(super) fn of<'c>(&self, config: &'c Config) -> impl Iterator<Item = &'c Profile> {
        self.names().filter_map(|name| config.profile(name))
    }
}

impl Session {
    pub(super) fn profiles(&self) -> Profiles {
        Profiles { own: self.profile.clone(), matched: self.matched.clone() }
    }

    /// The configured profiles that limit this session.
    pub(in crate::engine) fn limited_by<'c>(&self, config: &'c Config) -> impl Iterator<Item = &'c Profile> {
        std::iter::once(self.profile.as_str()).chain(self.matched.as_deref()).filter_map(|name| config.profile(name))
    }
}

impl Step<'_> {
    pub(super) fn profiles_of(&self, launch: &Launch) -> Profiles {
        let recognised = self.profile(&launch.image, &launch.comm).map(|profile| profile.name.clone());
        match launch.profile.clone() {
            Some(own) => Profiles { matched: recognised.filter(|matched| *matched != own), own },
            None => Profiles { own: recognised.unwrap_or_else(|| UNPROFILED.to_owned()), matched: None },
        }
    }

    /// The command of a granted session that goes by the profile that was named matches another one.
    pub(in crate::engine) fn matches_too(&mut self, session: SessionId, profile: String) {
        let Some(known) = self.engine.sessions.get_mut(session) else { return };
        if known.profile == profile || known.matched.as_ref() == Some(&profile) {
            return;
        }
        known.matched = Some(profile.clone());
        let root = known.root;
        if let Some(held) = self.engine.gate.leases.get_mut(&root) {
            held.matched = Some(profile.clone());
            self.effect(Effect::Remember(GateRecord::Matched { root, profile }));
        }
        self.bind(session);
    }
}
