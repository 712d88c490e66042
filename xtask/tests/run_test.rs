//! The runner of test binaries: what a binary finds, and what becomes of one that hangs. Shell scripts stand in for binaries.
//! Needs root.

#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::path::Path;
use std::process::{Command, Output};

const XTASK: &str = env!("CARGO_BIN_EXE_xtask");

/// Runs a shell script, in which `$XTASK` is the program under test.
fn sh(script: &str) -> Output {
    Command::new("sh").args(["-c", script]).env("XTASK", XTASK).output().expect("a shell")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn hanging_test_is_killed_and_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let pids = directory.path().join("pids");
    let binary = format!(
        "echo 'test one ... ok'; echo 'test two has been running for over 60 seconds'; \
         sleep 1000 & echo $! >{0}; setsid sh -c 'echo $$ >>{0}; sleep 1000' & echo $$ >>{0}; wait",
        pids.display()
    );
    let output = sh(&format!("exec \"$XTASK\" run-test --limit 61 -- sh -c '{}'", binary.replace('\'', r"'\''")));

    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("test two ... FAILED"), "{text}");
    assert!(text.contains("test result: FAILED. 1 passed; 1 failed;"), "{text}");
    let pids = std::fs::read_to_string(pids).expect("the binary wrote its pids");
    assert_eq!(pids.lines().count(), 3, "{pids}");
    let alive: Vec<&str> = pids.lines().filter(|pid| Path::new("/proc").join(pid).exists()).collect();
    assert!(alive.is_empty(), "{alive:?} of {pids}");
}

#[test]
fn failing_binary_keeps_its_exit_code() {
    let output = sh("exec \"$XTASK\" run-test -- sh -c 'echo \"test one ... FAILED\"; exit 101'");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(101), "test one ... FAILED\n"));
}

#[test]
fn daemon_left_behind_delays_nothing() {
    let started = std::time::Instant::now();
    let output = sh("exec \"$XTASK\" run-test -- sh -c 'sleep 60 2>/dev/null & echo \"test one ... ok\"; echo $!'");
    let text = stdout(&output);
    assert!(output.status.success() && started.elapsed().as_secs() < 50, "{text}");
    let pid = text.lines().nth(1).expect("the pid of its child");
    assert!(sh(&format!("kill {pid}")).status.success(), "it was left alone");
}

#[test]
fn ignored_signals_are_default_again() {
    let output = sh("trap '' HUP INT QUIT PIPE TERM TSTP TTIN TTOU USR1 USR2 ALRM WINCH; \
        exec \"$XTASK\" run-test -- grep SigIgn /proc/self/status");
    let text = stdout(&output);
    let ignored = text.trim_end().strip_prefix("SigIgn:\t").map(|mask| u64::from_str_radix(mask, 16));
    // The C library uses signals 32 and 33 for itself.
    assert_eq!(ignored.map(|mask| mask.expect("hexadecimal") & 0x7fff_ffff), Some(0), "{text}");
}

#[test]
fn strict_umask_is_usual_again() {
    let output = sh("umask 077; exec \"$XTASK\" run-test -- grep Umask /proc/self/status");
    assert_eq!(stdout(&output), "Umask:\t0022\n");
}

#[test]
fn missing_file_systems_are_mounted() {
    let output = sh("exec unshare --mount --propagation private sh -c '\
        umount /sys/fs/bpf; umount /sys/kernel/tracing; \
        \"$XTASK\" run-test -- cat /proc/self/mounts; echo; cat /proc/self/mounts'");
    let text = stdout(&output);
    let (inside, outside) = text.split_once("\n\n").expect("two tables");
    for mount in [" /sys/fs/bpf bpf ", " /sys/kernel/tracing tracefs "] {
        assert!(inside.contains(mount), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(!outside.contains(mount), "{outside}");
    }
}
