//! A launch that waits for memory, and those behind it.

use super::*;
use crate::Engine;
use crate::gate::{GateRecord, RestoredGate};
use std::sync::Arc;
use watchdog_types::BootTime;

const ALICE: Uid = Uid(2_000);
const BOB: Uid = Uid(3_000);
/// 10 GiB for launches, without a reserve worth a word and without a breaker.
const CONFIG: &str = "[gate]\nreserve = \"1MiB\"\nswap_share = \"0%\"\nbreaker_open = \"100%\"\nbreaker_close = \"99%\"\n\
timeout = \"30d\"\nexpected_memory = \"256MiB\"\n";

pub(super) fn asks_for(world: &mut World, uid: Uid, mib: u64) -> ProcessId {
    let asked = launch(world);
    ask(world, Launch { uid, memory: Some(Bytes::from_mib(mib)), ..asked })
}

/// A host of 16 GiB with 10 GiB available, of which a launch wants nearly all of 16.
fn blocked() -> (World, ProcessId) {
    let mut world = host(CONFIG, 16 * GIB, 10 * GIB);
    let large = asks_for(&mut world, ALICE, 16 * GIB - 64);
    (world, large)
}

fn small(world: &mut World, uid: Uid) -> ProcessId {
    asks_for(world, uid, 64)
}

#[test]
fn large_launch_blocks_for_bounded_time() {
    let (mut world, large) = blocked();
    let behind = [small(&mut world, BOB), small(&mut world, ALICE)];
    assert_eq!(granted(&world), []);
    world.pass(Duration::from_secs(59));
    assert_eq!(granted(&world), []);
    world.pass(Duration::from_secs(1));
    let mut passed = granted(&world);
    passed.sort();
    assert_eq!(passed, behind);
    // It is not in the way of those that come later either, however many they are: no session holds what it lacks.
    let later: Vec<ProcessId> = (0..40).map(|_| small(&mut world, BOB)).collect();
    assert_eq!(granted(&world)[2..], later);
    assert_eq!(waiting(&world), pids(&[large]));
}

#[test]
fn block_time_is_configurable() {
    let mut world = host(&format!("{CONFIG}head_blocks_for = \"5s\"\n"), 16 * GIB, 10 * GIB);
    asks_for(&mut world, ALICE, 15 * GIB);
    let behind = small(&mut world, BOB);
    world.pass(Duration::from_secs(5));
    assert_eq!(granted(&world), [behind]);
    let mut world = host(&format!("{CONFIG}head_blocks_for = \"0s\"\n"), 16 * GIB, 10 * GIB);
    asks_for(&mut world, ALICE, 15 * GIB);
    let behind = small(&mut world, BOB);
    assert_eq!(granted(&world), [behind]);
}

#[test]
fn block_ends_without_another_event() {
    let (mut world, _) = blocked();
    small(&mut world, BOB);
    world.pass(Duration::from_millis(59_500));
    assert!(world.engine.next_tick(world.now) <= Duration::from_millis(500));
}

/// A host whose memory a session holds that may end, and a launch that waits for it.
fn held() -> (World, ProcessId, ProcessId) {
    let mut world = host(CONFIG, 16 * GIB, 16 * GIB - 64);
    let holder = asks_for(&mut world, BOB, 6 * GIB);
    world.memory(holder, Bytes::from_mib(6 * GIB));
    memory(&mut world, 16 * GIB, 10 * GIB - 64);
    let large = asks_for(&mut world, ALICE, 12 * GIB);
    memory(&mut world, 16 * GIB, 10 * GIB - 64);
    (world, holder, large)
}

#[test]
fn passes_are_bounded_between_blocks() {
    let (mut world, holder, large) = held();
    world.pass(Duration::from_secs(60));
    let passing: Vec<ProcessId> = (0..20).map(|_| small(&mut world, BOB)).collect();
    assert_eq!(granted(&world)[1..], passing[..16]);
    let shown = queue(&world).waiting;
    let head = shown.iter().find(|waiter| waiter.pid == large.pid.0).unwrap();
    assert!(head.detail.ends_with("; passed by 16 launches; others may pass in 2m"), "{}", head.detail);
    let behind = shown.iter().find(|waiter| waiter.pid == passing[16].pid.0).unwrap();
    assert_eq!(behind.detail, "a launch ahead is waiting for memory ([gate] reserve); others may pass in 2m");
    // It has its chance before any other may pass.
    for one in &passing[..16] {
        world.kill(*one);
    }
    world.kill(holder);
    memory(&mut world, 16 * GIB, 16 * GIB - 64);
    assert_eq!(granted(&world)[17], large);
}

#[test]
fn long_phase_ends_with_fewer_passes() {
    let (mut world, _, _) = held();
    world.pass(Duration::from_secs(60));
    let earlier: Vec<ProcessId> = (0..16).map(|_| small(&mut world, BOB)).collect();
    assert_eq!(granted(&world)[1..], earlier);
    world.pass(Duration::from_secs(120 + 479));
    let passing: Vec<ProcessId> = (0..17).map(|_| small(&mut world, BOB)).collect();
    assert_eq!(granted(&world)[17..], passing);
    world.pass(Duration::from_secs(1));
    let last = small(&mut world, BOB);
    small(&mut world, BOB);
    assert_eq!(granted(&world)[34..], [last]);
}

#[test]
fn restart_keeps_block_and_passes() {
    for written_anew in [false, true] {
        let (mut world, _, large) = held();
        world.pass(Duration::from_secs(60));
        let passing: Vec<ProcessId> = (0..17).map(|_| small(&mut world, BOB)).collect();
        world.pass(Duration::from_secs(40));
        let record = |effect: &Effect| match effect {
            Effect::Persist(PersistCommand::Gate(record)) => Some(record.clone()),
            _ => None,
        };
        let records = match written_anew {
            true => world.engine.gate_records(),
            false => world.effects.iter().filter_map(record).collect(),
        };
        world.engine = Engine::new(Arc::new(config::parse(std::path::Path::new("test.toml"), CONFIG).unwrap()));
        world.effects.clear();
        world.tracked.clear();
        world.feed(Input::Restore(Box::new(RestoredGate { records, ..RestoredGate::default() })));
        for _ in 0..2 {
            world.now = BootTime(world.now.0 + 1);
            let scan = world.scan(false);
            world.feed(scan);
        }
        memory(&mut world, 16 * GIB, 10 * GIB - 64);
        ask(&mut world, Launch { uid: ALICE, memory: Some(Bytes::from_mib(12 * GIB)), ..launch_of(large) });
        ask(&mut world, Launch { uid: BOB, memory: Some(Bytes::from_mib(64)), ..launch_of(passing[16]) });
        let shown = queue(&world).waiting;
        let head = shown.iter().find(|waiter| waiter.pid == large.pid.0).unwrap();
        assert!(head.detail.contains("; passed by 16 launches; "), "{}", head.detail);
        world.pass(Duration::from_secs(70));
        assert_eq!(granted(&world), []);
        world.pass(Duration::from_secs(10));
        assert_eq!(granted(&world), [passing[16]]);
        // The second round allows 32 passes after the restart too.
        memory(&mut world, 16 * GIB, 15 * GIB);
        let later: Vec<ProcessId> = (0..40).map(|_| small(&mut world, BOB)).collect();
        assert_eq!(granted(&world)[1..], later[..31]);
        let shown = queue(&world).waiting;
        let head = shown.iter().find(|waiter| waiter.pid == large.pid.0).unwrap();
        assert!(head.detail.ends_with("; passed by 48 launches; others may pass in 4m"), "{}", head.detail);
    }
}

#[test]
fn next_block_ends_too() {
    let (mut world, _, _) = held();
    world.pass(Duration::from_secs(60));
    let passing: Vec<ProcessId> = (0..60).map(|_| small(&mut world, BOB)).collect();
    assert_eq!(granted(&world).len(), 1 + 16);
    world.pass(Duration::from_secs(119));
    assert_eq!(granted(&world).len(), 1 + 16);
    world.pass(Duration::from_secs(1));
    assert_eq!(granted(&world).len(), 1 + 16 + 32);
    world.pass(Duration::from_secs(239));
    assert_eq!(granted(&world).len(), 1 + 16 + 32);
    world.pass(Duration::from_secs(1));
    assert_eq!(granted(&world)[1..], passing);
}

#[test]
fn next_head_starts_anew_after_grant() {
    let (mut world, holder, large) = held();
    world.pass(Duration::from_secs(60));
    let passing: Vec<ProcessId> = (0..16).map(|_| small(&mut world, BOB)).collect();
    let next = asks_for(&mut world, ALICE, 12 * GIB);
    let behind = small(&mut world, ALICE);
    for one in &passing {
        world.kill(*one);
    }
    world.kill(holder);
    memory(&mut world, 16 * GIB, 16 * GIB - 64);
    assert_eq!(granted(&world)[17..], [large]);
    assert_eq!(waiting(&world), pids(&[next, behind]));
    world.pass(Duration::from_secs(59));
    assert_eq!(granted(&world).len(), 18);
    world.pass(Duration::from_secs(1));
    assert_eq!(granted(&world)[18..], [behind]);
}

#[test]
fn renewed_head_keeps_the_phase() {
    let (mut world, _, large) = held();
    world.pass(Duration::from_secs(61));
    world.feed(Input::CancelLaunch(large, Cancellation::ClientGone));
    world.pass(Duration::from_secs(59));
    let renewed = asks_for(&mut world, ALICE, 12 * GIB);
    let behind = small(&mut world, BOB);
    assert_eq!(granted(&world)[1..], [behind]);
    world.feed(Input::CancelLaunch(renewed, Cancellation::ClientGone));
    // Without a head for as long as one blocks, the next one has a block of its own.
    world.pass(Duration::from_secs(60));
    asks_for(&mut world, ALICE, 12 * GIB);
    let behind = small(&mut world, BOB);
    assert_eq!(granted(&world).len(), 2);
    world.pass(Duration::from_secs(60));
    assert_eq!(granted(&world)[2..], [behind]);
}

#[test]
fn timed_out_head_is_forgotten() {
    let mut world = host(CONFIG, 16 * GIB, 10 * GIB);
    let asked = launch(&mut world);
    let timeout = Some(Duration::from_secs(61));
    ask(&mut world, Launch { memory: Some(Bytes::from_mib(12 * GIB)), timeout, ..asked });
    world.pass(Duration::from_secs(61));
    assert_eq!(waiting(&world), Vec::<u32>::new());
    world.pass(Duration::from_secs(60));
    asks_for(&mut world, ALICE, 12 * GIB);
    small(&mut world, BOB);
    assert_eq!(granted(&world), []);
}

#[test]
fn head_over_share_reserves_memory() {
    let mut world = host(CONFIG, 16 * GIB, 10 * GIB + 1);
    let session = asks_for(&mut world, BOB, 64);
    world.memory(session, Bytes::from_mib(5 * GIB));
    memory(&mut world, 16 * GIB, 10 * GIB + 1);
    let large = asks_for(&mut world, ALICE, 9 * GIB + 512);
    let behind = small(&mut world, BOB);
    assert_eq!(granted(&world), [session]);
    let shown = queue(&world).waiting;
    let why = |process: ProcessId| shown.iter().find(|one| one.pid == process.pid.0).unwrap().detail.clone();
    assert!(why(large).contains("exceeds one user's share"), "{}", why(large));
    assert!(why(large).ends_with("; others may pass in 1m"), "{}", why(large));
    let ahead = "a launch ahead is waiting for memory (user share); others may pass in 1m";
    assert_eq!(why(behind), ahead);
    let asked = launch(&mut world);
    let memory_needed = Some(Bytes::from_mib(9 * GIB + 512));
    ask(&mut world, Launch { uid: ALICE, waits: false, memory: memory_needed, ..asked });
    let refusal = refusals(&world).pop().unwrap().blocker;
    assert_eq!((refusal.reason, refusal.bound.as_str()), (RefusalReason::Memory, "user share"));
    world.kill(session);
    memory(&mut world, 16 * GIB, 15 * GIB);
    assert_eq!(granted(&world)[1..], [large, behind]);
}

#[test]
fn launch_beyond_any_share_blocks_once() {
    let mut world = host(CONFIG, 16 * GIB, 10 * GIB);
    let session = asks_for(&mut world, BOB, 6 * GIB);
    world.memory(session, Bytes::from_mib(6 * GIB));
    memory(&mut world, 16 * GIB, 10 * GIB - 64);
    let large = asks_for(&mut world, ALICE, 15 * GIB);
    let blocker = queue_position(&world, large).unwrap().blocker;
    assert!(blocker.detail.contains("exceeds one user's share"), "{blocker:?}");
    world.pass(Duration::from_secs(60));
    let passing: Vec<ProcessId> = (0..40).map(|_| small(&mut world, BOB)).collect();
    assert_eq!(granted(&world)[1..], passing);
}

#[test]
fn successive_heads_share_one_block() {
    let mut world = host(CONFIG, 16 * GIB, 10 * GIB);
    let asked = launch(&mut world);
    let large = Launch { memory: Some(Bytes::from_mib(15 * GIB)), timeout: Some(Duration::from_secs(50)), ..asked };
    ask(&mut world, large.clone());
    let process = world.launcher();
    ask(&mut world, Launch { process, timeout: None, ..large });
    let behind = small(&mut world, BOB);
    world.pass(Duration::from_secs(59));
    assert_eq!((granted(&world), waiting(&world)), (Vec::new(), pids(&[process, behind])));
    world.pass(Duration::from_secs(1));
    assert_eq!(granted(&world), [behind]);
}

#[test]
fn many_large_launches_block_once() {
    let mut world = host(CONFIG, 16 * GIB, 10 * GIB);
    for _ in 0..50 {
        asks_for(&mut world, ALICE, 15 * GIB);
    }
    let behind = small(&mut world, BOB);
    world.pass(Duration::from_secs(60));
    assert_eq!(granted(&world), [behind]);
}

#[test]
fn refused_launch_blocks_nothing() {
    let mut world = host(CONFIG, 16 * GIB, 10 * GIB);
    let asked = launch(&mut world);
    ask(&mut world, Launch { waits: false, memory: Some(Bytes::from_mib(15 * GIB)), ..asked });
    let next = small(&mut world, BOB);
    assert_eq!(granted(&world), [next]);
    let kept = world.engine.gate_records();
    assert!(!kept.iter().any(|record| matches!(record, GateRecord::Head { .. })), "{kept:?}");
}

#[test]
fn hundred_launches_of_one_user_wait() {
    let mut world = host(CONFIG, 16 * GIB, 6 * GIB);
    let crowd: Vec<ProcessId> = (0..100).map(|_| asks_for(&mut world, USER, 512)).collect();
    assert_eq!(granted(&world), crowd[..11], "one user alone has all that is there but the reserve");
    assert_eq!(waiting(&world).len(), 89);
    memory(&mut world, 16 * GIB, 16 * GIB - 64);
    assert_eq!(granted(&world), crowd[..31]);
}

#[test]
fn promises_leave_room_for_others() {
    let mut world = host(CONFIG, 16 * GIB, 10 * GIB + 1);
    let first = asks_for(&mut world, BOB, 64);
    world.kill(first);
    let crowd: Vec<ProcessId> = (0..30).map(|_| asks_for(&mut world, ALICE, 512)).collect();
    assert_eq!(granted(&world)[1..], crowd[..18], "nine tenths of 10 GiB");
    let blocker = queue_position(&world, crowd[18]).unwrap().blocker;
    assert_eq!((blocker.reason, blocker.bound.as_str()), (RefusalReason::Memory, "user share"));
    let other = asks_for(&mut world, BOB, 512);
    assert_eq!(granted(&world).last(), Some(&other));
    let root = asks_for(&mut world, Uid::ROOT, 512);
    assert_eq!(granted(&world).last(), Some(&root));
}

#[test]
fn full_queue_names_the_share() {
    let mut world = roomy(&config_with("max_sessions = 1\nmax_queue = 20"));
    start(&mut world);
    let flood: Vec<ProcessId> = (0..19).map(|_| asks_for(&mut world, ALICE, 64)).collect();
    let refusal = refusals(&world).pop().unwrap();
    assert_eq!(refusal.process, flood[18]);
    assert!(refusal.blocker.detail.starts_with("18 launches of this user queued"), "{refusal:?}");
    assert!(refusal.blocker.detail.contains("share of one user"), "{refusal:?}");
}

#[test]
fn many_users_leave_a_slot() {
    let mut world = roomy(&config_with("max_sessions = 1\nmax_queue = 1000"));
    start(&mut world);
    for user in 1..=10 {
        for _ in 0..900 {
            asks_for(&mut world, Uid(user * 1_000), 64);
        }
    }
    assert!(waiting(&world).len() < 1_000);
    let newcomer = asks_for(&mut world, Uid(11_000), 64);
    assert_eq!(refused(&world, newcomer), None);
}
