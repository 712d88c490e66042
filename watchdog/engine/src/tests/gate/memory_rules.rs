//! Memory of the host, and of a cgroup, as a limit of launches.

use super::*;
use watchdog_types::CgroupLimit;

#[test]
fn committed_memory_is_granted_once() {
    // 4 GiB free above the reserve of 1.6.
    let mut world = host(&config_with("expected_memory = \"1GiB\"\nswap_share = \"0%\""), 16 * GIB, 4 * GIB + 1_639);
    let crowd = crowd(&mut world, 10);
    assert_eq!(granted(&world), crowd[..4]);
    let position = queue_position(&world, crowd[4]).unwrap();
    assert_eq!(position.blocker.reason, RefusalReason::Memory);
    assert!(position.blocker.detail.starts_with("needs 1.0 GiB; 614 KiB free ("), "{}", position.blocker.detail);
    assert_eq!(queue(&world).room.promised_bytes, Bytes::from_mib(4 * GIB).0);
}

#[test]
fn commitment_lasts_until_used() {
    let mut world = host(&config_with("expected_memory = \"1GiB\"\nreserve = \"1MiB\""), 16 * GIB, 6 * GIB);
    let crowd = crowd(&mut world, 7);
    assert_eq!(granted(&world).len(), 5);
    // It has shown in the session, and in what the host has left.
    for process in &crowd[..5] {
        world.memory(*process, Bytes::from_mib(GIB));
    }
    memory(&mut world, 16 * GIB, 5 * GIB + 512);
    assert_eq!(granted(&world), crowd);
    assert_eq!(queue(&world).room.promised_bytes, Bytes::from_mib(2 * GIB).0, "what the first five took has shown");
}

#[test]
fn commitment_expires() {
    let mut world =
        host(&config_with("expected_memory = \"4GiB\"\nreserve = \"1MiB\"\nhold = \"1m\""), 16 * GIB, 6 * GIB);
    let crowd = crowd(&mut world, 2);
    assert_eq!(granted(&world).len(), 1);
    world.pass(Duration::from_secs(61));
    assert_eq!(granted(&world), crowd);
}

#[test]
fn free_swap_counts_partly() {
    let config =
        config_with("expected_memory = \"1GiB\"\nreserve = \"1MiB\"\nswap_share = \"50%\"\nbreaker_open = \"100%\"");
    let mut world = host(&config, 16 * GIB, 512);
    let process = start(&mut world);
    assert_eq!(granted(&world), []);
    let swap = |free: u64| HostMemory {
        total: Bytes::from_mib(16 * GIB),
        available: Bytes::from_mib(512),
        swap_total: Bytes::from_mib(4 * GIB),
        swap_free: Bytes::from_mib(free),
        ..HostMemory::default()
    };
    world.feed(Input::Host(swap(2 * GIB)));
    assert_eq!(granted(&world), [process]);
    world.kill(process);
    world.feed(Input::Host(HostMemory { available: Bytes::from_mib(8 * GIB), ..swap(0) }));
    let second = start(&mut world);
    assert_eq!(granted(&world), [process, second]);
}

#[test]
fn impossible_launch_is_refused() {
    let mut world = host(&config_with("reserve = \"2GiB\""), 16 * GIB, 15 * GIB);
    let large = launch(&mut world);
    let large = ask(&mut world, Launch { memory: Some(Bytes::from_mib(15 * GIB)), ..large });
    let refusal = refusals(&world).pop().unwrap();
    assert_eq!((refusal.process, refusal.blocker.reason), (large, RefusalReason::Memory));
    assert_eq!(refusal.blocker.retry_after, None);
    assert_eq!(refusal.blocker.detail, "needs 15 GiB, but this host can grant at most 14 GiB");
}

#[test]
fn launch_turned_impossible_is_refused() {
    let mut world = World::with(default_config());
    let asked = launch(&mut world);
    let large = ask(&mut world, Launch { memory: Some(Bytes::from_mib(20 * GIB)), ..asked });
    let small = start(&mut world);
    memory(&mut world, 16 * GIB, 12 * GIB);
    world.pass(Duration::from_secs(1));
    assert_eq!(refused(&world, large), Some(RefusalReason::Memory));
    assert_eq!(granted(&world), [small]);
}

#[test]
fn unknown_memory_grants_nothing() {
    let mut world = World::with(default_config());
    let process = start(&mut world);
    assert_eq!(granted(&world), []);
    memory(&mut world, 16 * GIB, 8 * GIB);
    assert_eq!(granted(&world), [process]);
}

#[test]
fn percent_expectation_awaits_host() {
    let config = config::parse(std::path::Path::new("test.toml"), "[gate]\nexpected_memory = \"50%\"\n").unwrap();
    let mut world = World::with(config);
    let crowd = crowd(&mut world, 2);
    memory(&mut world, 16 * GIB, 12 * GIB);
    assert_eq!(granted(&world), crowd[..1]);
    assert_eq!(queue(&world).waiting[0].memory_bytes, Bytes::from_mib(8 * GIB).0);
}

#[test]
fn past_peaks_set_expectation() {
    let mut world = host(&config_with("expected_memory = \"8GiB\"\nreserve = \"1MiB\""), 16 * GIB, 9 * GIB);
    for peak in [50, 100, 150, 200, 250, 300, 350, 400, 450, 500] {
        let process = start(&mut world);
        run(&mut world, process);
        world.memory(process, Bytes::from_mib(peak));
        world.pass(Duration::from_secs(61));
        world.kill(process);
        world.pass(Duration::from_secs(1));
    }
    let profile = queue(&world).profiles.into_iter().find(|profile| profile.name == "claude-code").unwrap();
    assert_eq!((profile.expected_bytes, profile.learned_from), (Bytes::from_mib(500).0, 10));
    let crowd = crowd(&mut world, 3);
    assert_eq!(granted(&world)[10..], crowd);
}

#[test]
fn cgroup_limit_blocks_only_its_launches() {
    let mut world = roomy(&config_with("expected_memory = \"1GiB\""));
    let limit = |held: u64| CgroupLimit {
        path: "/box".into(),
        max: Bytes::from_mib(4 * GIB),
        current: Bytes::from_mib(held + GIB),
        cache: Bytes::from_mib(GIB),
    };
    let boxed: Vec<ProcessId> = (0..4)
        .map(|_| {
            let asked = launch(&mut world);
            ask(&mut world, Launch { cgroups: vec![limit(GIB + 512)], ..asked })
        })
        .collect();
    // Page cache is no blocker: 2.5 GiB are free, and what the first two are promised is not free any more.
    assert_eq!(granted(&world), boxed[..2]);
    let outside = start(&mut world);
    assert_eq!(granted(&world), [boxed[0], boxed[1], outside]);
    assert_eq!(queue_position(&world, boxed[2]).unwrap().blocker.bound, "memory.max");
    world.kill(boxed[0]);
    assert_eq!(granted(&world), [boxed[0], boxed[1], outside, boxed[2]]);
    world.pass(Duration::from_secs(1));
    assert!(
        world.effects.iter().any(|effect| *effect == Effect::Scan(ScanRequest::CgroupLimits(boxed[3]))),
        "its cgroup is looked at again"
    );
    world.feed(Input::CgroupLimits(boxed[3], vec![limit(0)]));
    assert_eq!(granted(&world).last(), Some(&boxed[3]));
}

#[test]
fn cgroup_head_is_not_starved() {
    let mut world = roomy("");
    let limit = |held: u64| CgroupLimit {
        path: "/box".into(),
        max: Bytes::from_mib(4 * GIB),
        current: Bytes::from_mib(held),
        cache: Bytes(0),
    };
    let mut boxed = |memory: u64| {
        let asked = launch(&mut world);
        let asked = Launch { memory: Some(Bytes::from_mib(memory)), cgroups: vec![limit(2 * GIB)], ..asked };
        ask(&mut world, asked)
    };
    let (large, small) = (boxed(3 * GIB), boxed(512));
    assert_eq!(granted(&world), []);
    assert!(
        !queue_position(&world, small).unwrap().blocker.detail.contains("3.0 GiB"),
        "what another needs is its own affair"
    );
    world.feed(Input::CgroupLimits(small, vec![limit(0)]));
    assert_eq!(granted(&world), [large, small], "one look is for all in the cgroup");
}

#[test]
fn every_cgroup_limit_is_checked() {
    let mut world = roomy("[gate]\nexpected_memory = \"3GiB\"\n");
    let limit = |path: &str, max: u64| CgroupLimit {
        path: path.into(),
        max: Bytes::from_mib(max * GIB),
        current: Bytes(0),
        cache: Bytes(0),
    };
    let scopes: Vec<ProcessId> = ["/slice/a", "/slice/b", "/slice/c"]
        .into_iter()
        .map(|scope| {
            let asked = launch(&mut world);
            ask(&mut world, Launch { cgroups: vec![limit(scope, 3), limit("/slice", 8)], ..asked })
        })
        .collect();
    assert_eq!(granted(&world), scopes[..2]);
    assert!(queue_position(&world, scopes[2]).unwrap().blocker.detail.contains("of 8.0 GiB in cgroup /slice"));
}
