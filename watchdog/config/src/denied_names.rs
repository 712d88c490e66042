//! The executables that may only start through the gate.

use super::gate::Ungated;
use super::globs::Globs;
use super::patterns::{Patterns, expanded, is_literal};
use super::profile::Profile;
use super::tables::Config;
use watchdog_classify::Runtime;

/// File names whose exec the kernel programs can deny by themselves: each always is an agent of a denied profile. A profile
/// is denied by its own `ungated = "deny"`, or by that of `[gate]` where it has none.
///
/// The kernel sees the file name only, and must never deny a program that merely shares a directory or an interpreter with
/// an agent. So these give no name:
/// - a pattern whose last component has a wildcard, such as a version number,
/// - an interpreter, or `env`: the script in `node cli.js` has no exec of its own,
/// - a name that many programs have (`index.js`, `cli.js`, `__main__.py`, `run`),
/// - a name that an agent of a profile that is not denied may have,
/// - a match with `first_arg`, since other first arguments make the same file another program,
/// - `argv0` and `comm`, which the parent or the process chooses freely.
///
/// Userspace finds and kills the agents that start otherwise. `not_first_arg` has no effect here: a `claude` that a browser
/// starts as its helper (`--chrome-native-host`) is denied by name, and so is another program of the same name
/// (`goose up`, which migrates a database).
#[must_use]
pub fn denied_names(config: &Config) -> Vec<Vec<u8>> {
    let (denied, exempt): (Vec<&Profile>, Vec<&Profile>) =
        config.profiles.iter().partition(|profile| is_denied(config, profile));
    let mut names: Vec<String> = denied.into_iter().flat_map(Profile::patterns).flat_map(literal_names).collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        let exempt: Vec<Globs> = exempt.into_iter().flat_map(Profile::patterns).flat_map(last_components).collect();
        names.retain(|name| !exempt.iter().any(|globs| globs.matches(name)));
    }
    names.into_iter().map(String::into_bytes).collect()
}

/// Where to look for the files of denied agents. Each file found is denied by its inode, under any name.
#[derive(Clone, Debug, Default)]
pub struct DeniedFiles {
    /// Globs on whole paths. A file that matches is denied even if its name is common.
    pub paths: Vec<String>,
    /// File names in directories of programs.
    pub names: Vec<String>,
    /// Paths of agents of profiles that are not denied.
    exempt: Vec<Globs>,
}

impl DeniedFiles {
    /// The files of the denied profiles, under the conditions of [`denied_names`].
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let (denied, exempt): (Vec<&Profile>, Vec<&Profile>) =
            config.profiles.iter().partition(|profile| is_denied(config, profile));
        let matches = denied.into_iter().flat_map(Profile::patterns).filter(|match_| match_.first_arg.is_empty());
        let globs = matches.flat_map(|match_| match_.exe.iter().chain(&match_.script)).flat_map(|glob| expanded(glob));
        let paths: Vec<String> = globs.filter(|glob| glob.starts_with('/')).collect();
        let names = denied_names(config).into_iter().filter_map(|name| String::from_utf8(name).ok()).collect();
        let exempt =
            exempt.into_iter().flat_map(Profile::patterns).map(|match_| [&match_.exe[..], &match_.script[..]].concat());
        Self { paths, names, exempt: exempt.filter_map(|globs| Globs::new(globs).ok()).collect() }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.names.is_empty()
    }

    /// Whether a profile that is not denied recognises this path.
    #[must_use]
    pub fn exempts(&self, path: &str) -> bool {
        self.exempt.iter().any(|globs| globs.matches(path))
    }
}

fn is_denied(config: &Config, profile: &Profile) -> bool {
    profile.limits.ungated.or(config.gate.ungated) == Some(Ungated::Deny)
}

/// Names, without extension, that many programs have.
const COMMON_STEMS: &[&str] =
    &["app", "bin", "bundle", "cli", "entry", "index", "main", "__main__", "run", "server", "start"];

fn literal_names(patterns: &Patterns) -> Vec<String> {
    if !patterns.first_arg.is_empty() {
        return Vec::new();
    }
    let globs = patterns.exe.iter().chain(&patterns.script);
    globs.flat_map(|glob| expanded(glob)).filter_map(|glob| name(&glob)).collect()
}

/// A superset of the file names that these patterns match.
fn last_components(patterns: &Patterns) -> Vec<Globs> {
    let Patterns { exe, argv0, script, comm, first_arg: _, not_first_arg: _ } = patterns;
    let paths = [exe, argv0, script, comm].into_iter().flatten().flat_map(|glob| expanded(glob));
    // Cut at a '/', a glob may end between brackets and be invalid: then assume that it matches every name.
    let part = |path: &str| Globs::new(vec![path.rsplit('/').next()?.to_owned()]).ok();
    paths.filter_map(|path| part(&path).or_else(|| Globs::new(vec!["*".to_owned()]).ok())).collect()
}

fn name(glob: &str) -> Option<String> {
    let last = glob.rsplit('/').next().filter(|last| is_literal(last))?;
    let stem = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
    let is_specific =
        !last.starts_with("-m ") && last != "env" && Runtime::of(last).is_none() && !COMMON_STEMS.contains(&stem);
    is_specific.then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The names denied by `[gate] ungated` and these profiles, each with its own policy.
    fn denied(gate: Ungated, profiles: Vec<(Patterns, Option<Ungated>)>) -> Vec<String> {
        let profiles = profiles.into_iter().map(|(patterns, ungated)| {
            let mut profile = Profile::new("p", [patterns]).unwrap();
            profile.limits.ungated = ungated;
            profile
        });
        let mut config = Config { profiles: profiles.collect(), ..Config::default() };
        config.gate.ungated = Some(gate);
        denied_names(&config).into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
    }

    fn names(patterns: Patterns) -> Vec<String> {
        denied(Ungated::Deny, vec![(patterns, None)])
    }

    fn exe(globs: &[&str]) -> Patterns {
        Patterns { exe: globs.iter().map(|&glob| glob.to_owned()).collect(), ..Patterns::default() }
    }

    fn script(globs: &[&str]) -> Patterns {
        Patterns { exe: Vec::new(), script: exe(globs).exe, ..Patterns::default() }
    }

    #[rstest]
    #[case::plain(exe(&["*/claude"]), &["claude"])]
    #[case::braces(exe(&["*/codex-{x86_64,aarch64}-unknown-linux-{musl,gnu}"]), &[
        "codex-aarch64-unknown-linux-gnu", "codex-aarch64-unknown-linux-musl",
        "codex-x86_64-unknown-linux-gnu", "codex-x86_64-unknown-linux-musl",
    ])]
    #[case::a_version_for_a_name(exe(&["*/claude/versions/{[0-9],[0-9][0-9]}.[0-9]"]), &[])]
    #[case::wildcard(exe(&["*/claude*"]), &[])]
    #[case::interpreter(exe(&["*/node", "*/python3.12", "*/bash", "*/env"]), &[])]
    #[case::script(script(&["*/bin/aider"]), &["aider"])]
    #[case::module(script(&["-m aider"]), &[])]
    #[case::anybodys_script(script(&["*/@openai/codex/index.js", "*/site-packages/aider/__main__.py", "*/x/cli.mjs"]), &[])]
    #[case::a_script_of_its_own(script(&["*/bin/codex.js", "*/x/cline"]), &["cline", "codex.js"])]
    #[case::anybodys_program(exe(&["/opt/my-agent/run", "/opt/x/main", "/srv/server", "*/x/cli"]), &[])]
    #[case::not_first_arg_is_not_looked_at(Patterns { not_first_arg: vec!["x".into()], ..exe(&["*/a"]) }, &["a"])]
    #[case::first_arg(Patterns { first_arg: vec!["daemon".into()], ..exe(&["*/a"]) }, &[])]
    #[case::argv0_and_comm(Patterns { argv0: vec!["*/a".into()], comm: vec!["b".into()], ..Patterns::default() }, &[])]
    fn only_unambiguous_names_are_denied(#[case] patterns: Patterns, #[case] expected: &[&str]) {
        assert_eq!(names(patterns), expected);
    }

    #[test]
    fn profile_policy_overrides_gate() {
        let both = |own, other| vec![(exe(&["*/a"]), own), (exe(&["*/b"]), other)];
        assert_eq!(denied(Ungated::Warn, both(Some(Ungated::Deny), None)), ["a"]);
        assert_eq!(denied(Ungated::Deny, both(Some(Ungated::Allow), None)), ["b"]);
        assert_eq!(denied(Ungated::Deny, both(Some(Ungated::Warn), Some(Ungated::Allow))), [""; 0]);
        assert_eq!(denied(Ungated::Warn, both(None, None)), [""; 0]);
    }

    #[rstest]
    #[case::the_same(exe(&["/opt/other/a"]))]
    #[case::braces(exe(&["/opt/{x,a}"]))]
    #[case::wildcard(exe(&["*/a*"]))]
    #[case::a_directory(exe(&["/opt/agents/*"]))]
    #[case::script(script(&["*/a"]))]
    #[case::comm(Patterns { comm: vec!["a".into()], ..Patterns::default() })]
    #[case::an_argument(Patterns { first_arg: vec!["acp".into()], ..exe(&["*/a"]) })]
    fn name_of_exempt_profile_not_denied(#[case] exempt: Patterns) {
        for order in [[0, 1], [1, 0]] {
            let profiles = [(exe(&["*/a", "*/b.js"]), None), (exempt.clone(), Some(Ungated::Warn))];
            let profiles = order.map(|at: usize| profiles[at].clone()).to_vec();
            let expected: &[&str] = if exempt.exe == ["/opt/agents/*"] { &[] } else { &["b.js"] };
            assert_eq!(denied(Ungated::Deny, profiles), expected);
        }
    }

    #[test]
    fn built_in_agents_denied_by_command() {
        let mut config = Config::default();
        config.gate.ungated = Some(Ungated::Deny);
        let names = denied_names(&config);
        for name in ["claude", "codex", "gemini", "qwen", "opencode", "copilot", "cline", "aider", "goose", "amp"] {
            assert!(names.iter().any(|known| known == name.as_bytes()), "{name}");
        }
        for name in
            ["node", "nodejs", "bun", "python3", "sh", "bash", "env", "index.js", "cli.js", "claude-flow", "code"]
        {
            assert!(!names.iter().any(|known| known == name.as_bytes()), "{name}");
        }
    }
}
