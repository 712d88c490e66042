use serde_json::json;

use super::*;
use watchdog_api::Cause;
use watchdog_types::{BootTime, FindingId, Pid, ProcessId, Ticks};

fn process(pid: u32) -> ProcessId {
    ProcessId { pid: Pid(pid), start_time: Ticks(u64::from(pid) * 10) }
}

#[test]
fn many_empty_arguments_are_cut() {
    let (argv, cut) = bounded_argv(vec![String::new(); 10_000], false);
    assert_eq!((argv.len(), cut), (ARGV_BYTES, true));
}

#[test]
fn every_event_has_type_and_members() {
    let text = || "text".to_owned();
    let cases = [
        (JournalEvent::SessionStarted { profile: text() }, "session_started", json!({ "profile": "text" })),
        (JournalEvent::SessionEnded, "session_ended", json!({})),
        (JournalEvent::Fork { parent: Some(process(2)) }, "fork", json!({ "parent_pid": 2, "parent_start_time": 20 })),
        (
            JournalEvent::Exit { status: Some(ExitStatus::Signal(9)), peak_bytes: 5 },
            "exit",
            json!({ "exit_code": null, "signal": 9, "peak_bytes": 5 }),
        ),
        (
            JournalEvent::Exit { status: Some(ExitStatus::Code(1)), peak_bytes: 5 },
            "exit",
            json!({ "exit_code": 1, "signal": null, "peak_bytes": 5 }),
        ),
        (
            JournalEvent::Signal {
                signal: 15,
                sender: process(3),
                sender_comm: text(),
                sender_uid: 0,
                delivered: true,
            },
            "signal",
            json!({
                "signal": 15, "sender_pid": 3, "sender_start_time": 30, "sender_comm": "text", "sender_uid": 0,
                "delivered": true,
            }),
        ),
        (JournalEvent::Oom { comm: text() }, "oom", json!({ "comm": "text" })),
        (
            JournalEvent::Died { cause: Cause::HeapLimit, summary: text() },
            "death",
            json!({ "cause": "heap_limit", "summary": "text" }),
        ),
        (
            JournalEvent::Finding { finding: FindingId(4), kind: text(), change: text(), summary: text() },
            "finding",
            json!({ "finding": 4, "kind": "text", "change": "text", "summary": "text" }),
        ),
        (
            JournalEvent::Reconciled { lost: 1, added: 2, removed: 3 },
            "reconciled",
            json!({ "lost": 1, "added": 2, "removed": 3 }),
        ),
        (JournalEvent::Reclaim { stalled_us: 1_500_000 }, "reclaim", json!({ "stalled_seconds": 1.5 })),
        (
            JournalEvent::Denied {
                comm: text(),
                what: Attempt::Fork { root: process(2), live: 9, bound: 9, refused: 3 },
            },
            "denied",
            json!({
                "attempt": "fork", "comm": "text", "root_pid": 2, "root_start_time": 20, "live": 9, "bound": 9, "refused": 3,
            }),
        ),
        (
            JournalEvent::Denied { comm: text(), what: Attempt::Exec { ppid: Pid(2), path: text(), killed: true } },
            "denied",
            json!({ "attempt": "exec", "comm": "text", "ppid": 2, "path": "text", "killed": true }),
        ),
        (JournalEvent::MemoryStep { memory_bytes: 8 }, "memory_step", json!({ "memory_bytes": 8 })),
    ];
    for (what, kind, detail) in cases {
        let entry = JournalEntry { at: BootTime(0), process: Some(process(7)), session: None, what };
        let event = event(1, "now".to_owned(), entry);
        let json = serde_json::to_value(&event).unwrap();
        let mut expected = json!({ "seq": 1, "at": "now", "pid": 7, "start_time": 70, "session": null, "type": kind });
        expected.as_object_mut().unwrap().extend(detail.as_object().unwrap().clone());
        assert_eq!((&json, event.detail.kind()), (&expected, kind));
        assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event, "as a client reads it");
    }
}
