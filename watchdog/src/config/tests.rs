//! What a configuration file may say, and what is said about a bad one.

use std::path::Path;
use std::time::Duration;

use rstest::rstest;

use super::*;
use crate::engine::id::Bytes;

fn read(text: &str) -> Result<Config, ConfigError> {
    parse(Path::new("c.toml"), text)
}

fn refusal(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn everything_has_a_default() {
    assert_eq!(read("").unwrap(), Config::default());
    assert_eq!(
        read("[gate]\n[leaks]\n[stale]\n[duplicates]\n[actions]\nenforce = false\n").unwrap(),
        Config::default()
    );
}

#[test]
fn every_key_is_read() {
    let config = read(
        r#"
        [daemon]
        listen = "[::1]:80"
        journal_events = 500
        [tracking]
        close_watch = "always"
        sample_interval = "2s"
        max_processes = 1024
        [orphans]
        grace = "1m30s"
        keep = ["*/my-daemon"]
        kept_memory_limit = "512MiB"
        [stale]
        idle = "2h"
        min_count = 4
        [duplicates]
        after = "5m"
        min_agents = 3
        min_directories = 10
        [fanout]
        window = "30s"
        max_helpers = 20
        max_agents = 6
        [external]
        tmpfs_growth = "5%"
        [history]
        retention = "30d"
        max_size = "1GiB"
        [leaks]
        sensitivity = "high"
        limit = "25%"
        warn_within = "1h"
        critical_within = "10m"
        ignore = ["*/postgres"]
        [[profile]]
        name = "my-agent"
        exe = ["*/my-agent"]
        script = ["*/my-agent/cli.js"]
        comm = ["my-agent"]
        relaunches = true
        max_sessions = 4
        max_memory = "4GiB"
        max_process_memory = "10%"
        max_total_memory = "16GiB"
        "#,
    )
    .unwrap();
    let built_in = Profile::built_in();
    assert_eq!(config.daemon, Daemon { listen: Some("[::1]:80".parse().unwrap()), journal_events: 500 });
    assert_eq!(config.tracking.close_watch, CloseWatch::Always);
    assert_eq!(config.tracking.sample_interval, Duration::from_secs(2));
    assert_eq!(config.tracking.max_processes, 1024);
    assert_eq!(config.orphans.grace, Duration::from_secs(90));
    assert_eq!(config.orphans.keep.patterns(), ["*/my-daemon"]);
    assert_eq!(config.orphans.kept_memory_limit, Size::Bytes(Bytes::from_mib(512)));
    assert_eq!(config.stale, Stale { idle: Duration::from_secs(7_200), min_count: 4 });
    let after = Duration::from_secs(300);
    assert_eq!(config.duplicates, Duplicates { after, min_agents: 3, min_directories: 10 });
    assert_eq!(config.fanout, Fanout { window: Duration::from_secs(30), max_helpers: 20, max_agents: 6 });
    assert_eq!(config.external.tmpfs_growth, Size::PercentOfHost(5));
    assert_eq!(
        config.history,
        History { retention: Duration::from_secs(30 * 86_400), max_size: Bytes::from_mib(1_024) }
    );
    let leaks = Leaks {
        sensitivity: Sensitivity::High,
        limit: Some(Size::PercentOfHost(25)),
        warn_within: Duration::from_secs(3_600),
        critical_within: Duration::from_secs(600),
        ignore: Globs::new(vec!["*/postgres".into()]).unwrap(),
    };
    assert_eq!(config.leaks, leaks);
    assert_eq!(config.profiles.len(), built_in.len() + 1);
    let mine = config.profiles.iter().find(|profile| profile.name == "my-agent").unwrap();
    assert!(mine.relaunches);
    assert_eq!(mine.bounds.max_sessions, Some(4));
    let gib = |gib: u64| Some(Size::Bytes(Bytes(gib << 30)));
    assert_eq!((mine.max_memory, mine.max_total_memory), (gib(4), gib(16)));
    assert_eq!(mine.max_process_memory, Some(Size::PercentOfHost(10)));
    assert_eq!(mine.ways().count(), 1);
}

#[test]
fn off_switches_metrics_off() {
    assert_eq!(read("[daemon]\nlisten = \"off\"").unwrap().daemon.listen, None);
}

#[test]
fn a_profile_takes_the_place_of_the_built_in_one_of_its_name() {
    let config = read("[[profile]]\nname = \"codex\"\nexe = [\"*/my-codex\"]\n").unwrap();
    let codex: Vec<_> = config.profiles.iter().filter(|profile| profile.name == "codex").collect();
    assert_eq!(codex.len(), 1);
    assert_eq!(codex[0].ways().next().unwrap().exe, ["*/my-codex"]);
    assert_eq!(config.profiles.len(), Profile::built_in().len());
}

#[test]
fn a_file_may_do_without_the_built_in_profiles() {
    let config =
        read("[tracking]\nbuilt_in_profiles = false\n[[profile]]\nname = \"claude-code\"\nexe = [\"*/mine\"]\n")
            .unwrap();
    let names: Vec<&str> = config.profiles.iter().map(|profile| profile.name.as_str()).collect();
    assert_eq!(names, ["claude-code"]);
}

#[test]
fn a_profile_may_have_several_ways() {
    let text = "[[profile]]\nname = \"a\"\n[[profile.way]]\nexe = [\"*/a\"]\n[[profile.way]]\nscript = [\"*/a.py\"]\n";
    let config = read(text).unwrap();
    assert_eq!(config.profiles[0].ways().count(), 2);
}

#[rstest]
#[case::unknown_table(
    "[daemn]\n",
    "c.toml:1:2: daemn: unknown key (did you mean daemon?); allowed: daemon, tracking, orphans, leaks, stale, duplicates, fanout, external, gate, actions, history, profile"
)]
#[case::unknown_key(
    "[daemon]\nlistn = \"off\"\n",
    "c.toml:2:1: listn: unknown key in [daemon] (did you mean listen?); allowed: listen, journal_events"
)]
#[case::nothing_near(
    "[orphans]\nxyz = 1\n",
    "c.toml:2:1: xyz: unknown key in [orphans]; allowed: grace, keep, kept_memory_limit"
)]
#[case::stale(
    "[stale]\nidle = \"0s\"\nmin_count = 1\n",
    "c.toml:2:8: idle: \"0s\" is out of range: 1s to 30d is allowed\nc.toml:3:13: min_count: must be a whole number from 2 to 100000"
)]
#[case::duplicates(
    "[duplicates]\nmin_agent = 2\n",
    "c.toml:2:1: min_agent: unknown key in [duplicates] (did you mean min_agents?); allowed: after, min_agents, min_directories"
)]
#[case::fanout(
    "[fanout]\nmax_helpers = 0\nwindow = \"1s\"\n",
    "c.toml:2:15: max_helpers: must be a whole number from 1 to 100000\nc.toml:3:10: window: \"1s\" is out of range: 5s to 1h is allowed"
)]
#[case::external(
    "[external]\ntmpfs_growth = \"1GB\"\n",
    "c.toml:2:16: tmpfs_growth: \"1GB\" is not a size: a whole number with B, KiB, MiB, GiB, TiB, or % of the host's memory (1% to 100%) is allowed, as in \"800MiB\" or \"10%\""
)]
#[case::no_memory_at_all(
    "[[profile]]\nname = \"a\"\nexe = [\"a\"]\nmax_memory = \"0B\"\n",
    "c.toml:4:14: max_memory: \"0B\" is nothing: at least 1B is needed"
)]
#[case::memory_as_number(
    "[[profile]]\nname = \"a\"\nexe = [\"a\"]\nmax_process_memory = 5\n",
    "c.toml:4:22: max_process_memory: must be a size, as in \"800MiB\" or \"10%\", not an integer"
)]
#[case::no_keys_yet(
    "[gate]\nmax_session = 4\n",
    "c.toml:2:1: max_session: unknown key in [gate] (did you mean max_sessions?); allowed: max_sessions, max_sessions_per_user, max_depth, rate, expected_memory, reserve, swap_share, hold, breaker_open, breaker_close, breaker_pressure, head_blocks_for, max_queue, timeout, ungated, cgroups"
)]
#[case::unknown_key_of_leaks(
    "[leaks]\nlimits = \"1GiB\"\n",
    "c.toml:2:1: limits: unknown key in [leaks] (did you mean limit?); allowed: sensitivity, limit, warn_within, critical_within, ignore"
)]
#[case::sensitivity(
    "[leaks]\nsensitivity = \"medium\"\n",
    "c.toml:2:15: sensitivity: \"medium\" is not \"low\", \"normal\" or \"high\""
)]
#[case::limit_without_unit(
    "[leaks]\nlimit = \"4G\"\n",
    "c.toml:2:9: limit: \"4G\" is not a size: a whole number with B, KiB, MiB, GiB, TiB, or % of the host's memory (1% to 100%) is allowed, as in \"800MiB\" or \"10%\""
)]
#[case::limit_too_small(
    "[leaks]\nlimit = \"1MiB\"\n",
    "c.toml:2:9: limit: \"1MiB\" is out of range: 64MiB and more is allowed"
)]
#[case::wrong_type(
    "[daemon]\njournal_events = \"many\"\n",
    "c.toml:2:18: journal_events: must be a whole number from 100 to 1000000, not a string"
)]
#[case::out_of_range(
    "[daemon]\njournal_events = 5\n",
    "c.toml:2:18: journal_events: must be a whole number from 100 to 1000000"
)]
#[case::negative(
    "[tracking]\nmax_processes = -1\n",
    "c.toml:2:17: max_processes: must be a whole number from 256 to 4194304"
)]
#[case::history_too_short(
    "[history]\nretention = \"5m\"\n",
    "c.toml:2:13: retention: \"5m\" is out of range: 1h to 3650d is allowed"
)]
#[case::history_of_a_share(
    "[history]\nmax_size = \"10%\"\n",
    "c.toml:2:12: max_size: \"10%\" is out of range: 1MiB to 1TiB is allowed"
)]
#[case::history_without_a_unit(
    "[history]\nmax_size = \"100\"\n",
    "c.toml:2:12: max_size: \"100\" is not a size: a whole number with B, KiB, MiB, GiB, TiB, or % of the host's memory (1% to 100%) is allowed, as in \"800MiB\" or \"10%\""
)]
#[case::bad_address(
    "[daemon]\nlisten = \"localhost\"\n",
    "c.toml:2:10: listen: \"localhost\" is not an address with its port, as in \"127.0.0.1:9719\" or \"[::1]:9719\", or \"off\""
)]
#[case::bad_choice(
    "[tracking]\nclose_watch = \"sometimes\"\n",
    "c.toml:2:15: close_watch: \"sometimes\" is not \"auto\", \"always\" or \"never\""
)]
#[case::bad_duration(
    "[orphans]\ngrace = \"30 s\"\n",
    "c.toml:2:9: grace: \"30 s\" is not a duration: whole numbers with ms, s, m, h or d are allowed, as in \"30s\", \"5m\" or \"1h30m\""
)]
#[case::duration_as_number(
    "[orphans]\ngrace = 30\n",
    "c.toml:2:9: grace: must be a duration, as in \"30s\", not an integer"
)]
#[case::duration_out_of_range(
    "[tracking]\nsample_interval = \"2h\"\n",
    "c.toml:2:19: sample_interval: \"2h\" is out of range: 100ms to 1h is allowed"
)]
#[case::bad_glob(
    "[orphans]\nkeep = [\"[a\"]\n",
    "c.toml:2:8: keep: the pattern \"[a\" is not a glob: unclosed character class; missing ']'"
)]
#[case::not_a_list(
    "[orphans]\nkeep = \"a\"\n",
    "c.toml:2:8: keep: must be a list of strings, as in [\"*/my-agent\"], not a string"
)]
#[case::item_of_a_list(
    "[orphans]\nkeep = [\"a\", 1]\n",
    "c.toml:2:14: keep: must be a list of strings, as in [\"*/my-agent\"], not an integer"
)]
#[case::table_expected("daemon = 1\n", "c.toml:1:10: daemon: must be a table, not an integer")]
#[case::enforce_type("[actions]\nenforce = 1\n", "c.toml:2:11: enforce: must be true or false, not an integer")]
#[case::no_name("[[profile]]\nexe = [\"a\"]\n", "c.toml:1:1: name: missing in [[profile]]; every profile needs one")]
#[case::bad_name(
    "[[profile]]\nname = \"a b\"\nexe = [\"a\"]\n",
    "c.toml:2:8: name: \"a b\" is not fit for a metric label: 1 to 40 of a-z, A-Z, 0-9, '-', '_' and '.' are allowed"
)]
#[case::name_type("[[profile]]\nname = 1\nexe = [\"a\"]\n", "c.toml:2:8: name: must be a string, not an integer")]
#[case::no_pattern(
    "[[profile]]\nname = \"a\"\n",
    "c.toml:1:1: [[profile]] has no pattern: at least one of exe, argv0, script and comm is needed"
)]
#[case::empty_pattern(
    "[[profile]]\nname = \"a\"\nexe = []\n",
    "c.toml:1:1: [[profile]] has no pattern: at least one of exe, argv0, script and comm is needed"
)]
#[case::way_without_pattern(
    "[[profile]]\nname = \"a\"\n[[profile.way]]\nfirst_arg = [\"x\"]\n",
    "c.toml:3:1: [[profile.way]] has no pattern: at least one of exe, argv0, script and comm is needed"
)]
#[case::empty_glob(
    "[[profile]]\nname = \"a\"\nexe = [\"\"]\n",
    "c.toml:3:7: exe: the pattern \"\" is not a glob: it is empty"
)]
#[case::twice(
    "[[profile]]\nname = \"a\"\nexe = [\"a\"]\n[[profile]]\nname = \"a\"\nexe = [\"b\"]\n",
    "c.toml:5:8: name: \"a\" is the name of a profile above; each name is allowed once"
)]
#[case::single_brackets(
    "[profile]\nname = \"a\"\n",
    "c.toml:1:1: profile: must be an array of tables: write it in double brackets, not a table"
)]
#[case::no_sessions_at_all(
    "[[profile]]\nname = \"a\"\nexe = [\"a\"]\nmax_sessions = 0\n",
    "c.toml:4:16: max_sessions: must be a whole number from 1 to 100000"
)]
#[case::syntax("[daemon]\nlisten = \n", "c.toml:2:10: not TOML: string values must be quoted, expected literal string")]
#[case::unclosed("[daemon\n", "c.toml:1:8: not TOML: unclosed table, expected `]`")]
#[case::same_key_twice("[daemon]\nlisten = \"off\"\nlisten = \"off\"\n", "c.toml:3:1: not TOML: duplicate key")]
#[case::column_in_characters(
    "[orphans]\nkeep = [\"ä\", 1]\n",
    "c.toml:2:14: keep: must be a list of strings, as in [\"*/my-agent\"], not an integer"
)]
fn a_bad_line_is_told_with_its_place_and_what_is_allowed(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(refusal(text), expected);
}

#[test]
fn all_problems_of_a_file_are_told_at_once_in_its_order() {
    let text =
        "[tracking]\nclose_watch = 1\nspeed = 2\n[daemon]\nlisten = \"x\"\n[[profile]]\nname = \"a\"\nexes = [\"b\"]\n";
    insta::assert_snapshot!(refusal(text), @r#"
    c.toml:2:15: close_watch: must be "auto", "always" or "never", not an integer
    c.toml:3:1: speed: unknown key in [tracking]; allowed: close_watch, sample_interval, max_processes, built_in_profiles
    c.toml:5:10: listen: "x" is not an address with its port, as in "127.0.0.1:9719" or "[::1]:9719", or "off"
    c.toml:6:1: [[profile]] has no pattern: at least one of exe, argv0, script and comm is needed
    c.toml:8:1: exes: unknown key in [[profile]] (did you mean exe?); allowed: name, exe, argv0, script, comm, first_arg, not_first_arg, relaunches, max_memory, max_process_memory, max_total_memory, actions, way, max_sessions, rate, expected_memory, max_helpers, max_depth, max_subagents, oom_score_adj, ungated, env
    "#);
}

#[test]
fn the_gate_is_read_with_its_bounds() {
    let config = read(
        r#"
        [gate]
        max_sessions = 10
        max_sessions_per_user = 4
        max_depth = 2
        rate = "2 per 5m"
        expected_memory = "1GiB"
        reserve = "2GiB"
        swap_share = "0%"
        hold = "1m"
        breaker_open = "90%"
        breaker_close = "85%"
        breaker_pressure = "20%"
        head_blocks_for = "2m"
        max_queue = 50
        timeout = "1h"
        ungated = "deny"
        cgroups = false

        [[profile]]
        name = "claude-code"
        max_sessions = 3
        rate = "1 per 10s"
        expected_memory = "700MiB"
        max_helpers = 20
        max_depth = 0
        max_subagents = 3
        oom_score_adj = 250
        env = { NODE_OPTIONS = "--max-old-space-size=2048", UV_THREADPOOL_SIZE = "2" }
        "#,
    )
    .unwrap();
    let gate = &config.gate;
    assert_eq!((gate.max_sessions, gate.max_sessions_per_user, gate.max_depth), (Some(10), Some(4), Some(2)));
    assert_eq!(gate.rate, Some(Rate { count: 2, period: Duration::from_secs(300) }));
    assert_eq!(gate.expected_memory, Size::Bytes(Bytes::from_mib(1_024)));
    assert_eq!((gate.swap_share, gate.hold, gate.timeout), (0, Duration::from_secs(60), Duration::from_secs(3_600)));
    assert_eq!((gate.breaker_open, gate.breaker_close, gate.breaker_pressure), (90, 85, 20));
    assert_eq!(gate.head_blocks_for, Duration::from_secs(120));
    assert_eq!((gate.max_queue, gate.ungated, gate.cgroups), (50, Ungated::Deny, false));
    let built_in = Profile::built_in();
    let known = built_in.iter().find(|profile| profile.name == "claude-code").unwrap();
    let mine = config.profiles.iter().find(|profile| profile.name == "claude-code").unwrap();
    // Bounds alone change nothing about how an agent is recognised.
    assert!(mine.ways().eq(known.ways()));
    assert_eq!(mine.bounds.environment["UV_THREADPOOL_SIZE"], "2");
    assert_eq!(
        mine.bounds,
        Bounds {
            max_sessions: Some(3),
            rate: Some(Rate { count: 1, period: Duration::from_secs(10) }),
            expected_memory: Some(Size::Bytes(Bytes::from_mib(700))),
            max_helpers: Some(20),
            max_depth: Some(0),
            max_subagents: Some(3),
            oom_score_adj: Some(250),
            ungated: None,
            environment: mine.bounds.environment.clone(),
        }
    );
}

#[rstest]
#[case::rate(
    "[gate]\nrate = \"2 in 5m\"\n",
    "c.toml:2:8: rate: \"2 in 5m\" is not a rate: a whole number from 1 on and a time from 1s to 7d are allowed, as in \"2 per 5m\""
)]
#[case::share(
    "[gate]\nbreaker_open = \"101%\"\n",
    "c.toml:2:16: breaker_open: \"101%\" is not a share: 1% to 100% is allowed, as in \"100%\""
)]
#[case::breaker(
    "[gate]\nbreaker_close = \"80%\"\n",
    "c.toml:1:1: breaker_close: 80% is not below breaker_open, which is 80%"
)]
#[case::variable(
    "[[profile]]\nname = \"a\"\nexe = [\"a\"]\nenv = { A = 1 }\n",
    "c.toml:4:13: env: must be a table of strings"
)]
fn a_gate_that_cannot_be_is_refused(#[case] text: &str, #[case] expected: &str) {
    let error = read(text).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}
