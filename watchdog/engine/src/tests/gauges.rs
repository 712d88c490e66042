//! The numbers of the metrics.

use super::leak;
use super::world::{MINUTE, World};
use watchdog_config::Config;
use watchdog_types::{Bytes, HostMemory, Uid};

#[test]
fn orphans_hold_part_of_memory() {
    let mut world = World::new();
    let (agent, other) = (world.claude(), world.claude());
    let helper = world.spawn(agent, &["/usr/bin/node", "server.js"]);
    for (process, mib) in [(agent, 100), (other, 50), (helper, 20)] {
        world.memory(process, Bytes::from_mib(mib));
    }
    assert!(world.engine.gauges(world.now).orphan_memory.is_empty());

    world.kill(agent);

    let gauges = world.engine.gauges(world.now);
    assert_eq!(gauges.orphan_memory["claude-code"], Bytes::from_mib(20).0);
    assert_eq!(gauges.memory["claude-code"], Bytes::from_mib(70).0);
}

#[test]
fn leak_shows_growth_and_nearest_limit() {
    let mut world = leak::world();
    let helper = leak::helper(&mut world);
    let gauges = world.engine.gauges(world.now);
    assert!(gauges.leaks.is_empty() && gauges.seconds_to_limit.is_empty());

    leak::run(&mut world, helper, MINUTE, |s| 50.0 + s).expect("a leak");

    let gauges = world.engine.gauges(world.now);
    let rate = gauges.leaks["claude-code"];
    assert!((rate / 1_048_576.0 - 1.0).abs() < 0.1, "{rate}");
    assert_eq!(gauges.seconds_to_limit.keys().collect::<Vec<_>>(), [&"host"]);
    // 16 GiB at a MiB per second.
    assert!((gauges.seconds_to_limit["host"] - 16_384.0).abs() < 1_000.0, "{gauges:?}");
}

#[test]
fn gate_counts_sessions_beside_limits() {
    let text = "[gate]\nmax_sessions = 9\nmax_sessions_per_user = 4\nreserve = \"10%\"\nmax_queue = 7\n\
                [[profile]]\nname = \"mine\"\nexe = [\"*/mine\"]\nmax_sessions = 2\nmax_total_memory = \"25%\"\n";
    let config: Config = watchdog_config::parse(std::path::Path::new("test.toml"), text).unwrap();
    let mut world = World::with(config);
    let gib = 1 << 30;
    world.host_is(HostMemory { total: Bytes(8 * gib), available: Bytes(4 * gib), ..HostMemory::default() });
    let (mine, _other) = (world.agent("/usr/bin/mine"), world.claude());
    let user = Uid(world.session(mine).uid);

    let usage = world.engine.gauges(world.now).gate;

    assert_eq!((usage.sessions, usage.max_sessions, usage.max_queue), (2, Some(9), 7));
    assert_eq!((&usage.users, usage.max_sessions_per_user), (&[(user, 2)].into(), Some(4)));
    let profile = &usage.profiles["mine"];
    assert_eq!((profile.sessions, profile.max_sessions, profile.max_memory), (1, Some(2), None));
    assert_eq!(profile.max_total_memory, Some(Bytes(2 * gib)));
    assert_eq!((usage.profiles["claude-code"].sessions, usage.profiles["claude-code"].max_sessions), (1, None));
    assert_eq!((usage.reserve, usage.promised), (Bytes(8 * gib / 10), Bytes(0)));
    assert_eq!(usage.free, Bytes(4 * gib - usage.reserve.0));

    world.kill(mine);
    assert_eq!(world.engine.gauges(world.now).gate.sessions, 1);
}
