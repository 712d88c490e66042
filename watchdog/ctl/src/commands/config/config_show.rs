use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use super::config_edit::{self, EditProblem, KeyPath};
use super::read;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{Style, Terminal, escape};
use watchdog_config::{parse, shown_defaults};

#[derive(Debug, Serialize)]
struct ShownKey {
    key: String,
    /// The value in force, as TOML; null if there is none.
    value: Option<String>,
    /// Null if there is none.
    default: Option<String>,
    /// The file sets it.
    set: bool,
}

#[derive(Debug, Serialize)]
struct ShownConfig {
    file: String,
    keys: Vec<ShownKey>,
}

pub(super) fn get(file: &Path, key: &KeyPath, output: &mut CommandOutput<'_>) -> Result<ExitCode, CtlError> {
    let failed = |error: EditProblem| CtlError::Failed(format!("{}: {error}", file.display()));
    let own = config_edit::get(&read(file)?, key).map_err(failed)?;
    let default = config_edit::get(&shown_defaults(), key).map_err(failed)?;
    if own.is_none() && default.is_none() {
        // The reader of the configuration knows the keys without a default.
        let (probe, _) = config_edit::set("", key, "{}").map_err(failed)?;
        let errors = parse(file, &probe).map_or_else(|error| error.problems, |_| Vec::new());
        if let Some(unknown) = errors.iter().find(|problem| problem.message.contains("unknown key")) {
            return Err(CtlError::Usage(unknown.message.clone()));
        }
    }
    let set = own.is_some();
    let shown = ShownKey { key: key.to_string(), value: own.or_else(|| default.clone()), default, set };
    output.show_value(&shown, |_| format!("{}\n", escape(shown.value.as_deref().unwrap_or("not set"))))?;
    Ok(ExitCode::from(u8::from(shown.value.is_none())))
}

pub(super) fn show(file: &Path, output: &mut CommandOutput<'_>) -> Result<(), CtlError> {
    let failed = |error: EditProblem| CtlError::Failed(format!("{}: {error}", file.display()));
    let mut own = config_edit::entries(&read(file)?).map_err(failed)?;
    let mut keys = Vec::new();
    for (key, default) in config_edit::entries(&shown_defaults()).map_err(failed)? {
        let at = own.iter().position(|(known, _)| *known == key);
        let value = at.map(|at| own.remove(at).1);
        keys.push(ShownKey {
            key,
            set: value.is_some(),
            value: value.or_else(|| Some(default.clone())),
            default: Some(default),
        });
    }
    keys.extend(own.into_iter().map(|(key, value)| ShownKey { key, value: Some(value), default: None, set: true }));
    let config = ShownConfig { file: file.display().to_string(), keys };
    output.show_value(&config, |terminal| render(&config, terminal))
}

fn render(config: &ShownConfig, terminal: &Terminal) -> String {
    let mut out = format!("{}\n", terminal.paint(Style::Faint, format!("# {}", escape(&config.file))));
    for ShownKey { key, value, default, set } in &config.keys {
        let line = format!("{} = {}", escape(key), escape(value.as_deref().unwrap_or_default()));
        let note = match (set, default) {
            (false, _) => String::new(),
            (true, Some(default)) => format!("  # default: {}", escape(default)),
            (true, None) => "  # no default".to_owned(),
        };
        let style = if *set { Style::Strong } else { Style::Faint };
        out.push_str(&format!("{}{note}\n", terminal.paint(style, line)));
    }
    out
}
