//! A history under everything that can happen to a file.

use std::fs;

use rstest::rstest;

use super::*;

/// Where a file that is no history is kept.
const ASIDE: &str = "history.log.set-aside-1";

#[test]
fn truncated_file_keeps_whole_lines() {
    const RECORDS: usize = 10;
    let whole = fs::read(history_of(&numbered(RECORDS)).path().join(FILE)).unwrap();
    let dir = scratch();
    let file = dir.path().join(FILE);
    for length in 0..=whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let lines = whole[..length].iter().filter(|byte| **byte == b'\n').count();
        let records = lines.saturating_sub(1);

        let (mut store, repairs) = Store::open(dir.path()).unwrap();

        assert_eq!(read(dir.path()), (names(records), 0), "after {length} bytes");
        let torn = lines > 0 && whole[length - 1] != b'\n';
        let cut = whole[..length].iter().rev().take_while(|byte| **byte != b'\n').count() as u64;
        assert_eq!(repairs, if torn { vec![Repair::Truncated(cut)] } else { vec![] }, "after {length} bytes");
        append(&mut store, &[oom("r", 100, None, "next")]);
        assert_eq!(read(dir.path()).0.last().map(String::as_str), Some("next"), "after {length} bytes");
    }
    assert!(!dir.path().join(ASIDE).exists());
}

#[test]
fn garbled_block_costs_its_lines() {
    const RECORDS: usize = 60;
    let whole = fs::read(history_of(&numbered(RECORDS)).path().join(FILE)).unwrap();
    let dir = scratch();
    for (n, at) in (HEADER.len()..whole.len() - 512).step_by(97).enumerate() {
        let mut garbled = whole.clone();
        // Zeros are what a file system shows of a block that it never wrote.
        garbled[at..at + 512].fill(if n % 2 == 0 { 0 } else { 0xb6 });
        fs::write(dir.path().join(FILE), &garbled).unwrap();

        let (mut store, repairs) = Store::open(dir.path()).unwrap();
        let (before, _) = read(dir.path());
        store.retire(&LIMITS, time(0)).unwrap();

        // 512 bytes are in five lines of this length at most.
        assert!(before.len() >= RECORDS - 6, "{} of {RECORDS} are left", before.len());
        assert!(matches!(repairs[..], [Repair::Damaged(1..=6)]), "{repairs:?}");
        assert_eq!(read(dir.path()), (before, 0), "a copy has the whole lines and no others");
    }
}

#[test]
fn flipped_bit_is_detected() {
    let dir = history_of(&numbered(2));
    let whole = fs::read(dir.path().join(FILE)).unwrap();
    for bit in HEADER.len() * 8..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(dir.path().join(FILE), &flipped).unwrap();
        let (left, _) = read(dir.path());
        // Upper and lower case of a checksum's digit are one bit apart.
        let upper =
            (whole[bit / 8] as char).is_ascii_hexdigit() && flipped[bit / 8].eq_ignore_ascii_case(&whole[bit / 8]);
        assert!(left.len() < 2 || upper, "bit {bit} went unnoticed");
        Store::open(dir.path()).expect("it opens in any case");
    }
}

#[rstest]
#[case::text(b"hello\n".to_vec())]
#[case::empty_lines(vec![b'\n'; 100])]
#[case::zeros(vec![0; 1 << 21])]
#[case::almost(b"agent-watchdog history 2\nnew things\n".to_vec())]
#[case::a_header_and_nothing_that_can_be_read([HEADER, &[0xff; 5_000], b"\n", &[1; 70_000], b"\n"].concat())]
fn foreign_history_starts_anew(#[case] garbage: Vec<u8>) {
    let dir = scratch();
    fs::write(dir.path().join(FILE), &garbage).unwrap();
    fs::write(dir.path().join(ASIDE), "of an earlier time").unwrap();

    let (mut store, repairs) = Store::open(dir.path()).unwrap();

    let aside = dir.path().join(ASIDE);
    assert!(matches!(&repairs[..], [Repair::Quarantined { aside: kept, .. }] if *kept == aside), "{repairs:?}");
    assert_eq!(fs::read(aside).unwrap(), garbage);
    append(&mut store, &numbered(1));
    assert_eq!(read(dir.path()), (names(1), 0));
}

#[test]
fn foreign_file_is_quarantined() {
    for make in ["directory", "link", "fifo"] {
        let dir = scratch();
        let (file, elsewhere) = (dir.path().join(FILE), dir.path().join("elsewhere"));
        match make {
            "directory" => fs::create_dir(&file).unwrap(),
            "link" => std::os::unix::fs::symlink(&elsewhere, &file).unwrap(),
            _ => rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap(),
        }
        let (mut store, repairs) = Store::open(dir.path()).unwrap();
        assert!(matches!(repairs[..], [Repair::Quarantined { .. }]), "{make}: {repairs:?}");
        append(&mut store, &numbered(1));
        assert_eq!(read(dir.path()), (names(1), 0), "{make}");
        assert!(!elsewhere.exists());
    }
}

#[test]
fn removed_file_is_error() {
    let dir = history_of(&[]);
    let (mut store, _) = Store::open(dir.path()).unwrap();
    fs::remove_file(dir.path().join(FILE)).unwrap();
    assert!(matches!(store.append(b"x\n"), Err(StoreError::Gone(_))));
}
