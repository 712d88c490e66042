//! A file that is said to be a recording: it is replayed or refused, and each replay gives the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watchdog_recording::{RecordingReader, replay};

fuzz_target!(|file: &[u8]| {
    let replayed = || RecordingReader::new(file).and_then(replay).map_err(|error| error.to_string());
    assert_eq!(replayed(), replayed());
});
