//! Whatever sizes and lifetimes sessions have: a launch whose memory they can release is granted after a bounded number of
//! others, and a user who holds others back leaves them their share of time.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const ALICE: Uid = Uid(2_000);
const MALLORY: Uid = Uid(3_000);
const OTHERS: [Uid; 2] = [Uid(4_000), Uid(5_000)];
const TOTAL: u64 = 64 * GIB;
const CONFIG: &str = "[gate]\nreserve = \"1MiB\"\nswap_share = \"0%\"\nbreaker_open = \"100%\"\nbreaker_close = \"99%\"\n\
timeout = \"30d\"\nmax_queue = 10000\n";
/// Seconds between two looks at the host.
const STEP: u64 = 10;
/// Small launches that wait beside a large one.
const SMALL_WAIT: usize = 4;
/// Seconds of the first block.
const BLOCK: u64 = 60;

/// A host on which small launches always wait, and sessions last for so many seconds.
struct BusyHost {
    world: World,
    lifetime: u64,
    now: u64,
    running: Vec<(u64, ProcessId, u64)>,
    asked: BTreeMap<ProcessId, (Uid, u64)>,
    seen: usize,
}

impl BusyHost {
    fn new(lifetime: u64) -> Self {
        let world = host(CONFIG, TOTAL, TOTAL);
        Self { world, lifetime, now: 0, running: Vec::new(), asked: BTreeMap::new(), seen: 0 }
    }

    fn ask(&mut self, uid: Uid, mib: u64) -> ProcessId {
        let process = head_blocking::asks_for(&mut self.world, uid, mib);
        self.asked.insert(process, (uid, mib));
        process
    }

    /// Lets time pass; the launches that were granted meanwhile.
    fn step(&mut self) -> Vec<ProcessId> {
        let (over, running) = self.running.iter().partition(|(end, _, _)| *end <= self.now);
        self.running = running;
        let over: Vec<(u64, ProcessId, u64)> = over;
        over.into_iter().for_each(|(_, process, _)| self.world.kill(process));
        let available = TOTAL - self.running.iter().map(|(_, _, mib)| mib).sum::<u64>();
        memory(&mut self.world, TOTAL, available);
        self.world.pass(Duration::from_secs(STEP));
        self.now += STEP;
        let new = grants(&self.world)[self.seen..].to_vec();
        self.seen += new.len();
        let new: Vec<ProcessId> = new.into_iter().map(|granted| granted.lease.process).collect();
        self.bounds_hold(&new, available);
        for process in &new {
            let (_, mib) = self.asked[process];
            self.world.memory(*process, Bytes::from_mib(mib));
            self.running.push((self.now + self.lifetime, *process, mib));
        }
        new
    }

    /// The promises fit into the headroom. The last that was granted left its user within the share.
    fn bounds_hold(&self, new: &[ProcessId], available: u64) {
        let Some(last) = new.last() else { return };
        let shown = queue(&self.world);
        assert!(shown.room.promised_bytes + Bytes::from_mib(1).0 <= Bytes::from_mib(available).0, "{:?}", shown.room);
        let uid = self.asked[last].0;
        let own: u64 = shown.leases.iter().filter(|lease| lease.uid == uid.0).map(|lease| lease.promised_bytes).sum();
        assert!(own <= 9 * shown.room.free_bytes, "{own} of {uid:?}: {:?}", shown.room);
    }

    /// Asks for small launches until this many of them wait.
    fn keep_waiting(&mut self, count: usize, sizes: &mut impl Iterator<Item = u64>) {
        let small = |waiter: &&api::Waiter| OTHERS.iter().any(|uid| uid.0 == waiter.uid);
        let waiting = queue(&self.world).waiting.iter().filter(small).count();
        for index in waiting..count {
            self.ask(OTHERS[index % OTHERS.len()], sizes.next().unwrap());
        }
    }
}

/// Launches that pass one that needs so much until it is granted, beside a user who asks for nearly all memory again and again.
fn passed_beside(needed: u64, lifetime: u64, sizes: &[u64], hostile: bool) -> usize {
    let mut busy = BusyHost::new(lifetime);
    let mut sizes = sizes.iter().copied().cycle();
    // The sessions at the start end one after the other.
    for _ in 0..lifetime / STEP {
        if (busy.running.iter().map(|(_, _, mib)| mib).sum::<u64>()) * lifetime < TOTAL * busy.now {
            busy.keep_waiting(2, &mut sizes);
        }
        busy.step();
    }
    let large = busy.ask(ALICE, needed);
    let (mut passed, mut renewed) = (0, None);
    for step in 0..24 * lifetime.max(600) / STEP {
        if hostile && step % 7 == 0 {
            if let Some(process) = renewed {
                busy.world.feed(Input::CancelLaunch(process, Cancellation::ClientGone));
            }
            renewed = Some(busy.ask(MALLORY, TOTAL * 95 / 100));
        }
        busy.keep_waiting(SMALL_WAIT, &mut sizes);
        let new = busy.step();
        if new.contains(&large) {
            return passed;
        }
        passed += new.len();
    }
    panic!("the launch that needs {needed} MiB starves behind {passed} others");
}

/// As many may pass before a block lasts longer than sessions, beside those that are ahead by the order of the queue.
fn most_passes(lifetime: u64) -> u64 {
    let rounds = (0..20).find(|round| BLOCK << round >= lifetime + 2 * STEP).unwrap();
    16 * ((1 << rounds) - 1) + SMALL_WAIT as u64
}

#[test]
fn large_launch_outlasts_long_sessions() {
    let passed = passed_beside(30 * GIB, 600, &[GIB], false);
    assert!(passed as u64 <= most_passes(600), "{passed}");
}

#[test]
fn large_launch_outlasts_hour_long_sessions() {
    let passed = passed_beside(50 * GIB, 3_600, &[2 * GIB], true);
    assert!(passed as u64 <= most_passes(3_600), "{passed}");
}

#[test]
fn renewing_user_leaves_others_their_time() {
    for needed in [TOTAL * 95 / 100, TOTAL * 80 / 100] {
        let mut busy = BusyHost::new(3 * 3_600);
        // A third of the memory is held throughout.
        busy.ask(OTHERS[0], TOTAL / 3);
        busy.step();
        busy.lifetime = 120;
        let (mut passed, mut blocked, mut renewed) = (0, 0, busy.ask(MALLORY, needed));
        for step in 1..=2 * 3_600 / STEP {
            // It leaves after 61 s at the earliest.
            if step % 7 == 0 {
                busy.world.feed(Input::CancelLaunch(renewed, Cancellation::ClientGone));
                renewed = busy.ask(MALLORY, needed);
            }
            busy.ask(OTHERS[1], 64);
            let new = busy.step();
            assert!(!new.contains(&renewed));
            passed += new.len() as u64;
            blocked += if new.is_empty() { STEP } else { 0 };
            // Nine tenths of the memory are the most that one user can have: a launch that needs more gains nothing.
            let more = if needed > TOTAL * 9 / 10 { 0 } else { 2 * (BLOCK * passed / 16 + (busy.now - blocked) / 4) };
            assert!(blocked <= BLOCK + STEP + more, "{blocked} s, {passed} passes");
        }
        assert!(passed >= 300, "{passed}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn long_sessions_starve_no_launch(
        needed in GIB..56 * GIB,
        lifetime in 30..1_300u64,
        sizes in prop::collection::vec(512..3 * GIB, 1..20),
        hostile in any::<bool>(),
    ) {
        let passed = passed_beside(needed, lifetime, &sizes, hostile);
        prop_assert!(passed as u64 <= most_passes(lifetime), "{passed}");
    }
}
