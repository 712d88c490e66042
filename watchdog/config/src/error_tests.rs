//! The errors of invalid configuration files.

use rstest::rstest;

use super::tests::read;

fn error_of(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[rstest]
#[case::unknown_table(
    "[daemn]\n",
    "c.toml:1:2: daemn: unknown key (did you mean daemon?); allowed: daemon, tracking, orphans, leaks, stale, duplicates, fanout, external, gate, reclaim, actions, history, fleet, profile"
)]
#[case::unknown_key(
    "[daemon]\nlistn = \"off\"\n",
    "c.toml:2:1: listn: unknown key in [daemon] (did you mean listen?); allowed: listen, journal_events"
)]
#[case::nothing_near(
    "[orphans]\nxyz = 1\n",
    "c.toml:2:1: xyz: unknown key in [orphans]; allowed: grace, keep, kept_memory_limit, detached_after, detached_memory"
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
    "c.toml:4:14: max_memory: \"0B\" is out of range: 1B and more is allowed"
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
#[case::no_name("[[profile]]\nexe = [\"a\"]\n", "c.toml:1:1: name: missing in [[profile]]")]
#[case::bad_name(
    "[[profile]]\nname = \"a b\"\nexe = [\"a\"]\n",
    "c.toml:2:8: name: \"a b\" is not a profile name: 1 to 40 of a-z, A-Z, 0-9, '-', '_' and '.' are allowed"
)]
#[case::name_type("[[profile]]\nname = 1\nexe = [\"a\"]\n", "c.toml:2:8: name: must be a string, not an integer")]
#[case::no_pattern(
    "[[profile]]\nname = \"a\"\n",
    "c.toml:1:1: [[profile]] has no pattern: at least one of exe, argv0, script and comm is required"
)]
#[case::empty_pattern(
    "[[profile]]\nname = \"a\"\nexe = []\n",
    "c.toml:1:1: [[profile]] has no pattern: at least one of exe, argv0, script and comm is required"
)]
#[case::match_without_pattern(
    "[[profile]]\nname = \"a\"\n[[profile.match]]\nfirst_arg = [\"x\"]\n",
    "c.toml:3:1: [[profile.match]] has no pattern: at least one of exe, argv0, script and comm is required"
)]
#[case::empty_glob(
    "[[profile]]\nname = \"a\"\nexe = [\"\"]\n",
    "c.toml:3:7: exe: the pattern \"\" is not a glob: empty"
)]
#[case::twice(
    "[[profile]]\nname = \"a\"\nexe = [\"a\"]\n[[profile]]\nname = \"a\"\nexe = [\"b\"]\n",
    "c.toml:5:8: name: \"a\" names a profile above; each name is allowed once"
)]
#[case::single_brackets(
    "[profile]\nname = \"a\"\n",
    "c.toml:1:1: profile: must be an array of tables in [[double brackets]], not a table"
)]
#[case::no_sessions_at_all(
    "[[profile]]\nname = \"a\"\nexe = [\"a\"]\nmax_sessions = 0\n",
    "c.toml:4:16: max_sessions: must be a whole number from 1 to 100000"
)]
#[case::syntax(
    "[daemon]\nlisten = \n",
    "c.toml:2:10: invalid TOML: string values must be quoted, expected literal string"
)]
#[case::unclosed("[daemon\n", "c.toml:1:8: invalid TOML: unclosed table, expected `]`")]
#[case::same_key_twice("[daemon]\nlisten = \"off\"\nlisten = \"off\"\n", "c.toml:3:1: invalid TOML: duplicate key")]
#[case::column_in_characters(
    "[orphans]\nkeep = [\"ä\", 1]\n",
    "c.toml:2:14: keep: must be a list of strings, as in [\"*/my-agent\"], not an integer"
)]
fn invalid_line_reported_with_position(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(error_of(text), expected);
}

#[test]
fn all_errors_reported_in_file_order() {
    let text =
        "[tracking]\nclose_watch = 1\nspeed = 2\n[daemon]\nlisten = \"x\"\n[[profile]]\nname = \"a\"\nexes = [\"b\"]\n";
    insta::assert_snapshot!(error_of(text), @r#"
    c.toml:2:15: close_watch: must be "auto", "always" or "never", not an integer
    c.toml:3:1: speed: unknown key in [tracking]; allowed: close_watch, sample_interval, max_processes, built_in_profiles
    c.toml:5:10: listen: "x" is not an address with its port, as in "127.0.0.1:9719" or "[::1]:9719", or "off"
    c.toml:6:1: [[profile]] has no pattern: at least one of exe, argv0, script and comm is required
    c.toml:8:1: exes: unknown key in [[profile]] (did you mean exe?); allowed: name, exe, argv0, script, comm, first_arg, not_first_arg, relaunches, max_memory, max_process_memory, max_total_memory, actions, match, max_sessions, fleet_max_sessions, rate, expected_memory, max_helpers, max_depth, max_subagents, oom_score_adj, ungated, env, reclaim, reclaim_idle
    "#);
}

#[rstest]
#[case::rate(
    "[gate]\nrate = \"2 in 5m\"\n",
    "c.toml:2:8: rate: \"2 in 5m\" is not a rate: a whole number of at least 1 and a time from 1s to 7d are allowed, as in \"2 per 5m\""
)]
#[case::share(
    "[gate]\nbreaker_open = \"101%\"\n",
    "c.toml:2:16: breaker_open: \"101%\" is not a percentage: 1% to 100% is allowed, as in \"100%\""
)]
#[case::breaker(
    "[gate]\nbreaker_close = \"80%\"\n",
    "c.toml:1:1: breaker_close: 80% is not below breaker_open, which is 80%"
)]
#[case::variable(
    "[[profile]]\nname = \"a\"\nexe = [\"a\"]\nenv = { A = 1 }\n",
    "c.toml:4:13: env: must be a table of strings"
)]
fn invalid_gate_rejected(#[case] text: &str, #[case] expected: &str) {
    let error = read(text).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}
