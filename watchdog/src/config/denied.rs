//! Names of files that are not let start past the gate.

use super::candidates::{expanded, is_literal};
use super::globs::Globs;
use super::profile::Patterns;
use super::{Config, Profile, Ungated};
use crate::engine::classify::Runtime;

/// The names of files that are an agent of a denied profile whenever they are executed: what the kernel can deny by itself. A
/// profile is denied by its own `ungated = "deny"`, or by `[gate]`'s where it has none.
///
/// The kernel knows no more than the name of the file, and must never hit what only shares a directory or an interpreter with
/// an agent. So no name comes from
/// - a pattern whose last component has a wildcard (a version number for a name),
/// - the name of an interpreter, or `env`: an agent's script that is handed to one (`node cli.js`) has no name of its own,
/// - a name that many programs bear (`index.js`, `cli.js`, `__main__.py`, `run`),
/// - a name that an agent of a profile which is not denied may bear too,
/// - a way that goes by the first argument (`first_arg`), since the same file is mostly something else,
/// - `argv0` or `comm`, which are whatever somebody wrote there.
///
/// What these are started as is found by userspace, and ended there. On the other side, `not_first_arg` is not looked at: a
/// `claude` that a browser starts as its helper (`--chrome-native-host`) is denied by its name all the same, and so is
/// another program of the same name (`goose up`, which migrates a database).
#[must_use]
pub fn denied_names(config: &Config) -> Vec<Vec<u8>> {
    let (denied, exempt): (Vec<&Profile>, Vec<&Profile>) =
        config.profiles.iter().partition(|profile| is_denied(config, profile));
    let mut names: Vec<String> = denied.into_iter().flat_map(Profile::ways).flat_map(names_of).collect();
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        let exempt: Vec<Globs> = exempt.into_iter().flat_map(Profile::ways).flat_map(last_components).collect();
        names.retain(|name| !exempt.iter().any(|globs| globs.matches(name)));
    }
    names.into_iter().map(String::into_bytes).collect()
}

/// Where the files of denied agents may lie. A file that is found there is denied by its identity, whatever it is called.
#[derive(Clone, Debug, Default)]
pub struct DeniedFiles {
    /// Globs of whole paths. A file that one of them matches is denied however common its name is.
    pub paths: Vec<String>,
    /// Names that a file has in a directory of programs.
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
        let ways = denied.into_iter().flat_map(Profile::ways).filter(|way| way.first_arg.is_empty());
        let globs = ways.flat_map(|way| way.exe.iter().chain(&way.script)).flat_map(|glob| expanded(glob));
        let paths: Vec<String> = globs.filter(|glob| glob.starts_with('/')).collect();
        let names = denied_names(config).into_iter().filter_map(|name| String::from_utf8(name).ok()).collect();
        let exempt = exempt.into_iter().flat_map(Profile::ways).map(|way| [&way.exe[..], &way.script[..]].concat());
        Self { paths, names, exempt: exempt.filter_map(|globs| Globs::new(globs).ok()).collect() }
    }

    /// There is nothing to look for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.names.is_empty()
    }

    /// A profile that is not denied recognises this path.
    #[must_use]
    pub fn spares(&self, path: &str) -> bool {
        self.exempt.iter().any(|globs| globs.matches(path))
    }
}

fn is_denied(config: &Config, profile: &Profile) -> bool {
    profile.bounds.ungated.unwrap_or(config.gate.ungated) == Ungated::Deny
}

/// Names, with or without an extension, that say what part of a program it is rather than which program.
const COMMON_STEMS: &[&str] =
    &["app", "bin", "bundle", "cli", "entry", "index", "main", "__main__", "run", "server", "start"];

fn names_of(way: &Patterns) -> Vec<String> {
    if !way.first_arg.is_empty() {
        return Vec::new();
    }
    way.exe.iter().chain(&way.script).flat_map(|glob| expanded(glob)).filter_map(|glob| name(&glob)).collect()
}

/// What the name of a file looks like that is an agent in this way, whatever else has to be true of it.
fn last_components(way: &Patterns) -> Vec<Globs> {
    let Patterns { exe, argv0, script, comm, first_arg: _, not_first_arg: _ } = way;
    let paths = [exe, argv0, script, comm].into_iter().flatten().flat_map(|glob| expanded(glob));
    // A part of a glob need not be one: it may end between brackets. What it would match then is not known, so all is.
    let part = |path: &str| Globs::new(vec![path.rsplit('/').next()?.to_owned()]).ok();
    paths.filter_map(|path| part(&path).or_else(|| Globs::new(vec!["*".to_owned()]).ok())).collect()
}

fn name(glob: &str) -> Option<String> {
    let last = glob.rsplit('/').next().filter(|last| is_literal(last))?;
    let stem = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
    let tells =
        !last.starts_with("-m ") && last != "env" && Runtime::of(last).is_none() && !COMMON_STEMS.contains(&stem);
    tells.then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// What is denied when these profiles, each with its own policy, stand beside `[gate] ungated`.
    fn denied(gate: Ungated, profiles: Vec<(Patterns, Option<Ungated>)>) -> Vec<String> {
        let profiles = profiles.into_iter().map(|(patterns, ungated)| {
            let mut profile = Profile::new("p", [patterns]).unwrap();
            profile.bounds.ungated = ungated;
            profile
        });
        let mut config = Config { profiles: profiles.collect(), ..Config::default() };
        config.gate.ungated = gate;
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
    fn only_names_that_are_the_agents_alone_are_denied(#[case] patterns: Patterns, #[case] expected: &[&str]) {
        assert_eq!(names(patterns), expected);
    }

    #[test]
    fn a_profiles_own_policy_goes_before_the_gates() {
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
    fn a_name_that_a_profile_bears_which_is_not_denied_is_left_to_userspace(#[case] exempt: Patterns) {
        for order in [[0, 1], [1, 0]] {
            let profiles = [(exe(&["*/a", "*/b.js"]), None), (exempt.clone(), Some(Ungated::Warn))];
            let profiles = order.map(|at: usize| profiles[at].clone()).to_vec();
            let expected: &[&str] = if exempt.exe == ["/opt/agents/*"] { &[] } else { &["b.js"] };
            assert_eq!(denied(Ungated::Deny, profiles), expected);
        }
    }

    #[test]
    fn the_built_in_agents_are_denied_by_their_commands_and_nothing_else_is() {
        let mut config = Config::default();
        config.gate.ungated = Ungated::Deny;
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
