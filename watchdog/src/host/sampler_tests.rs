//! The sampler's decisions, on made-up glances; and its numbers, on a real process.

use super::super::clock;
use super::super::statm::StatmReader;
use super::super::testing::Subject;
use super::*;

const IDLE: Duration = Duration::from_millis(1_500);

fn glance(pid: u32, anon: u32) -> Glance {
    Glance {
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

    fn next(&mut self, glances: &[Glance]) -> (Vec<Change>, Duration) {
        self.at = self.at.plus(IDLE);
        let mut changes = Vec::new();
        let interval = self.sampler.round(self.at, glances.iter().copied(), &mut changes);
        (changes, interval)
    }

    fn told(&mut self, glance: Glance) -> bool {
        !self.next(&[glance]).0.is_empty()
    }
}

#[test]
fn a_process_is_told_at_first_sight_and_then_only_when_it_changed() {
    let mut rounds = Rounds::new();
    let first = glance(7, 1000);
    assert!(rounds.told(first));
    assert!(!rounds.told(first));
    assert!(!rounds.told(Glance { anon: 1063, ..first }));
    assert!(rounds.told(Glance { anon: 1064, ..first }));
    assert!(rounds.told(Glance { anon: 1000, ..first }), "less is a change too");
    assert!(rounds.told(Glance { shmem: 64, ..first }));
    assert!(rounds.told(Glance { shmem: 64, swap: 64, ..first }));
    assert!(rounds.told(Glance { shmem: 64, swap: 64, ppid: Some(Pid(2)), ..first }));
    assert!(rounds.told(Glance { shmem: 64, swap: 64, ppid: Some(Pid(2)), tty: Some(true), ..first }));
    let renamed = Some(*b"npm exec @model\0");
    let last = Glance { shmem: 64, swap: 64, ppid: Some(Pid(2)), tty: Some(true), comm: renamed, ..first };
    assert!(rounds.told(last), "so is another name");
    assert!(!rounds.told(last));
}

#[test]
fn small_steps_add_up_until_they_are_told() {
    let mut rounds = Rounds::new();
    rounds.told(glance(7, 1000));
    let told: Vec<bool> = (1..=7).map(|step| rounds.told(glance(7, 1000 + 10 * step))).collect();
    assert_eq!(told, [false, false, false, false, false, false, true]);
}

#[test]
fn growth_of_file_pages_alone_is_told_only_as_a_higher_peak() {
    let mut rounds = Rounds::new();
    rounds.told(Glance { file: 500, ..glance(7, 1000) });
    let (changes, interval) = rounds.next(&[Glance { file: 100_000, ..glance(7, 1000) }]);
    assert_eq!((changes.len(), changes[0].peak), (1, 101_000));
    assert!(interval > IDLE, "files cost nothing that cannot be dropped");
    assert!(!rounds.told(Glance { file: 500, ..glance(7, 1000) }));
}

#[test]
fn a_burst_between_two_looks_is_told_by_its_high_water_mark() {
    let mut rounds = Rounds::new();
    rounds.told(Glance { hiwater: 1000, ..glance(7, 1000) });
    let (changes, _) = rounds.next(&[Glance { hiwater: 100_000, ..glance(7, 1000) }]);
    assert_eq!(changes[0].peak, 100_000);
}

#[test]
fn another_program_has_a_peak_of_its_own_but_a_zombie_keeps_its_last() {
    let mut rounds = Rounds::new();
    rounds.told(Glance { hiwater: 100_000, ..glance(7, 1000) });
    let (changes, _) = rounds.next(&[Glance { hiwater: 300, ..glance(7, 400) }]);
    assert_eq!(changes[0].peak, 400);
    let (changes, _) = rounds.next(&[Glance { hiwater: 0, zombie: true, ..glance(7, 0) }]);
    assert_eq!(changes[0].peak, 400);
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let mut rounds = Rounds::new();
    rounds.told(glance(7, 100_000));
    let mut reused = glance(7, 100_000);
    reused.process.start_time = Ticks(2);
    let (changes, interval) = rounds.next(&[reused]);
    assert_eq!((changes.len(), changes[0].glance.process), (1, reused.process));
    assert!(interval > IDLE, "it has grown by nothing");
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut rounds = Rounds::new();
    let crowd: Vec<Glance> = (1..=100).map(|pid| glance(pid, 10)).collect();
    rounds.next(&crowd);
    assert_eq!(rounds.sampler.known.len(), 100);
    rounds.next(&crowd[..3]);
    assert_eq!(rounds.sampler.known.len(), 3);
}

#[test]
fn growth_makes_it_quick_at_once_and_quiet_makes_it_slow_by_and_by() {
    let mut rounds = Rounds::new();
    let many = |anon| -> Vec<Glance> { (1..=10).map(|pid| glance(pid, anon)).collect() };
    rounds.next(&many(1000));
    // Ten processes of 400 pages more: 16 MiB in a second and a half.
    assert_eq!(rounds.next(&many(1400)).1, Duration::from_millis(250));
    let paces: Vec<u128> = (0..9).map(|_| rounds.next(&many(1400)).1.as_millis()).collect();
    assert_eq!(paces, [375, 562, 843, 1265, 1898, 2847, 4271, 4500, 4500]);
    // 8 MiB in a second and a half.
    assert!(rounds.next(&many(1600)).1 > IDLE);
}

#[test]
fn a_host_whose_memory_moves_has_its_processes_looked_at_before_their_time() {
    let mut rounds = Rounds::new();
    let gib = |mib| Bytes(Bytes::from_mib(1024).0 + Bytes::from_mib(mib).0);
    assert!(rounds.sampler.stirred(gib(0)), "nothing has been looked at yet");
    rounds.next(&[glance(7, 1000)]);
    assert!(!rounds.sampler.stirred(gib(3)));
    assert!(rounds.sampler.stirred(gib(4)), "small steps add up until the processes are looked at");
    rounds.next(&[glance(7, 2000)]);
    assert!(!rounds.sampler.stirred(gib(4)));
    assert!(rounds.sampler.stirred(gib(0)), "less is a move too");
}

#[test]
fn an_interval_shorter_than_the_quick_one_is_kept() {
    let mut sampler = Sampler::new(Duration::from_millis(100));
    let mut changes = Vec::new();
    sampler.round(BootTime(0), [glance(1, 0)], &mut changes);
    let at = BootTime(0).plus(Duration::from_millis(100));
    assert_eq!(sampler.round(at, [glance(1, 1 << 20)], &mut changes), Duration::from_millis(100));
    let at = at.plus(Duration::from_millis(100));
    assert_eq!(sampler.round(at, [glance(1, 1 << 20)], &mut changes), Duration::from_millis(100), "quiet or not");
}

#[test]
fn every_process_has_its_turn_and_no_round_has_too_many() {
    let mut rounds = Rounds::new();
    let crowd: Vec<Glance> = (1..=1000).map(|pid| glance(pid, 10)).collect();
    rounds.next(&crowd);
    let turns: Vec<usize> = (0..REFRESH_ROUNDS).map(|_| rounds.next(&crowd).0.len()).collect();
    assert_eq!(turns.iter().sum::<usize>(), 1000);
    assert_eq!(turns.iter().max(), Some(&5));
}

#[test]
fn a_kernel_record_is_read_in_the_kernels_order_and_never_below_zero() {
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
    let expected = Glance {
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
    assert_eq!(Glance::from(&record), expected);
}

#[test]
fn a_real_process_that_grows_is_told_exactly_without_the_kernels_iterator() {
    let program = "
import sys
print('ready', flush=True)
sys.stdin.readline()
block = bytearray(b'x' * (50 << 20))
print('grown', flush=True)
sys.stdin.readline()
";
    let mut command = std::process::Command::new("python3");
    let mut subject = Subject::python_with(program, command.stdin(std::process::Stdio::piped()));
    let mut reader = StatmReader::default();
    let mut sampler = Sampler::new(IDLE);
    let mut look = |subject: &Subject| {
        let (mut glances, mut changes) = (Vec::new(), Vec::new());
        reader.glance([subject.process], &mut glances).unwrap();
        sampler.round(clock::now(), glances, &mut changes);
        refine(clock::now(), &changes).unwrap()
    };
    let before = look(&subject)[0].memory;
    assert_eq!(look(&subject), [], "nothing changed");
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
fn the_less_memory_is_left_the_sooner_it_is_looked_at_again() {
    let left = |available: u64, swap_free: u64| {
        let (available, swap_free) = (Bytes::from_mib(available), Bytes::from_mib(swap_free));
        until_next_look(&HostMemory { available, swap_free, ..HostMemory::default() })
    };
    assert_eq!(left(64 * 1024, 0), Duration::from_secs(1));
    assert_eq!(left(2 * 1024, 0).as_millis(), 500);
    assert_eq!(left(1024, 1024).as_millis(), 500);
    assert_eq!(left(100, 0), Duration::from_millis(100));
}
