//! Profiles: how an agent is recognised, by what was executed.
//!
//! A profile has one or more matches ([`Patterns`]); any one of them is enough. Patterns are [`Globs`].

use std::fmt;
use std::sync::Arc;

use super::actions::Responses;
use super::gate::ProfileLimits;
use super::globs::{GlobError, Globs};
use super::patterns::Patterns;
use super::reclaim::ProfileReclaim;
use super::values::Size;
use watchdog_classify::{Program, Runtime};
use watchdog_types::Image;

/// How one agent is recognised, and the limits of its sessions. Cheap to clone.
#[derive(Clone, PartialEq)]
pub struct Profile {
    /// Also the metric label.
    pub name: String,
    /// `relaunches`: the agent is a launcher that starts the real program as its only direct child. The two count as
    /// one agent.
    pub is_launcher: bool,
    pub limits: ProfileLimits,
    /// Overrides `[actions]` for findings of its sessions.
    pub actions: Responses,
    /// Overrides `[reclaim]` for its sessions.
    pub reclaim: ProfileReclaim,
    /// Sessions that use more are reported; all processes of a session together.
    pub max_memory: Option<Size>,
    /// The same for a single process of such a session.
    pub max_process_memory: Option<Size>,
    /// The same for all sessions of this agent together.
    pub max_total_memory: Option<Size>,
    matchers: Arc<[Matcher]>,
}

/// Why a profile is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Unusable as a metric label.
    #[error("{0:?} is not a profile name: 1 to 40 of a-z, A-Z, 0-9, '-', '_' and '.' are allowed")]
    Name(String),
    #[error("no pattern: at least one of exe, argv0, script and comm is required")]
    NoPattern,
    #[error("{key}: {error}")]
    Glob {
        key: &'static str,
        #[source]
        error: GlobError,
    },
}

/// Compiled [`Patterns`].
struct Matcher {
    patterns: Patterns,
    /// Names of which every matching program bears one: a cheap test before the globs.
    names: Option<Vec<Vec<u8>>>,
    exe: Globs,
    argv0: Globs,
    script: Globs,
    comm: Globs,
    first_arg: Globs,
    not_first_arg: Globs,
}

const MAX_NAME_LEN: usize = 40;

impl Profile {
    /// # Errors
    /// When the name is not a metric label, `matches` is empty or has one without a pattern, or a pattern is not a glob.
    pub fn new(name: &str, matches: impl IntoIterator<Item = Patterns>) -> Result<Self, ProfileError> {
        check_name(name)?;
        let matchers = matches.into_iter().map(Matcher::compile).collect::<Result<Arc<[Matcher]>, _>>()?;
        if matchers.is_empty() {
            return Err(ProfileError::NoPattern);
        }
        Ok(Self {
            name: name.to_owned(),
            is_launcher: false,
            limits: ProfileLimits::default(),
            actions: Responses::default(),
            reclaim: ProfileReclaim::default(),
            max_memory: None,
            max_process_memory: None,
            max_total_memory: None,
            matchers,
        })
    }

    /// Its matches, as configured.
    pub fn patterns(&self) -> impl Iterator<Item = &Patterns> {
        self.matchers.iter().map(|matcher| &matcher.patterns)
    }

    /// Whether this profile recognises the program. Costs about a microsecond.
    #[must_use]
    pub fn matches(&self, image: &Image, comm: &str) -> bool {
        self.recognises(&Executed::new(&Program::of(image), comm))
    }

    /// Whether the profile could recognise a program with one of these first arguments but not with the other.
    #[must_use]
    pub fn distinguishes(&self, first_argument: &str, other: &str) -> bool {
        let differ = |set: &Globs| set.matches(first_argument) != set.matches(other);
        self.matchers.iter().any(|matcher| differ(&matcher.first_arg) || differ(&matcher.not_first_arg))
    }

    fn recognises(&self, executed: &Executed<'_>) -> bool {
        self.matchers.iter().any(|matcher| matcher.recognises(executed))
    }

    /// The first of these profiles that recognises the program.
    #[must_use]
    pub fn find<'a>(profiles: &'a [Self], image: &Image, comm: &str) -> Option<&'a Self> {
        let program = Program::of(image);
        let executed = Executed::new(&program, comm);
        profiles.iter().find(|profile| profile.recognises(&executed))
    }
}

/// The facts that matchers examine, computed once for all of them.
struct Executed<'a> {
    program: &'a Program<'a>,
    comm: &'a str,
    script: Option<&'a str>,
    /// The last two components of the path and of the script, and comm.
    names: [&'a str; 5],
}

impl<'a> Executed<'a> {
    fn new(program: &'a Program<'a>, comm: &'a str) -> Self {
        // Otherwise the kernel does not look out for the interpreter.
        let is_seen = |script: &str| {
            program.script_executed
                || program.runtime.is_some_and(|runtime| runtime.runs_agents())
                || Runtime::of_extension(script).is_some_and(|runtime| program.runtime == Some(runtime))
        };
        let script = program.script.as_deref().filter(|script| is_seen(script));
        let [last, before] = last_components(program.path);
        let [script_last, script_before] = last_components(script.unwrap_or_default());
        Self { program, comm, script, names: [last, before, script_last, script_before, comm] }
    }
}

/// The last component of a path and the one before, which is empty where there is none.
fn last_components(path: &str) -> [&str; 2] {
    let mut components = path.rsplit('/');
    [components.next().unwrap_or_default(), components.next().unwrap_or_default()]
}

pub(super) fn check_name(name: &str) -> Result<(), ProfileError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > MAX_NAME_LEN || !name.bytes().all(allowed) {
        return Err(ProfileError::Name(name.to_owned()));
    }
    Ok(())
}

fn globs(key: &'static str, patterns: &[String]) -> Result<Globs, ProfileError> {
    Globs::new(patterns.to_vec()).map_err(|error| ProfileError::Glob { key, error })
}

impl Matcher {
    fn compile(patterns: Patterns) -> Result<Self, ProfileError> {
        let Patterns { exe, argv0, script, comm, first_arg, not_first_arg } = &patterns;
        let matcher = Self {
            names: patterns.names(),
            exe: globs("exe", exe)?,
            argv0: globs("argv0", argv0)?,
            script: globs("script", script)?,
            comm: globs("comm", comm)?,
            first_arg: globs("first_arg", first_arg)?,
            not_first_arg: globs("not_first_arg", not_first_arg)?,
            patterns,
        };
        if [&matcher.exe, &matcher.argv0, &matcher.script, &matcher.comm].iter().all(|key| key.is_empty()) {
            return Err(ProfileError::NoPattern);
        }
        Ok(matcher)
    }

    fn recognises(&self, executed: &Executed<'_>) -> bool {
        let Executed { program, comm, script, names } = *executed;
        let is_named = |name: &Vec<u8>| names.iter().any(|shown| shown.as_bytes() == name);
        if self.names.as_ref().is_some_and(|own| !own.iter().any(is_named)) {
            return false;
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

impl PartialEq for Matcher {
    fn eq(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("name", &self.name)
            .field("is_launcher", &self.is_launcher)
            .field("limits", &self.limits)
            .field("actions", &self.actions)
            .field("reclaim", &self.reclaim)
            .field("max_memory", &self.max_memory)
            .field("max_process_memory", &self.max_process_memory)
            .field("max_total_memory", &self.max_total_memory)
            .field("matches", &self.patterns().collect::<Vec<_>>())
            .finish()
    }
}
