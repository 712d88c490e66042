//! Recordings of real runs (see `fixtures/recordings/README.md`), and what is found in them.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use watchdog_engine::effect::Effect;
use watchdog_recording::{Ending, RecordingReader, Replay, replay, run};

fn recordings() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "rec")).collect();
    paths.sort();
    paths
}

fn open(path: &Path) -> RecordingReader<BufReader<File>> {
    RecordingReader::new(BufReader::new(File::open(path).unwrap())).unwrap()
}

/// What happened to findings, one line each.
fn findings_text(replay: &Replay) -> String {
    let mut lines = Vec::new();
    for found in &replay.findings {
        for change in &found.changes {
            let seconds = change.after.as_secs_f64();
            let (kind, id, proposed) = (found.finding.kind.name(), found.finding.id, &change.proposed_action);
            lines.push(format!("  {seconds:7.3} {kind} {id} {}, {proposed}: {}", change.change, change.summary));
        }
        lines.extend(found.finding.closed_because.iter().map(|because| format!("          because: {because}")));
    }
    lines.join("\n")
}

#[test]
fn recordings_give_expected_findings() {
    let mut all = String::new();
    for path in recordings() {
        let replay = replay(open(&path)).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy();
        all += &format!("{name}: {} inputs\n{}\n", replay.recording.inputs, findings_text(&replay));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn recordings_replay_deterministically() {
    assert_eq!(recordings().len(), 6);
    for path in recordings() {
        let effects = || {
            let mut reader = open(&path);
            let mut all: Vec<Effect> = Vec::new();
            run(&mut reader, |_, _, effects| {
                all.extend_from_slice(effects);
                ControlFlow::Continue(())
            })
            .unwrap();
            assert!(matches!(reader.ending(), Some(Ending::Stated(..))), "{}: {:?}", path.display(), reader.ending());
            all
        };
        let first = effects();
        assert!(first.len() > 10, "{}: {first:?}", path.display());
        assert_eq!(first, effects(), "{}", path.display());
    }
}
