//! Bytes from a ring buffer: every record is decoded or refused, and what was decoded holds no more than was there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watchdog_common::{ARGV_MAX, PATH_MAX};
use watchdog_kernel::decode::decode;
use watchdog_types::KernelEvent;

/// A byte that is no UTF-8 is replaced by a character of three.
const GROWTH: usize = 3;

fuzz_target!(|record: &[u8]| {
    let Ok(event) = decode(record) else { return };
    if let KernelEvent::Exec(exec) = &event {
        let argv: usize = exec.image.argv.iter().map(String::len).sum();
        assert!(exec.image.path.len() <= PATH_MAX * GROWTH && argv <= ARGV_MAX * GROWTH);
        assert!(exec.image.path.len() + argv <= record.len() * GROWTH);
    }
    assert_eq!(decode(record), Ok(event), "a record means one thing");
});
