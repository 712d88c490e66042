//! SHA-256 sums, in the format that `sha256sum --check` reads.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

/// Writes the sums of these files, by their names relative to the directory of `to`.
pub(super) fn write(files: &[PathBuf], to: &Path) -> Result<()> {
    let base = to.parent().unwrap_or(to);
    let mut text = String::new();
    for file in files {
        let name = file.strip_prefix(base).unwrap_or(file);
        writeln!(text, "{}  {}", of(file)?, name.display())?;
    }
    std::fs::write(to, text).with_context(|| format!("writing {}", to.display()))
}

/// The sum in hexadecimal.
pub(super) fn of(file: &Path) -> Result<String> {
    let bytes = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    Ok(format!("{:x}", Sha256::digest(bytes)))
}
