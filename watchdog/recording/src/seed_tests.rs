//! What the fuzzer begins with: a fuzzer finds no name of a variant by chance, so that every kind of entry has to be there.

use std::collections::BTreeSet;

use super::replay::RecordingSummary;
use super::*;
use watchdog_types::KernelEvent;

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

kinds! { ALL, kind: RecordingEntry {
    RecordingEntry::Input(_, Input::Kernel(KernelEvent::Fork(_))) => "fork",
    RecordingEntry::Input(_, Input::Kernel(KernelEvent::Exec(_))) => "exec",
    RecordingEntry::Input(_, Input::Kernel(KernelEvent::Exit(_))) => "exit",
    RecordingEntry::Input(_, Input::Kernel(KernelEvent::Oom(_))) => "oom",
    RecordingEntry::Input(_, Input::Kernel(KernelEvent::Signal(_))) => "signal",
    RecordingEntry::Input(_, Input::Kernel(KernelEvent::MemoryStep(_))) => "memory step",
    RecordingEntry::Input(_, Input::Kernel(KernelEvent::Reclaim(_))) => "reclaim",
    RecordingEntry::Input(_, Input::Kernel(KernelEvent::Denied(_))) => "denied",
    RecordingEntry::Input(_, Input::Lost(_)) => "lost",
    RecordingEntry::Input(_, Input::Scan(_)) => "scan",
    RecordingEntry::Input(_, Input::Samples(_)) => "samples",
    RecordingEntry::Input(_, Input::Zombies(_)) => "zombies",
    RecordingEntry::Input(_, Input::Containers(..)) => "containers",
    RecordingEntry::Input(_, Input::Inspected(..)) => "inspected",
    RecordingEntry::Input(_, Input::Limits(..)) => "limits",
    RecordingEntry::Input(_, Input::Shares(_)) => "shares",
    RecordingEntry::Input(_, Input::KillSeen(..)) => "kill seen",
    RecordingEntry::Input(_, Input::OomSeen(_)) => "oom seen",
    RecordingEntry::Input(_, Input::OwnProcess(_)) => "watchdog",
    RecordingEntry::Input(_, Input::Host(_)) => "host",
    RecordingEntry::Input(_, Input::Activity(_)) => "activity",
    RecordingEntry::Input(_, Input::Tmpfs(_)) => "tmpfs",
    RecordingEntry::Input(_, Input::Surroundings(_)) => "surroundings",
    RecordingEntry::Input(_, Input::Tasks(_)) => "tasks",
    RecordingEntry::Input(_, Input::Adopt(_)) => "adopt",
    RecordingEntry::Input(_, Input::Launch(_)) => "launch",
    RecordingEntry::Input(_, Input::CgroupLimits(..)) => "room",
    RecordingEntry::Input(_, Input::LaunchTasks(..)) => "launch tasks",
    RecordingEntry::Input(_, Input::CancelLaunch(..)) => "withdraw",
    RecordingEntry::Input(_, Input::Restore(_)) => "restore",
    RecordingEntry::Input(_, Input::Absence(_)) => "absence",
    RecordingEntry::Input(_, Input::Subagent(_)) => "subagent",
    RecordingEntry::Input(_, Input::Confined(..)) => "confined",
    RecordingEntry::Input(_, Input::CgroupMembers(..)) => "cgroup members",
    RecordingEntry::Input(_, Input::Permissions(_)) => "rights",
    RecordingEntry::Input(_, Input::ResumeActions(_)) => "resume",
    RecordingEntry::Input(_, Input::RequestAction(_)) => "ask",
    RecordingEntry::Input(_, Input::UserIds(_)) => "user_ids",
    RecordingEntry::Input(_, Input::BatchResult(_)) => "struck",
    RecordingEntry::Input(_, Input::Unadopt(_)) => "unadopt",
    RecordingEntry::Input(_, Input::PagedOut { .. }) => "paged out",
    RecordingEntry::Input(_, Input::RequestReclaim(_)) => "request reclaim",
    RecordingEntry::Input(_, Input::FleetAnswer(_)) => "fleet answer",
    RecordingEntry::Input(_, Input::FleetWake) => "fleet wake",
    RecordingEntry::Input(_, Input::Tick) => "tick",
    RecordingEntry::Configured(..) => "configured",
    RecordingEntry::Ended(..) => "ended",
} }

#[test]
fn fuzz_seeds_cover_every_entry() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/recording/every-input.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let entries = text.lines().skip(1).map(|line| serde_json::from_str::<RecordingEntry>(line).expect(line));
    let there: BTreeSet<&str> = entries.map(|entry| kind(&entry)).collect();
    let missing: Vec<&&str> = ALL.iter().filter(|kind| !there.contains(*kind)).collect();
    assert!(missing.is_empty(), "not in {path}: {missing:?}");

    let RecordingSummary { inputs, end, .. } =
        RecordingReader::new(text.as_bytes()).and_then(replay).unwrap().recording;
    let entries = text.lines().count() as u64 - 2;
    assert_eq!((inputs, end), (entries, "stopped"), "it is replayed to its end");
}
