use rstest::rstest;

use super::*;
use watchdog_config::{EXAMPLE, parse as read_config};

fn path(text: &str) -> KeyPath {
    text.parse().unwrap()
}

fn set_text(text: &str, key: &str, value: &str) -> String {
    set(text, &path(key), value).unwrap().0
}

const COMMENTED: &str = "\
# top
[gate] # limits
#max_sessions = 9
# about the queue
max_queue = 10 # small

# about orphans
[orphans]
grace = \"30s\"   # half a minute
keep = [
    \"*/a\", # the first
]

[[profile]] # mine
name = \"x\"
exe = [\"*/x\"]
actions = { orphan = \"report\" } # careful
# the end
";

#[rstest]
#[case("actions.enforce", "true", "enforce = true")]
#[case("orphans.grace", "5m", "grace = \"5m\"")]
#[case("gate.reserve", "10%", "reserve = \"10%\"")]
#[case("leaks.ignore", "[\"*/postgres\"]", "ignore = [\"*/postgres\"]")]
fn key_stands_below_its_shown_default(#[case] key: &str, #[case] value: &str, #[case] line: &str) {
    let edited = set_text(EXAMPLE, key, value);
    let at = edited.lines().position(|found| found == line).unwrap();
    let name = key.split('.').nth(1).unwrap();
    assert!(edited.lines().nth(at - 1).unwrap().starts_with(&format!("#{name} = ")), "{edited}");
    let others: Vec<&str> = edited.lines().filter(|found| *found != line).collect();
    assert_eq!(others, EXAMPLE.lines().collect::<Vec<_>>());
    assert_eq!(unset(&edited, &path(key)).unwrap().unwrap().0, EXAMPLE);
}

#[test]
fn comments_and_layout_are_kept() {
    let edited = set_text(COMMENTED, "gate.max_queue", "20");
    assert_eq!(edited, COMMENTED.replace("max_queue = 10 #", "max_queue = 20 #"));
    let edited = set_text(COMMENTED, "orphans.grace", "1m");
    assert_eq!(edited, COMMENTED.replace("\"30s\"   #", "\"1m\"   #"));
    let edited = set_text(COMMENTED, "profile.x.actions.orphan", "terminate");
    assert_eq!(edited, COMMENTED.replace("\"report\" } #", "\"terminate\" } #"));
    let edited = set_text(COMMENTED, "gate.max_sessions", "3");
    assert_eq!(edited, COMMENTED.replace("#max_sessions = 9\n", "#max_sessions = 9\nmax_sessions = 3\n"));
}

#[test]
fn unset_keeps_comments_above() {
    let (edited, value) = unset(COMMENTED, &path("gate.max_queue")).unwrap().unwrap();
    assert_eq!((edited, value.as_str()), (COMMENTED.replace("max_queue = 10 # small\n", ""), "10"));
    let (edited, _) = unset(COMMENTED, &path("orphans.keep")).unwrap().unwrap();
    assert_eq!(edited, COMMENTED.replace("keep = [\n    \"*/a\", # the first\n]\n", ""));
    let (edited, _) = unset(COMMENTED, &path("profile.x.actions.orphan")).unwrap().unwrap();
    assert!(edited.contains("actions = {") && !edited.contains("orphan = \"report\""), "{edited}");
    assert_eq!(unset(COMMENTED, &path("leaks.limit")).unwrap(), None);
}

#[test]
fn missing_tables_and_profiles_are_added() {
    let edited = set_text(COMMENTED, "leaks.limit", "4GiB");
    assert!(edited.starts_with(COMMENTED.trim_end_matches("# the end\n")), "{edited}");
    let edited = set_text(&edited, "profile.claude-code.max_memory", "8GiB");
    let edited = set_text(&edited, "profile.claude-code.env.A", "b");
    let edited = set_text(&edited, "profile.\"dotted.name\".exe", "[\"*/d\"]");
    let config = read_config(std::path::Path::new("x"), &edited).unwrap();
    assert!(config.leaks.limit.is_some());
    assert!(config.profile("claude-code").unwrap().max_memory.is_some());
    assert!(edited.contains("env = { A = \"b\" }"), "{edited}");
    assert!(config.profile("dotted.name").is_some());
    assert_eq!(set_text("", "gate.rate", "2 per 5m"), "[gate]\nrate = \"2 per 5m\"\n");
}

#[test]
fn values_are_toml_or_text() {
    for (given, shown) in [("true", "true"), ("5", "5"), ("30s", "\"30s\""), ("a\"b", "'a\"b'"), ("", "\"\"")] {
        assert_eq!(get(&set_text("", "a.b", given), &path("a.b")).unwrap().unwrap(), shown);
    }
    let injected = set_text("", "a.b", "a\"\n[c]\nd = 1");
    assert_eq!(entries(&injected).unwrap().len(), 1, "{injected}");
}

#[test]
fn tables_are_not_overwritten() {
    let whole = set(COMMENTED, &path("profile.x.actions"), "1");
    // An inline table is a value like others; the reader of the configuration decides.
    assert!(whole.is_ok());
    let nested = "[a.b]\nc = 1\n";
    assert_eq!(set(nested, &path("a.b"), "1").unwrap_err(), EditProblem::IsTable(path("a.b")));
    assert!(matches!(set(nested, &path("a.b.c.d"), "1").unwrap_err(), EditProblem::NoTable { .. }));
    assert_eq!(set("profile = []", &path("profile.x.y"), "1").unwrap_err(), EditProblem::InlineProfiles);
    assert!(matches!(set("[a", &path("a.b"), "1").unwrap_err(), EditProblem::Toml(_)));
    for wrong in ["", "actions", "profile.x", "a..b", "a b", "[a]"] {
        assert!(wrong.parse::<KeyPath>().is_err(), "{wrong}");
    }
}

#[test]
fn example_in_other_section_is_ignored() {
    let text = "[a]\n#x = 1\n[b]\n# \"\"\"\n[c]\n#y = 1\ny = '''\n#z = 1\n'''\n";
    assert_eq!(set_text(text, "b.x", "2"), "[a]\n#x = 1\n[b]\nx = 2\n# \"\"\"\n[c]\n#y = 1\ny = '''\n#z = 1\n'''\n");
    // The comment is part of a string: the key goes elsewhere.
    let edited = set_text(text, "c.z", "2");
    assert!(edited.contains("'''\n#z = 1\n'''\n") && edited.ends_with("z = 2\n"), "{edited}");
}

#[test]
fn windows_line_ends_are_kept() {
    let text = "[gate]\r\n#max_queue = 9\r\n\r\n[orphans]\r\n";
    assert_eq!(set_text(text, "gate.max_queue", "8"), text.replace("9\r\n", "9\r\nmax_queue = 8\r\n"));
}

#[test]
fn entries_have_full_keys() {
    let entries = entries(COMMENTED).unwrap();
    let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(
        keys,
        ["gate.max_queue", "orphans.grace", "orphans.keep", "profile.x.name", "profile.x.exe", "profile.x.actions"]
    );
}
