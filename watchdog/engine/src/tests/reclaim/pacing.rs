use super::*;
use crate::reclaim::ReclaimDemand;
use watchdog_types::{SessionId, Viewer};

fn times(world: &World) -> Vec<u64> {
    let began = world.page_outs.first().map(|(at, ..)| *at).unwrap_or_default();
    world.page_outs.iter().map(|(at, ..)| at.since(began).as_secs()).collect()
}

#[test]
fn budget_spaces_orders() {
    let mut world = host("[reclaim]\nbudget = \"100MiB\"\n");
    for _ in 0..3 {
        session(&mut world, 995, 5);
    }
    world.rest(15 * MINUTE);
    available(&mut world, 1_000);
    world.wait(40 * SECOND);
    assert_eq!(times(&world), [0, 4, 8, 10, 14, 18, 20, 24, 28]);
    let run = &world.engine.reclaims(world.now, Viewer::Root, &naming()).runs[0];
    assert_eq!((run.sessions, run.processes, run.paged_out_bytes), (3, 6, 3_000 << 20));
    assert_eq!((run.resident_before_bytes, run.resident_after_bytes), (3_000 << 20, 0));
}

#[test]
fn woken_session_keeps_the_rest() {
    let mut world = host("[reclaim]\nbudget = \"100MiB\"\n");
    let [agent, server] = session(&mut world, 995, 5);
    world.rest(15 * MINUTE);
    available(&mut world, 1_000);
    assert_eq!(ordered(&world), [[server, agent]]);
    world.does(agent, 30 * SECOND, 60_000, 9_000_000);
    world.wait(40 * SECOND);
    let out: Bytes = world.page_outs.iter().map(|(_, _, out)| *out).sum();
    assert_eq!(out, Bytes::from_mib(400), "of 1,000 MiB");
}

#[test]
fn busy_process_is_paged_out_once() {
    let mut world = host("[reclaim]\nbudget = \"100MiB\"\n");
    let [agent, _] = session(&mut world, 995, 5);
    let session = Some(SessionId(world.session(agent).id));
    world.feed(Input::RequestReclaim(ReclaimDemand { uid: USER, session }));
    for _ in 0..20 {
        touched(&mut world, agent);
        world.wait(5 * SECOND);
    }
    let out: Bytes = world.page_outs.iter().map(|(_, _, out)| *out).sum();
    assert_eq!(out, Bytes::from_mib(1_000));
}

#[test]
fn swap_reserve_limits_orders() {
    let mut world = host("[reclaim]\nreserve = \"7GiB\"\n");
    session(&mut world, 900, 5);
    session(&mut world, 800, 5);
    world.rest(15 * MINUTE);
    available(&mut world, 1_000);
    world.wait(40 * SECOND);
    let out: Bytes = world.page_outs.iter().map(|(_, _, out)| *out).sum();
    assert_eq!(out, Bytes::from_mib(1_024), "down to the reserve, and no further");
    assert_eq!(world.last_host.swap_free, Bytes::from_mib(7 * 1_024));
}

#[test]
fn repeated_returns_lengthen_pause() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 5);
    let idle = 10 * MINUTE;
    world.rest(15 * MINUTE);
    available(&mut world, 1_000);
    let mut at = vec![world.now];
    for _ in 0..3 {
        touched(&mut world, agent);
        touched(&mut world, server);
        let before = world.page_outs.len();
        while world.page_outs.len() == before {
            world.pass(5 * SECOND);
            available(&mut world, 1_000);
        }
        at.push(world.now);
    }
    let pauses: Vec<u64> = at.windows(2).map(|pair| pair[1].since(pair[0]).as_secs().div_ceil(60)).collect();
    assert!(pauses[0] >= 20 && pauses[1] >= 40 && pauses[2] >= 80, "{pauses:?}, idle {idle:?}");
    assert!(pauses[2] < 100, "{pauses:?}");
    assert_eq!(world.engine.reclaim_totals().refaulted, Bytes::from_mib(3 * 405));
}

#[test]
fn process_without_swap_is_left_alone_longer() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    world.not_swapped.extend([agent, server]);
    world.rest(15 * MINUTE);
    available(&mut world, 1_000);
    for _ in 0..8 {
        world.rest(10 * MINUTE);
        available(&mut world, 1_000);
        world.wait(5 * SECOND);
    }
    let at: Vec<u64> = times(&world).iter().map(|seconds| seconds / 600).collect();
    assert_eq!(at.len(), 3, "after 10, 20 and 40 minutes: {at:?}");
    let note = world.engine.reclaims(world.now, Viewer::Root, &naming()).runs.pop().unwrap().note;
    assert!(note.as_deref().is_some_and(|note| note.contains("memory.swap.max")), "{note:?}");
    assert_eq!(world.engine.expected_reclaim(world.now), Bytes(0));
}

#[test]
fn memory_read_again_after_page_out() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    available(&mut world, SHORT);
    assert!(world.effects.contains(&Effect::Bpf(BpfCommand::ReadMemory(vec![server, agent]))));
}

#[test]
fn late_sample_is_no_refault() {
    let mut world = host("");
    let [agent, _] = session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    available(&mut world, SHORT);
    assert_eq!(world.page_outs.len(), 1);
    // Taken before the page-out, at the same moment at the latest.
    world.memory(agent, Bytes::from_mib(400));
    assert_eq!(world.engine.reclaim_totals().refaulted, Bytes(0));
}

fn pressure(world: &mut World, percent: f64) {
    world.host_is(HostMemory { pressure_some_avg10: Some(percent), ..world.last_host });
}

fn cancelled(world: &World) -> usize {
    world.effects.iter().filter(|effect| matches!(effect, Effect::CancelPageOut(_))).count()
}

#[test]
fn pressure_after_return_cancels_and_halts() {
    let mut world = host("");
    let [agent, _] = session(&mut world, 900, 100);
    session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    available(&mut world, SHORT);
    assert_eq!(ordered(&world).len(), 1);
    world.slow_swap = true;
    touched(&mut world, agent);
    available(&mut world, SHORT);
    world.wait(10 * SECOND);
    assert_eq!(ordered(&world).len(), 2);
    pressure(&mut world, 9.0);
    assert_eq!(cancelled(&world), 1);
    world.wait(3 * SECOND);
    assert_eq!(cancelled(&world), 1, "once");
}

#[test]
fn pressure_without_returned_memory_cancels_later() {
    let mut world = host("");
    session(&mut world, 900, 100);
    world.rest(15 * MINUTE);
    world.slow_swap = true;
    available(&mut world, SHORT);
    assert_eq!(ordered(&world).len(), 1);
    pressure(&mut world, 19.0);
    assert_eq!(cancelled(&world), 0, "another process stalls");
    pressure(&mut world, 21.0);
    assert_eq!(cancelled(&world), 1);
}

#[test]
fn pressure_from_elsewhere_does_not_halt() {
    let mut world = host("");
    session(&mut world, 900, 100);
    session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    world.host_is(HostMemory { pressure_some_avg10: Some(9.0), ..world.last_host });
    available(&mut world, 2_000);
    world.wait(20 * SECOND);
    assert_eq!(world.page_outs.len(), 2);
}

#[test]
fn page_out_ends_when_memory_suffices() {
    let mut world = host("[gate]\nbreaker_close = \"76%\"\n");
    for _ in 0..4 {
        session(&mut world, 495, 5);
    }
    world.rest(15 * MINUTE);
    // 3,932 MiB are 76 % in use.
    available(&mut world, 3_300);
    world.wait(60 * SECOND);
    assert_eq!(world.page_outs.len(), 2, "{:?}", world.last_host);
}

#[test]
fn expected_reclaim_follows_earlier_yield() {
    let mut world = host("");
    session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    assert_eq!(world.engine.expected_reclaim(world.now), Bytes(0), "nothing is known");
    available(&mut world, SHORT);
    world.wait(5 * SECOND);
    available(&mut world, PLENTY);
    session(&mut world, 400, 100);
    world.rest(15 * MINUTE);
    assert_eq!(world.engine.expected_reclaim(world.now).mib(), 300, "60 % of all that is resident");
}
