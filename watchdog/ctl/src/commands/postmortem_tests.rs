use super::*;
use crate::render::testing::plain;
use serde_json::json;

fn memory(available: u64) -> serde_json::Value {
    json!({
        "memory_total_bytes": 16_u64 << 30, "memory_available_bytes": available, "swap_total_bytes": 4_u64 << 30,
        "swap_free_bytes": 1_u64 << 30, "shmem_bytes": 0, "pressure_some_avg10": 4.0, "pressure_full_avg10": 1.0,
    })
}

fn postmortem() -> Postmortem {
    serde_json::from_value(json!({
        "run": "2026-01-02T00:00:00Z", "boot_id": "b", "version": "0.1.0", "end": "host_went_down",
        "from": "2026-01-02T11:50:00Z", "to": "2026-01-02T11:59:58.25Z",
        "host": {
            "first": memory(8 << 30), "last": memory(100 << 20), "lowest_available_bytes": 90 << 20,
            "highest_pressure_some_avg10": 88.0, "highest_pressure_full_avg10": 70.5,
        },
        "sessions": [{
            "session": 3, "profile": "claude-code", "uid": 1000, "memory_bytes": 9_u64 << 30, "processes": 12,
            "first_memory_bytes": 1_u64 << 30, "growth_bytes": 8_u64 << 30,
        }],
        "processes": [
            {"pid": 41231, "start_time": 1, "session": 3, "uid": 1000, "name": "server\u{1b}.js",
             "memory_bytes": 7_u64 << 30, "first_memory_bytes": 100 << 20, "growth_bytes": 7_000_000_000_u64},
            {"pid": 7, "start_time": 1, "session": 3, "uid": 1000, "name": "claude", "memory_bytes": 100 << 20,
             "first_memory_bytes": 200 << 20, "growth_bytes": -(100 << 20)},
        ],
        "findings": [{
            "id": 4, "kind": "orphan", "severity": "warning", "session": 3, "pid": 5, "start_time": 1,
            "opened_at": "", "closed_at": null, "closed_because": null, "summary": "3 helpers", "evidence": {},
            "proposed_action": "report", "action_taken": null,
        }],
        "killed": [{
            "at": "2026-01-02T11:59:57Z", "run": "r", "owner_uid": null, "type": "oom", "pid": 9, "start_time": 1,
            "session": 3, "comm": "node",
        }],
        "damaged_lines": 2,
    }))
    .unwrap()
}

#[test]
fn host_failure_has_all_sections() {
    insta::assert_snapshot!(render(&postmortem(), &plain()), @r"
    the host went down while the daemon was running
    last record 2026-01-02 11:59:58.250; daemon run started 2026-01-02 00:00:00.000 (version 0.1.0)

    host memory in the last 9m
      available 8.0 GiB -> 100 MiB of 16 GiB, minimum 90 MiB
      swap free 1.0 GiB -> 1.0 GiB of 4.0 GiB
      pressure 4.00 %, maximum 88.00 % (full 70.50 %)

    sessions, by growth
        9.0 GiB  +8.0 GiB    session 3 claude-code, 12 processes, uid 1000

    processes, by growth
        7.0 GiB  +6.5 GiB    pid 41231 server\u{1b}.js, session 3
        100 MiB  -100 MiB    pid 7 claude, session 3

    orphaned, detached, abandoned and stale processes
      #4 orphan: 3 helpers

    other findings
      none

    kills and actions
      2026-01-02 11:59:57.000  oom              session 3    the OOM killer killed node (pid 9)

    2 damaged lines of the history skipped
    ");
}

#[test]
fn empty_sections_say_none() {
    let mut postmortem = postmortem();
    postmortem.end = End::Stopped;
    (postmortem.host, postmortem.damaged_lines) = (None, 0);
    postmortem.sessions.clear();
    postmortem.processes.clear();
    postmortem.findings.clear();
    postmortem.killed.clear();
    insta::assert_snapshot!(render(&postmortem, &plain()), @r"
    the daemon was stopped normally
    last record 2026-01-02 11:59:58.250; daemon run started 2026-01-02 00:00:00.000 (version 0.1.0)

    host memory in the last 9m
      not recorded

    sessions, by growth
      none

    processes, by growth
      none

    orphaned, detached, abandoned and stale processes
      none

    other findings
      none

    kills and actions
      none
    ");
}
