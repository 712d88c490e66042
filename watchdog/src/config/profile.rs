//! Profiles: how an agent is recognised, by what was executed.
//!
//! A profile has one or more [ways](Patterns) in which its agent starts; any one of them is enough. Within a way every key
//! that is given must match, and any one pattern of a key is enough.
//! Patterns are [`Globs`].

use std::fmt;
use std::sync::{Arc, LazyLock};

use super::actions::Reactions;
use super::candidates::names_of;
use super::gate::Bounds;
use super::globs::{GlobError, Globs};
use super::values::Size;
use crate::engine::classify::Program;
use crate::engine::input::Image;

/// How one agent is recognised. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct Profile {
    /// The name, which is also the metric label.
    pub name: String,
    /// The agent is a launcher that starts the real program as its only direct child: the two are one agent.
    pub relaunches: bool,
    /// What the gate holds its sessions to.
    pub bounds: Bounds,
    /// What policy does about findings of its sessions, where that differs from `[actions]`.
    pub actions: Reactions,
    /// What a session of this agent may take, all its processes together, before that is reported.
    pub max_memory: Option<Size>,
    /// What a single process of such a session may take.
    pub max_process_memory: Option<Size>,
    /// What all sessions of this agent together may take.
    pub max_total_memory: Option<Size>,
    ways: Arc<[Way]>,
}

/// One way in which an agent starts, as a person writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    /// Globs on the path that was executed. A running `#!` script shows its interpreter there, so they are tried on the
    /// script of an interpreter too.
    pub exe: Vec<String>,
    /// Globs on argv\[0\].
    pub argv0: Vec<String>,
    /// Globs on an interpreter's script: the first argument that is no option, or `-m MODULE` as it stands.
    pub script: Vec<String>,
    /// Globs on comm.
    pub comm: Vec<String>,
    /// Globs of which one must match the argument right after the program; with none there, an empty one.
    pub first_arg: Vec<String>,
    /// Globs of which none may match the argument right after the program.
    pub not_first_arg: Vec<String>,
}

/// Why a profile cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The name would not do as a metric label.
    #[error("{0:?} is not fit for a metric label: 1 to 40 of a-z, A-Z, 0-9, '-', '_' and '.' are allowed")]
    Name(String),
    /// There is nothing to recognise it by.
    #[error("there is no pattern: at least one of exe, argv0, script and comm is needed")]
    NoPattern,
    /// A pattern is not a glob.
    #[error("{key}: {error}")]
    Glob {
        /// Which key.
        key: &'static str,
        /// What is wrong.
        #[source]
        error: GlobError,
    },
}

/// A way with its globs compiled.
struct Way {
    patterns: Patterns,
    /// Names of which one stands in whatever this way recognises: most programs are told apart by them, without a glob.
    names: Option<Vec<Vec<u8>>>,
    exe: Globs,
    argv0: Globs,
    script: Globs,
    comm: Globs,
    first_arg: Globs,
    not_first_arg: Globs,
}

/// Names that metrics and messages can bear.
const LONGEST_NAME: usize = 40;

impl Profile {
    /// The profiles that come with the program.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        #[expect(clippy::expect_used, reason = "the text is part of the program, and a test reads it")]
        static BUILT_IN: LazyLock<Vec<Profile>> = LazyLock::new(|| {
            super::parse::profiles(include_str!("built_in.toml")).expect("the built-in profiles are well-formed")
        });
        BUILT_IN.clone()
    }

    /// A profile of these ways.
    ///
    /// # Errors
    /// When the name is no metric label, a way has nothing to recognise by, or a pattern is not a glob.
    pub fn new(name: &str, ways: impl IntoIterator<Item = Patterns>) -> Result<Self, ProfileError> {
        check_name(name)?;
        let ways = ways.into_iter().map(Way::compile).collect::<Result<Arc<[Way]>, _>>()?;
        if ways.is_empty() {
            return Err(ProfileError::NoPattern);
        }
        Ok(Self {
            name: name.to_owned(),
            relaunches: false,
            bounds: Bounds::default(),
            actions: Reactions::default(),
            max_memory: None,
            max_process_memory: None,
            max_total_memory: None,
            ways,
        })
    }

    /// The ways in which the agent starts.
    pub fn ways(&self) -> impl Iterator<Item = &Patterns> {
        self.ways.iter().map(|way| &way.patterns)
    }

    /// Whether this profile recognises the program. Costs about a microsecond.
    #[must_use]
    pub fn matches(&self, image: &Image, comm: &str) -> bool {
        self.recognises(&Program::of(image), comm)
    }

    /// Whether a program could be recognised by this profile with one of these first arguments and not with the other.
    #[must_use]
    pub fn tells_apart(&self, first_argument: &str, other: &str) -> bool {
        let differ = |set: &Globs| set.matches(first_argument) != set.matches(other);
        self.ways.iter().any(|way| differ(&way.first_arg) || differ(&way.not_first_arg))
    }

    fn recognises(&self, program: &Program<'_>, comm: &str) -> bool {
        self.ways.iter().any(|way| way.recognises(program, comm))
    }

    /// The first of these profiles that recognises the program.
    #[must_use]
    pub fn find<'a>(profiles: &'a [Self], image: &Image, comm: &str) -> Option<&'a Self> {
        let program = Program::of(image);
        profiles.iter().find(|profile| profile.recognises(&program, comm))
    }
}

/// Whether a profile may bear this name.
pub(super) fn check_name(name: &str) -> Result<(), ProfileError> {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(fit) {
        return Err(ProfileError::Name(name.to_owned()));
    }
    Ok(())
}

/// Compiles the patterns of one key.
fn globs(key: &'static str, patterns: &[String]) -> Result<Globs, ProfileError> {
    Globs::new(patterns.to_vec()).map_err(|error| ProfileError::Glob { key, error })
}

impl Way {
    fn compile(patterns: Patterns) -> Result<Self, ProfileError> {
        let Patterns { exe, argv0, script, comm, first_arg, not_first_arg } = &patterns;
        let way = Self {
            names: names_of(&patterns),
            exe: globs("exe", exe)?,
            argv0: globs("argv0", argv0)?,
            script: globs("script", script)?,
            comm: globs("comm", comm)?,
            first_arg: globs("first_arg", first_arg)?,
            not_first_arg: globs("not_first_arg", not_first_arg)?,
            patterns,
        };
        if [&way.exe, &way.argv0, &way.script, &way.comm].iter().all(|key| key.is_empty()) {
            return Err(ProfileError::NoPattern);
        }
        Ok(way)
    }

    fn recognises(&self, program: &Program<'_>, comm: &str) -> bool {
        // A shell's script counts only where it was executed itself: the kernel does not look out for shells.
        let script = program
            .script
            .as_deref()
            .filter(|_| program.script_executed || program.runtime.is_some_and(|runtime| runtime.runs_agents()));
        if let Some(names) = &self.names {
            let in_path = |path: &str| path.rsplit('/').take(2).any(|part| names.iter().any(|n| n == part.as_bytes()));
            let in_comm = || names.iter().any(|name| name == comm.as_bytes());
            if !in_path(program.path) && !script.is_some_and(in_path) && !in_comm() {
                return false;
            }
        }
        let on_script = |set: &Globs| script.is_some_and(|script| set.matches(script));
        let given = |set: &Globs, matches: bool| set.is_empty() || matches;
        given(&self.exe, self.exe.matches(program.path) || on_script(&self.exe))
            && given(&self.script, on_script(&self.script))
            && given(&self.argv0, self.argv0.matches(program.argv0))
            && given(&self.comm, self.comm.matches(comm))
            && given(&self.first_arg, self.first_arg.matches(program.arg(0)))
            && !self.not_first_arg.matches(program.arg(0))
    }
}

impl PartialEq for Way {
    fn eq(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("name", &self.name)
            .field("relaunches", &self.relaunches)
            .field("bounds", &self.bounds)
            .field("actions", &self.actions)
            .field("max_memory", &self.max_memory)
            .field("max_process_memory", &self.max_process_memory)
            .field("max_total_memory", &self.max_total_memory)
            .field("ways", &self.ways().collect::<Vec<_>>())
            .finish()
    }
}
