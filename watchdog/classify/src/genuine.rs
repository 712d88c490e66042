//! Whether a file can be the program that a process is named as: any process can take any name.

use super::names::{base_name, command_name};
use super::program::Program;
use super::{Image, roles, table};

/// Runtimes of programs that are written in JavaScript.
const JAVASCRIPT: &[&str] = &["node", "nodejs", "bun", "deno"];

/// Whether an executable at this path, without symbolic links, is the program of this name: `/usr/bin/screen-4.9.1` is
/// screen, `.tmux-wrapped` is tmux, and `git` is `git-credential-cache--daemon`. Only whole words count.
#[must_use]
pub fn bears_name(name: &str, executable: &str) -> bool {
    let (name, file) = (name.to_ascii_lowercase(), command_name(executable).to_ascii_lowercase());
    let is_word = |(at, _): (usize, &str)| {
        let (before, after) = (file[..at].chars().next_back(), file[at + name.len()..].chars().next());
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphabetic)
    };
    let is_part = || !file.is_empty() && name.strip_prefix(&file).is_some_and(|rest| rest.starts_with('-'));
    !name.is_empty() && (file.match_indices(&name).any(is_word) || is_part())
}

/// Whether this executable can be the daemon of a user that [`roles::user_daemon`] recognises.
#[must_use]
pub fn can_be_user_daemon(image: &Image, executable: &str) -> bool {
    bears_name(Program::of(image).name(), executable)
}

/// Whether this executable can be the build server that [`roles::build_server`] recognises.
#[must_use]
pub fn can_be_build_server(image: &Image, comm: &str, executable: &str) -> bool {
    let program = Program::of(image);
    let (name, location) = (program.name(), program.location());
    if let Some(programs) = roles::title_of_build_server(&program, comm) {
        return programs.iter().any(|program| bears_name(program, executable));
    }
    let runtimes = match name.rsplit_once('.') {
        _ if location.contains("/node_modules/") => JAVASCRIPT,
        Some((_, "js" | "cjs" | "mjs")) => JAVASCRIPT,
        Some((_, "dll")) => &["dotnet"],
        Some(_) if table::BUILD_SERVERS.iter().any(|(known, _)| *known == name) => &["java"],
        None if name == "spring" => &["ruby"],
        _ => &[],
    };
    bears_name(name, executable) || runtimes.iter().any(|runtime| bears_name(runtime, executable))
}

/// Whether this executable can be the agent's daemon that [`roles::agent_daemon`] recognises.
#[must_use]
pub fn can_be_agent_daemon(image: &Image, executable: &str) -> bool {
    let program = Program::of(image);
    let interpreted = program.script.is_some() || program.title.is_some();
    bears_name(program.name(), executable) || (interpreted && is_javascript(executable))
}

/// Whether this executable can be the editor's server that [`roles::editor_server`] recognises: its scripts lie below a
/// directory that is named as a server, or that contains the runtime too.
#[must_use]
pub fn can_be_editor_server(image: &Image, executable: &str) -> bool {
    let program = Program::of(image);
    if program.script.is_none() {
        return bears_name(program.name(), executable);
    }
    let Some((directory, _)) = program.location().rsplit_once("/out/") else { return false };
    let is_server = |part: &str| part.ends_with("-server") || part.contains("-server-");
    let ships_runtime = executable.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
    is_javascript(executable) && (ships_runtime || directory.split('/').any(is_server))
}

fn is_javascript(executable: &str) -> bool {
    JAVASCRIPT.contains(&base_name(executable)) || JAVASCRIPT.iter().any(|runtime| bears_name(runtime, executable))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::tests::image;
    use super::*;

    #[rstest]
    #[case::same("ssh-agent", "/usr/bin/ssh-agent", true)]
    #[case::version("screen", "/usr/bin/screen-4.9.1", true)]
    #[case::version_without_dash("python", "/usr/bin/python3.13", true)]
    #[case::version_directory("claude", "/h/.local/share/claude/versions/2.1.224", true)]
    #[case::wrapped("tmux", "/nix/store/x/bin/.tmux-wrapped", true)]
    #[case::capital("SCREEN", "/usr/bin/screen", true)]
    #[case::one_of_many("git-credential-cache--daemon", "/usr/lib/git-core/git", true)]
    #[case::interpreter("ssh-agent", "/usr/bin/python3.13", false)]
    #[case::letter("s", "/usr/bin/ssh-agent", false)]
    #[case::part_of_a_word("code", "/usr/bin/transcoder", false)]
    #[case::empty("", "/usr/bin/python3.13", false)]
    fn executable_name_matches_whole_words(#[case] name: &str, #[case] executable: &str, #[case] expected: bool) {
        assert_eq!(bears_name(name, executable), expected);
    }

    #[rstest]
    #[case::bazel(&["bazel(p)", "-jar", "/b/A-server.jar"], "bazel(p)", "/usr/lib/jvm/java-21/bin/java", true)]
    #[case::bazel_without_java(&["x"], "bazel(p)", "/usr/bin/python3.13", false)]
    #[case::gradle(&["java", "org.gradle.launcher.daemon.bootstrap.GradleDaemon"], "java", "/j/bin/java", true)]
    #[case::gradle_script(&["python3", "org.gradle.launcher.daemon.bootstrap.GradleDaemon"], "python3", "/usr/bin/python3.13", false)]
    #[case::roslyn(&["dotnet", "exec", "/d/VBCSCompiler.dll"], "dotnet", "/usr/share/dotnet/dotnet", true)]
    #[case::nx(&["node", "/p/node_modules/nx/src/daemon/server/start.js"], "node", "/usr/bin/node", true)]
    #[case::nx_script(&["python3", "/p/nx/src/daemon/server/start.js"], "python3", "/usr/bin/python3.13", false)]
    #[case::pants(&["pantsd [/p]"], "pantsd [/p]", "/usr/bin/python3.11", true)]
    #[case::sccache_of_user(&["sccache"], "sccache", "/home/u/.cargo/bin/sccache", true)]
    #[case::buck_script(&["python3", "buck2d"], "python3", "/usr/bin/python3.13", false)]
    fn build_server_needs_its_program(
        #[case] argv: &[&str],
        #[case] comm: &str,
        #[case] executable: &str,
        #[case] expected: bool,
    ) {
        for path in ["", argv[0]] {
            assert_eq!(can_be_build_server(&image(path, argv), comm, executable), expected, "{path}");
        }
    }

    #[rstest]
    #[case::claude(&["claude", "daemon", "run"], "/h/.local/share/claude/versions/2.1.224", true)]
    #[case::worker_service(&["bun", "/p/worker-service.cjs", "--daemon"], "/h/.bun/bin/bun", true)]
    #[case::script_named_claude(&["python3", "claude", "daemon", "run"], "/usr/bin/python3.13", false)]
    #[case::argv_named_claude(&["claude", "daemon", "run"], "/usr/bin/python3.13", false)]
    fn agent_daemon_needs_its_program(#[case] argv: &[&str], #[case] executable: &str, #[case] expected: bool) {
        assert_eq!(can_be_agent_daemon(&image(argv[0], argv), executable), expected);
    }

    #[rstest]
    #[case::own_node("/h/.vscode-server/bin/1/out/server-main.js", "/h/.vscode-server/bin/1/node", true)]
    #[case::node_of_system("/usr/lib/code-server/lib/vscode/out/bootstrap-fork", "/usr/bin/node", true)]
    #[case::shipped("/v/out/bootstrap-fork", "/v/node", true)]
    #[case::elsewhere("/p/out/server-main.js", "/usr/bin/node", false)]
    #[case::python("/h/.vscode-server/bin/1/out/server-main.js", "/usr/bin/python3.13", false)]
    fn editor_server_requires_known_path(#[case] script: &str, #[case] executable: &str, #[case] expected: bool) {
        assert_eq!(can_be_editor_server(&image("/x/node", &["node", script]), executable), expected);
    }
}
