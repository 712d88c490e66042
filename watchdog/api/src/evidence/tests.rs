use serde_json::json;

use super::*;

#[test]
fn older_json_stays_typed() {
    let json = json!({
        "agent_alive": true, "cwd_deleted": false, "listens": [], "memory_bytes": 1_048_576, "name": "node",
        "parent_comm": "systemd", "parent_name": "bash", "parent_pid": 7, "ppid": 1, "process_kind": "tool", "tty": false,
    });
    let read: Evidence = serde_json::from_value(json.clone()).unwrap();
    assert!(matches!(read, Evidence::Detached(_)), "{read:?}");
    assert_eq!(read.to_string(), "node (1.0 MiB) outlived its parent bash; its agent is running");
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
}

#[test]
fn detached_processes_are_counted_and_listed() {
    let member = |pid: u32, mib: u64| json!({ "memory_bytes": mib << 20, "name": "vite", "pid": pid, "start_time": 9 });
    let json = json!({
        "agent_alive": true, "brief": 41, "count": 3, "memory_bytes": 220_u64 << 20, "name": "sleep", "parent_name": "bash",
        "parent_pid": 7, "ppid": 1, "process_kind": "tool", "processes": [member(12, 200), member(13, 19)],
    });
    let read: Evidence = serde_json::from_value(json.clone()).unwrap();
    let sentence = "3 processes (220 MiB) outlived their parents; the largest is vite; their agent is running";
    assert_eq!(read.to_string(), sentence);
    let facts = [
        "vite (pid 12), 200 MiB",
        "vite (pid 13), 19 MiB",
        "and 1 more",
        "41 background processes of the session exited soon after their parents",
    ];
    assert_eq!(read.facts(), facts);
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
}

#[test]
fn unknown_fields_keep_evidence_raw() {
    let json = json!({ "name": "node", "policy": "warn", "ppid": 1, "profile": "claude-code", "later": [1, 2] });
    let read: Evidence = serde_json::from_value(json.clone()).unwrap();
    assert!(matches!(read, Evidence::Raw(_)), "{read:?}");
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
}

#[test]
fn shortened_evidence_is_raw() {
    assert_eq!(serde_json::to_string(&Evidence::left_out()).unwrap(), r#"{"left_out":true}"#);
    assert_eq!(serde_json::from_str::<Evidence>("{}").unwrap(), Evidence::default());
}

#[test]
fn orphan_names_agent_and_its_death() {
    let json = json!({
        "agent_comm": "claude", "agent_died_seconds_ago": 3, "agent_pid": 29_271, "agent_start_time": 7,
        "agent_status": { "signal": 9 }, "clear": 1, "count": 2, "in_grace": false, "memory_bytes": 181_403_648,
        "processes": [
            { "kind": "tool", "memory_bytes": 1_048_576, "name": "node", "pid": 12, "ppid": 1, "start_time": 8, "verdict": "clear" },
            { "because": "listens on tcp 127.0.0.1:3000", "kind": "tool", "memory_bytes": 4_096, "name": "vite", "pid": 13,
              "ppid": 12, "start_time": 9, "verdict": "unknown" },
        ],
        "profile": "claude-code",
    });
    let read: Evidence = serde_json::from_value(json.clone()).unwrap();
    let sentence = "2 orphaned processes (173 MiB) from claude-code (pid 29271, killed by SIGKILL 3s ago)";
    assert_eq!(read.to_string(), sentence);
    let facts = [
        "1 of 2 may be terminated; the others are uncertain",
        "node (pid 12), 1.0 MiB",
        "vite (pid 13), 4.0 KiB, uncertain: listens on tcp 127.0.0.1:3000",
    ];
    assert_eq!(read.facts(), facts);
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
}
