//! Valid configuration files.

use std::path::Path;
use std::time::Duration;

use super::*;
use watchdog_types::Bytes;

pub(super) fn read(text: &str) -> Result<Config, ConfigError> {
    parse(Path::new("c.toml"), text)
}

#[test]
fn every_key_has_default() {
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
        detached_after = "0s"
        detached_memory = "0B"
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
        max_workers = 40
        [external]
        tmpfs_growth = "5%"
        [reclaim]
        mode = "proactive"
        idle = "90s"
        budget = "1%"
        reserve = "0B"
        include = ["*/my-daemon"]
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
        reclaim = "off"
        reclaim_idle = "1h"
        "#,
    )
    .unwrap();
    let built_in = Profile::built_in();
    assert_eq!(config.daemon, DaemonConfig { listen: Some("[::1]:80".parse().unwrap()), journal_events: 500 });
    assert_eq!(config.tracking.close_watch, CloseWatch::Always);
    assert_eq!(config.tracking.sample_interval, Duration::from_secs(2));
    assert_eq!(config.tracking.max_processes, 1024);
    assert_eq!(config.orphans.grace, Duration::from_secs(90));
    assert_eq!(config.orphans.keep, Globs::new(vec!["*/my-daemon".into()]).unwrap());
    assert_eq!(config.orphans.kept_memory_limit, Size::Bytes(Bytes::from_mib(512)));
    assert_eq!(
        (config.orphans.detached_after, config.orphans.detached_memory),
        (Duration::ZERO, Size::Bytes(Bytes(0)))
    );
    assert_eq!(config.stale, StaleConfig { idle: Duration::from_secs(7_200), min_count: 4 });
    let after = Duration::from_secs(300);
    assert_eq!(config.duplicates, DuplicatesConfig { after, min_agents: 3, min_directories: 10 });
    assert_eq!(
        config.fanout,
        FanoutConfig { window: Duration::from_secs(30), max_helpers: 20, max_agents: 6, max_workers: 40 }
    );
    assert_eq!(config.external.tmpfs_growth, Size::PercentOfHost(5));
    assert_eq!(
        config.history,
        HistoryConfig { retention: Duration::from_secs(30 * 86_400), max_size: Bytes::from_mib(1_024) }
    );
    let leaks = LeaksConfig {
        sensitivity: Sensitivity::High,
        limit: Some(Size::PercentOfHost(25)),
        warn_within: Duration::from_secs(3_600),
        critical_within: Duration::from_secs(600),
        ignore: Globs::new(vec!["*/postgres".into()]).unwrap(),
    };
    assert_eq!(config.leaks, leaks);
    let reclaim = ReclaimConfig {
        mode: ReclaimMode::Proactive,
        idle: Duration::from_secs(90),
        budget: Size::PercentOfHost(1),
        reserve: Size::Bytes(Bytes(0)),
        include: Globs::new(vec!["*/my-daemon".into()]).unwrap(),
    };
    assert_eq!(config.reclaim, reclaim);
    assert_eq!(config.reclaim_of("my-agent"), (ReclaimMode::Off, Duration::from_secs(3_600)));
    assert_eq!(config.reclaim_of("codex"), (ReclaimMode::Proactive, Duration::from_secs(90)));
    assert_eq!(config.shortest_reclaim_idle(), Some(Duration::from_secs(90)));
    assert_eq!(config.profiles.len(), built_in.len() + 1);
    let mine = config.profiles.iter().find(|profile| profile.name == "my-agent").unwrap();
    assert!(mine.is_launcher);
    assert_eq!(mine.limits.max_sessions, Some(4));
    let gib = |gib: u64| Some(Size::Bytes(Bytes(gib << 30)));
    assert_eq!((mine.max_memory, mine.max_total_memory), (gib(4), gib(16)));
    assert_eq!(mine.max_process_memory, Some(Size::PercentOfHost(10)));
    assert_eq!(mine.patterns().count(), 1);
}

#[test]
fn reclaim_off_unless_profile_says_otherwise() {
    let off = read("[reclaim]\nmode = \"off\"\n").unwrap();
    assert_eq!(off.shortest_reclaim_idle(), None);
    let text =
        "[reclaim]\nmode = \"off\"\n[[profile]]\nname = \"codex\"\nreclaim = \"pressure\"\nreclaim_idle = \"5m\"\n";
    let config = read(text).unwrap();
    assert_eq!(config.shortest_reclaim_idle(), Some(Duration::from_secs(300)));
    assert_eq!(config.reclaim_of("claude-code").0, ReclaimMode::Off);
}

#[test]
fn listen_off_disables_metrics() {
    assert_eq!(read("[daemon]\nlisten = \"off\"").unwrap().daemon.listen, None);
}

#[test]
fn profile_replaces_built_in_namesake() {
    let config = read("[[profile]]\nname = \"codex\"\nexe = [\"*/my-codex\"]\n").unwrap();
    let codex: Vec<_> = config.profiles.iter().filter(|profile| profile.name == "codex").collect();
    assert_eq!(codex.len(), 1);
    assert_eq!(codex[0].patterns().next().unwrap().exe, ["*/my-codex"]);
    assert_eq!(config.profiles.len(), Profile::built_in().len());
}

#[test]
fn built_in_profiles_can_be_disabled() {
    let config =
        read("[tracking]\nbuilt_in_profiles = false\n[[profile]]\nname = \"claude-code\"\nexe = [\"*/mine\"]\n")
            .unwrap();
    let names: Vec<&str> = config.profiles.iter().map(|profile| profile.name.as_str()).collect();
    assert_eq!(names, ["claude-code"]);
}

#[test]
fn profile_may_have_several_matches() {
    let text =
        "[[profile]]\nname = \"a\"\n[[profile.match]]\nexe = [\"*/a\"]\n[[profile.match]]\nscript = [\"*/a.py\"]\n";
    let (config, warnings) = parse_with_warnings(Path::new("c.toml"), text).unwrap();
    assert_eq!(config.profiles[0].patterns().count(), 2);
    assert_eq!(warnings, []);
}

#[test]
fn old_match_key_warns() {
    let text = "[[profile]]\nname = \"a\"\n  [[profile.way]]\n  exe = [\"*/a\"]\n[[profile.way]]\nscript = [\"*/a.py\"]\n[[profile.match]]\ncomm = [\"a\"]\n";
    let (config, warnings) = parse_with_warnings(Path::new("c.toml"), text).unwrap();
    assert_eq!(config.profiles[0].patterns().count(), 3);
    let warnings: Vec<String> = warnings.iter().map(Diagnostic::to_string).collect();
    assert_eq!(warnings, ["c.toml:3:13: way: deprecated in [[profile]], use match"]);
}

#[test]
fn gate_read_with_profile_limits() {
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
        fleet_max_sessions = 30
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
    assert_eq!((gate.max_queue, gate.ungated, gate.cgroups), (50, Some(Ungated::Deny), false));
    let built_in = Profile::built_in();
    let known = built_in.iter().find(|profile| profile.name == "claude-code").unwrap();
    let mine = config.profiles.iter().find(|profile| profile.name == "claude-code").unwrap();
    // ProfileLimits alone change nothing about how an agent is recognised.
    assert!(mine.patterns().eq(known.patterns()));
    assert_eq!(mine.limits.environment["UV_THREADPOOL_SIZE"], "2");
    assert_eq!(
        mine.limits,
        ProfileLimits {
            max_sessions: Some(3),
            fleet_max_sessions: Some(30),
            rate: Some(Rate { count: 1, period: Duration::from_secs(10) }),
            expected_memory: Some(Size::Bytes(Bytes::from_mib(700))),
            max_helpers: Some(20),
            max_depth: Some(0),
            max_subagents: Some(3),
            oom_score_adj: Some(250),
            ungated: None,
            environment: mine.limits.environment.clone(),
        }
    );
}
