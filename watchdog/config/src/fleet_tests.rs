//! `[fleet]`: valid tables, and the errors of invalid ones.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rstest::rstest;

use super::{FleetConfig, WhenLost};
use crate::parse;

fn read(text: &str) -> Result<FleetConfig, String> {
    parse(Path::new("c.toml"), text).map(|config| config.fleet).map_err(|error| error.to_string())
}

#[test]
fn every_fleet_key_is_read() {
    let fleet = read(
        r#"
        [fleet]
        store = "redis://watchdog@10.0.0.5:6379/2"
        host = "build-1"
        password_file = "/etc/agent-watchdog/fleet-password"
        prefix = "ci"
        max_sessions = 100
        max_sessions_per_user = 10
        labels = ["gpu", "eu"]
        max_sessions_per_label = { gpu = 8 }
        when_lost = "deny"
        ttl = "30s"
        "#,
    );
    let expected = FleetConfig {
        store: Some("redis://watchdog@10.0.0.5:6379/2".to_owned()),
        host: Some("build-1".to_owned()),
        password_file: Some(PathBuf::from("/etc/agent-watchdog/fleet-password")),
        prefix: "ci".to_owned(),
        max_sessions: Some(100),
        max_sessions_per_user: Some(10),
        labels: vec!["eu".to_owned(), "gpu".to_owned()],
        max_sessions_per_label: [("gpu".to_owned(), 8)].into(),
        when_lost: WhenLost::Deny,
        ttl: Duration::from_secs(30),
    };
    assert_eq!(fleet, Ok(expected));
}

#[test]
fn empty_fleet_table_means_none() {
    assert_eq!(read("[fleet]\nwhen_lost = \"share\"\nttl = \"15s\"\n"), Ok(FleetConfig::default()));
}

#[rstest]
#[case::password("store = \"redis://a:secret@h\"", "is not allowed with a password")]
#[case::tls("store = \"rediss://h\"", "there is no TLS client")]
#[case::scheme("store = \"http://h\"", "is not an address")]
#[case::no_host("store = \"redis://\"", "is not an address")]
#[case::socket_path("store = \"redis+unix://redis.sock\"", "not the path of a socket")]
#[case::host_name("host = \"a b\"", "is not a name")]
#[case::relative_password_file("password_file = \"secret\"", "not an absolute path")]
#[case::ttl("ttl = \"1s\"", "3s to 10m is allowed")]
#[case::policy("when_lost = \"panic\"", "\"share\", \"deny\" or \"allow\"")]
#[case::limit_without_store("max_sessions = 4", "without `store`")]
#[case::no_sessions("store = \"redis://h\"\nmax_sessions = 0", "from 1 to 100000")]
#[case::prefix("prefix = \"a}:*\"", "is not a name")]
#[case::odd_host("host = \"-oProxyCommand=x\"", "is not a name")]
#[case::host_of_other_letters("host = \"hôte\"", "is not a name")]
#[case::label("labels = [\"a b\"]", "each label must be")]
#[case::label_limit("store = \"redis://h\"\nmax_sessions_per_label = { gpu = 0 }", "from 1 to 100000")]
fn invalid_fleet_rejected(#[case] line: &str, #[case] expected: &str) {
    let error = read(&format!("[fleet]\n{line}\n")).unwrap_err();
    assert!(error.contains(expected), "{error}");
    assert!(error.starts_with("c.toml:"), "{error}");
}
