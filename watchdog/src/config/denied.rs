//! Names of files that are not let start past the gate.

use super::Profile;
use super::candidates::{expanded, is_literal};
use super::profile::Patterns;
use crate::engine::classify::Runtime;

/// The names of files that are an agent of these profiles whenever they are executed: what the kernel can deny by itself,
/// when `[gate] ungated = "deny"`.
///
/// The kernel knows no more than the name of the file, and must never hit what only shares a directory or an interpreter with
/// an agent. So no name comes from
/// - a pattern whose last component has a wildcard (a version number for a name),
/// - the name of an interpreter, or `env`: an agent's script that is handed to one (`node cli.js`) has no name of its own,
/// - a script's name that many programs' scripts bear (`index.js`, `cli.js`, `__main__.py`),
/// - a way that goes by the first argument (`first_arg`), since the same file is mostly something else,
/// - `argv0` or `comm`, which are whatever somebody wrote there.
///
/// What these are started as is found by userspace, and ended there. On the other side, `not_first_arg` is not looked at: a
/// `claude` that a browser starts as its helper (`--chrome-native-host`) is denied by its name all the same, and so is
/// another program of the same name (`goose up`, which migrates a database).
#[must_use]
pub fn denied_names(profiles: &[Profile]) -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = profiles.iter().flat_map(Profile::ways).flat_map(names_of).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Stems of script names that say what part of a program it is rather than which program.
const COMMON_STEMS: &[&str] =
    &["app", "bin", "bundle", "cli", "entry", "index", "main", "__main__", "run", "server", "start"];

fn names_of(way: &Patterns) -> Vec<Vec<u8>> {
    if !way.first_arg.is_empty() {
        return Vec::new();
    }
    let names = way.exe.iter().chain(&way.script).flat_map(|glob| expanded(glob)).filter_map(|glob| name(&glob));
    names.map(String::into_bytes).collect()
}

fn name(glob: &str) -> Option<String> {
    let last = glob.rsplit('/').next().filter(|last| is_literal(last))?;
    let stem = last.rsplit_once('.').map_or(last, |(stem, _)| stem);
    let tells = !last.starts_with("-m ")
        && last != "env"
        && Runtime::of(last).is_none()
        && !(stem.len() < last.len() && COMMON_STEMS.contains(&stem));
    tells.then(|| last.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn names(patterns: Patterns) -> Vec<String> {
        let names = denied_names(&[Profile::new("p", [patterns]).unwrap()]);
        names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
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
    #[case::a_script_of_its_own(script(&["*/bin/codex.js", "*/x/cli"]), &["cli", "codex.js"])]
    #[case::not_first_arg_is_not_looked_at(Patterns { not_first_arg: vec!["x".into()], ..exe(&["*/a"]) }, &["a"])]
    #[case::first_arg(Patterns { first_arg: vec!["daemon".into()], ..exe(&["*/a"]) }, &[])]
    #[case::argv0_and_comm(Patterns { argv0: vec!["*/a".into()], comm: vec!["b".into()], ..Patterns::default() }, &[])]
    fn only_names_that_are_the_agents_alone_are_denied(#[case] patterns: Patterns, #[case] expected: &[&str]) {
        assert_eq!(names(patterns), expected);
    }

    #[test]
    fn the_built_in_agents_are_denied_by_their_commands_and_nothing_else_is() {
        let names = denied_names(&Profile::built_in());
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
