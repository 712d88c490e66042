//! The configuration in force, for clients: its file and text, and whether the last reload was accepted.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::wall_clock::wall_clock;
use watchdog_api::{ConfigInForce, ConfigStatus};
use watchdog_config::Config;

#[derive(Clone, Debug, Default)]
pub(super) struct ConfigState(Arc<Mutex<ServedConfig>>);

#[derive(Debug, Default)]
struct ServedConfig {
    status: ConfigStatus,
    text: LoadedText,
}

/// The text of the configuration in force.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadedText {
    pub(super) in_force: ConfigInForce,
    /// Every user may read its file.
    pub(super) for_everyone: bool,
}

impl LoadedText {
    pub(super) fn read_now(file: Option<&Path>, text: String, for_everyone: bool) -> Self {
        let (file, loaded_at) = (file.map(|file| file.display().to_string()), wall_clock().to_string());
        Self { in_force: ConfigInForce { file, loaded_at, text }, for_everyone }
    }
}

impl ConfigState {
    pub(super) fn new(file: &Path, config: &Config, text: LoadedText) -> Self {
        let file = std::path::absolute(file).unwrap_or_else(|_| PathBuf::from(file));
        let status = ConfigStatus {
            file: file.to_string_lossy().into_owned(),
            enforce: config.actions.enforce,
            ..ConfigStatus::default()
        };
        Self(Arc::new(Mutex::new(ServedConfig { status, text })))
    }

    /// Records a reload: the configuration that is in force now, or why it was rejected.
    pub(super) fn reloaded(&self, outcome: Result<(&Config, LoadedText), String>) {
        let mut served = self.served();
        served.status.reloads += 1;
        match outcome {
            Ok((config, text)) => {
                (served.status.enforce, served.status.problem) = (config.actions.enforce, None);
                served.text = text;
            }
            Err(problem) => served.status.problem = Some(problem),
        }
    }

    pub(super) fn status(&self) -> ConfigStatus {
        self.served().status.clone()
    }

    pub(super) fn text(&self) -> LoadedText {
        self.served().text.clone()
    }

    fn served(&self) -> MutexGuard<'_, ServedConfig> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_reload_keeps_old_values() {
        let mut config = Config::default();
        config.actions.enforce = true;
        let state = ConfigState::new(Path::new("/etc/x.toml"), &config, LoadedText::default());
        state.reloaded(Err("line 3".into()));
        let expected =
            ConfigStatus { file: "/etc/x.toml".into(), enforce: true, reloads: 1, problem: Some("line 3".into()) };
        assert_eq!(state.status(), expected);
        state.reloaded(Ok((&Config::default(), LoadedText::default())));
        assert_eq!(state.status(), ConfigStatus { enforce: false, reloads: 2, problem: None, ..expected });
    }
}
