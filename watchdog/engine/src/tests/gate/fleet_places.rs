//! Limits of a fleet: given responses of a store, when launches are requested, then none starts without a slot.

use std::time::Duration;

use super::{ask, granted, launch, queue, queue_position, refused, roomy, run, waiting};
use crate::effect::{Effect, PersistCommand};
use crate::gate::{AnsweredAsk, Cancellation, GateRecord};
use crate::input::Input;
use crate::tests::world::{SECOND, USER, World};
use watchdog_api::RefusalReason;
use watchdog_types::{
    AskNumber, BootTime, FleetAnswer, FleetAsk, FleetFence, FleetName, FleetShares, HostIncarnation, HostRow, PoolName,
    ProcessId,
};

const STORE: &str = "store = \"redis://s\"";

fn fleet(keys: &str) -> World {
    roomy(&format!("[fleet]\n{STORE}\n{keys}\n"))
}

fn name(text: &str) -> FleetName {
    FleetName::new(text).unwrap()
}

/// All asks so far, in order.
fn asks(world: &World) -> Vec<FleetAsk> {
    let asked = |effect: &Effect| match effect {
        Effect::AskFleet(ask) => Some((**ask).clone()),
        _ => None,
    };
    world.effects.iter().filter_map(asked).collect()
}

fn row(world: &World) -> HostRow {
    let stated = |effect: &Effect| match effect {
        Effect::RestateFleet(row) => Some((**row).clone()),
        _ => None,
    };
    world.effects.iter().rev().find_map(stated).expect("a row")
}

fn answer(world: &mut World, number: u64, answer: FleetAnswer) {
    answer_with(world, number, answer, FleetShares::default());
}

fn answer_with(world: &mut World, number: u64, answer: FleetAnswer, shares: FleetShares) {
    world.feed(Input::FleetAnswer(Box::new(AnsweredAsk { number: AskNumber(number), answer, shares })));
}

fn share(hosts: u32, share: u32) -> FleetShares {
    FleetShares { hosts, pools: [(PoolName::All, share)].into() }
}

fn granted_until(deadline: BootTime) -> FleetAnswer {
    let incarnation = HostIncarnation { boot_id: name("boot"), machine_id: name("machine"), generation: 1 };
    FleetAnswer::Granted { fence: FleetFence { incarnation, number: 1 }, deadline }
}

fn grant(world: &mut World, number: u64) {
    let deadline = world.now.plus(SECOND);
    answer(world, number, granted_until(deadline));
}

fn full(pool: PoolName) -> FleetAnswer {
    FleetAnswer::Refused {
        pool,
        limit: 2,
        held: 2,
        by_host: vec![(name("host-b"), 2)],
        ahead: 0,
        retry_after: 10 * SECOND,
    }
}

fn lost() -> FleetAnswer {
    FleetAnswer::StoreLost { error: "gone".into() }
}

fn start(world: &mut World) -> ProcessId {
    let launch = launch(world);
    ask(world, launch)
}

#[test]
fn launch_waits_for_slot() {
    let mut world = fleet("max_sessions = 2\nmax_sessions_per_user = 3");
    let process = start(&mut world);
    assert_eq!((granted(&world), queue_position(&world, process)), (vec![], None), "nothing is said before the answer");
    let asked = &asks(&world)[0];
    let limits: Vec<(String, u32)> = asked.pools.iter().map(|(pool, limit)| (pool.to_string(), *limit)).collect();
    assert_eq!(limits, [("all".to_owned(), 2), (format!("user:{}", USER.0), 3)]);
    assert_eq!(asked.number, AskNumber(1));
    grant(&mut world, 1);
    assert_eq!(granted(&world), [process]);
    let row = row(&world);
    assert_eq!((row.settled, row.held[&PoolName::All], row.waiting), (AskNumber(1), 1, 0));
    assert_eq!(row.held[&PoolName::Profile(name("claude-code"))], 1);
}

#[test]
fn refused_launch_waits_for_fleet() {
    let mut world = fleet("max_sessions = 2");
    let process = start(&mut world);
    answer(&mut world, 1, full(PoolName::All));
    let waits = queue_position(&world, process).unwrap();
    assert_eq!((waits.position, waits.blocker.reason), (1, RefusalReason::Fleet));
    assert_eq!(waits.blocker.detail, "waits for a fleet slot: 2 of 2 in use (host-b 2)");
    assert_eq!((waits.blocker.bound.as_str(), waits.blocker.retry_after), ("[fleet] max_sessions", Some(10 * SECOND)));
    assert_eq!((queue(&world).waiting[0].reason, row(&world).waiting), (RefusalReason::Fleet, 1));
    let queued = |effect: &&Effect| matches!(effect, Effect::Persist(PersistCommand::Gate(GateRecord::Queued { .. })));
    assert_eq!(world.effects.iter().filter(queued).count(), 1);
    // No ask before its time, then one.
    world.pass(9 * SECOND);
    assert_eq!(asks(&world).len(), 1);
    world.pass(2 * SECOND);
    assert_eq!(asks(&world).len(), 2);
    grant(&mut world, 2);
    assert_eq!(granted(&world), [process]);
    assert_eq!(world.effects.iter().filter(queued).count(), 1, "queued once");
}

#[test]
fn call_of_store_repeats_ask() {
    let mut world = fleet("max_sessions = 2");
    let processes = [start(&mut world), start(&mut world)];
    answer(&mut world, 1, full(PoolName::All));
    answer(&mut world, 2, full(PoolName::All));
    let third = start(&mut world);
    assert_eq!(asks(&world).len(), 2, "a full pool is not asked for");
    assert_eq!(
        queue_position(&world, third).unwrap().blocker.detail,
        "waits for a fleet slot: 2 of 2 in use (host-b 2)"
    );
    world.feed(Input::FleetWake);
    assert_eq!(asks(&world).len(), 5);
    grant(&mut world, 3);
    answer(&mut world, 4, full(PoolName::All));
    answer(&mut world, 5, full(PoolName::All));
    assert_eq!(granted(&world), [processes[0]]);
    assert_eq!(waiting(&world), [processes[1].pid.0, third.pid.0]);
}

#[test]
fn late_grant_starts_nothing() {
    let mut world = fleet("max_sessions = 2");
    let process = start(&mut world);
    let deadline = world.now.plus(SECOND);
    world.pass(2 * SECOND);
    answer(&mut world, 1, granted_until(deadline));
    assert_eq!(granted(&world), []);
    assert_eq!((row(&world).settled, row(&world).held.len()), (AskNumber(1), 0), "the store drops the grant");
    world.pass(SECOND);
    grant(&mut world, 2);
    assert_eq!(granted(&world), [process]);
}

#[test]
fn unused_grant_is_settled() {
    let mut world = fleet("max_sessions = 2");
    let process = start(&mut world);
    world.feed(Input::CancelLaunch(process, Cancellation::ClientGone));
    grant(&mut world, 1);
    assert_eq!((granted(&world), row(&world).settled, row(&world).held.len()), (vec![], AskNumber(1), 0));
    // An answer that comes twice changes nothing.
    grant(&mut world, 1);
    assert_eq!(granted(&world), []);
}

#[test]
fn local_limit_precedes_fleet() {
    let mut world =
        roomy(&format!("[gate]\nmax_sessions = 1\n[fleet]\n{STORE}\nmax_sessions = 9\nmax_sessions_per_user = 9\n"));
    let first = start(&mut world);
    let second = start(&mut world);
    assert_eq!(asks(&world).len(), 1, "the first has the local place while it is asked about");
    assert_eq!(queue_position(&world, second).unwrap().blocker.reason, RefusalReason::Quota);
    answer(&mut world, 1, full(PoolName::User(name("1000"))));
    assert_eq!(asks(&world).len(), 1, "the pool of their user is full");
    world.feed(Input::FleetWake);
    grant(&mut world, 2);
    assert_eq!(granted(&world), [first]);
}

#[test]
fn full_profile_lets_others_pass() {
    let config = format!(
        "[fleet]\n{STORE}\n[[profile]]\nname = \"claude-code\"\nfleet_max_sessions = 1\n[[profile]]\nname = \"codex\"\nfleet_max_sessions = 1\n"
    );
    let mut world = roomy(&config);
    let claude = start(&mut world);
    answer(&mut world, 1, full(PoolName::Profile(name("claude-code"))));
    let mut other = launch(&mut world);
    other.profile = Some("codex".into());
    other.image = crate::tests::world::image("/usr/bin/codex", &["codex"]);
    let codex = ask(&mut world, other);
    grant(&mut world, 2);
    assert_eq!(granted(&world), [codex]);
    assert_eq!(waiting(&world), [claude.pid.0]);
    let detail = &queue(&world).waiting[0].detail;
    assert_eq!(detail, "waits for a fleet slot: 2 of 2 of profile claude-code in use (host-b 2)");
}

#[test]
fn impatient_launch_is_refused() {
    let mut world = fleet("max_sessions = 2");
    let mut hasty = launch(&mut world);
    hasty.waits = false;
    let process = ask(&mut world, hasty);
    assert_eq!(refused(&world, process), None, "the fleet is asked first");
    answer(&mut world, 1, full(PoolName::All));
    assert_eq!((refused(&world, process), waiting(&world)), (Some(RefusalReason::Fleet), vec![]));
}

#[test]
fn lost_store_leaves_share() {
    let mut world = fleet("max_sessions = 5");
    let first = start(&mut world);
    grant(&mut world, 1);
    run(&mut world, first);
    let second = start(&mut world);
    answer_with(&mut world, 2, lost(), share(2, 2));
    assert_eq!(granted(&world), [first, second]);
    let third = start(&mut world);
    answer_with(&mut world, 3, lost(), share(2, 2));
    let detail = queue_position(&world, third).unwrap().blocker.detail;
    assert_eq!(
        detail,
        "waits for the fleet's store, which is lost: 2 held here, this host's share is 2 (5 for 2 hosts)"
    );
    assert_eq!(row(&world).held[&PoolName::All], 2, "what was granted without the store is restated");
}

#[test]
fn unknown_share_starts_nothing() {
    let mut world = fleet("max_sessions = 5\nmax_sessions_per_user = 4");
    let process = start(&mut world);
    answer(&mut world, 1, lost());
    let detail = queue_position(&world, process).unwrap().blocker.detail;
    let expected =
        "waits for the fleet's store, which is lost: how many sessions this host may run without it is unknown";
    assert_eq!((granted(&world), detail.as_str()), (vec![], expected));
    // A user whose sessions run nowhere has an equal share, and only the pool of all sessions is unequal.
    world.feed(Input::FleetWake);
    answer_with(&mut world, 2, lost(), share(2, 1));
    assert_eq!(granted(&world), [process]);
}

#[test]
fn lost_store_denies_or_allows() {
    for (policy, starts) in [("deny", false), ("allow", true)] {
        let mut world = fleet(&format!("max_sessions = 1\nwhen_lost = \"{policy}\""));
        for number in 1..=3 {
            start(&mut world);
            if asks(&world).len() >= number {
                answer(&mut world, number as u64, lost());
            }
        }
        assert_eq!(granted(&world).len(), if starts { 3 } else { 0 }, "{policy}");
    }
}

#[test]
fn paused_store_and_duplicate_wait() {
    let mut world = fleet("max_sessions = 5");
    let process = start(&mut world);
    let until = world.now.plus(12 * SECOND);
    answer(&mut world, 1, FleetAnswer::Paused { until });
    let detail = queue_position(&world, process).unwrap().blocker.detail;
    assert_eq!(detail, "grants are paused: the fleet's store is new or has lost data; they resume within 12s");
    world.pass(13 * SECOND);
    answer(&mut world, 2, FleetAnswer::DuplicateMachine { host: name("host-z") });
    assert!(queue(&world).waiting[0].detail.contains("host-z has the same name or machine id"));
    assert_eq!(granted(&world), []);
}

#[test]
fn silent_store_thread_times_out() {
    let mut world = fleet("max_sessions = 5\nwhen_lost = \"allow\"");
    let process = start(&mut world);
    world.pass(Duration::from_secs(31));
    assert_eq!(granted(&world), [process]);
}

#[test]
fn ended_session_frees_its_slot() {
    let mut world = fleet("max_sessions = 5");
    let process = start(&mut world);
    grant(&mut world, 1);
    run(&mut world, process);
    assert_eq!(row(&world).held[&PoolName::All], 1);
    world.kill(process);
    assert_eq!(row(&world).held.len(), 0);
}

#[test]
fn restored_leases_are_restated() {
    let mut world = fleet("max_sessions = 5");
    let process = start(&mut world);
    grant(&mut world, 1);
    run(&mut world, process);
    let records = world.engine.gate_records();
    let mut next = fleet("max_sessions = 5");
    next.feed(Input::Restore(Box::new(crate::gate::RestoredGate { records, ..Default::default() })));
    assert_eq!((row(&next).held[&PoolName::All], row(&next).settled), (1, AskNumber(0)));
}

fn reload(world: &mut World, keys: &str) {
    let (config, now) = (fleet(keys).engine.config.clone(), world.now);
    world.engine.reconfigure(now, config, &mut world.effects);
}

#[test]
fn raised_limit_repeats_ask() {
    let mut world = fleet("max_sessions = 2");
    let process = start(&mut world);
    answer(&mut world, 1, full(PoolName::All));
    reload(&mut world, "max_sessions = 3");
    assert_eq!(asks(&world)[1].pools[&PoolName::All], 3);
    grant(&mut world, 2);
    assert_eq!(granted(&world), [process]);
}

/// Without limits nothing waits, whether the store has refused the launch or has not answered yet.
#[test]
fn removed_limits_release_waiting_launches() {
    let mut world = fleet("max_sessions = 2");
    let refused = start(&mut world);
    answer(&mut world, 1, full(PoolName::All));
    reload(&mut world, "");
    assert_eq!(granted(&world), [refused]);

    let mut world = fleet("max_sessions = 2");
    let asked = start(&mut world);
    reload(&mut world, "");
    answer(&mut world, 1, full(PoolName::All));
    assert_eq!(granted(&world), [asked]);
    assert_eq!(asks(&world).len(), 1);
    assert_eq!(row(&world).held[&PoolName::All], 1, "it counts for other hosts");
}

#[test]
fn fleet_of_reload_waits_for_restart() {
    let mut world = roomy("[gate]\nmax_sessions = 1\n");
    let first = start(&mut world);
    start(&mut world);
    let config =
        roomy(&format!("[gate]\nmax_sessions = 2\n[fleet]\n{STORE}\nmax_sessions = 1\n")).engine.config.clone();
    let now = world.now;
    world.engine.reconfigure(now, config, &mut world.effects);
    assert_eq!((granted(&world).len(), granted(&world)[0], asks(&world).len()), (2, first, 0));
}

#[test]
fn host_without_store_asks_nothing() {
    let mut world = roomy("[gate]\nmax_sessions = 4\n");
    let process = start(&mut world);
    world.pass(5 * SECOND);
    assert_eq!(granted(&world), [process]);
    let to_fleet = |effect: &Effect| matches!(effect, Effect::AskFleet(_) | Effect::RestateFleet(_));
    assert!(!world.effects.iter().any(to_fleet));
}
