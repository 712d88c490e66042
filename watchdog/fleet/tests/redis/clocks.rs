//! The server's clock is set. Clocks of hosts do not matter: hosts send durations, and measure with CLOCK_BOOTTIME.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use watchdog_tests::SetClock;
use watchdog_types::FleetAnswer;

use crate::guest::{FleetGuest, LONG, SHORT, end_pause, full, is_paused, server, soon_after, unpaused_answer, until};

const MINUTES: i64 = 300;

#[test]
fn set_server_clock_frees_nothing() {
    for ahead in [MINUTES, -MINUTES] {
        let Some(mut server) = server() else { return };
        server.with_set_clock();
        end_pause(&server);
        let (mut a, mut b) = full(&server, SHORT);
        server.clock().set(ahead);
        a.restate();
        let answer = a.ask(&[("all", 2)]);
        assert!(is_paused(&answer), "{ahead}: {answer:?}");
        b.restate();
        assert_eq!(a.total(), 2, "{ahead}");
        let answer = unpaused_answer(&mut [&mut a, &mut b], &[("all", 2)]);
        assert!(matches!(answer, FleetAnswer::Refused { .. }), "{ahead}: {answer:?}");
        // A host that dies now is missed for one TTL, not for five minutes.
        drop(b);
        until(soon_after(SHORT), || {
            a.settle();
            a.gets(2)
        });
    }
}

#[test]
fn small_step_of_clock_frees_nothing() {
    let Some(mut server) = server() else { return };
    server.with_set_clock();
    end_pause(&server);
    let mut a = FleetGuest::joined(&server, "a");
    assert!(a.gets(1));
    a.counts(&["all"]);
    let mut b = FleetGuest::joined(&server, "b");
    for ahead in [20, 40, 20, 0] {
        server.clock().set(ahead);
        assert!(!b.gets(1), "{ahead}");
        a.restate();
        b.restate();
    }
    assert_eq!(b.total(), 1);
    assert!(LONG > Duration::from_secs(20));
}

/// The host's own wall clock, by a second run of this test with another clock.
#[test]
fn set_host_clock_changes_nothing() {
    const INNER: &str = "WATCHDOG_FLEET_INNER";
    if let Ok(url) = std::env::var(INNER) {
        let real = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        let shown = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(shown.abs_diff(u64::try_from(real).unwrap()) > 200, "its clock is set");
        let mut late = FleetGuest::of(&url, "late", LONG);
        late.restate();
        assert!(late.gets(2), "its clock does not matter");
        assert!(!late.gets(2), "nor for the limit");
        return;
    }
    let clock = SetClock::new();
    for ahead in [MINUTES, -MINUTES] {
        let Some(server) = server() else { return };
        let mut a = FleetGuest::joined(&server, "a");
        assert!(a.gets(2));
        clock.set(ahead);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["clocks::set_host_clock_changes_nothing", "--exact", "--nocapture"]).env(INNER, server.url());
        clock.give(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{ahead}: {text}");
        assert_eq!(a.total(), 2, "{ahead}");
    }
}
