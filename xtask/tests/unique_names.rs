//! A type name exists once in the workspace, a file name once in a crate: a name leads to one place.
#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Type names that still exist more than once. Sorted; remove a name when it is unique.
const KNOWN_TYPES: &[&str] = &[];

/// File names that still exist more than once in a crate, as `CRATE/FILE`. Sorted; remove a name when it is unique.
const KNOWN_FILES: &[&str] = &[];

const ANY_FOLDER: &[&str] = &["lib.rs", "main.rs", "mod.rs", "tests.rs"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every Rust file below `directory`, with the directory of its crate.
fn sources(directory: &Path, package: &Path, found: &mut Vec<(PathBuf, PathBuf)>) {
    let package = if directory.join("Cargo.toml").exists() { directory } else { package };
    let mut entries: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, package, found);
        } else if name.ends_with(".rs") {
            found.push((package.to_owned(), path.clone()));
        }
    }
}

/// The types that a file defines at the top level of any module. Relies on rustfmt: a block ends with the first line that is
/// its indentation and a brace.
fn types(text: &str) -> Vec<String> {
    let mut types = Vec::new();
    let mut block: Option<String> = None;
    let mut in_raw_string = false;
    for line in text.lines() {
        if in_raw_string {
            in_raw_string = !line.contains("\"#");
            continue;
        }
        if let Some(end) = &block {
            if line == end {
                block = None;
            }
            continue;
        }
        in_raw_string = line.rsplit_once("r#\"").is_some_and(|(_, rest)| !rest.contains("\"#"));
        let item = line.trim_start();
        let indent = &line[..line.len() - item.len()];
        let mut words =
            item.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '!')).filter(|word| !word.is_empty());
        let kind = words
            .find(|word| !matches!(*word, "pub" | "crate" | "super" | "in" | "const" | "unsafe" | "async" | "default"));
        if let Some("struct" | "enum" | "trait" | "type" | "union") = kind
            && !item.starts_with("//")
        {
            types.extend(words.next().map(str::to_owned));
        }
        let opens_block = matches!(kind, Some("fn" | "impl" | "trait" | "macro_rules!" | "extern"));
        if opens_block && !item.ends_with(['}', ';']) {
            block = Some(format!("{indent}}}"));
        }
    }
    types
}

/// Those that exist more than once, with all places.
fn duplicates(found: impl IntoIterator<Item = (String, PathBuf)>) -> BTreeMap<String, Vec<PathBuf>> {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (name, path) in found {
        places.entry(name).or_default().push(path);
    }
    places.retain(|_, paths| paths.len() > 1);
    places
}

fn check(duplicates: &BTreeMap<String, Vec<PathBuf>>, known: &[&str], list: &str) {
    assert!(known.is_sorted(), "{list} is not sorted");
    let new: Vec<String> = duplicates
        .iter()
        .filter(|(name, _)| !known.contains(&name.as_str()))
        .map(|(name, paths)| format!("{name}: {paths:?}"))
        .collect();
    assert!(new.is_empty(), "names that exist more than once:\n{}", new.join("\n"));
    let unique: Vec<&&str> = known.iter().filter(|name| !duplicates.contains_key(**name)).collect();
    assert!(unique.is_empty(), "unique by now, remove from {list}: {unique:?}");
}

#[test]
fn type_names_are_unique() {
    let root = workspace();
    let mut files = Vec::new();
    sources(&root, &root, &mut files);
    let found = files.iter().flat_map(|(_, path)| {
        let here = path.strip_prefix(&root).unwrap().to_owned();
        let in_file: BTreeSet<String> = types(&fs::read_to_string(path).unwrap()).into_iter().collect();
        in_file.into_iter().map(move |name| (name, here.clone()))
    });
    check(&duplicates(found), KNOWN_TYPES, "KNOWN_TYPES");
}

#[test]
fn file_names_are_unique_in_crate() {
    let root = workspace();
    let mut files = Vec::new();
    sources(&root, &root, &mut files);
    let found = files.iter().filter_map(|(package, path)| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let here = path.strip_prefix(package).unwrap();
        // A file of tests may have the name of what it tests.
        let tests = if here.iter().any(|folder| folder == "tests") { "tests/" } else { "" };
        let package = package.strip_prefix(&root).unwrap().display();
        (!ANY_FOLDER.contains(&name.as_str())).then(|| (format!("{package}/{tests}{name}"), here.to_owned()))
    });
    check(&duplicates(found), KNOWN_FILES, "KNOWN_FILES");
}

#[test]
fn types_in_blocks_are_ignored() {
    let text = "\
struct A;
pub(crate) enum B<T> {
    Struct,
}
impl Iterator for A {
    type Item = u32;
}
fn f(
    a: u32,
) {
    struct C;
}
mod tests {
    type D = u32;
}
const TEXT: &str = r#\"
struct node {};
\"#;
// struct E
union F {}
";
    assert_eq!(types(text), ["A", "B", "D", "F"]);
}
