use serde_json::json;

use super::*;
use crate::testing::{narrow, plain, receipt as receipt_fixture};

fn death() -> Death {
    let death = json!({
        "died_at": "2026-01-02T11:57:00Z", "started_at": "2026-01-02T11:00:00Z",
        "pid": 41_231, "start_time": 7, "session": 3, "profile": "claude-code", "kind": "mcp-server", "comm": "no\u{1b}de",
        "name": "server\u{1b}[2J.js", "uid": 1000, "parent_pid": 41_230, "age_seconds": 3_420.0, "exit_code": null,
        "signal": 9, "cause": "oom", "summary": "server.js (pid 41231) was killed by the kernel's OOM killer.",
        "sender": null, "origin": null,
        "oom": {
            "scope": "cgroup", "scope_is": "reported", "cgroup": "/run.scope", "cgroup_max_bytes": 6_442_450_944_u64,
            "trigger_pid": 9, "trigger_comm": null,
            "holders": [{"session": 3, "profile": "claude-code", "uid": 1000, "processes": 2, "orphans": 0,
                         "memory_bytes": 4_294_967_296_u64}],
            "sessions_bytes": 4_294_967_296_u64, "orphaned_bytes": 0, "orphans": 0, "largest": [], "oom_score_adj": 200
        },
        "heap": null, "passed_on_from": null,
        "memory": {"last_bytes": 541_065_216, "peak_bytes": 545_259_520, "growth_bytes": 104857600, "growth_window_seconds": 60.5,
                   "doubled_in_seconds": null, "cgroup_max_bytes": 6_442_450_944_u64},
        "host": {"total_bytes": 8_589_934_592_u64, "available_bytes": 4_294_967_296_u64, "swap_total_bytes": 0,
                 "swap_free_bytes": 0, "pressure_some_avg10": 1.5, "pressure_full_avg10": null},
        "died_with": [{"pid": 41_240, "start_time": 8, "name": "sh", "uid": 1000, "session": 3, "exit_code": 137,
                       "signal": null, "cause": "failed", "apart_seconds": 0.25, "later": true}],
        "died_with_count": 1
    });
    serde_json::from_value(death).unwrap()
}

#[test]
fn death_has_summary_and_numbers() {
    let death = death();
    let explained = Explanation { summary: death.facts.summary.clone(), deaths: vec![death], ..Explanation::default() };
    insta::assert_snapshot!(explanation(&explained, None, &plain()));
}

#[test]
fn session_lists_its_deaths() {
    let deaths = vec![death(); 22];
    let explained = Explanation { summary: "Session 3 has ended.".into(), deaths, ..Explanation::default() };
    let text = explanation(&explained, None, &plain());
    assert!(text.starts_with("Session 3 has ended.\n\ndeaths, latest first\n"), "{text}");
    assert!(text.contains("  3m ago  41231  oom  server\\u{1b}[2J.js\n"), "{text}");
    assert!(text.ends_with("  and 2 others\n") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn summary_wraps_on_terminals_only() {
    let explained = Explanation { summary: "one two three four".into(), ..Explanation::default() };
    assert_eq!(explanation(&explained, None, &narrow(10)), "one two\nthree four\n");
    assert_eq!(explanation(&explained, None, &plain()), "one two three four\n");
}

#[test]
fn actions_on_the_process_are_shown() {
    let (summary, receipts) = ("sh (pid 41240) was ended.".to_owned(), vec![receipt_fixture()]);
    let explained = Explanation { summary, receipts, ..Explanation::default() };
    insta::assert_snapshot!(explanation(&explained, Some(41_240), &plain()), @"
    sh (pid 41240) was ended.

    action 7 of agent-watchdog (terminate, by uid 1000, 3m ago): 2 helpers outlived claude-code (pid 41230)
      sh (pid 41240, 4.0 MiB): TERM at 2026-01-02 11:57:00.100; exited after 0.12s
      done: 2 processes ended after 10s, 84 MiB freed
    ");
    let text = explanation(&explained, None, &plain());
    assert!(text.contains("(pid 41241, 80 MiB)") && !text.contains('\u{1b}'), "{text}");
}
