use super::*;
use watchdog_api::EventDetail;
use watchdog_engine::effect::JournalEvent;
use watchdog_types::{Image, Pid, ProcessId, SessionId, Ticks};

const ALICE: Viewer = Viewer::User(Uid(1000));
const OF_ALICE: Audience = Audience::Owner(Uid(1000));
const OF_BOB: Audience = Audience::Owner(Uid(1001));

fn process(pid: u32) -> ProcessId {
    ProcessId { pid: Pid(pid), start_time: Ticks(u64::from(pid) * 10) }
}

fn entry(pid: u32, what: JournalEvent) -> JournalEntry {
    JournalEntry { at: BootTime(u64::from(pid)), process: Some(process(pid)), session: Some(SessionId(1)), what }
}

fn write(journal: &mut Journal, pid: u32, audience: Audience) {
    journal.write(entry(pid, JournalEvent::Fork { parent: None }), "2026-01-01T00:00:00Z".to_owned(), audience);
}

fn event(line: &Bytes) -> Event {
    serde_json::from_slice(line).unwrap()
}

fn pids(lines: impl IntoIterator<Item = Bytes>) -> Vec<u32> {
    lines.into_iter().filter_map(|line| event(&line).pid).collect()
}

fn since(at: u64) -> Period {
    Period { since: Some(BootTime(at)), ..Period::ALL }
}

#[test]
fn oldest_events_are_dropped() {
    let mut journal = Journal::new(3);
    (1..=5).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    let events: Vec<Event> = journal.read(Viewer::Root, Period::ALL).iter().map(event).collect();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [3, 4, 5]);
    journal.resize(1);
    assert_eq!(pids(journal.read(Viewer::Root, Period::ALL)), [5]);
}

#[test]
fn lines_stay_whole_across_chunks() {
    let mut journal = Journal::new(10_000);
    let events = u32::try_from(3 * CHUNK / 100).unwrap();
    (1..=events).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    assert_eq!(pids(journal.read(ALICE, Period::ALL)), (1..=events).collect::<Vec<_>>());
}

#[test]
fn users_see_own_events_only() {
    let mut journal = Journal::new(10);
    write(&mut journal, 1, OF_ALICE);
    write(&mut journal, 2, OF_BOB);
    write(&mut journal, 3, Audience::Root);
    write(&mut journal, 4, Audience::Everyone);
    assert_eq!(pids(journal.read(ALICE, Period::ALL)), [1, 4]);
    assert_eq!(pids(journal.read(Viewer::Root, Period::ALL)), [1, 2, 3, 4]);
}

#[test]
fn since_skips_older_events() {
    let mut journal = Journal::new(10);
    (1..=4).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    assert_eq!(pids(journal.read(ALICE, since(3))), [3, 4]);
}

#[test]
fn after_skips_known_events() {
    let mut journal = Journal::new(3);
    (1..=5).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    let after = |after| Period { after: Some(after), ..Period::ALL };
    for (known, left) in [(0, vec![3, 4, 5]), (2, vec![3, 4, 5]), (3, vec![4, 5]), (5, vec![]), (u64::MAX, vec![])] {
        assert_eq!(pids(journal.read(ALICE, after(known))), left, "{known}");
    }
    assert_eq!(pids(journal.follow(ALICE, after(4)).backlog), [5]);
}

#[test]
fn follower_gets_past_then_live() {
    let mut journal = Journal::new(10);
    write(&mut journal, 1, OF_ALICE);
    let mut feed = journal.follow(ALICE, since(0));
    let mut fresh = journal.follow(ALICE, Period::ALL);
    write(&mut journal, 2, OF_BOB);
    write(&mut journal, 3, OF_ALICE);
    assert_eq!(pids(feed.backlog), [1]);
    assert_eq!(event(&feed.live.try_recv().unwrap()).pid, Some(3));
    assert!(feed.live.try_recv().is_err(), "another user's event came through");
    assert!(fresh.backlog.is_empty());
    assert_eq!(event(&fresh.live.try_recv().unwrap()).pid, Some(3));
}

#[test]
fn slow_follower_gets_a_gap() {
    let mut journal = Journal::new(10);
    let mut feed = journal.follow(ALICE, Period::ALL);
    let lines = u32::try_from(FOLLOWER_LINES).unwrap();
    (0..lines + 7).for_each(|pid| write(&mut journal, pid, OF_ALICE));
    assert_eq!(journal.dropped(), 7);
    for _ in 0..FOLLOWER_LINES {
        feed.live.try_recv().unwrap();
    }
    journal.prune_followers();
    let gap = event(&feed.live.try_recv().unwrap());
    assert_eq!((gap.detail, gap.seq), (EventDetail::Gap { missed: 7 }, FOLLOWER_LINES as u64 + 1));
    write(&mut journal, 9_999, OF_ALICE);
    assert_eq!(event(&feed.live.try_recv().unwrap()).pid, Some(9_999));
}

#[test]
fn disconnected_follower_is_removed() {
    let mut journal = Journal::new(10);
    let feed = journal.follow(ALICE, Period::ALL);
    drop(feed);
    journal.prune_followers();
    assert!(journal.followers.is_empty());
    assert_eq!(journal.dropped(), 0);
}

#[test]
fn long_arguments_cut_between_characters() {
    let argv = vec!["node".to_owned(), "ä".repeat(4_000), "never".to_owned()];
    let image = Image::new("/usr/bin/node", argv);
    let mut journal = Journal::new(10);
    journal.write(entry(1, JournalEvent::Exec { comm: "node".to_owned(), image }), String::new(), OF_ALICE);
    let line = &journal.read(ALICE, Period::ALL)[0];
    assert!(line.len() < 1024, "{} bytes", line.len());
    let EventDetail::Exec { argv, argv_truncated, .. } = event(line).detail else { panic!("no exec") };
    assert!(argv_truncated);
    assert_eq!(argv[1..], ["ä".repeat(254)]);
}
