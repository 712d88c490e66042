//! docs/architecture.md lists the files that a new detector takes, and the crates. The fanout detector shows whether the
//! lists of files are true, the manifests whether that of crates is.
#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A detector with settings and an action.
const DETECTOR: &str = "fanout";
/// A second detector opens findings of this kind, and leaks yield to it.
const ALSO_NAMED_IN: [&str; 2] =
    ["watchdog/engine/src/detect/leak/crowd.rs", "watchdog/engine/src/detect/worker_burst.rs"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The paths at the beginning of the lines of both fenced blocks.
fn listed() -> BTreeSet<String> {
    let text = fs::read_to_string(workspace().join("docs/architecture.md")).unwrap();
    let section = text.split("\n## ").find(|section| section.starts_with("Where to add what")).unwrap();
    let blocks: Vec<&str> =
        section.split("```").skip(1).step_by(2).map(|block| block.trim_start_matches("text")).collect();
    assert_eq!(blocks.len(), 2, "two lists: what each detector takes, and what some take");
    let paths = blocks.iter().flat_map(|block| block.lines()).filter_map(|line| line.split_whitespace().next());
    paths.map(|path| path.replace("NAME", DETECTOR)).collect()
}

/// Files below `directory` that name the detector, without tests.
fn naming(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(&*name, "tests" | "target" | "recordings") {
                naming(&path, found);
            }
        } else if !name.ends_with("tests.rs")
            && fs::read_to_string(&path).is_ok_and(|text| text.to_lowercase().contains(DETECTOR))
        {
            found.insert(path.strip_prefix(workspace()).unwrap().to_string_lossy().into_owned());
        }
    }
}

#[test]
fn lists_of_detector_files_are_true() {
    let listed = listed();
    for path in &listed {
        assert!(workspace().join(path).exists(), "{path} does not exist");
    }
    let mut naming_files = BTreeSet::new();
    for directory in ["watchdog", "packaging", "docs"] {
        naming(&workspace().join(directory), &mut naming_files);
    }
    // It says which detector the test takes.
    naming_files.remove("docs/architecture.md");
    for path in ALSO_NAMED_IN {
        assert!(naming_files.remove(path), "{path} does not name {DETECTOR}");
    }
    assert_eq!(naming_files, listed);
}

/// The crates of the workspace that a crate depends on, without a common prefix.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let manifest: toml::Table = fs::read_to_string(manifest).unwrap().parse().unwrap();
    let names = manifest["dependencies"].as_table().unwrap().keys();
    names.filter_map(|name| name.strip_prefix("watchdog")).map(short).collect()
}

fn short(name: &str) -> String {
    match name {
        "d" => "daemon".to_owned(),
        name => name.trim_start_matches('-').to_owned(),
    }
}

#[test]
fn crate_table_is_true() {
    let text = fs::read_to_string(workspace().join("docs/architecture.md")).unwrap();
    let mut listed = BTreeSet::new();
    for row in text.lines().filter(|line| line.starts_with("| `watchdog/")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let name = cells[0].trim_start_matches("| `watchdog/").trim_end_matches('`');
        let stated = cells.last().unwrap().trim_end_matches(" |").split(", ").filter(|name| *name != "nothing");
        let manifest = workspace().join("watchdog").join(name).join("Cargo.toml");
        assert_eq!(stated.map(str::to_owned).collect::<BTreeSet<_>>(), dependencies(&manifest), "watchdog/{name}");
        listed.insert(name.to_owned());
    }
    let crates = fs::read_dir(workspace().join("watchdog")).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(listed, crates.map(|name| name.into_string().unwrap()).collect());
}
