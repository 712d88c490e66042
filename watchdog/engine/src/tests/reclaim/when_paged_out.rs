use super::*;
use crate::tests::gate::{ask, granted, launch};

#[test]
fn idle_session_paged_out_before_breaker() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    assert_eq!(ordered(&world), [[]; 0], "memory is available");

    available(&mut world, SHORT);
    assert_eq!(ordered(&world), [[server, agent]], "helpers before agents");
    assert!(!world.engine.breaker_open());
    world.wait(5 * SECOND);
    let shown = world.session(agent);
    assert_eq!((shown.resident_bytes, shown.swap_bytes), (0, 500 << 20));
    assert_eq!(world.page_outs.len(), 1);
    let said = world.journal.iter().find_map(|event| match event {
        JournalEvent::PagedOut { summary, .. } => Some(summary.as_str()),
        _ => None,
    });
    assert_eq!(said, Some("paged out 500 MiB of 1 idle session in 2s"));
}

#[test]
fn active_sessions_stay_resident() {
    let mut world = host("");
    let [_, server] = session(&mut world, 400, 100);
    let [young, _] = session(&mut world, 400, 100);
    world.does(server, Duration::from_millis(500), 400, 100_000);
    world.rest(9 * MINUTE);
    world.spawn(young, &["/usr/bin/sleep", "9"]);
    world.rest(2 * MINUTE);
    available(&mut world, SHORT);
    world.wait(10 * SECOND);
    assert_eq!(ordered(&world), [[]; 0]);
    assert!(world.session(young).idle_since.is_some(), "at rest, and not for long enough");
}

#[test]
fn activity_since_last_reading_spares_session() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    world.does(server, Duration::from_secs(600), 60_000, 9_000_000);
    world.wait(4 * SECOND);
    available(&mut world, SHORT);
    world.wait(5 * SECOND);
    assert_eq!(ordered(&world), [[]; 0]);
    assert_eq!(world.session(agent).idle_since, None);
}

#[test]
fn largest_and_longest_idle_first() {
    let mut world = host("");
    let [small, _] = session(&mut world, 100, 5);
    let [large, _] = session(&mut world, 800, 5);
    world.rest(15 * MINUTE);
    let [young, _] = session(&mut world, 600, 5);
    world.rest(12 * MINUTE);
    available(&mut world, 1_500);
    world.wait(30 * SECOND);
    let agents: Vec<ProcessId> = ordered(&world).iter().filter_map(|order| order.last().copied()).collect();
    assert_eq!(agents, [large, young, small]);
}

#[test]
fn mode_off_pages_out_nothing() {
    let mut world = host("[reclaim]\nmode = \"off\"\n");
    let [agent, _] = session(&mut world, 400, 100);
    world.rest(60 * MINUTE);
    available(&mut world, SHORT);
    world.rest(5 * MINUTE);
    assert_eq!(ordered(&world), [[]; 0]);
    let looks = |effect: &&Effect| matches!(effect, Effect::Scan(ScanRequest::Activity(_)));
    assert_eq!(world.effects.iter().filter(looks).count(), 0);
    assert_eq!(world.session(agent).idle_since, None);
}

#[test]
fn proactive_mode_pages_out_idle_sessions() {
    let mut world = host("[[profile]]\nname = \"claude-code\"\nreclaim = \"proactive\"\nreclaim_idle = \"2m\"\n");
    let [agent, server] = session(&mut world, 400, 100);
    let codex = world.agent("/usr/local/bin/codex");
    world.memory(codex, Bytes::from_mib(200));
    world.rest(5 * MINUTE);
    assert_eq!(ordered(&world), [[server, agent]]);
}

#[test]
fn no_automatic_page_out_without_swap() {
    let mut world = host("");
    session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    world.host_is(HostMemory { swap_total: Bytes(0), swap_free: Bytes(0), ..world.last_host });
    world.host_is(HostMemory { available: Bytes::from_mib(SHORT), ..world.last_host });
    world.wait(5 * SECOND);
    assert_eq!(ordered(&world), [[]; 0]);
}

#[test]
fn waiting_launch_starts_after_page_out() {
    let mut world =
        host("[gate]\nswap_share = \"0%\"\nexpected_memory = \"2GiB\"\nreserve = \"2GiB\"\nbreaker_open = \"99%\"\n");
    let [agent, server] = session(&mut world, 900, 300);
    world.rest(15 * MINUTE);
    // 3,100 MiB - 2 GiB of reserve are less than 2 GiB.
    available(&mut world, 3_100);
    world.wait(SECOND);
    assert_eq!(ordered(&world), [[]; 0]);
    let asked = launch(&mut world);
    let process = ask(&mut world, asked);
    assert_eq!(ordered(&world), [[server, agent]]);
    world.wait(SECOND);
    assert_eq!(granted(&world), [process]);
}

#[test]
fn emergency_pages_out_before_it_terminates() {
    let config =
        "[actions]\nenforce = true\nstale = \"report\"\n[gate]\nbreaker_open = \"99%\"\nbreaker_close = \"98%\"\n";
    let mut world = host(config);
    let [agent, server] = session(&mut world, 400, 100);
    let [left, orphan] = session(&mut world, 10, 200);
    world.rest(15 * MINUTE);
    world.slow_swap = true;
    world.host_is(HostMemory { available: Bytes::from_mib(300), swap_free: Bytes::from_mib(1_500), ..world.last_host });
    assert_eq!(ordered(&world).first(), Some(&vec![server, agent]));
    world.kill(left);
    world.wait(5 * SECOND);
    assert_eq!(world.terminated(), [], "page-out comes first");
    world.wait(30 * SECOND);
    assert_eq!(world.terminated(), [orphan], "and is not waited for in vain");
}
