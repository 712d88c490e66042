//! The breaker opens and closes by available memory and by pressure.

use super::*;

#[test]
fn breaker_has_hysteresis() {
    let mut world = host("", 100 * GIB, 30 * GIB);
    memory(&mut world, 100 * GIB, 19 * GIB);
    let process = start(&mut world);
    let position = queue_position(&world, process).unwrap();
    assert_eq!(position.blocker.reason, RefusalReason::Breaker);
    assert!(position.blocker.detail.ends_with("81% of memory in use, limit 80%"), "{position:?}");
    assert!(queue(&world).breaker.open && world.engine.breaker_open());
    // In between nothing changes, and neither does a moment below.
    for available in [25, 31, 25, 31] {
        memory(&mut world, 100 * GIB, available * GIB);
        world.pass(Duration::from_secs(1));
        assert!(world.engine.breaker_open(), "{available}");
    }
    for _ in 0..4 {
        memory(&mut world, 100 * GIB, 31 * GIB);
        world.pass(Duration::from_secs(1));
    }
    assert!(!world.engine.breaker_open());
    assert_eq!(granted(&world), [process]);
}

/// The host as it is one second after the other: whether the breaker is open at the end.
fn pressed(world: &mut World, seconds: u64, available: u64, pressure: f64) -> bool {
    for _ in 0..seconds {
        world.pass(Duration::from_secs(1));
        let host = HostMemory {
            total: Bytes::from_mib(100 * GIB),
            available: Bytes::from_mib(available * GIB),
            pressure_some_avg10: Some(pressure),
            ..HostMemory::default()
        };
        world.feed(Input::Host(host));
    }
    world.engine.breaker_open()
}

#[test]
fn sustained_pressure_opens_breaker() {
    let mut world = host("", 100 * GIB, 90 * GIB);
    // A thrashing cgroup: nine tenths of the host's memory are free.
    assert!(!pressed(&mut world, 10, 90, 95.0));
    assert!(!pressed(&mut world, 1, 25, 0.0));
    assert!(!pressed(&mut world, 3, 25, 50.0), "a first word, which the kernel repeats for two seconds, is nothing");
    assert!(!pressed(&mut world, 1, 25, 0.0));
    assert!(pressed(&mut world, 5, 25, 50.0));
}

#[test]
fn breaker_closes_without_pressure() {
    let mut world = host("", 100 * GIB, 25 * GIB);
    assert!(pressed(&mut world, 6, 25, 50.0));
    assert!(pressed(&mut world, 20, 25, 0.0));
    assert!(pressed(&mut world, 1, 25, 50.0));
    assert!(pressed(&mut world, 29, 25, 0.0));
    assert!(!pressed(&mut world, 3, 25, 0.0));
    // What memory opened does not.
    assert!(pressed(&mut world, 1, 15, 0.0));
    assert!(pressed(&mut world, 60, 25, 0.0));
}
