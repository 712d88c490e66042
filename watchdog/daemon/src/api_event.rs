//! Events of the engine as events of the API, with long texts cut.

use watchdog_api::{DeniedAttempt, Event, EventDetail};
use watchdog_engine::effect::{JournalEntry, JournalEvent};
use watchdog_types::{Attempt, ExitStatus, Image};

/// Maximum size of an event's argv, in bytes. `tree` shows it whole.
const ARGV_BYTES: usize = 512;
/// Maximum size of any other string of an event, in bytes.
const TEXT_BYTES: usize = 512;

/// `at` is the wall-clock time of the event.
pub(super) fn event(seq: u64, at: String, entry: JournalEntry) -> Event {
    Event {
        seq,
        at,
        pid: entry.process.map(|process| process.pid.0),
        start_time: entry.process.map(|process| process.start_time.0),
        session: entry.session.map(|session| session.0),
        detail: detail(entry.what),
    }
}

/// Reports that a follower missed events, the first of them `seq`.
pub(super) fn gap(seq: u64, at: String, missed: u64) -> Event {
    Event { seq, at, pid: None, start_time: None, session: None, detail: EventDetail::Gap { missed } }
}

fn detail(what: JournalEvent) -> EventDetail {
    match what {
        JournalEvent::SessionStarted { profile } => EventDetail::SessionStarted { profile },
        JournalEvent::SessionEnded => EventDetail::SessionEnded,
        JournalEvent::Fork { parent } => EventDetail::Fork {
            parent_pid: parent.map(|parent| parent.pid.0),
            parent_start_time: parent.map(|parent| parent.start_time.0),
        },
        JournalEvent::Exec { comm, image: Image { path, argv, truncated, script: _ } } => {
            let (argv, argv_truncated) = bounded_argv(argv, truncated);
            EventDetail::Exec { comm, path: bounded(path), argv, argv_truncated }
        }
        JournalEvent::Exit { status, peak_bytes } => {
            let (exit_code, signal) = match status {
                Some(ExitStatus::Code(code)) => (Some(code), None),
                Some(ExitStatus::Signal(signal)) => (None, Some(signal)),
                None => (None, None),
            };
            EventDetail::Exit { exit_code, signal, peak_bytes }
        }
        JournalEvent::Signal { signal, sender, sender_comm, sender_uid, delivered } => EventDetail::Signal {
            signal,
            sender_pid: sender.pid.0,
            sender_start_time: sender.start_time.0,
            sender_comm,
            sender_uid,
            delivered,
        },
        JournalEvent::Oom { comm } => EventDetail::Oom { comm },
        JournalEvent::Died { cause, summary } => EventDetail::Death { cause, summary: bounded(summary) },
        JournalEvent::Finding { finding, kind, change, summary } => {
            EventDetail::Finding { finding: finding.0, kind, change, summary: bounded(summary) }
        }
        JournalEvent::Action { action, kind, change, summary } => {
            EventDetail::Action { action: action.0, kind, change, summary: bounded(summary) }
        }
        JournalEvent::ActionsHeldBack { detail } => EventDetail::ActionsHeldBack { detail },
        JournalEvent::LaunchGranted { profile, waited_ms } => EventDetail::LaunchGranted { profile, waited_ms },
        JournalEvent::Breaker { open, detail } => EventDetail::Breaker { open, detail },
        JournalEvent::PagedOut { run, summary } => EventDetail::PagedOut { run, summary },
        JournalEvent::Reconciled { lost, added, removed } => EventDetail::Reconciled { lost, added, removed },
        #[expect(clippy::cast_precision_loss, reason = "a stall of 2^53 microseconds is 285 years")]
        JournalEvent::Reclaim { stalled_us } => EventDetail::Reclaim { stalled_seconds: stalled_us as f64 / 1e6 },
        JournalEvent::Denied { comm, what } => EventDetail::Denied { comm, attempt: attempt(what) },
        JournalEvent::MemoryStep { memory_bytes } => EventDetail::MemoryStep { memory_bytes },
    }
}

fn attempt(what: Attempt) -> DeniedAttempt {
    match what {
        Attempt::Fork { root, live, bound, refused } => {
            DeniedAttempt::Fork { root_pid: root.pid.0, root_start_time: root.start_time.0, live, bound, refused }
        }
        Attempt::Exec { ppid, path, killed } => DeniedAttempt::Exec { ppid: ppid.0, path: bounded(path), killed },
    }
}

/// The arguments that fit, the last one cut, and whether anything is missing.
fn bounded_argv(mut argv: Vec<String>, truncated: bool) -> (Vec<String>, bool) {
    let (mut room, mut whole) = (ARGV_BYTES, 0);
    let mut cut = truncated;
    for argument in &mut argv {
        if room == 0 {
            break;
        }
        let kept = argument.floor_char_boundary(room);
        cut |= kept < argument.len();
        argument.truncate(kept);
        // An empty argument has a cost too.
        room = room.saturating_sub(kept.max(1));
        whole += 1;
    }
    cut |= whole < argv.len();
    argv.truncate(whole);
    (argv, cut)
}

/// The longest prefix of at most [`TEXT_BYTES`] that ends between two characters.
fn bounded(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(TEXT_BYTES));
    text
}

#[cfg(test)]
#[path = "api_event_tests.rs"]
mod tests;
