//! Answers shells that complete a command line: with [`VARIABLE`] set to the shell's name, this program prints candidates.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{Bash, CompleteEnv, Fish, Shells, Zsh};

use crate::args::socket;
use crate::output::print_error;
use crate::render::{escape, process_command, size};
use watchdog_api::client::ControlClient;
use watchdog_api::{Queue, Session, SessionState, Tree};

/// Not clap's `COMPLETE`: a variable of this name that a user happens to export must not disable `launch`.
pub const VARIABLE: &str = "WATCHDOGCTL_COMPLETE";

/// A shell waits for the answer while the user types.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Prints the candidates if a shell asks for them. Costs one look-up in the environment otherwise.
pub(crate) fn answer(command: fn() -> clap::Command) -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    let environment = CompleteEnv::with_factory(command).var(VARIABLE).shells(Shells(&[&Bash, &Fish, &Zsh]));
    match environment.try_complete(std::env::args_os(), std::env::current_dir().ok().as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(error) => {
            print_error(&error.to_string());
            Some(ExitCode::FAILURE)
        }
    }
}

/// The ids of sessions that have not ended.
pub(crate) fn sessions() -> Vec<CompletionCandidate> {
    running().iter().map(|session| candidate(session.id.to_string(), &summary(session))).collect()
}

/// Sessions, and the pids of their processes.
pub(crate) fn targets() -> Vec<CompletionCandidate> {
    targets_of(&running())
}

pub(crate) fn profiles() -> Vec<CompletionCandidate> {
    let queue = client().get::<Queue>("/v1/queue").map(|reply| reply.document);
    let profiles = queue.map(|queue| queue.profiles).unwrap_or_default();
    profiles.into_iter().map(|profile| CompletionCandidate::new(profile.name)).collect()
}

fn targets_of(sessions: &[Session]) -> Vec<CompletionCandidate> {
    let processes = || sessions.iter().flat_map(|session| &session.processes);
    let of_session = |session: &Session| {
        // A plain number is a pid before it is a session. Bash splits words at colons, so that is the exception.
        let is_pid = processes().any(|process| u64::from(process.pid) == session.id);
        let value = if is_pid { format!("session:{}", session.id) } else { session.id.to_string() };
        candidate(value, &format!("session: {}", summary(session)))
    };
    let processes = processes().map(|process| candidate(process.pid.to_string(), &process_command(process)));
    sessions.iter().map(of_session).chain(processes).collect()
}

fn running() -> Vec<Session> {
    let tree = client().get::<Tree>("/v1/tree").map(|reply| reply.document).unwrap_or_default();
    tree.sessions.into_iter().filter(|session| session.state != SessionState::Ended).collect()
}

fn candidate(value: String, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(escape(help).into_owned().into()))
}

fn summary(session: &Session) -> String {
    format!("{}, {}, {}", session.profile, session.state.name(), size(session.memory_bytes))
}

/// The client for the command line that is completed: it may have `--socket`.
fn client() -> ControlClient {
    ControlClient::new(socket(socket_of(std::env::args_os()))).with_timeout(TIMEOUT)
}

fn socket_of(arguments: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let mut arguments = arguments.skip_while(|argument| argument != "--");
    while let Some(argument) = arguments.next() {
        if argument == "--socket" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = argument.to_str().and_then(|argument| argument.strip_prefix("--socket=")) {
            return Some(path.into());
        }
    }
    None
}

/// The command of `launch`: first a program, then files.
pub(crate) struct CommandCompleter;

impl ValueCompleter for CommandCompleter {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        self.complete_at(0, current)
    }

    fn complete_at(&self, index: usize, current: &OsStr) -> Vec<CompletionCandidate> {
        match current.to_str() {
            Some(start) if index == 0 && !start.contains('/') => {
                let directories = std::env::var_os("PATH").unwrap_or_default();
                programs(std::env::split_paths(&directories), start)
            }
            _ => PathCompleter::any().complete(current),
        }
    }
}

fn programs(directories: impl Iterator<Item = PathBuf>, start: &str) -> Vec<CompletionCandidate> {
    let files = directories.filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
    let matching = files.filter(|file| file.file_name().to_string_lossy().starts_with(start));
    let mut names: Vec<OsString> =
        matching.filter(|file| is_executable(&file.path())).map(|file| file.file_name()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::tree;

    fn values(candidates: &[CompletionCandidate]) -> Vec<String> {
        candidates.iter().map(|candidate| candidate.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn ambiguous_number_completes_session_explicitly() {
        let mut tree = tree();
        tree.sessions.truncate(1);
        assert_eq!(values(&targets_of(&tree.sessions))[..2], ["3", "41230"]);
        tree.sessions[0].processes[0].pid = 3;
        assert_eq!(values(&targets_of(&tree.sessions))[..2], ["session:3", "3"]);
    }

    #[test]
    fn help_escapes_names_of_processes() {
        let mut tree = tree();
        tree.sessions[0].processes[0].argv = vec!["a\nb\u{1b}[2J".into()];
        let candidates = targets_of(&tree.sessions);
        let help = candidates.iter().find(|it| it.get_value() == "41231").and_then(|it| it.get_help()).unwrap();
        assert!(!help.to_string().contains(['\n', '\u{1b}']), "{help}");
    }

    #[test]
    fn socket_of_completed_line_is_used() {
        let socket = |line: &str| socket_of(line.split(' ').map(OsString::from));
        assert_eq!(socket("ctl -- ctl --socket /a tree"), Some("/a".into()));
        assert_eq!(socket("ctl -- ctl tree --socket=/b"), Some("/b".into()));
        assert_eq!(socket("ctl -- ctl tree --socket"), None);
    }

    #[test]
    fn only_programs_are_commands() {
        let directory = tempfile::tempdir().unwrap();
        for (name, mode) in [("claude", 0o755), ("claude.txt", 0o644), ("other", 0o755)] {
            let path = directory.path().join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let twice = [directory.path().to_owned(), directory.path().to_owned()];
        assert_eq!(values(&programs(twice.into_iter(), "cla")), ["claude"]);
    }
}
