//! Values of `[actions]` and of a profile's `actions`, and the errors for invalid ones.

use std::path::Path;

use rstest::rstest;

use super::*;
use crate::{Config, Profile, parse};

fn read(text: &str) -> Config {
    parse(Path::new("c.toml"), text).unwrap()
}

fn error_of(text: &str) -> String {
    parse(Path::new("c.toml"), text).unwrap_err().to_string()
}

#[test]
fn every_key_is_read() {
    let config = read(
        r#"
        [actions]
        enforce = true
        orphan = "freeze"
        stale = "terminate"
        leak = "throttle"
        fanout = "throttle"
        abandoned = "report"
        grace = "1m"
        kill_after = "5s"
        max_kills_per_minute = 7
        emergency = false
        emergency_term = "20%"
        emergency_kill = "12%"
        settle = "3s"
        notify = ["/usr/bin/logger", "-t", "watchdog"]
        notify_user = "root"
        webhook = "http://[::1]:9093/api/v2/alerts?x=1"
        "#,
    );
    let about = [
        (FindingKind::Orphan, Response::Freeze),
        (FindingKind::Stale, Response::Terminate),
        (FindingKind::Leak, Response::Throttle),
        (FindingKind::Fanout, Response::Throttle),
    ];
    let expected = ActionsConfig {
        enforce: true,
        responses: Responses(BTreeMap::from(about)),
        grace: Duration::from_secs(60),
        kill_after: Duration::from_secs(5),
        max_kills_per_minute: 7,
        emergency: false,
        emergency_term: 20,
        emergency_kill: 12,
        settle: Duration::from_secs(3),
        notify: NotifyConfig {
            command: Some(["/usr/bin/logger", "-t", "watchdog"].map(str::to_owned).to_vec()),
            user: "root".to_owned(),
            webhook: Some("http://[::1]:9093/api/v2/alerts?x=1".to_owned()),
        },
    };
    assert_eq!(config.actions, expected);
}

#[test]
fn unlisted_kind_keeps_default() {
    assert_eq!(
        read("[actions]\nleak = \"freeze\"\n").actions.responses.to(FindingKind::Orphan),
        Some(Response::Terminate)
    );
    let nothing = read("[actions]\norphan = \"report\"\nleak = \"report\"\n").actions;
    assert_eq!(nothing.responses, Responses::default());
}

#[rstest]
#[case::inline("actions = { orphan = \"report\", leak = \"throttle\" }\n")]
#[case::table("[profile.actions]\norphan = \"report\"\nleak = \"throttle\"\n")]
fn profile_actions_keep_built_in_patterns(#[case] actions: &str) {
    let config = read(&format!("[[profile]]\nname = \"claude-code\"\n{actions}"));
    let built_in = Profile::built_in();
    let known = built_in.iter().find(|profile| profile.name == "claude-code").unwrap();
    let mine = config.profile("claude-code").unwrap();
    assert!(mine.patterns().eq(known.patterns()));
    // "report" is kept here: it goes before what [actions] says.
    let about = [(FindingKind::Orphan, Response::Report), (FindingKind::Leak, Response::Throttle)];
    assert_eq!(mine.actions, Responses(BTreeMap::from(about)));
    assert_eq!(config.profiles.len(), built_in.len());
}

#[test]
fn kind_allows_its_responses_only() {
    for kind in FindingKind::ALL {
        for word in ["report", "terminate", "throttle", "freeze"] {
            let text = format!("[actions]\n{} = \"{word}\"\n", kind.name());
            let taken = parse(Path::new("c.toml"), &text).is_ok();
            let expected = match kind.name() {
                "orphan" | "stale" => word != "throttle",
                "leak" | "overlimit" => true,
                "fanout" => matches!(word, "report" | "throttle"),
                _ => word == "report",
            };
            assert_eq!(taken, expected, "{text}");
        }
    }
}

#[rstest]
#[case::no_word("stale = \"kill\"", "2:9: stale: \"kill\" is not \"report\", \"terminate\" or \"freeze\"")]
#[case::not_about_this_kind("fanout = \"terminate\"", "2:10: fanout: \"terminate\" is not \"report\" or \"throttle\"")]
#[case::nothing_is_done_about_it(
    "duplicate = \"terminate\"",
    "2:13: duplicate: \"terminate\" is not \"report\", the only response to duplicate findings"
)]
#[case::word_type(
    "leak = true",
    "2:8: leak: must be \"report\", \"terminate\", \"throttle\" or \"freeze\", not a boolean"
)]
#[case::unknown(
    "orphans = \"report\"",
    "2:1: orphans: unknown key in [actions] (did you mean orphan?); allowed: enforce, grace, kill_after, \
     max_kills_per_minute, emergency, emergency_term, emergency_kill, settle, notify, notify_user, webhook, KINDS"
)]
#[case::grace("grace = \"2d\"", "2:9: grace: \"2d\" is out of range: 0s to 1d is allowed")]
#[case::kill_after("kill_after = \"0s\"", "2:14: kill_after: \"0s\" is out of range: 1s to 10m is allowed")]
#[case::kills("max_kills_per_minute = 0", "2:24: max_kills_per_minute: must be a whole number from 1 to 100000")]
#[case::emergency("emergency = \"on\"", "2:13: emergency: must be true or false, not a string")]
#[case::share(
    "emergency_term = \"0%\"",
    "2:18: emergency_term: \"0%\" is not a percentage: 1% to 100% is allowed, as in \"100%\""
)]
#[case::kill_above_term(
    "emergency_kill = \"10%\"",
    "1:1: emergency_kill: 10% is not below emergency_term, which is 10%"
)]
#[case::term_below_kill("emergency_term = \"4%\"", "1:1: emergency_kill: 5% is not below emergency_term, which is 4%")]
#[case::settle("settle = \"1h\"", "2:10: settle: \"1h\" is out of range: 1s to 10m is allowed")]
#[case::no_program(
    "notify = []",
    "2:10: notify: is empty: a program, by its absolute path, and its arguments are allowed, as in \
     [\"/usr/local/bin/tell-me\", \"--mail\"]; omit the key to run nothing"
)]
#[case::relative(
    "notify = [\"tell\"]",
    "2:10: notify: \"tell\" is not an absolute path: a program, by its absolute path, and its arguments are allowed, as in \
     [\"/usr/local/bin/tell-me\", \"--mail\"]; no shell expands them"
)]
#[case::zero("notify = [\"/bin/a\", \"\\u0000\"]", "2:10: notify: an argument cannot contain a NUL byte")]
#[case::command_type(
    "notify = \"/bin/a\"",
    "2:10: notify: must be a list of strings, as in [\"/usr/local/bin/tell-me\", \"--mail\"], not a string"
)]
#[case::argument_type(
    "notify = [1]",
    "2:11: notify: must be a list of strings, as in [\"/usr/local/bin/tell-me\", \"--mail\"], not an integer"
)]
#[case::no_user("notify_user = \"\"", "2:15: notify_user: \"\" is not a user name, as in \"nobody\"")]
#[case::number_for_a_user("notify_user = \"0\"", "2:15: notify_user: \"0\" is not a user name, as in \"nobody\"")]
#[case::https(
    "webhook = \"https://example.org/\"",
    "2:11: webhook: \"https://example.org/\" is not supported: there is no TLS client. Use http://, as in \
     \"http://127.0.0.1:9093/api/v2/alerts\", to an Alertmanager or a proxy on this host that forwards over https"
)]
#[case::other_scheme(
    "webhook = \"ftp://a/\"",
    "2:11: webhook: \"ftp://a/\" is not an address that begins with http://, as in \"http://127.0.0.1:9093/api/v2/alerts\""
)]
#[case::no_scheme(
    "webhook = \"localhost\"",
    "2:11: webhook: \"localhost\" is not an address that begins with http://, as in \"http://127.0.0.1:9093/api/v2/alerts\""
)]
#[case::password(
    "webhook = \"http://a:b@c/\"",
    "2:11: webhook: \"http://a:b@c/\" is not supported: credentials cannot be sent. Use an address without them, as in \
     \"http://127.0.0.1:9093/api/v2/alerts\""
)]
#[case::no_host(
    "webhook = \"http://:80/\"",
    "2:11: webhook: \"http://:80/\" is not an address with a host, as in \"http://127.0.0.1:9093/api/v2/alerts\""
)]
#[case::no_address(
    "webhook = \"http://a b/\"",
    "2:11: webhook: \"http://a b/\" is not an address, as in \"http://127.0.0.1:9093/api/v2/alerts\": invalid uri character"
)]
fn invalid_line_reported_with_position(#[case] line: &str, #[case] expected: &str) {
    assert_eq!(without_kinds(&error_of(&format!("[actions]\n{line}\n"))), format!("c.toml:{expected}"));
}

/// A new kind of finding changes no expected message.
fn without_kinds(message: &str) -> String {
    message.replace(&FindingKind::ALL.map(FindingKind::name).join(", "), "KINDS")
}

#[test]
fn profile_actions_checked_like_global() {
    let text = "[[profile]]\nname = \"a\"\nexe = [\"a\"]\nactions = { enforce = true, leak = \"stop\" }\n";
    insta::assert_snapshot!(without_kinds(&error_of(text)), @r#"
    c.toml:4:13: enforce: unknown key in [profile.actions]; allowed: KINDS
    c.toml:4:36: leak: "stop" is not "report", "terminate", "throttle" or "freeze"
    "#);
}
