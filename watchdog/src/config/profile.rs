//! Profiles: how an agent is recognised, by what was executed.

use crate::engine::input::Image;

/// How one agent is recognised. Every list that is given must match; any one pattern of a list is enough.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name, which is also the metric label.
    pub name: String,
    /// Globs on the path that was executed.
    pub exe: Vec<String>,
    /// Globs on argv[0].
    pub argv0: Vec<String>,
    /// Globs on an interpreter's script: the first argument that is no option.
    pub script: Vec<String>,
    /// Globs on comm.
    pub comm: Vec<String>,
}

/// What the kernel must look out for at the exec of an untracked process, so that no agent of these profiles is missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Names of path components, the last or the one before it.
    pub names: Vec<Vec<u8>>,
    /// Some profile cannot be told by names: every exec has to be looked at.
    pub every_exec: bool,
}

impl Profile {
    /// The profiles that come with the program.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        Vec::new()
    }

    /// Whether this profile recognises the program.
    #[must_use]
    pub fn matches(&self, _image: &Image, _comm: &str) -> bool {
        false
    }
}

impl Candidates {
    /// What these profiles need.
    #[must_use]
    pub fn of(_profiles: &[Profile]) -> Self {
        Self::default()
    }
}
