use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::process::Command;

use super::*;

const STRANGER: u32 = 54_321;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn distrust(path: &Path) -> Distrust {
    match read(path, 100).unwrap_err() {
        OpenError::Untrusted(why) => why,
        OpenError::Io(error) => panic!("{error}"),
    }
}

#[test]
fn only_own_regular_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    assert!(read(&at("missing"), 100).unwrap().is_none());
    fs::write(at("good"), "text").unwrap();
    mode(&at("good"), 0o644);
    assert_eq!(read(&at("good"), 100).unwrap().unwrap(), b"text");
    assert!(matches!(read(&at("good"), 3), Err(OpenError::Io(_))));

    fifo(&at("fifo"));
    symlink(at("good"), at("link")).unwrap();
    fs::create_dir(at("dir")).unwrap();
    let expected = "regular file";
    assert_eq!(distrust(&at("fifo")), Distrust::Type { found: "FIFO", expected });
    assert_eq!(distrust(&at("link")), Distrust::Type { found: "symbolic link", expected });
    assert_eq!(distrust(&at("dir")), Distrust::Type { found: "directory", expected });
    mode(&at("good"), 0o664);
    assert_eq!(distrust(&at("good")), Distrust::Writable { mode: 0o664 });
    if geteuid().is_root() {
        mode(&at("good"), 0o644);
        chown(at("good"), Some(STRANGER), None).unwrap();
        assert_eq!(distrust(&at("good")), Distrust::Owner { owner: STRANGER });
    }
}

#[test]
fn four_set_aside_files_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    for number in 0..6 {
        fs::write(&path, number.to_string()).unwrap();
        let aside = if number % 2 == 0 { set_aside(&path) } else { copy_aside(&path) };
        assert_eq!(fs::read_to_string(aside.unwrap()).unwrap(), number.to_string());
        let _ = fs::remove_file(&path);
    }
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["state.set-aside-1", "state.set-aside-2", "state.set-aside-3", "state.set-aside-4"]);
    assert_eq!(fs::read_to_string(dir.path().join("state.set-aside-4")).unwrap(), "2");
}

#[test]
fn hostile_temporary_file_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (path, new, victim) = (dir.path().join("state"), dir.path().join("state.new"), dir.path().join("victim"));
    fs::write(&victim, "untouched").unwrap();
    let plant: [&dyn Fn(); 4] = [
        &|| fs::write(&new, "left by a killed daemon").unwrap(),
        &|| symlink(&victim, &new).unwrap(),
        &|| fifo(&new),
        &|| fs::create_dir(&new).unwrap(),
    ];
    for (number, plant) in plant.iter().enumerate() {
        plant();
        let mut file = replace(&path, number.to_string().as_bytes(), true).unwrap();
        file.write_all(b"+").unwrap();
        assert_eq!(read(&path, 100).unwrap().unwrap(), format!("{number}+").as_bytes());
        assert!(!new.exists());
    }
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
}

#[test]
fn directory_writable_by_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("own");
    fs::create_dir(&own).unwrap();
    check_directory(&own).unwrap();
    check_directory(&own.join("missing/below")).unwrap();
    for bad in [0o775, 0o757, 0o1777] {
        mode(&own, bad);
        let error = check_directory(&own).unwrap_err().to_string();
        assert!(error.contains("own") && error.contains(&format!("{bad:04o}")) && error.contains("chmod"), "{error}");
    }
    // Above the directory, the sticky bit is enough: as in /tmp.
    check_directory(&own.join("below")).unwrap();
    mode(&own, 0o777);
    check_directory(&own.join("below")).unwrap_err();
}

#[test]
fn path_through_another_user_is_refused() {
    if !geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (home, good) = (dir.path().join("home"), dir.path().join("good"));
    fs::create_dir(&good).unwrap();
    fs::create_dir(&home).unwrap();
    fs::create_dir(home.join("run")).unwrap();
    symlink(&good, dir.path().join("link")).unwrap();
    check_directory(&dir.path().join("link")).unwrap();
    std::os::unix::fs::lchown(dir.path().join("link"), Some(STRANGER), None).unwrap();
    check_directory(&dir.path().join("link")).unwrap_err();
    check_directory(&home.join("run")).unwrap();
    chown(&home, Some(STRANGER), None).unwrap();
    let error = check_directory(&home.join("run")).unwrap_err().to_string();
    assert!(error.contains("home/run") && error.contains(&format!("uid {STRANGER}")), "{error}");
    symlink(&home, good.join("to-home")).unwrap();
    check_directory(&good.join("to-home/run")).unwrap_err();
}

#[test]
fn link_chain_is_checked() {
    if !geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("good")).unwrap();
    fs::create_dir(at("between")).unwrap();
    fs::write(at("good/config.toml"), "").unwrap();
    symlink("../good/../good/config.toml", at("between/second")).unwrap();
    symlink(at("between/./second"), at("first")).unwrap();
    check_config(&at("first")).unwrap();
    // Neither the path nor where it ends shows this directory.
    chown(at("between"), Some(STRANGER), None).unwrap();
    assert!(check_config(&at("first")).unwrap_err().to_string().contains("between"));
    symlink(at("loop"), at("loop")).unwrap();
    assert!(check_config(&at("loop")).unwrap_err().to_string().contains("loop of symbolic links"));
}

#[test]
fn unmapped_uids_are_recognised() {
    let rootless = "         0       1000          1\n         1     100000      65536\n";
    assert_eq!([0, 1, 65_536, 65_537].map(|uid| maps(rootless, uid)), [true, true, true, false]);
    assert!(!maps("0 1000 1\n", 65_534) && maps("0 0 4294967295\n", 65_534));
}

#[test]
fn made_directory_keeps_foreign_modes() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mode_of = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    make_directory(&at("above/new"), 0o755).unwrap();
    assert_eq!(mode_of("above/new"), 0o755);
    fs::create_dir(at("old")).unwrap();
    mode(&at("old"), 0o700);
    symlink(at("old"), at("link")).unwrap();
    make_directory(&at("old"), 0o755).unwrap();
    make_directory(&at("link"), 0o755).unwrap();
    assert_eq!(mode_of("old"), 0o700, "it was there before");
    // A user may make it first, or a link in its place.
    mode(&at("above"), 0o777);
    make_directory(&at("above/new"), 0o755).unwrap_err();
    make_directory(&at("above/newer"), 0o755).unwrap_err();
    assert!(!at("above/newer").exists());
}

#[test]
fn configuration_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    check_config(&file).unwrap();
    fs::write(&file, "").unwrap();
    mode(&file, 0o644);
    symlink(&file, dir.path().join("link")).unwrap();
    check_config(&file).unwrap();
    check_config(&dir.path().join("link")).unwrap();
    mode(&file, 0o666);
    assert!(check_config(&dir.path().join("link")).unwrap_err().to_string().contains("chmod go-w"));
    if geteuid().is_root() {
        mode(&file, 0o644);
        chown(&file, Some(STRANGER), None).unwrap();
        assert!(check_config(&file).unwrap_err().to_string().contains("chown 0"));
    }
    fifo(&dir.path().join("fifo"));
    assert!(check_config(&dir.path().join("fifo")).unwrap_err().to_string().contains("FIFO"));
}
