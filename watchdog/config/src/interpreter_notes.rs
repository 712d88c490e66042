//! Which interpreters are looked out for, where a profile may expect more.

use super::profile::Profile;
use super::tables::Config;
use watchdog_classify::{EXTENSIONS, Runtime, base_name};

/// One sentence for each script of the configuration's own profiles whose name does not identify its interpreter.
#[must_use]
pub fn interpreter_notes(config: &Config) -> Vec<String> {
    let built_in = Profile::built_in();
    // One that only adds limits to a built-in profile has its patterns.
    let is_built_in = |profile: &&Profile| built_in.iter().any(|known| known.patterns().eq(profile.patterns()));
    let own = config.profiles.iter().filter(|profile| !is_built_in(profile));
    let scripts = own.flat_map(|profile| {
        profile.patterns().flat_map(move |found| found.script.iter().map(move |glob| (profile, glob)))
    });
    let unclear = scripts.filter(|(_, glob)| !glob.starts_with("-m ") && !names_interpreter(glob));
    let extensions: Vec<String> = EXTENSIONS.iter().map(|(extension, _)| format!(".{extension}")).collect();
    unclear
        .map(|(profile, glob)| {
            format!(
                "profile {}: script {glob:?} is recognised behind node, bun, deno and python, and where it is executed \
                 itself; behind a shell and other interpreters only with one of the extensions {}",
                profile.name,
                extensions.join(", ")
            )
        })
        .collect()
}

fn names_interpreter(glob: &str) -> bool {
    let is_of_agents = ["js", "mjs", "cjs", "ts", "mts", "cts", "py", "pyz"]
        .contains(&base_name(glob).rsplit_once('.').map_or("", |(_, extension)| extension));
    is_of_agents || Runtime::of_extension(glob).is_some()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::parse;

    #[test]
    fn only_unclear_scripts_have_notes() {
        let text = "[[profile]]\nname = \"a\"\nscript = [\"*/my-agent\", \"*/a.py\", \"*/a.sh\", \"-m aider\"]\n\
                    [[profile]]\nname = \"codex\"\nmax_memory = \"1GiB\"\n";
        let notes = interpreter_notes(&parse(Path::new("x"), text).unwrap());
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].contains("\"*/my-agent\" is recognised behind node") && notes[0].contains(".sh, "),
            "{notes:?}"
        );
        assert_eq!(interpreter_notes(&Config::default()), [""; 0]);
    }
}
