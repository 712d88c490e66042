//! How often activity is read, and that idle time is right however seldom it is read.

use super::*;

fn idle_since(world: &World, process: ProcessId) -> Option<BootTime> {
    world.engine.idle_since(&[world.engine.table.get(process).unwrap()])
}

/// How often the activity of this process was read.
fn readings(world: &World, process: ProcessId) -> usize {
    let of =
        |effect: &&Effect| matches!(effect, Effect::Scan(ScanRequest::Activity(asked)) if asked.contains(&process));
    world.effects.iter().filter(of).count()
}

#[test]
fn ample_memory_slows_steady_readings() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    world.does(agent, Duration::from_millis(400), 1_200, 90_000);
    world.does(server, Duration::from_millis(1), 8, 64);
    let began = world.now;
    world.rest(60 * MINUTE);
    let (of_agent, of_server) = (readings(&world, agent), readings(&world, server));
    assert!(of_agent >= 58 && (11..=16).contains(&of_server), "{of_agent} {of_server}");
    let since = idle_since(&world, server);
    assert!(since.is_some_and(|since| since.since(began) <= MINUTE), "{since:?}");
}

#[test]
fn short_memory_reads_all_processes() {
    let mut world = host("");
    let [_, server] = session(&mut world, 400, 100);
    world.rest(30 * MINUTE);
    let before = readings(&world, server);
    available(&mut world, 6_500);
    assert_eq!(readings(&world, server), before, "60 % is in use");
    available(&mut world, 4_600);
    world.wait(SECOND);
    assert_eq!(readings(&world, server), before + 1, "72 %, and page-out begins at 75 %");
    world.rest(10 * MINUTE);
    assert!(readings(&world, server) >= before + 9);
}

#[test]
fn without_swap_readings_stay_slow() {
    let mut world = host("[reclaim]\nmode = \"proactive\"\n");
    let [_, server] = session(&mut world, 400, 100);
    world.host_is(HostMemory { swap_total: Bytes(0), swap_free: Bytes(0), ..world.last_host });
    world.host_is(HostMemory { available: Bytes::from_mib(SHORT), ..world.last_host });
    world.rest(60 * MINUTE);
    assert!(readings(&world, server) <= 16, "{}", readings(&world, server));
}

/// Five readings in five minutes would call this rest; one reading cannot tell it from a turn of two seconds.
#[test]
fn burst_between_readings_ends_idleness() {
    let mut world = host("");
    let [agent, _] = session(&mut world, 400, 100);
    world.rest(32 * MINUTE);
    let burst = world.now;
    assert!(idle_since(&world, agent).is_some_and(|since| since < burst));
    world.does(agent, Duration::from_millis(450), 100, 0);
    world.rest(6 * MINUTE);
    assert!(idle_since(&world, agent).is_none_or(|since| since > burst));
    world.rest(3 * MINUTE);
    let since = idle_since(&world, agent);
    assert!(since.is_some_and(|since| since > burst), "{since:?} {burst:?}");
    world.rest(12 * MINUTE);
    assert_eq!(idle_since(&world, agent), since, "read each minute again");
}
