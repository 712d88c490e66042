//! Growth that is no leak: loads, plateaus and shared pages; and leaks beside them.

use super::leak::run;
use super::shown_world::number;
use super::world::{MINUTE, SECOND, World};
use watchdog_api::FindingKind;
use watchdog_types::{Bytes, Memory, ProcessId};

const GIB: u64 = 1024;

fn on_host_with(available_mib: u64) -> World {
    let mut world = World::new();
    world.host(Bytes::from_mib(available_mib), Bytes(0));
    world
}

/// 8 MiB a second for three minutes, then flat, with hours of headroom; and slower ones that last longer.
#[test]
fn load_with_hours_of_headroom_no_leak() {
    for (rate, seconds, headroom_gib) in
        [(8.0, 180.0, 64), (10.5, 36.0, 22), (7.5, 150.0, 64), (20.0, 600.0, 512), (4.67, 180.0, 28), (2.0, 600.0, 28)]
    {
        let mut world = on_host_with(headroom_gib * GIB);
        let agent = world.claude();
        let found = run(&mut world, agent, MINUTE * 40, |s| 60.0 + rate * s.min(seconds));
        assert_eq!(found, None, "{rate} MiB/s for {seconds} s");
    }
}

/// 800 MiB that are taken more and more slowly.
#[test]
fn load_that_levels_off_no_leak() {
    let mut world = on_host_with(60 * GIB);
    let agent = world.claude();
    let found = run(&mut world, agent, MINUTE * 40, |s| 60.0 + 800.0 * (1.0 - (-s / 120.0).exp()));
    assert_eq!(found, None);
}

/// A collector that runs after seven minutes, and every half minute from then on.
#[test]
fn long_first_tooth_no_leak() {
    let mut world = on_host_with(60 * GIB);
    let agent = world.claude();
    let memory = |s: f64| if s < 420.0 { 80.0 + 2.5 * s } else { 300.0 + 2.5 * ((s - 420.0) % 30.0) };
    assert_eq!(run(&mut world, agent, MINUTE * 40, memory), None);
}

/// The same load is a leak where it leaves minutes, or outlasts loads of its size.
#[test]
fn load_that_outlasts_its_size_is_leak() {
    for (headroom_gib, within) in [(8, MINUTE * 2), (64, MINUTE * 13)] {
        let mut world = on_host_with(headroom_gib * GIB);
        let agent = world.claude();
        run(&mut world, agent, within, |s| 60.0 + 8.0 * s).expect("a leak");
    }
}

/// Growth to 172 MiB in 45 s, one drop to 60 MiB, then 40 MiB a minute.
#[test]
fn one_old_drop_masks_no_straight_line() {
    for (high, rises, low, per_minute) in
        [(172.0, 45.0, 60.0, 40.0), (400.0, 60.0, 90.0, 60.0), (300.0, 20.0, 70.0, 45.0)]
    {
        let found_after = |drop: bool| {
            let mut world = on_host_with(28 * GIB);
            let agent = world.claude();
            let memory = |s: f64| match s - rises {
                since if since >= 0.0 => low + per_minute / 60.0 * since,
                _ if drop => low + (high - low) * s / rises,
                _ => low,
            };
            let began = world.now;
            let leak = run(&mut world, agent, MINUTE * 5, memory).expect("a leak");
            let growing = number(&leak, "growing_seconds");
            let found = world.now.since(began).as_secs_f64() - rises;
            assert!((growing - found).abs() < 8.0, "growing for {growing} s, found after {found} s");
            found
        };
        let (with, without) = (found_after(true), found_after(false));
        assert!(with <= without + 12.0, "found after {with} s, without the drop after {without} s");
    }
}

/// A leak of 40 MiB a minute that gives 310 MiB back, and grows again as before: found as soon as the first time.
#[test]
fn growth_after_drop_found_like_first() {
    let mut world = on_host_with(28 * GIB);
    let agent = world.claude();
    let found_after = |world: &mut World| {
        let began = world.now;
        run(world, agent, MINUTE * 2, |s| 60.0 + s * 40.0 / 60.0).expect("a leak");
        world.now.since(began).as_secs()
    };
    let first = found_after(&mut world);
    for second in first..465 {
        world.memory(agent, Bytes::from_mib(60 + second * 40 / 60));
        world.pass(SECOND);
    }
    world.memory(agent, Bytes::from_mib(60));
    assert_eq!(world.all(FindingKind::Leak)[0].closed_because.as_deref(), Some("given back"));

    let again = found_after(&mut world);

    assert!(again <= first + 12, "found after {again} s, the first time after {first} s");
}

/// Flat memory is said to be flat, and closes the finding soon after.
#[test]
fn plateau_closes_finding_soon() {
    for (rate, grows) in [(0.7, 120), (1.5, 90), (0.4, 600)] {
        let mut world = on_host_with(28 * GIB);
        let agent = world.claude();
        let (mut flat, mut closed) = (None, None);
        for second in 0..grows + 600_u32 {
            let memory = 60.0 + rate * f64::from(second.min(grows));
            world.memory(agent, Bytes((memory * 1_048_576.0) as u64));
            world.pass(SECOND);
            let open = world.open(FindingKind::Leak);
            let since = second.saturating_sub(grows);
            match open.first() {
                Some(leak) if leak.evidence.get("flat").is_some() => flat = flat.or(Some(since)),
                None if flat.is_some() => closed = closed.or(Some(since)),
                _ => assert_eq!(closed, None, "opened again after {since} s"),
            }
        }
        let (flat, closed) = (flat.expect("flat"), closed.expect("closed"));
        assert!(flat <= 90 && closed <= flat + 90, "{rate} MiB/s: flat after {flat} s, closed after {closed} s");
        assert!(world.open(FindingKind::Leak).is_empty());
    }
}

/// A parent maps 300 MiB shared and fills it; eight forked readers touch 5 MiB of it each second.
#[test]
fn touching_shared_pages_no_growth() {
    let mut world = on_host_with(28 * GIB);
    let agent = world.claude();
    let parent = world.spawn(agent, &["/usr/bin/python3", "/pool.py"]);
    let holds = |anon: u64, shmem: u64| Memory {
        anon: Bytes::from_mib(anon),
        shmem: Bytes::from_mib(shmem),
        ..Memory::default()
    };
    world.sample(parent, holds(20, 300));
    let readers: Vec<ProcessId> = (0..8).map(|_| world.fork(parent)).collect();
    for second in 0..240_u64 {
        for reader in &readers {
            world.sample(*reader, holds(20, (second * 5).min(300)));
        }
        world.pass(SECOND);
    }
    assert!(world.all(FindingKind::Leak).is_empty());
}

/// Shared memory that grows is one leak of the process that maps it, however many map it too.
#[test]
fn growing_shared_memory_one_leak() {
    let mut world = on_host_with(28 * GIB);
    let agent = world.claude();
    let writer = world.spawn(agent, &["/usr/bin/python3", "/pool.py"]);
    let readers: Vec<ProcessId> = (0..8).map(|_| world.fork(writer)).collect();
    for second in 0..120_u64 {
        for process in [writer].iter().chain(&readers) {
            let memory = Memory { anon: Bytes::from_mib(20), shmem: Bytes::from_mib(10 + second), ..Memory::default() };
            world.sample(*process, memory);
        }
        world.pass(SECOND);
    }
    let leaks = world.open(FindingKind::Leak);
    assert_eq!(leaks.iter().map(|leak| leak.pid).collect::<Vec<_>>(), [writer.pid.0], "{leaks:#?}");
}

/// A worker that keeps memory of its own beside shared pages leaks.
#[test]
fn private_growth_beside_shared_pages_is_leak() {
    let mut world = on_host_with(28 * GIB);
    let agent = world.claude();
    let parent = world.spawn(agent, &["/usr/bin/python3", "/pool.py"]);
    world.sample(parent, Memory { shmem: Bytes::from_mib(300), ..Memory::default() });
    let worker = world.fork(parent);
    for second in 0..90_u64 {
        let (anon, shmem) = (Bytes::from_mib(20 + second), Bytes::from_mib(300));
        world.sample(worker, Memory { anon, shmem, ..Memory::default() });
        world.pass(SECOND);
    }
    let leaks = world.open(FindingKind::Leak);
    assert_eq!(leaks.iter().map(|leak| leak.pid).collect::<Vec<_>>(), [worker.pid.0], "{leaks:#?}");
}
