use std::io;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::config_edit::{self, EditProblem, KeyPath};
use super::config_reload::{ReloadOutcome, reload};
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Terminal, escape};
use watchdog_api::client::{ClientError, ControlClient};
use watchdog_config::{parse, shown_defaults};
use watchdog_files::edited_file::{EditError, EditedFile, make_parents};
use watchdog_files::trusted_file;

/// Keys that the daemon reads only when it starts.
const AT_START: [&str; 2] = ["daemon.listen", "tracking.max_processes"];

#[derive(Debug, Serialize)]
struct ConfigEdit {
    file: String,
    key: String,
    /// As TOML; null if the key was removed.
    value: Option<String>,
    /// The value in the file before, or else the default.
    previous: Option<String>,
    changed: bool,
    /// Null if nothing changed.
    reload: Option<ReloadOutcome>,
}

/// Sets a key, or removes it.
pub(super) fn run(
    client: &ControlClient,
    path: &Path,
    key: &KeyPath,
    value: Option<&String>,
    output: &mut CommandOutput<'_>,
) -> Result<ExitCode, CtlError> {
    trusted_file::check_config(path).map_err(|error| CtlError::Failed(format!("{error}\nNothing was changed.")))?;
    make_parents(path, 0o755).map_err(not_edited)?;
    let mut file = EditedFile::open(path).map_err(not_edited)?;
    let old = file.text().unwrap_or_default().to_owned();
    let rejected = |error: EditProblem| CtlError::Failed(format!("{}: {error}\nNothing was changed.", path.display()));
    let (new, before) = match value {
        Some(value) => config_edit::set(&old, key, value).map_err(rejected)?,
        None => match config_edit::unset(&old, key).map_err(rejected)? {
            Some((new, value)) => (new, Some(value)),
            None => (old.clone(), None),
        },
    };
    parse(path, &new).map_err(|error| CtlError::Failed(format!("{error}\nNothing was changed.")))?;
    let changed = new != old;
    if changed {
        file.replace(&new, 0o644).map_err(not_edited)?;
    }
    let default = config_edit::get(&shown_defaults(), key).ok().flatten();
    let edit = ConfigEdit {
        file: path.display().to_string(),
        key: key.to_string(),
        value: config_edit::get(&new, key).map_err(rejected)?,
        previous: before.or_else(|| default.clone()),
        changed,
        // The lock is held until the daemon has read the file.
        reload: changed.then(|| reload(client, path)),
    };
    output.show_value(&edit, |terminal| render(&edit, default.as_deref(), terminal))?;
    Ok(ExitCode::from(u8::from(matches!(edit.reload, Some(ReloadOutcome::Rejected { .. })))))
}

fn not_edited(error: EditError) -> CtlError {
    match &error {
        EditError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            ClientError::Forbidden(format!("{error}\nUse sudo.")).into()
        }
        _ => CtlError::Failed(format!("{error}\nNothing was changed.")),
    }
}

fn render(edit: &ConfigEdit, default: Option<&str>, terminal: &Terminal) -> String {
    let (file, key) = (escape(&edit.file), escape(&edit.key));
    let shown = |value: Option<&str>| escape(value.unwrap_or("not set")).into_owned();
    if !edit.changed {
        let now = edit.value.as_deref().map_or_else(|| "not set".to_owned(), |value| format!("already {value}"));
        return format!("{file}: {key} is {}; nothing was changed\n", escape(&now));
    }
    let now = match &edit.value {
        Some(value) => format!("{key} = {}", escape(value)),
        None => format!("{key} removed, default: {}", shown(default)),
    };
    let mut out = format!("{file}: {now} (was {})\n", shown(edit.previous.as_deref()));
    let at_start = AT_START.contains(&edit.key.as_str());
    let result = match &edit.reload {
        None => return out,
        Some(ReloadOutcome::Accepted) if at_start => {
            "The daemon accepted the file. This key takes effect at its next start: sudo systemctl restart watchdogd"
                .to_owned()
        }
        Some(ReloadOutcome::Accepted) => "The daemon accepted the file; the key is in force.".to_owned(),
        Some(ReloadOutcome::Rejected { problem }) => {
            format!("The daemon rejected the file and keeps the old configuration: {}", escape(problem))
        }
        Some(ReloadOutcome::OtherFile { file }) => {
            format!("The daemon was not reloaded: it uses {}", escape(file))
        }
        Some(ReloadOutcome::Unknown { problem }) => format!(
            "The daemon was not reloaded: {}. The file is valid, and is read at the next start or reload.",
            escape(problem)
        ),
    };
    out.push_str(&terminal.wrap(&result, 0));
    out
}
