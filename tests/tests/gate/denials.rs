//! Agents that are started outside the gate: reported, or denied.

use std::time::Duration;

use crate::{launch, lsm};
use rustix::process::Signal;
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, Snapshot, Stage, in_guest, is_alive, limit, poll, seconds};

fn path_of_agent(stage: &Stage) -> String {
    stage.directory().join(stage.agent_name()).display().to_string()
}

#[test]
fn ungated_agent_reported_or_denied() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    let agent = stage.agent("report warned hold");
    let ungated = |snapshot: &Snapshot| {
        snapshot.open(FindingKind::Ungated).into_iter().find(|finding| finding.pid == agent.pid).map(drop)
    };
    daemon.never(Duration::from_secs(1), "a finding although the gate is not in use", ungated);
    launch(&mut stage, &daemon, 1, &[], "report launched");
    daemon.eventually(seconds(2.0), "a finding after the first grant", ungated);
    daemon.end(Signal::TERM);
    daemon.restart();
    daemon.eventually(seconds(5.0), "a finding after a restart", ungated);
    drop(daemon);

    let daemon = Daemon::configured(&stage, "[gate]\nungated = \"deny\"\n");
    assert!(is_alive(agent), "the running agent continues");
    let denied = stage.execute(vec![
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        format!("{} report ran hold; echo $? > {}", path_of_agent(&stage), stage.directory().join("status").display()),
    ]);
    let status = poll(limit(Duration::from_secs(5)), || {
        std::fs::read_to_string(stage.directory().join("status")).ok().filter(|text| !text.is_empty())
    });
    let status = status.unwrap_or_else(|| panic!("{denied} still runs\n{}\n{}", daemon.log(), stage.log()));
    // 126: the exec was refused with EPERM; 137: it was killed before its first instruction.
    let expected = if lsm(&daemon) { "126" } else { "137" };
    assert_eq!(status.trim(), expected, "{}\n{}", daemon.log(), stage.log());
    assert!(!stage.reports().contains_key("ran"));
    // Through the gate it runs.
    launch(&mut stage, &daemon, 1, &[], "report gated hold");
    stage.reported("gated");
}

/// What a shell command in the stage's directory ends with.
fn shell(stage: &mut Stage, command: &str) -> String {
    let (directory, status) = (stage.directory().to_owned(), stage.directory().join("status"));
    drop(std::fs::remove_file(&status));
    let script = format!("cd {} && ( {command} ); echo $? > status", directory.display());
    stage.execute(vec!["/bin/sh".to_owned(), "-c".to_owned(), script]);
    let read = || std::fs::read_to_string(&status).ok().filter(|text| text.ends_with('\n'));
    let ended = poll(limit(Duration::from_secs(5)), read);
    ended.unwrap_or_else(|| panic!("{command} still runs\n{}", stage.log())).trim().to_owned()
}

/// Makes an installed program a file of its own: the fixture is linked, and other tests execute it.
fn make_own(stage: &mut Stage, name: &str) {
    assert_eq!(shell(stage, &format!("cp {name} own && mv -f own {name}")), "0");
}

/// Ways to execute the file with this name, beside its path. Without LSM programs the daemon kills it a moment later.
fn disguises(name: &str) -> [(&'static str, String); 5] {
    [
        ("a relative path", format!("./{name} sleep 1 exit")),
        ("a symbolic link", format!("ln -s {name} link && ./link sleep 1 exit")),
        ("a link to a link", "ln -s link further && ./further sleep 1 exit".to_owned()),
        ("a descriptor", format!("exec 3< {name} && /proc/self/fd/3 sleep 1 exit")),
        ("a hard link", format!("ln {name} hard && ./hard sleep 1 exit")),
    ]
}

#[test]
fn denied_file_is_denied_however_executed() {
    let mut stage = Stage::new();
    // Many programs are called so: the file is denied, and the name is not.
    stage.install("run");
    make_own(&mut stage, "run");
    let path = stage.directory().join("run");
    let profile = format!("[[profile]]\nname = \"denied\"\nexe = [\"{}\"]\nungated = \"deny\"\n", path.display());
    let daemon = Daemon::configured(&stage, &profile);
    let expected = if lsm(&daemon) { "126" } else { "137" };
    // The path is known at once, and the file after a first look at it.
    let through_link = "ln -sf run first && ./first sleep 1 exit";
    let denied = poll(limit(seconds(10.0)), || (shell(&mut stage, through_link) == expected).then_some(()));
    assert!(denied.is_some(), "{}", daemon.log());
    for (how, command) in disguises("run") {
        assert_eq!(shell(&mut stage, &command), expected, "through {how}\n{}", daemon.log());
    }
    // What only has the same content, or the same name, is another file.
    assert_eq!(shell(&mut stage, "cp run copy && ./copy exit"), "0");
    assert_eq!(shell(&mut stage, "mkdir other && cp run other/run && ./other/run exit"), "0");
    if !in_guest() {
        // The file systems of a guest do not report the generation of an inode.
        assert_eq!(shell(&mut stage, "mv run moved && ./moved exit"), expected);
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(shell(&mut stage, "./moved exit"), expected, "{}", daemon.log());
    }
}

#[test]
fn denied_name_is_file_name() {
    let mut stage = Stage::new();
    let name = stage.agent_name().to_owned();
    make_own(&mut stage, &name);
    let daemon = Daemon::configured(&stage, "[gate]\nungated = \"deny\"\n");
    let expected = if lsm(&daemon) { "126" } else { "137" };
    for (how, command) in disguises(&name).into_iter().take(4) {
        assert_eq!(shell(&mut stage, &command), expected, "through {how}\n{}", daemon.log());
    }
    if !in_guest() {
        let (how, command) = &disguises(&name)[4];
        assert_eq!(shell(&mut stage, command), expected, "through {how}\n{}", daemon.log());
        assert_eq!(shell(&mut stage, &format!("mv {name} moved && ./moved exit")), expected, "{}", daemon.log());
    }
}
