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
    /// Those that recognise its commands, where another was named: one for each agent that the process has executed.
    pub(super) matched: Vec<String>,
}

impl Profiles {
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

impl Session {
    pub(super) fn profiles(&self) -> Profiles {
        Profiles { own: self.profile.clone(), matched: self.matched.clone() }
    }

    /// The configured profiles that limit this session.
    pub(in crate::engine) fn limited_by<'c>(&self, config: &'c Config) -> impl Iterator<Item = &'c Profile> {
        std::iter::once(&self.profile).chain(&self.matched).filter_map(|name| config.profile(name))
    }
}

impl Step<'_> {
    pub(super) fn profiles_of(&self, launch: &Launch) -> Profiles {
        let recognised = self.profile(&launch.image, &launch.comm).map(|profile| profile.name.clone());
        match launch.profile.clone() {
            Some(own) => Profiles { matched: recognised.into_iter().filter(|matched| *matched != own).collect(), own },
            None => Profiles { own: recognised.unwrap_or_else(|| UNPROFILED.to_owned()), matched: Vec::new() },
        }
    }

    /// The command of a granted session that goes by the profile that was named matches another one. An exec adds limits and
    /// lifts none: else a session could drop a tight limit by executing the agent of a lax profile.
    pub(in crate::engine) fn matches_too(&mut self, session: SessionId, profile: String) {
        let Some(known) = self.engine.sessions.get_mut(session) else { return };
        if known.profile == profile || !add_profile(&mut known.matched, profile.clone()) {
            return;
        }
        let root = known.root;
        if let Some(held) = self.engine.gate.leases.get_mut(&root) {
            add_profile(&mut held.matched, profile.clone());
            self.effect(Effect::Remember(GateRecord::Matched { root, profile }));
        }
        self.bind(session);
    }
}

/// Adds a profile; `false` if it is there already.
pub(super) fn add_profile(profiles: &mut Vec<String>, profile: String) -> bool {
    let new = !profiles.contains(&profile);
    if new {
        profiles.push(profile);
    }
    new
}
