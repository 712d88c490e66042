//! What the fuzzer begins with: a fuzzer finds no name of a variant by chance, so that every kind of entry has to be there.

use std::collections::BTreeSet;

use super::replay::Summary;
use super::*;
use crate::engine::input::KernelEvent;

/// A name for every pattern, and the list of all names: a new variant does not compile until it stands here.
macro_rules! kinds {
    ($all:ident, $of:ident: $entry:ty { $($pattern:pat => $name:literal),+ $(,)? }) => {
        const $all: &[&str] = &[$($name),+];

        fn $of(entry: &$entry) -> &'static str {
            match entry {
                $($pattern => $name),+
            }
        }
    };
}

kinds! { ALL, kind: Entry {
    Entry::Told(_, Input::Kernel(KernelEvent::Fork(_))) => "fork",
    Entry::Told(_, Input::Kernel(KernelEvent::Exec(_))) => "exec",
    Entry::Told(_, Input::Kernel(KernelEvent::Exit(_))) => "exit",
    Entry::Told(_, Input::Kernel(KernelEvent::Oom(_))) => "oom",
    Entry::Told(_, Input::Kernel(KernelEvent::Signal(_))) => "signal",
    Entry::Told(_, Input::Kernel(KernelEvent::MemoryStep(_))) => "memory step",
    Entry::Told(_, Input::Kernel(KernelEvent::Reclaim(_))) => "reclaim",
    Entry::Told(_, Input::Kernel(KernelEvent::Denied(_))) => "denied",
    Entry::Told(_, Input::Lost(_)) => "lost",
    Entry::Told(_, Input::Scan(_)) => "scan",
    Entry::Told(_, Input::Samples(_)) => "samples",
    Entry::Told(_, Input::Zombies(_)) => "zombies",
    Entry::Told(_, Input::Containers(..)) => "containers",
    Entry::Told(_, Input::Inspected(..)) => "inspected",
    Entry::Told(_, Input::Limits(..)) => "limits",
    Entry::Told(_, Input::OomSeen(_)) => "oom seen",
    Entry::Told(_, Input::Watchdog(_)) => "watchdog",
    Entry::Told(_, Input::Host(_)) => "host",
    Entry::Told(_, Input::Activity(_)) => "activity",
    Entry::Told(_, Input::Tmpfs(_)) => "tmpfs",
    Entry::Told(_, Input::Adopt(_)) => "adopt",
    Entry::Told(_, Input::Launch(_)) => "launch",
    Entry::Told(_, Input::Room(..)) => "room",
    Entry::Told(_, Input::Withdraw(..)) => "withdraw",
    Entry::Told(_, Input::Restore(_)) => "restore",
    Entry::Told(_, Input::Absence(_)) => "absence",
    Entry::Told(_, Input::Subagent(_)) => "subagent",
    Entry::Told(_, Input::Confined(..)) => "confined",
    Entry::Told(_, Input::CgroupMembers(..)) => "cgroup members",
    Entry::Told(_, Input::Rights(_)) => "rights",
    Entry::Told(_, Input::Resume(_)) => "resume",
    Entry::Told(_, Input::Ask(_)) => "ask",
    Entry::Told(_, Input::UserIds(_)) => "user_ids",
    Entry::Told(_, Input::Struck(_)) => "struck",
    Entry::Told(_, Input::Unadopt(_)) => "unadopt",
    Entry::Told(_, Input::Tick) => "tick",
    Entry::Configured(..) => "configured",
    Entry::Ended(..) => "ended",
} }

#[test]
fn the_fuzzer_begins_with_every_kind_of_entry() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/recording/every-input.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let entries = text.lines().skip(1).map(|line| serde_json::from_str::<Entry>(line).expect(line));
    let there: BTreeSet<&str> = entries.map(|entry| kind(&entry)).collect();
    let missing: Vec<&&str> = ALL.iter().filter(|kind| !there.contains(*kind)).collect();
    assert!(missing.is_empty(), "not in {path}: {missing:?}");

    let Summary { inputs, end, .. } = Reader::new(text.as_bytes()).and_then(replay).unwrap().recording;
    let entries = text.lines().count() as u64 - 2;
    assert_eq!((inputs, end), (entries, "stopped"), "it is replayed to its end");
}
