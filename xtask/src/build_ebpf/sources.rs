//! One hash of all sources of the object.

use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest, Sha256};

/// Files and directories that the object depends on, relative to the repository.
const SOURCES: [&str; 4] =
    ["watchdog-ebpf/src", "watchdog-ebpf/Cargo.toml", "watchdog-ebpf/Cargo.lock", "watchdog-common/src"];

/// The hash of all sources and their relative names.
pub(super) fn digest(root: &Path) -> anyhow::Result<String> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect(&root.join(source), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(root)?.to_string_lossy().into_owned();
        for part in [name.as_bytes(), &bytes] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    Ok(hex(&hash.finalize()))
}

pub(super) fn digest_bytes(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    for entry in entries {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
