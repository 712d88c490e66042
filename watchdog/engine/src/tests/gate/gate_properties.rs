//! Whatever happens: never more than any quota, never more promised than there is, no lost slot, order within a class.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use watchdog_types::BootTime;

const CONFIG: &str = "[gate]\nmax_sessions = 6\nmax_sessions_per_user = 4\nexpected_memory = \"1GiB\"\nreserve = \"1GiB\"\n\
swap_share = \"0%\"\nbreaker_open = \"100%\"\nbreaker_close = \"99%\"\nmax_queue = 12\ntimeout = \"3m\"\n\
[[profile]]\nname = \"claude-code\"\nmax_sessions = 4\n[[profile]]\nname = \"codex\"\nmax_sessions = 3\n";

#[derive(Clone, Debug)]
enum GateStep {
    Ask {
        user: u32,
        codex: bool,
        priority: i32,
        waits: bool,
        memory: Option<u64>,
    },
    /// The one that has been in the queue, or has run, for longest but so many.
    Leaves(usize),
    Ends(usize),
    Grows(usize, u64),
    Host(u64),
    Time(u64),
}

fn act() -> impl Strategy<Value = GateStep> {
    prop_oneof![
        6 => (0..3u32, any::<bool>(), -2..3i32, prop::bool::weighted(0.8), prop::option::weighted(0.3, 100..3_000u64))
            .prop_map(|(user, codex, priority, waits, memory)| GateStep::Ask { user, codex, priority, waits, memory }),
        1 => (0..12usize).prop_map(GateStep::Leaves),
        3 => (0..6usize).prop_map(GateStep::Ends),
        2 => (0..6usize, 10..2_000u64).prop_map(|(which, mib)| GateStep::Grows(which, mib)),
        2 => (0..9u64).prop_map(GateStep::Host),
        3 => (1..90u64).prop_map(GateStep::Time),
    ]
}

/// A class within which the order is that of coming.
type Class = (Uid, String, i32, Option<Bytes>);

#[derive(Default)]
struct GrantLedger {
    asked: BTreeMap<ProcessId, Class>,
    /// In the order of asking.
    order: Vec<ProcessId>,
    running: Vec<(ProcessId, Class)>,
    left: BTreeSet<ProcessId>,
    refused: BTreeSet<ProcessId>,
    granted: BTreeSet<ProcessId>,
    seen: usize,
    available: u64,
}

impl GrantLedger {
    /// Takes in what the engine has asked for since the last time, and holds it against the bounds.
    fn check(&mut self, world: &World) {
        for effect in &world.effects[self.seen..] {
            match effect {
                Effect::Reply(ClientReply::Granted(granted)) => self.grant(granted.lease.process),
                Effect::Reply(ClientReply::Refused(refused)) => {
                    assert!(self.refused.insert(refused.process), "refused twice");
                    assert!(!self.granted.contains(&refused.process), "refused after its grant");
                }
                _ => {}
            }
        }
        self.seen = world.effects.len();
        let count = |holds: &dyn Fn(&Class) -> bool| self.running.iter().filter(|(_, class)| holds(class)).count();
        assert!(self.running.len() <= 6);
        for user in 0..3 {
            assert!(count(&|class| class.0 == Uid(user)) <= 4, "user {user}");
        }
        assert!(count(&|class| class.1 == "claude-code") <= 4);
        assert!(count(&|class| class.1 == "codex") <= 3);

        let shown = queue(world);
        let waiting: BTreeSet<u32> = shown.waiting.iter().map(|waiter| waiter.pid).collect();
        assert!(shown.waiting.len() <= 12);
        assert_eq!(waiting.len(), shown.waiting.len(), "a launch waits twice");
        // No launch is lost: each waits, was granted, was refused, or left.
        for process in &self.order {
            let slots = [
                waiting.contains(&process.pid.0),
                self.granted.contains(process),
                self.refused.contains(process),
                self.left.contains(process),
            ];
            assert_eq!(slots.iter().filter(|slot| **slot).count(), 1, "{process}: {slots:?}");
        }
        assert_eq!(shown.leases.len(), self.running.len());
    }

    fn grant(&mut self, process: ProcessId) {
        let class = self.asked[&process].clone();
        assert!(self.granted.insert(process), "granted twice");
        let earlier = self.order.iter().take_while(|other| **other != process);
        for other in earlier.filter(|other| self.asked[other] == class) {
            let over = self.granted.contains(other) || self.refused.contains(other) || self.left.contains(other);
            assert!(over, "{process} passed {other}, which came first");
        }
        self.running.push((process, class));
    }
}

fn play(acts: Vec<GateStep>) {
    let mut world = host(CONFIG, 16 * GIB, 8 * GIB);
    let mut ledger = GrantLedger { available: 8 * GIB, ..GrantLedger::default() };
    for act in acts {
        match act {
            GateStep::Ask { user, codex, priority, waits, memory } => {
                let process = world.launcher();
                let (program, profile) = if codex { ("codex", "codex") } else { ("claude", "claude-code") };
                let memory = memory.map(Bytes::from_mib);
                ledger.asked.insert(process, (Uid(user), profile.into(), priority, memory));
                ledger.order.push(process);
                let image = image(&format!("/usr/bin/{program}"), &[program]);
                let launch = Launch { uid: Uid(user), image, priority, waits, memory, ..launch_of(process) };
                ask(&mut world, launch);
            }
            GateStep::Leaves(index) => {
                let mut waiting = queue(&world).waiting;
                waiting.sort_by_key(|waiter| waiter.pid);
                if let Some(waiter) = waiting.get(index) {
                    let process = *ledger.order.iter().find(|process| process.pid.0 == waiter.pid).unwrap();
                    ledger.left.insert(process);
                    world.feed(Input::CancelLaunch(process, Cancellation::ClientGone));
                }
            }
            GateStep::Ends(index) => {
                if index < ledger.running.len() {
                    let (process, _) = ledger.running.remove(index);
                    world.kill(process);
                }
            }
            GateStep::Grows(index, mib) => {
                if let Some((process, _)) = ledger.running.get(index) {
                    world.memory(*process, Bytes::from_mib(mib));
                }
            }
            GateStep::Host(gib) => {
                ledger.available = gib * GIB;
                memory(&mut world, 16 * GIB, gib * GIB);
            }
            GateStep::Time(seconds) => world.pass(Duration::from_secs(seconds)),
        }
        let before = ledger.seen;
        ledger.check(&world);
        promises_hold(&world, &ledger, before);
        shares_hold(&world, &ledger, before);
    }
    // Launches that still wait are granted once there is room, before their timeout.
    memory(&mut world, 16 * GIB, 16 * GIB);
    ledger.check(&world);
    let refused = ledger.refused.len();
    while let Some((process, _)) = ledger.running.pop() {
        world.kill(process);
        ledger.check(&world);
    }
    assert_eq!((waiting(&world), ledger.refused.len()), (Vec::new(), refused));
}

/// When something was granted, all that is promised fits into what is there above the reserve. Afterwards the host may lose
/// memory by itself.
fn promises_hold(world: &World, ledger: &GrantLedger, before: usize) -> bool {
    let granted = world.effects[before..].iter().any(|effect| matches!(effect, Effect::Reply(ClientReply::Granted(_))));
    if granted {
        let there = Bytes::from_mib(ledger.available.saturating_sub(GIB)).0;
        let room = queue(world).room;
        assert!(room.promised_bytes <= there, "{room:?} of {there}");
    }
    granted
}

/// When one launch was granted beside those of other users, its user was promised at most nine times what is left.
fn shares_hold(world: &World, ledger: &GrantLedger, before: usize) {
    let new: Vec<ProcessId> = world.effects[before..]
        .iter()
        .filter_map(|effect| match effect {
            Effect::Reply(ClientReply::Granted(granted)) => Some(granted.lease.process),
            _ => None,
        })
        .collect();
    let [process] = new[..] else { return };
    let uid = ledger.asked[&process].0;
    let shown = queue(world);
    let others = shown.waiting.iter().map(|waiter| waiter.uid).chain(shown.leases.iter().map(|lease| lease.uid));
    if uid == Uid::ROOT || others.into_iter().all(|other| other == uid.0) {
        return;
    }
    let own: u64 = shown.leases.iter().filter(|lease| lease.uid == uid.0).map(|lease| lease.promised_bytes).sum();
    assert!(own <= 9 * shown.room.free_bytes, "{own} of user {}: {:?}", uid.0, shown.room);
}

const BACKFILL: &str = "[gate]\nreserve = \"1MiB\"\nswap_share = \"0%\"\nbreaker_open = \"100%\"\n\
breaker_close = \"99%\"\ntimeout = \"30d\"\n";

/// A launch that needs so much waits behind sessions that end after half a minute, and before a small launch every five
/// seconds. Other programs hold memory until they release it. Small launches that were granted from then on until it was.
fn passed_after(needed: u64, others: u64, released: u64, sizes: &[u64]) -> usize {
    let mut world = host(BACKFILL, 16 * GIB, 16 * GIB - others);
    let mut running: Vec<(u64, ProcessId, u64)> = Vec::new();
    let mut asked: BTreeMap<ProcessId, u64> = BTreeMap::new();
    let (mut large, mut seen, mut passed) = (None, 0, 0);
    for (step, mib) in sizes.iter().cycle().take(400).enumerate() {
        let now = step as u64 * 5;
        for (began, process, _) in &running {
            if now - began >= 30 {
                world.kill(*process);
            }
        }
        running.retain(|(began, _, _)| now - began < 30);
        let held = running.iter().map(|(_, _, mib)| mib).sum::<u64>() + if now < released { others } else { 0 };
        memory(&mut world, 16 * GIB, 16 * GIB - held);
        if step == 10 {
            let process = world.launcher();
            large = Some(process);
            ask(&mut world, Launch { memory: Some(Bytes::from_mib(needed)), ..launch_of(process) });
        }
        let process = world.launcher();
        asked.insert(process, *mib);
        ask(&mut world, Launch { memory: Some(Bytes::from_mib(*mib)), ..launch_of(process) });
        world.pass(Duration::from_secs(5));
        let all = granted(&world);
        for process in &all[seen..] {
            if Some(*process) == large {
                return passed;
            }
            world.memory(*process, Bytes::from_mib(asked[process]));
            running.push((now, *process, asked[process]));
            passed += usize::from(now >= released && large.is_some());
        }
        seen = all.len();
    }
    panic!("the launch that needs {needed} MiB starves");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn limits_hold_for_random_histories(acts in prop::collection::vec(act(), 1..60)) {
        play(acts);
    }

    #[test]
    fn satisfiable_launch_is_passed_boundedly(
        needed in 64..15 * GIB,
        others in 0..14 * GIB,
        released in 0..900u64,
        sizes in prop::collection::vec(64..600u64, 1..20),
    ) {
        let passed = passed_after(needed, others, released, &sizes);
        // Those that are granted in the step in which memory is released are counted too.
        prop_assert!(passed <= 17, "{passed}");
    }

    #[test]
    fn arrival_order_holds_within_priority(
        waits in prop::collection::vec((0..3i32, 0..400u64), 1..30),
        later in 0..4_000u64,
    ) {
        let mut world = roomy(&config_with("max_sessions = 1\ntimeout = \"30d\""));
        start(&mut world);
        let mut classes: BTreeMap<i32, Vec<u32>> = BTreeMap::new();
        for (priority, pause) in waits {
            let asked = launch(&mut world);
            let process = ask(&mut world, Launch { priority, ..asked });
            classes.entry(priority).or_default().push(process.pid.0);
            world.now = BootTime(world.now.0 + pause * 1_000_000_000);
        }
        world.now = BootTime(world.now.0 + later * 1_000_000_000);
        let order = waiting(&world);
        for class in classes.values() {
            let seen: Vec<u32> = order.iter().copied().filter(|pid| class.contains(pid)).collect();
            prop_assert_eq!(&seen, class);
        }
    }
}
