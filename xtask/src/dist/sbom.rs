//! The bill of materials in CycloneDX: the programs, and every crate that is linked into them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::architecture::Architecture;
use super::checksums;
use super::release::Release;
use crate::output::output;
use xtask::cargo::{cargo, workspace};

/// Writes the document to `directory`, and returns its path.
pub(super) fn write(
    architecture: Architecture,
    release: &Release,
    programs: &[PathBuf],
    directory: &Path,
) -> Result<PathBuf> {
    let mut components = Vec::new();
    for program in programs {
        components.push(json!({
            "type": "file",
            "name": program.file_name().unwrap_or_default().to_string_lossy(),
            "hashes": [{ "alg": "SHA-256", "content": checksums::of(program)? }],
        }));
    }
    components.extend(crates(architecture)?.iter().map(LinkedCrate::component));
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.date("+%FT%TZ")?,
            "component": {
                "type": "application",
                "name": "agent-watchdog",
                "version": release.version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
        },
        "components": components,
    });
    let path = directory.join(format!("agent-watchdog-{}-linux-{}.cdx.json", release.version, architecture.name()));
    let text = serde_json::to_string_pretty(&document)? + "\n";
    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

#[derive(Debug, PartialEq)]
struct LinkedCrate {
    name: String,
    version: String,
    licence: String,
    /// SHA-256 of the archive in the registry; none for crates of this workspace.
    checksum: Option<String>,
}

impl LinkedCrate {
    /// A line of `cargo tree`: `aya v0.14.0|MIT OR Apache-2.0`, with the path of a crate of this workspace.
    fn parse(line: &str, checksums: &BTreeMap<(String, String), String>) -> Option<Self> {
        let (package, licence) = line.split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned());
        let checksum = checksums.get(&(name.clone(), version.clone())).cloned();
        // The old form of "or".
        let licence = licence.trim_end_matches(" (*)").replace('/', " OR ");
        Some(Self { name, version, licence, checksum })
    }

    fn component(&self) -> Value {
        let Self { name, version, licence, checksum } = self;
        let mut component = json!({
            "type": "library",
            "name": name,
            "version": version,
            "licenses": [{ "expression": licence }],
        });
        if let Some(checksum) = checksum {
            component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
            component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
        }
        component
    }
}

#[derive(Deserialize)]
struct LockFile {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The crates that are linked into the programs: neither build scripts nor procedural macros.
fn crates(architecture: Architecture) -> Result<Vec<LinkedCrate>> {
    let lock = workspace().join("Cargo.lock");
    let text = std::fs::read_to_string(&lock).with_context(|| format!("reading {}", lock.display()))?;
    let LockFile { package } = toml::from_str(&text).with_context(|| format!("reading {}", lock.display()))?;
    let checksums = package.into_iter().filter_map(|it| Some(((it.name, it.version), it.checksum?))).collect();
    let mut command = cargo();
    command.args(["tree", "--locked", "--package", "watchdogd", "--package", "watchdogctl"]);
    command.args(["--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p}|{l}"]);
    let tree = output(command.args(["--target", architecture.musl_target()]))?;
    let mut lines: Vec<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    lines.sort_unstable();
    lines.dedup();
    Ok(lines.into_iter().filter_map(|line| LinkedCrate::parse(line, &checksums)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tree_line_becomes_component() {
        let checksums = BTreeMap::from([(("aya".to_owned(), "0.14.0".to_owned()), "ab12".to_owned())]);
        let registry = LinkedCrate::parse("aya v0.14.0|MIT/Apache-2.0", &checksums).unwrap().component();
        assert_eq!(registry["purl"], "pkg:cargo/aya@0.14.0");
        assert_eq!(registry["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(registry["hashes"][0]["content"], "ab12");
        let own = LinkedCrate::parse("watchdogd v0.1.0 (/src/watchdog/daemon)|MIT OR Apache-2.0", &checksums).unwrap();
        assert_eq!((own.name.as_str(), own.component().get("purl")), ("watchdogd", None));
    }

    #[test]
    fn programs_link_their_libraries() {
        let crates = crates(Architecture::Arm64).unwrap();
        for name in ["watchdogd", "watchdogctl", "aya", "clap", "tokio"] {
            assert!(crates.iter().any(|it| it.name == name), "{name} is missing");
        }
        assert!(crates.iter().all(|it| it.name != "serde_derive" && !it.licence.is_empty()), "{crates:#?}");
        assert!(crates.iter().all(|it| it.checksum.is_some() || it.name.starts_with("watchdog")));
    }
}
