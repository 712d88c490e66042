//! The settings before `hook install`, where `hook uninstall` could not restore them otherwise: a file that did not exist,
//! or that had empty containers.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::CtlError;
use watchdog_files::edited_file::{EditError, EditedFile, make_parents};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct UndoRecord {
    /// `None` if there was no file.
    pub(super) before: Option<String>,
    pub(super) after: String,
    /// The directory of the file was created.
    pub(super) made_directory: bool,
}

impl UndoRecord {
    pub(super) fn write(&self, settings: &Path, state_dir: &Path) -> Result<(), CtlError> {
        let path = path(settings, state_dir);
        make_parents(&path, 0o700).map_err(failed)?;
        let mut file = EditedFile::open(&path).map_err(failed)?;
        // Settings may contain secrets.
        file.replace(&serde_json::to_string(self)?, 0o600).map_err(failed)
    }

    /// `None` if there is no valid record.
    pub(super) fn read(settings: &Path, state_dir: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(path(settings, state_dir)).ok()?).ok()
    }

    pub(super) fn remove(settings: &Path, state_dir: &Path) {
        // A record that stays is used only if the settings have the recorded content again.
        let _ = std::fs::remove_file(path(settings, state_dir));
    }
}

fn path(settings: &Path, state_dir: &Path) -> PathBuf {
    let name = settings.to_string_lossy().replace('%', "%%").replace('/', "%");
    state_dir.join("agent-watchdog/hooks").join(format!("{name}.json"))
}

fn failed(error: EditError) -> CtlError {
    CtlError::Failed(error.to_string())
}
