use std::os::unix::fs::{chown, symlink};

use super::*;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn link_owner_and_mode_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("dotfiles")).unwrap();
    fs::write(at("dotfiles/real"), "old").unwrap();
    fs::set_permissions(at("dotfiles/real"), Permissions::from_mode(0o640)).unwrap();
    let root = rustix::process::geteuid().is_root();
    if root {
        chown(at("dotfiles/real"), Some(54_321), Some(54_322)).unwrap();
    }
    symlink("dotfiles/real", at("link")).unwrap();
    let mut file = EditedFile::open(&at("link")).unwrap();
    assert_eq!(file.text(), Some("old"));
    file.replace("new", 0o644).unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(at("dotfiles/real")).unwrap(), "new");
    assert!(fs::symlink_metadata(at("link")).unwrap().is_symlink());
    let found = fs::metadata(at("dotfiles/real")).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o640);
    assert!(!root || (found.uid(), found.gid()) == (54_321, 54_322));
    assert_eq!(names(&at("dotfiles")), ["real"]);
}

#[test]
fn new_file_has_the_given_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    let mut file = EditedFile::open(&path).unwrap();
    assert_eq!(file.text(), None);
    file.replace("text", 0o644).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    file.remove().unwrap();
    drop(file);
    assert!(names(dir.path()).is_empty());
}

#[test]
fn unlocked_edit_meanwhile_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "old").unwrap();
    let mut file = EditedFile::open(&path).unwrap();
    fs::write(&path, "of an editor").unwrap();
    assert!(matches!(file.replace("new", 0o644), Err(EditError::Changed(_))));
    assert!(matches!(file.remove(), Err(EditError::Changed(_))));
    drop(file);
    assert_eq!(fs::read_to_string(&path).unwrap(), "of an editor");
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn concurrent_edits_are_all_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for number in 0..10 {
                    let mut file = EditedFile::open(path).unwrap();
                    let text = format!("{}{writer}.{number}\n", file.text().unwrap_or_default());
                    file.replace(&text, 0o644).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(&path).unwrap();
    let lines: std::collections::BTreeSet<&str> = text.lines().collect();
    assert_eq!((lines.len(), text.lines().count()), (80, 80));
    assert_eq!(names(dir.path()), ["file"]);
}

#[test]
fn read_only_file_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let mut file = EditedFile::open(&path).unwrap();
    assert!(matches!(file.replace("new", 0o644), Err(EditError::ReadOnly { mode: 0o444, .. })));
    assert!(matches!(file.remove(), Err(EditError::ReadOnly { .. })));
    drop(file);
    assert_eq!((fs::read_to_string(&path).unwrap(), names(dir.path())), ("old".into(), vec!["file".into()]));
}

#[test]
fn odd_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("binary"), b"ab\xff").unwrap();
    symlink(at("missing"), at("dangling")).unwrap();
    assert!(matches!(EditedFile::open(&at("dir")), Err(EditError::NotRegular(_))));
    assert!(matches!(EditedFile::open(&at("binary")), Err(EditError::NotText { at: 2, .. })));
    assert!(matches!(EditedFile::open(&at("dangling")), Err(EditError::Io { doing: "find", .. })));
    assert!(matches!(EditedFile::open(&at("none/file")), Err(EditError::Io { doing: "find", .. })));
    assert_eq!(names(dir.path()), ["binary", "dangling", "dir"]);
}
