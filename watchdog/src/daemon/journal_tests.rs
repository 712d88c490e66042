use super::*;
use crate::api::Cause;
use crate::engine::id::{FindingId, Pid, ProcessId, SessionId, Ticks};

const ALICE: Viewer = Viewer::User(Uid(1000));
const OF_ALICE: Audience = Audience::Owner(Uid(1000));
const OF_BOB: Audience = Audience::Owner(Uid(1001));

fn process(pid: u32) -> ProcessId {
    ProcessId { pid: Pid(pid), start_time: Ticks(u64::from(pid) * 10) }
}

fn entry(pid: u32, what: Happening) -> JournalEntry {
    JournalEntry { at: BootTime(u64::from(pid)), process: Some(process(pid)), session: Some(SessionId(1)), what }
}

fn write(journal: &mut Journal, pid: u32, audience: Audience) {
    journal.write(&entry(pid, Happening::Fork { parent: None }), "2026-01-01T00:00:00Z".to_owned(), audience);
}

fn event(line: &Bytes) -> Event {
    serde_json::from_slice(line).unwrap()
}

fn pids(lines: impl IntoIterator<Item = Bytes>) -> Vec<u32> {
    lines.into_iter().filter_map(|line| event(&line).pid).collect()
}

#[test]
fn the_oldest_events_make_room_and_the_sequence_shows_it() {
    let mut journal = Journal::new(3);
    (1..=5).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    let events: Vec<Event> = journal.read(Viewer::Root, None).iter().map(event).collect();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [3, 4, 5]);
    journal.resize(1);
    assert_eq!(pids(journal.read(Viewer::Root, None)), [5]);
}

#[test]
fn lines_stay_whole_across_chunks() {
    let mut journal = Journal::new(10_000);
    let events = u32::try_from(3 * CHUNK / 100).unwrap();
    (1..=events).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    assert_eq!(pids(journal.read(ALICE, None)), (1..=events).collect::<Vec<_>>());
}

#[test]
fn a_user_sees_events_of_own_processes_and_of_the_host_only() {
    let mut journal = Journal::new(10);
    write(&mut journal, 1, OF_ALICE);
    write(&mut journal, 2, OF_BOB);
    write(&mut journal, 3, Audience::Root);
    write(&mut journal, 4, Audience::Everyone);
    assert_eq!(pids(journal.read(ALICE, None)), [1, 4]);
    assert_eq!(pids(journal.read(Viewer::Root, None)), [1, 2, 3, 4]);
}

#[test]
fn since_leaves_out_what_was_before() {
    let mut journal = Journal::new(10);
    (1..=4).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    assert_eq!(pids(journal.read(ALICE, Some(BootTime(3)))), [3, 4]);
}

#[test]
fn a_follower_gets_the_past_that_it_asked_for_and_then_the_present() {
    let mut journal = Journal::new(10);
    write(&mut journal, 1, OF_ALICE);
    let mut feed = journal.follow(ALICE, Some(BootTime(0)));
    let mut fresh = journal.follow(ALICE, None);
    write(&mut journal, 2, OF_BOB);
    write(&mut journal, 3, OF_ALICE);
    assert_eq!(pids(feed.backlog), [1]);
    assert_eq!(event(&feed.live.try_recv().unwrap()).pid, Some(3));
    assert!(feed.live.try_recv().is_err(), "another user's event came through");
    assert!(fresh.backlog.is_empty());
    assert_eq!(event(&fresh.live.try_recv().unwrap()).pid, Some(3));
}

#[test]
fn a_slow_follower_is_told_how_much_it_missed() {
    let mut journal = Journal::new(10);
    let mut feed = journal.follow(ALICE, None);
    let lines = u32::try_from(FOLLOWER_LINES).unwrap();
    (0..lines + 7).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    assert_eq!(journal.dropped(), 7);
    for _ in 0..FOLLOWER_LINES {
        feed.live.try_recv().unwrap();
    }
    journal.tend();
    let gap = event(&feed.live.try_recv().unwrap());
    assert_eq!((gap.kind.as_str(), gap.seq), ("gap", FOLLOWER_LINES as u64 + 1));
    assert_eq!(gap.detail["missed"], json!(7));
    write(&mut journal, 9_999, OF_ALICE);
    assert_eq!(event(&feed.live.try_recv().unwrap()).pid, Some(9_999));
}

#[test]
fn a_follower_that_left_is_forgotten() {
    let mut journal = Journal::new(10);
    let feed = journal.follow(ALICE, None);
    drop(feed);
    journal.tend();
    assert!(journal.followers.is_empty());
    assert_eq!(journal.dropped(), 0);
}

#[test]
fn long_arguments_are_cut_between_characters() {
    let argv = vec!["node".to_owned(), "ä".repeat(4_000), "never".to_owned()];
    let image = Image { path: "/usr/bin/node".to_owned(), argv, truncated: false };
    let mut journal = Journal::new(10);
    journal.write(&entry(1, Happening::Exec { comm: "node".to_owned(), image }), String::new(), OF_ALICE);
    let line = &journal.read(ALICE, None)[0];
    assert!(line.len() < 1024, "{} bytes", line.len());
    let detail = event(line).detail;
    assert_eq!(detail["argv_truncated"], json!(true));
    assert_eq!(detail["argv"][1].as_str().unwrap(), "ä".repeat((ARGV_BYTES - 4) / 2));
}

#[test]
fn ten_thousand_empty_arguments_are_cut_too() {
    let image = Image { argv: vec![String::new(); 10_000], ..Image::default() };
    assert_eq!(bounded_argv(&image).0.len(), ARGV_BYTES);
}

#[test]
fn every_happening_has_its_type_and_members() {
    let text = || "text".to_owned();
    let cases = [
        (Happening::SessionStarted { profile: text() }, "session_started", json!({ "profile": "text" })),
        (Happening::SessionEnded, "session_ended", json!({})),
        (Happening::Fork { parent: Some(process(2)) }, "fork", json!({ "parent_pid": 2, "parent_start_time": 20 })),
        (
            Happening::Exit { status: Some(ExitStatus::Signal(9)), peak_bytes: 5 },
            "exit",
            json!({ "exit_code": null, "signal": 9, "peak_bytes": 5 }),
        ),
        (
            Happening::Exit { status: Some(ExitStatus::Code(1)), peak_bytes: 5 },
            "exit",
            json!({ "exit_code": 1, "signal": null, "peak_bytes": 5 }),
        ),
        (
            Happening::Signal { signal: 15, sender: process(3), sender_comm: text(), sender_uid: 0, delivered: true },
            "signal",
            json!({
                "signal": 15, "sender_pid": 3, "sender_start_time": 30, "sender_comm": "text", "sender_uid": 0,
                "delivered": true,
            }),
        ),
        (Happening::Oom { comm: text() }, "oom", json!({ "comm": "text" })),
        (
            Happening::Died { cause: Cause::HeapLimit, summary: text() },
            "death",
            json!({ "cause": "heap_limit", "summary": "text" }),
        ),
        (
            Happening::Finding { finding: FindingId(4), kind: text(), change: text(), summary: text() },
            "finding",
            json!({ "finding": 4, "kind": "text", "change": "text", "summary": "text" }),
        ),
        (
            Happening::Reconciled { lost: 1, added: 2, removed: 3 },
            "reconciled",
            json!({ "lost": 1, "added": 2, "removed": 3 }),
        ),
        (Happening::Reclaim { stalled_us: 1_500_000 }, "reclaim", json!({ "stalled_seconds": 1.5 })),
        (
            Happening::Denied { comm: text(), what: Attempt::Fork { root: process(2), live: 9, bound: 9, refused: 3 } },
            "denied",
            json!({
                "attempt": "fork", "comm": "text", "root_pid": 2, "root_start_time": 20, "live": 9, "bound": 9, "refused": 3,
            }),
        ),
        (
            Happening::Denied { comm: text(), what: Attempt::Exec { ppid: Pid(2), path: text(), killed: true } },
            "denied",
            json!({ "attempt": "exec", "comm": "text", "ppid": 2, "path": "text", "killed": true }),
        ),
        (Happening::MemoryStep { memory_bytes: 8 }, "memory_step", json!({ "memory_bytes": 8 })),
    ];
    for (what, kind, detail) in cases {
        assert_eq!(describe(&what), (kind, detail.as_object().unwrap().clone()));
    }
}
