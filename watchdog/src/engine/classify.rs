//! What a program is, from what was executed: pure, and blind to what stands in later arguments.

use super::input::Image;
use crate::api::ProcessKind;

/// What the parent of a process is, as far as it bears on the process's own kind.
#[derive(Clone, Copy, Debug)]
pub struct Parent<'a> {
    /// The parent's kind.
    pub kind: ProcessKind,
    /// What the parent executed.
    pub image: &'a Image,
}

/// The kind of a helper; never [`ProcessKind::Agent`] or [`ProcessKind::Subagent`], which are a matter of profiles.
#[must_use]
pub fn helper_kind(_image: &Image, _comm: &str, _parent: Option<Parent<'_>>) -> ProcessKind {
    ProcessKind::Other
}
