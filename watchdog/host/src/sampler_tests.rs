//! The sampler's decisions, on made-up samples; and its numbers, on a real process.

use super::super::clock;
use super::super::statm::StatmReader;
use super::super::testing::TestProcess;
use super::*;

const IDLE: Duration = Duration::from_millis(1_500);

fn sample(pid: u32, anon: u32) -> MemorySample {
    MemorySample {
        process: ProcessId { pid: Pid(pid), start_time: Ticks(1) },
        anon,
        file: 0,
        shmem: 0,
        swap: 0,
        hiwater: 0,
        ppid: Some(Pid(1)),
        zombie: false,
        tty: Some(false),
        comm: Some(*b"node\0\0\0\0\0\0\0\0\0\0\0\0"),
    }
}

/// Rounds a second and a half apart.
struct Rounds {
    sampler: Sampler,
    at: BootTime,
}

impl Rounds {
    fn new() -> Self {
        Self { sampler: Sampler::new(IDLE), at: BootTime(0) }
    }

    fn next(&mut self, samples: &[MemorySample]) -> (Vec<MemoryChange>, Duration) {
        self.at = self.at.plus(IDLE);
        let mut changes = Vec::new();
        let interval = self.sampler.round(self.at, samples.iter().copied(), &mut changes);
        (changes, interval)
    }

    fn is_reported(&mut self, sample: MemorySample) -> bool {
        !self.next(&[sample]).0.is_empty()
    }
}

#[test]
fn process_reported_first_and_on_change() {
    let mut rounds = Rounds::new();
    let first = sample(7, 1000);
    assert!(rounds.is_reported(first));
    assert!(!rounds.is_reported(first));
    assert!(!rounds.is_reported(MemorySample { anon: 1063, ..first }));
    assert!(rounds.is_reported(MemorySample { anon: 1064, ..first }));
    assert!(rounds.is_reported(MemorySample { anon: 1000, ..first }), "less is a change too");
    assert!(rounds.is_reported(MemorySample { shmem: 64, ..first }));
    assert!(rounds.is_reported(MemorySample { shmem: 64, swap: 64, ..first }));
    assert!(rounds.is_reported(MemorySample { shmem: 64, swap: 64, ppid: Some(Pid(2)), ..first }));
    assert!(rounds.is_reported(MemorySample { shmem: 64, swap: 64, ppid: Some(Pid(2)), tty: Some(true), ..first }));
    let renamed = Some(*b"npm exec @model\0");
    let last = MemorySample { shmem: 64, swap: 64, ppid: Some(Pid(2)), tty: Some(true), comm: renamed, ..first };
    assert!(rounds.is_reported(last), "so is another name");
    assert!(!rounds.is_reported(last));
}

#[test]
fn requested_process_reported_without_change() {
    let mut rounds = Rounds::new();
    let process = sample(7, 1000);
    rounds.is_reported(process);
    rounds.sampler.report_next(&[ProcessId { start_time: Ticks(2), ..process.process }, sample(8, 1).process]);
    assert!(!rounds.is_reported(process), "another process");
    rounds.sampler.report_next(&[process.process]);
    assert!(rounds.is_reported(process));
    assert!(!rounds.is_reported(process), "once");
}

#[test]
fn small_steps_add_up() {
    let mut rounds = Rounds::new();
    rounds.is_reported(sample(7, 1000));
    let reported: Vec<bool> = (1..=7).map(|step| rounds.is_reported(sample(7, 1000 + 10 * step))).collect();
    assert_eq!(reported, [false, false, false, false, false, false, true]);
}

#[test]
fn file_page_growth_raises_peak_only() {
    let mut rounds = Rounds::new();
    rounds.is_reported(MemorySample { file: 500, ..sample(7, 1000) });
    let (changes, interval) = rounds.next(&[MemorySample { file: 100_000, ..sample(7, 1000) }]);
    assert_eq!((changes.len(), changes[0].peak), (1, 101_000));
    assert!(interval > IDLE, "files cost nothing that cannot be dropped");
    assert!(!rounds.is_reported(MemorySample { file: 500, ..sample(7, 1000) }));
}

#[test]
fn burst_shows_in_high_water_mark() {
    let mut rounds = Rounds::new();
    rounds.is_reported(MemorySample { hiwater: 1000, ..sample(7, 1000) });
    let (changes, _) = rounds.next(&[MemorySample { hiwater: 100_000, ..sample(7, 1000) }]);
    assert_eq!(changes[0].peak, 100_000);
}

#[test]
fn new_program_resets_peak() {
    let mut rounds = Rounds::new();
    rounds.is_reported(MemorySample { hiwater: 100_000, ..sample(7, 1000) });
    let (changes, _) = rounds.next(&[MemorySample { hiwater: 300, ..sample(7, 400) }]);
    assert_eq!(changes[0].peak, 400);
    let (changes, _) = rounds.next(&[MemorySample { hiwater: 0, zombie: true, ..sample(7, 0) }]);
    assert_eq!(changes[0].peak, 400);
}

#[test]
fn reused_pid_is_other_process() {
    let mut rounds = Rounds::new();
    rounds.is_reported(sample(7, 100_000));
    let mut reused = sample(7, 100_000);
    reused.process.start_time = Ticks(2);
    let (changes, interval) = rounds.next(&[reused]);
    assert_eq!((changes.len(), changes[0].sample.process), (1, reused.process));
    assert!(interval > IDLE, "it has grown by nothing");
}

#[test]
fn exited_processes_are_forgotten() {
    let mut rounds = Rounds::new();
    let crowd: Vec<MemorySample> = (1..=100).map(|pid| sample(pid, 10)).collect();
    rounds.next(&crowd);
    assert_eq!(rounds.sampler.known.len(), 100);
    rounds.next(&crowd[..3]);
    assert_eq!(rounds.sampler.known.len(), 3);
}

#[test]
fn growth_quickens_quiet_slows() {
    let mut rounds = Rounds::new();
    let many = |anon| -> Vec<MemorySample> { (1..=10).map(|pid| sample(pid, anon)).collect() };
    rounds.next(&many(1000));
    // Ten processes of 400 pages more: 16 MiB in a second and a half.
    assert_eq!(rounds.next(&many(1400)).1, Duration::from_millis(250));
    let paces: Vec<u128> = (0..9).map(|_| rounds.next(&many(1400)).1.as_millis()).collect();
    assert_eq!(paces, [375, 562, 843, 1265, 1898, 2847, 4271, 6407, 7500]);
    // 8 MiB in a second and a half.
    assert!(rounds.next(&many(1600)).1 > IDLE);
}

#[test]
fn host_change_makes_round_due() {
    let mut rounds = Rounds::new();
    let gib = |mib| Bytes(Bytes::from_mib(1024).0 + Bytes::from_mib(mib).0);
    assert!(rounds.sampler.changed(gib(0)), "nothing has been looked at yet");
    rounds.next(&[sample(7, 1000)]);
    assert!(!rounds.sampler.changed(gib(3)));
    assert!(rounds.sampler.changed(gib(4)), "small steps add up until the processes are looked at");
    rounds.next(&[sample(7, 2000)]);
    assert!(!rounds.sampler.changed(gib(4)));
    assert!(rounds.sampler.changed(gib(0)), "less is a move too");
}

#[test]
fn short_interval_is_kept() {
    let mut sampler = Sampler::new(Duration::from_millis(100));
    let mut changes = Vec::new();
    sampler.round(BootTime(0), [sample(1, 0)], &mut changes);
    let at = BootTime(0).plus(Duration::from_millis(100));
    assert_eq!(sampler.round(at, [sample(1, 1 << 20)], &mut changes), Duration::from_millis(100));
    let at = at.plus(Duration::from_millis(100));
    assert_eq!(sampler.round(at, [sample(1, 1 << 20)], &mut changes), Duration::from_millis(100), "quiet or not");
}

#[test]
fn refresh_spreads_over_rounds() {
    let mut rounds = Rounds::new();
    let crowd: Vec<MemorySample> = (1..=1000).map(|pid| sample(pid, 10)).collect();
    rounds.next(&crowd);
    let turns: Vec<usize> = (0..REFRESH_ROUNDS).map(|_| rounds.next(&crowd).0.len()).collect();
    assert_eq!(turns.iter().sum::<usize>(), 1000);
    assert_eq!(turns.iter().max(), Some(&5));
}

#[test]
fn kernel_record_fields_in_order() {
    let record = SampleRecord {
        start: 1_234_567_890_123,
        pages: [10, 20, -3, 40],
        hiwater_rss: 50,
        tgid: 7,
        ppid: 8,
        flags: SampleFlags::TTY,
        reserved: 0,
        comm: *b"MainThread\0\0\0\0\0\0",
    };
    let expected = MemorySample {
        process: ProcessId { pid: Pid(7), start_time: Ticks(123_456) },
        anon: 20,
        file: 10,
        shmem: 40,
        swap: 0,
        hiwater: 50,
        ppid: Some(Pid(8)),
        zombie: false,
        tty: Some(true),
        comm: Some(*b"MainThread\0\0\0\0\0\0"),
    };
    assert_eq!(MemorySample::from(&record), expected);
}

#[test]
fn statm_reports_real_growth() {
    let program = "
import sys
print('ready', flush=True)
sys.stdin.readline()
block = bytearray(b'x' * (50 << 20))
print('grown', flush=True)
sys.stdin.readline()
";
    let mut command = std::process::Command::new("python3");
    let mut subject = TestProcess::python_with(program, command.stdin(std::process::Stdio::piped()));
    let mut reader = StatmReader::default();
    let mut sampler = Sampler::new(IDLE);
    let mut look = |subject: &TestProcess| {
        let (mut samples, mut changes) = (Vec::new(), Vec::new());
        reader.sample([subject.process], &mut samples).unwrap();
        sampler.round(clock::now(), samples, &mut changes);
        refine(clock::now(), &changes).unwrap()
    };
    let before = look(&subject)[0].memory;
    // In one of many rounds a process is reported without a change.
    assert!([look(&subject), look(&subject)].contains(&Vec::new()), "nothing changed");
    std::io::Write::write_all(subject.child().stdin.as_mut().unwrap(), b"\n").unwrap();
    assert_eq!(subject.line(), "grown");
    let after = look(&subject)[0].memory;
    let grown = after.charged().0 - before.charged().0;
    assert!((50 << 20..53 << 20).contains(&grown), "{grown} bytes");
    assert!(after.peak >= after.rss());

    subject.child().kill().unwrap();
    let mut zombie = Vec::new();
    super::super::testing::eventually("the zombie", || {
        zombie = look(&subject);
        zombie.first().is_some_and(|sample| sample.zombie)
    });
    assert_eq!(zombie[0].memory.charged(), Bytes(0));
    assert!(zombie[0].memory.peak >= Bytes(50 << 20), "{zombie:?}");
    subject.child().wait().unwrap();
    assert_eq!(look(&subject), []);
}

#[test]
fn low_memory_shortens_host_interval() {
    let left = |available: u64, swap_free: u64| {
        let (available, swap_free) = (Bytes::from_mib(available), Bytes::from_mib(swap_free));
        next_host_sample(&HostMemory { available, swap_free, ..HostMemory::default() })
    };
    assert_eq!(left(64 * 1024, 0), Duration::from_secs(1));
    assert_eq!(left(2 * 1024, 0).as_millis(), 500);
    assert_eq!(left(1024, 1024).as_millis(), 500);
    assert_eq!(left(100, 0), Duration::from_millis(100));
}
