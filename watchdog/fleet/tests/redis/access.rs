//! Passwords, ACLs, addresses, and versions.

use std::ops::ControlFlow;

use rstest::rstest;
use watchdog_fleet::{FleetStore, FleetStoreError, RedisStore, StoreOptions, StoreSecret};
use watchdog_tests::RedisServer;
use watchdog_types::HostIncarnation;

use crate::guest::{FleetGuest, LONG, end_pause, name, options, server};

fn opened(options: &StoreOptions) -> FleetGuest {
    let incarnation = HostIncarnation { boot_id: name("boot"), machine_id: name("machine"), generation: 1 };
    let mut guest = FleetGuest::of(&options.url, "guest", LONG);
    guest.store = RedisStore::new(options, name("guest"), incarnation).unwrap();
    guest
}

/// The line of docs/fleet-store.md.
fn documented_acl() -> Vec<String> {
    let guide = include_str!("../../../../docs/fleet-store.md");
    let line = guide.lines().find_map(|line| line.trim().strip_prefix("ACL SETUSER ")).expect("an ACL line");
    ["ACL", "SETUSER"].into_iter().chain(line.split_whitespace()).map(ToOwned::to_owned).collect()
}

fn with_acl(server: &RedisServer) -> StoreOptions {
    let line: Vec<String> = documented_acl().into_iter().map(|word| word.replace("PASSWORD", "secret")).collect();
    let words: Vec<&str> = line.iter().map(String::as_str).collect();
    let answer = server.command(&words);
    assert_eq!(answer.trim(), "OK");
    let url = server.url().replace("redis://", "redis://agent-watchdog@");
    StoreOptions { url, secret: Some(StoreSecret::new("secret\n")), ..options("", LONG) }
}

#[test]
fn documented_acl_suffices() {
    let Some(server) = server() else { return };
    let mut guest = opened(&with_acl(&server));
    guest.restate();
    assert!(guest.gets(1));
    assert!(!guest.gets(1));
    assert_eq!(guest.total(), 1);
    assert_eq!(guest.store.health().unwrap().eviction_policy, "noeviction");
    let mut listened = false;
    let watched = guest.store.watch(&mut |_| {
        listened = true;
        ControlFlow::Break(())
    });
    assert_eq!((watched, listened), (Ok(()), true));
    guest.counts(&["all"]);
    guest.releases(&["all"]);
}

#[test]
fn other_keys_are_denied() {
    let Some(server) = server() else { return };
    let mut options = with_acl(&server);
    options.prefix = name("other-fleet");
    let error = opened(&options).try_restate().unwrap_err();
    assert!(matches!(error, FleetStoreError::Denied { .. }), "{error:?}");
    assert!(!error.to_string().contains("secret"), "{error}");
    let user = ["--user", "agent-watchdog", "--pass", "secret", "--no-auth-warning"];
    for command in [&["GET", "x"][..], &["CONFIG", "GET", "*"], &["FLUSHALL"], &["KEYS", "*"], &["SHUTDOWN"]] {
        let answer = server.command(&[&user[..], command].concat());
        assert!(answer.contains("NOPERM"), "{command:?}: {answer}");
    }
}

#[test]
fn wrong_password_is_named() {
    let Some(server) = server() else { return };
    let mut options = with_acl(&server);
    options.secret = Some(StoreSecret::new("wrong"));
    let error = opened(&options).try_restate().unwrap_err();
    assert!(matches!(error, FleetStoreError::Denied { .. }), "{error:?}");
    options.secret = None;
    server.command(&["ACL", "SETUSER", "default", "off"]);
    options.url = server.url();
    let error = opened(&options).try_restate().unwrap_err();
    assert!(matches!(error, FleetStoreError::Denied { .. }), "{error:?}");
}

#[test]
fn fleets_share_a_server() {
    let Some(server) = server() else { return };
    let other = StoreOptions { prefix: name("other"), ..options(&server.url(), LONG) };
    let (mut one, mut two) = (FleetGuest::joined(&server, "guest"), opened(&other));
    two.restate();
    server.command(&["HSET", "{other}:meta", "pause", "0"]);
    assert!(one.gets(1));
    assert!(two.gets(1));
}

#[test]
fn older_daemon_refuses_newer_data() {
    let Some(server) = server() else { return };
    let mut guest = FleetGuest::joined(&server, "guest");
    server.command(&["HSET", "{agent-watchdog}:meta", "layout", "2"]);
    let error = guest.try_restate().unwrap_err();
    assert!(matches!(error, FleetStoreError::NewerLayout { .. }), "{error:?}");
    server.command(&["HSET", "{agent-watchdog}:meta", "layout", "1"]);
    end_pause(&server);
    guest.restate();
}

#[test]
fn unreachable_store_is_named() {
    let error = FleetGuest::of("redis://127.0.0.1:1", "guest", LONG).try_restate().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the fleet's store redis://127.0.0.1:1 is unreachable: Connection refused (os error 111)"
    );
}

#[rstest]
#[case("redis://user:hunter2@127.0.0.1:1", "contains a password")]
#[case("http://127.0.0.1:1", "did not parse")]
#[case("rediss://127.0.0.1:1/#insecure", if cfg!(feature = "tls") { "insecure" } else { "no TLS" })]
fn bad_addresses_are_refused(#[case] url: &str, #[case] reason: &str) {
    let options = options(url, LONG);
    let incarnation = HostIncarnation { boot_id: name("b"), machine_id: name("m"), generation: 1 };
    let error = RedisStore::new(&options, name("guest"), incarnation).err().expect("an error").to_string();
    assert!(error.contains(reason), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
fn secrets_are_not_printed() {
    let options = StoreOptions { secret: Some(StoreSecret::new("hunter2")), ..options("redis://h", LONG) };
    assert!(!format!("{options:?}").contains("hunter2"));
}
