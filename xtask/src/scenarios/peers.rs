//! Other memory killers, from Debian's archive.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::test_guests::debian::unpack;

/// Packages and the files that go into a guest.
const PACKAGES: &[(&str, &[&str])] = &[
    ("earlyoom", &["usr/bin/earlyoom", "etc/default/earlyoom"]),
    ("nohang", &["usr/sbin/nohang", "etc/nohang/nohang.conf"]),
];

pub(super) struct Peers {
    /// The path in the guest, and the file.
    pub(super) files: Vec<(&'static str, PathBuf)>,
    /// The packages, by the names of their files.
    pub(super) versions: Vec<String>,
}

/// The packages, from the cache in `directory` or from the archive.
///
/// # Errors
/// When one is neither in the cache nor can be fetched.
pub(super) fn fetch(directory: &Path) -> Result<Peers> {
    let mut peers = Peers { files: Vec::new(), versions: Vec::new() };
    for (name, files) in PACKAGES {
        let unpacked = directory.join(name);
        // Written last: if it exists, everything does.
        let marker = unpacked.join("version");
        if !marker.exists() {
            let package = unpack(name, &unpacked).with_context(|| format!("no {name} to compare with"))?;
            let version = package.trim_end_matches(".deb").replace("%3a", ":");
            std::fs::write(&marker, version).with_context(|| format!("writing {}", marker.display()))?;
        }
        let version = std::fs::read_to_string(&marker).with_context(|| format!("reading {}", marker.display()))?;
        peers.versions.push(version);
        peers.files.extend(files.iter().map(|file| (*file, unpacked.join(file))));
    }
    Ok(peers)
}
