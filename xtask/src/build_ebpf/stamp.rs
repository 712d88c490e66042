//! The stamp beside the object.

use std::fmt;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    /// SHA-256 of all sources.
    pub(super) sources: String,
    /// SHA-256 of the object.
    pub(super) object: String,
    pub(super) tools: Tools,
}

/// Versions as printed by the tools. Objects are compared only if these are equal.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tools {
    pub(super) rustc: String,
    pub(super) linker: String,
}

impl Stamp {
    const HEAD: &str = "# Written by `cargo xtask build-ebpf`, checked by `cargo xtask build-ebpf --check`.\n";

    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not a stamp", path.display()))
    }

    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = format!("{}{}", Self::HEAD, toml::to_string(self)?);
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl fmt::Display for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}", self.rustc, self.linker)
    }
}
