//! `hook install` and `hook uninstall`.

use std::io::{IsTerminal, stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use super::hook_agent::{HookAgent, environment};
use super::undo_record::UndoRecord;
use crate::commands::confirm::is_confirmed;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Style, Terminal, escape};
use watchdog_files::edited_file::{EditError, EditedFile, make_parents};

#[derive(Debug, Args)]
pub(crate) struct HookTarget {
    /// The agent
    agent: HookAgent,
    /// Edit the settings of the project in the current directory
    #[arg(long)]
    project: bool,
    /// Edit the settings of this user (the default)
    #[arg(long, conflicts_with = "project")]
    user: bool,
    /// Show the change only
    #[arg(long)]
    dry_run: bool,
    /// Do not ask; required unless stdin and stdout are terminals
    #[arg(long, short)]
    yes: bool,
}

#[derive(Debug, Serialize)]
struct HookChange {
    agent: &'static str,
    file: String,
    /// The hook is installed now.
    installed: bool,
    changed: bool,
    /// The change as a unified diff.
    diff: String,
}

pub(super) fn install(target: &HookTarget, output: &mut CommandOutput<'_>) -> Result<ExitCode, CtlError> {
    let settings = Settings::read(target)?;
    let program = if target.project { "watchdogctl".to_owned() } else { program() };
    let wanted = settings.agent.settings(&program);
    let old = settings.old.as_deref().unwrap_or_default();
    let format = settings.agent.format();
    let new = format.with_hooks(old, &wanted).map_err(|problem| settings.refuse(&problem))?;
    let restored = format.without_hooks(&new).map_err(|problem| settings.refuse(&problem))?;
    let exact = settings.old.as_deref() == Some(restored.as_str());
    let new = if settings.old.as_deref() == Some(new.as_str()) { settings.old.clone() } else { Some(new) };
    let undo = if exact { UndoStep::Nothing } else { UndoStep::Record };
    change(target, &settings, new, undo, output)
}

pub(super) fn uninstall(target: &HookTarget, output: &mut CommandOutput<'_>) -> Result<ExitCode, CtlError> {
    let settings = Settings::read(target)?;
    let record = state_dir().ok().and_then(|state| UndoRecord::read(&settings.path, &state));
    let untouched = record.as_ref().filter(|record| Some(&record.after) == settings.old.as_ref());
    let new = match (untouched, settings.old.as_deref()) {
        (Some(record), _) => record.before.clone(),
        (None, None) => None,
        (None, Some(old)) => {
            let new = settings.agent.format().without_hooks(old).map_err(|problem| settings.refuse(&problem))?;
            let created = record.as_ref().is_some_and(|record| record.before.is_none());
            Some(new).filter(|new| !created || new.split_whitespace().collect::<String>() != "{}")
        }
    };
    let made_directory = record.is_some_and(|record| record.made_directory);
    change(target, &settings, new, UndoStep::Forget { made_directory }, output)
}

/// The change to the record of the settings before the installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UndoStep {
    /// The text alone identifies what to remove.
    Nothing,
    Record,
    Forget {
        made_directory: bool,
    },
}

/// The settings of an agent, as they are before the command.
struct Settings {
    agent: HookAgent,
    path: PathBuf,
    /// `None` if there is no file.
    old: Option<String>,
}

impl Settings {
    fn read(target: &HookTarget) -> Result<Self, CtlError> {
        let path = if target.project {
            let here = std::env::current_dir();
            target.agent.in_project(&here.map_err(|error| CtlError::Failed(format!("no current directory: {error}")))?)
        } else {
            let unknown = || CtlError::Failed("the home directory is unknown: HOME is not set".into());
            target.agent.in_home(environment).ok_or_else(unknown)?
        };
        let unreadable = |error: &dyn std::fmt::Display| {
            CtlError::Failed(format!("{}: cannot read the settings: {error}\nNothing was changed.", path.display()))
        };
        let old = match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !path.is_symlink() => None,
            Err(error) => return Err(unreadable(&error)),
            Ok(found) if !found.is_file() => return Err(unreadable(&"it is not a regular file")),
            Ok(_) => Some(std::fs::read_to_string(&path).map_err(|error| unreadable(&error))?),
        };
        Ok(Self { agent: target.agent, path, old })
    }

    fn refuse(&self, problem: &dyn std::fmt::Display) -> CtlError {
        CtlError::Failed(format!("{}:{problem}\nNothing was changed.", self.path.display()))
    }
}

/// Shows the change, asks, and writes it.
fn change(
    target: &HookTarget,
    settings: &Settings,
    new: Option<String>,
    undo: UndoStep,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    let installs = !matches!(undo, UndoStep::Forget { .. });
    let agent = settings.agent;
    let file = settings.path.display().to_string();
    let changed = new != settings.old;
    let diff = unified(settings.old.as_deref(), new.as_deref(), &file);
    let report = HookChange { agent: agent.name(), file, installed: installs, changed, diff };
    if !changed {
        output.show_value(&report, |_| {
            let state = if installs { "installed already" } else { "not installed" };
            format!("{}: the hook is {state}; nothing was changed\n", escape(&report.file))
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    if !output.json {
        output.text(&coloured(&report.diff, &output.terminal))?;
    }
    if target.dry_run {
        if output.json {
            output.show_value(&HookChange { installed: !installs, ..report }, |_| String::new())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if !target.yes {
        if output.json || !stdin().is_terminal() || !stdout().is_terminal() {
            let why = "stdin is not a terminal; use --yes to proceed or --dry-run to preview";
            return Err(CtlError::Usage(why.into()));
        }
        output.text("\nWrite this change? [y/N] ")?;
        if !is_confirmed(&mut stdin().lock()) {
            output.text("cancelled; nothing was changed\n")?;
            return Ok(ExitCode::from(1));
        }
    }
    write(settings, new.as_deref(), undo)?;
    output.show_value(&report, |terminal| outcome(agent, &report, terminal))?;
    Ok(ExitCode::SUCCESS)
}

fn write(settings: &Settings, new: Option<&str>, undo: UndoStep) -> Result<(), CtlError> {
    let failed = |error: EditError| CtlError::Failed(format!("{error}\nNothing was changed."));
    let made_directory = settings.path.parent().is_some_and(|parent| !parent.exists());
    make_parents(&settings.path, 0o755).map_err(failed)?;
    let mut file = EditedFile::open(&settings.path).map_err(failed)?;
    if file.text() != settings.old.as_deref() {
        return Err(failed(EditError::Changed(settings.path.clone())));
    }
    match new {
        Some(new) => {
            if undo == UndoStep::Record {
                let record = UndoRecord { before: settings.old.clone(), after: new.to_owned(), made_directory };
                record.write(&settings.path, &state_dir()?)?;
            }
            file.replace(new, 0o600).map_err(failed)?;
        }
        None => file.remove().map_err(failed)?,
    }
    // The lock is a file in the same directory.
    drop(file);
    if let UndoStep::Forget { made_directory } = undo {
        if let Ok(state) = state_dir() {
            UndoRecord::remove(&settings.path, &state);
        }
        if let (true, None, Some(parent)) = (made_directory, new, settings.path.parent()) {
            // It stays if it is not empty.
            let _ = std::fs::remove_dir(parent);
        }
    }
    Ok(())
}

/// The name of this program, or its path if the shell does not find it.
fn program() -> String {
    let name = "watchdogctl";
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&directories).any(|directory| directory.join(name).is_file());
    match std::env::current_exe() {
        Ok(path) if !found => path.to_str().map_or_else(|| name.to_owned(), quoted),
        _ => name.to_owned(),
    }
}

fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// See the XDG Base Directory Specification.
fn state_dir() -> Result<PathBuf, CtlError> {
    let absolute = environment("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let found = absolute.or_else(|| Some(environment("HOME")?.join(".local/state")));
    found.ok_or_else(|| CtlError::Failed("the home directory is unknown: HOME is not set".into()))
}

fn unified(old: Option<&str>, new: Option<&str>, file: &str) -> String {
    let name = |text: Option<&str>| if text.is_some() { file.to_owned() } else { "/dev/null".to_owned() };
    let diff = TextDiff::from_lines(old.unwrap_or_default(), new.unwrap_or_default());
    diff.unified_diff().context_radius(2).header(&name(old), &name(new)).to_string()
}

fn coloured(diff: &str, terminal: &Terminal) -> String {
    let tag = |line: &str| match line.chars().next() {
        Some('+') => ChangeTag::Insert,
        Some('-') => ChangeTag::Delete,
        _ => ChangeTag::Equal,
    };
    let lines = diff.lines().map(|line| {
        let shown = escape(line).into_owned();
        match tag(line) {
            ChangeTag::Insert => terminal.paint(Style::Good, shown).into_owned(),
            ChangeTag::Delete => terminal.paint(Style::Bad, shown).into_owned(),
            ChangeTag::Equal => shown,
        }
    });
    lines.map(|line| line + "\n").collect()
}

fn outcome(agent: HookAgent, report: &HookChange, terminal: &Terminal) -> String {
    let (file, name) = (escape(&report.file), agent.name());
    if !report.installed {
        return format!("Removed the hook of {name} from {file}.\n");
    }
    let limit = format!(
        "The hook asks the gate before a subagent starts. To limit subagents: sudo watchdogctl config set \
         profile.{}.max_subagents 3",
        agent.profile()
    );
    let undo = format!("To undo this: watchdogctl hook uninstall {name}");
    let lines = [format!("Installed the hook of {name} in {file}."), agent.next_step().to_owned(), limit, undo];
    lines.iter().map(|line| terminal.wrap(line, 0)).collect()
}

/// Whether the settings of this user have the hook; `None` if there are no settings, or they cannot be read.
pub(crate) fn is_installed(agent: HookAgent, settings: &Path) -> Option<bool> {
    // An agent that was used has its directory.
    settings.parent().filter(|directory| directory.is_dir())?;
    match std::fs::read_to_string(settings) {
        Ok(text) => agent.format().has_hooks(&text).ok(),
        Err(error) => (error.kind() == std::io::ErrorKind::NotFound).then_some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_paths_are_quoted() {
        assert_eq!(quoted("/usr/bin/watchdogctl"), "/usr/bin/watchdogctl");
        assert_eq!(quoted("/my dir/o'x/watchdogctl"), "'/my dir/o'\\''x/watchdogctl'");
    }

    #[test]
    fn diff_names_missing_files() {
        let diff = unified(None, Some("{}\n"), "/x");
        assert!(diff.starts_with("--- /dev/null\n+++ /x\n"), "{diff}");
    }
}
