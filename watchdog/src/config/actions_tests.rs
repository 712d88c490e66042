//! What `[actions]` and a profile's `actions` may say, and what is said about bad ones.

use std::path::Path;

use rstest::rstest;

use super::*;
use crate::config::{Config, Profile, parse};

fn read(text: &str) -> Config {
    parse(Path::new("c.toml"), text).unwrap()
}

fn refusal(text: &str) -> String {
    parse(Path::new("c.toml"), text).unwrap_err().to_string()
}

#[test]
fn every_key_of_actions_is_read() {
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
        (FindingKind::Orphan, Reaction::Freeze),
        (FindingKind::Stale, Reaction::Terminate),
        (FindingKind::Leak, Reaction::Throttle),
        (FindingKind::Fanout, Reaction::Throttle),
    ];
    let expected = Actions {
        enforce: true,
        about: Reactions(BTreeMap::from(about)),
        grace: Duration::from_secs(60),
        kill_after: Duration::from_secs(5),
        max_kills_per_minute: 7,
        emergency: false,
        emergency_term: 20,
        emergency_kill: 12,
        settle: Duration::from_secs(3),
        notify: Notify {
            command: Some(["/usr/bin/logger", "-t", "watchdog"].map(str::to_owned).to_vec()),
            user: "root".to_owned(),
            webhook: Some("http://[::1]:9093/api/v2/alerts?x=1".to_owned()),
        },
    };
    assert_eq!(config.actions, expected);
}

#[test]
fn what_is_not_said_about_a_kind_stays_as_it_is_by_default() {
    assert_eq!(
        read("[actions]\nleak = \"freeze\"\n").actions.about.about(FindingKind::Orphan),
        Some(Reaction::Terminate)
    );
    let nothing = read("[actions]\norphan = \"report\"\nleak = \"report\"\n").actions;
    assert_eq!(nothing.about, Reactions::default());
}

#[rstest]
#[case::inline("actions = { orphan = \"report\", leak = \"throttle\" }\n")]
#[case::table("[profile.actions]\norphan = \"report\"\nleak = \"throttle\"\n")]
fn a_profiles_actions_alone_leave_a_built_in_agent_recognised_as_it_was(#[case] actions: &str) {
    let config = read(&format!("[[profile]]\nname = \"claude-code\"\n{actions}"));
    let built_in = Profile::built_in();
    let known = built_in.iter().find(|profile| profile.name == "claude-code").unwrap();
    let mine = config.profile("claude-code").unwrap();
    assert!(mine.ways().eq(known.ways()));
    // "report" is kept here: it goes before what [actions] says.
    let about = [(FindingKind::Orphan, Reaction::Report), (FindingKind::Leak, Reaction::Throttle)];
    assert_eq!(mine.actions, Reactions(BTreeMap::from(about)));
    assert_eq!(config.profiles.len(), built_in.len());
}

#[test]
fn each_kind_takes_the_words_that_make_sense_for_it_and_no_other() {
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
    "2:13: duplicate: \"terminate\" is not \"report\": nothing else is ever done about duplicate findings"
)]
#[case::word_type(
    "leak = true",
    "2:8: leak: must be \"report\", \"terminate\", \"throttle\" or \"freeze\", not a boolean"
)]
#[case::unknown(
    "orphans = \"report\"",
    "2:1: orphans: unknown key in [actions] (did you mean orphan?); allowed: enforce, grace, kill_after, \
     max_kills_per_minute, emergency, emergency_term, emergency_kill, settle, notify, notify_user, webhook, orphan, \
     detached, stale, duplicate, abandoned, leak, fanout, overlimit, ungated, external"
)]
#[case::grace("grace = \"2d\"", "2:9: grace: \"2d\" is out of range: 0s to 1d is allowed")]
#[case::kill_after("kill_after = \"0s\"", "2:14: kill_after: \"0s\" is out of range: 1s to 10m is allowed")]
#[case::kills("max_kills_per_minute = 0", "2:24: max_kills_per_minute: must be a whole number from 1 to 100000")]
#[case::emergency("emergency = \"on\"", "2:13: emergency: must be true or false, not a string")]
#[case::share(
    "emergency_term = \"0%\"",
    "2:18: emergency_term: \"0%\" is not a share: 1% to 100% is allowed, as in \"100%\""
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
     [\"/usr/local/bin/tell-me\", \"--mail\"]; leave the key out to run nothing"
)]
#[case::relative(
    "notify = [\"tell\"]",
    "2:10: notify: \"tell\" is no absolute path: a program, by its absolute path, and its arguments are allowed, as in \
     [\"/usr/local/bin/tell-me\", \"--mail\"]; no shell looks at them"
)]
#[case::zero("notify = [\"/bin/a\", \"\\u0000\"]", "2:10: notify: no argument can hold a zero byte")]
#[case::command_type(
    "notify = \"/bin/a\"",
    "2:10: notify: must be a list of strings, as in [\"/usr/local/bin/tell-me\", \"--mail\"], not a string"
)]
#[case::argument_type(
    "notify = [1]",
    "2:11: notify: must be a list of strings, as in [\"/usr/local/bin/tell-me\", \"--mail\"], not an integer"
)]
#[case::no_user("notify_user = \"\"", "2:15: notify_user: \"\" is not the name of a user, as in \"nobody\"")]
#[case::number_for_a_user(
    "notify_user = \"0\"",
    "2:15: notify_user: \"0\" is not the name of a user, as in \"nobody\""
)]
#[case::https(
    "webhook = \"https://example.org/\"",
    "2:11: webhook: \"https://example.org/\" is not possible: there is no TLS here. http:// is allowed, as in \
     \"http://127.0.0.1:9093/api/v2/alerts\": post to an Alertmanager or a proxy on this host, which speaks https to others"
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
    "2:11: webhook: \"http://a:b@c/\" is not possible: no user and password can be sent; without them it is allowed, as in \
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
fn a_bad_line_of_actions_is_told_with_its_place_and_what_is_allowed(#[case] line: &str, #[case] expected: &str) {
    assert_eq!(refusal(&format!("[actions]\n{line}\n")), format!("c.toml:{expected}"));
}

#[test]
fn a_profiles_actions_are_checked_as_those_of_all_are() {
    let text = "[[profile]]\nname = \"a\"\nexe = [\"a\"]\nactions = { enforce = true, leak = \"stop\" }\n";
    insta::assert_snapshot!(refusal(text), @r#"
    c.toml:4:13: enforce: unknown key in [profile.actions]; allowed: orphan, detached, stale, duplicate, abandoned, leak, fanout, overlimit, ungated, external
    c.toml:4:36: leak: "stop" is not "report", "terminate", "throttle" or "freeze"
    "#);
}
