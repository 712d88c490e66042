//! What the daemon wrote down is what the next one knows.

use super::*;
use crate::gate::{GateRecord, RestoredGate};
use crate::{Engine, ID_BLOCK};
use std::sync::Arc;
use watchdog_api::FindingKind;
use watchdog_types::{ActionId, BootTime, FindingId, LastIds, SessionId};

/// What was written down so far.
fn records(world: &World) -> Vec<GateRecord> {
    let record = |effect: &Effect| match effect {
        Effect::Persist(PersistCommand::Gate(record)) => Some(record.clone()),
        _ => None,
    };
    world.effects.iter().filter_map(record).collect()
}

/// The daemon dies, and another takes its slot: the kernel's map is lost with it.
pub(super) fn restart(world: &mut World, config: &str, records: Vec<GateRecord>) {
    let config = config::parse(std::path::Path::new("test.toml"), config).unwrap();
    world.engine = Engine::new(Arc::new(config));
    world.effects.clear();
    world.tracked.clear();
    world.feed(Input::Restore(Box::new(RestoredGate { records, ..RestoredGate::default() })));
    world.now = BootTime(world.now.0 + 1);
    let scan = world.scan(false);
    world.feed(scan);
    memory(world, 1_024 * GIB, 1_000 * GIB);
}

const ONE: &str = "[gate]\nmax_sessions = 1\n";

#[test]
fn restart_restores_leases() {
    let mut world = roomy(ONE);
    let asked = launch(&mut world);
    // No profile would recognise it.
    let agent = ask(&mut world, Launch { image: image("/opt/own", &["own"]), ..asked });
    world.exec(agent, "/opt/own", &["own"]);
    let records = records(&world);
    restart(&mut world, ONE, records);
    let session = world.session(agent);
    assert!(session.gated);
    assert_eq!(session.profile, "other");
    let next = start(&mut world);
    assert_eq!(granted(&world), []);
    world.kill(agent);
    assert_eq!(granted(&world), [next]);
}

#[test]
fn granted_launches_survive_restarts() {
    let mut world = roomy("");
    let launched = start(&mut world);
    run(&mut world, launched);
    world.kill(launched);
    let written = records(&world);
    restart(&mut world, "", written);
    // The log is written anew, without the lease, and another daemon reads it.
    let compact = world.engine.gate_records();
    assert!(!compact.iter().any(|record| matches!(record, GateRecord::Granted(_))), "{compact:?}");
    restart(&mut world, "", compact);
    let agent = world.claude();
    let findings = world.open(FindingKind::Ungated);
    assert_eq!(findings.iter().map(|finding| finding.pid).collect::<Vec<_>>(), [agent.pid.0]);
}

#[test]
fn restart_restores_nested_lease() {
    let mut world = roomy(ONE);
    let outer = world.claude();
    let shell = world.spawn(outer, &["sh", "-c", "watchdogctl launch own &"]);
    let client = world.fork(shell);
    world.kill(shell);
    let agent = ask(&mut world, Launch { image: image("/opt/own", &["own"]), ..launch_of(client) });
    world.kill(outer);
    assert_eq!(granted(&world), [agent]);
    let records = records(&world);
    assert!(records.iter().any(|record| matches!(record, GateRecord::Parted(parted, _) if *parted == agent)));
    restart(&mut world, ONE, records);
    assert_eq!(world.session(agent).profile, "other");
    assert!(world.session(agent).gated);
    let next = start(&mut world);
    assert_eq!(granted(&world), []);
    world.kill(agent);
    assert_eq!(granted(&world), [next]);
}

#[test]
fn restart_ends_lease_of_dead_agent() {
    let mut world = roomy(ONE);
    let agent = start(&mut world);
    let records = records(&world);
    world.vanish(agent);
    restart(&mut world, ONE, records);
    assert_eq!(queue(&world).leases, []);
    assert!(world.effects.contains(&Effect::Persist(PersistCommand::Gate(GateRecord::Ended(agent)))));
    let next = start(&mut world);
    assert_eq!(granted(&world), [next]);
}

#[test]
fn reconnecting_clients_keep_their_positions() {
    let mut world = roomy(ONE);
    let agent = start(&mut world);
    let crowd = crowd(&mut world, 4);
    let records = records(&world);
    restart(&mut world, ONE, records);
    world.kill(agent);
    assert_eq!(granted(&world), [], "no client has reconnected yet");
    for process in crowd.iter().rev() {
        ask(&mut world, launch_of(*process));
    }
    assert_eq!(granted(&world), crowd[..1]);
    assert_eq!(waiting(&world), pids(&crowd[1..]));
}

#[test]
fn missing_client_is_dropped() {
    let mut world = roomy(ONE);
    let agent = start(&mut world);
    let crowd = crowd(&mut world, 2);
    let records = records(&world);
    restart(&mut world, ONE, records);
    world.kill(agent);
    ask(&mut world, launch_of(crowd[1]));
    assert_eq!(granted(&world), []);
    world.pass(Duration::from_secs(31));
    assert_eq!(granted(&world), [crowd[1]]);
    assert_eq!(waiting(&world), Vec::<u32>::new());
}

#[test]
fn dead_client_is_dropped() {
    let mut world = roomy(ONE);
    let agent = start(&mut world);
    let crowd = crowd(&mut world, 2);
    let records = records(&world);
    world.vanish(crowd[0]);
    restart(&mut world, ONE, records);
    world.kill(agent);
    ask(&mut world, launch_of(crowd[1]));
    assert_eq!(granted(&world), [crowd[1]]);
}

#[test]
fn lost_grant_is_repeated() {
    let mut world = roomy(ONE);
    let agent = start(&mut world);
    let records = records(&world);
    restart(&mut world, ONE, records);
    ask(&mut world, launch_of(agent));
    assert_eq!(granted(&world), [agent]);
    assert_eq!(queue(&world).leases.len(), 1);
}

#[test]
fn restart_and_rewrite_keep_rates() {
    let config = "[gate]\nrate = \"1 per 5m\"\n";
    let mut world = roomy(config);
    let agent = start(&mut world);
    world.kill(agent);
    let records = world.engine.gate_records();
    restart(&mut world, config, records);
    let next = start(&mut world);
    assert_eq!(queue_position(&world, next).unwrap().blocker.reason, RefusalReason::Rate);
}

#[test]
fn rewritten_records_restore_the_same() {
    let mut world = roomy(ONE);
    let crowd = crowd(&mut world, 5);
    world.kill(crowd[0]);
    world.feed(Input::CancelLaunch(crowd[2], Cancellation::ClientGone));
    let (written, anew) = (records(&world), world.engine.gate_records());
    let known = |records: Vec<GateRecord>| {
        let mut other = roomy(ONE);
        other.feed(Input::Restore(Box::new(RestoredGate { records, ..RestoredGate::default() })));
        (waiting(&other), queue(&other).leases)
    };
    let (of_file, of_new) = (known(written), known(anew));
    assert_eq!(of_file, of_new);
    assert_eq!(of_file.0, pids(&crowd[3..]));
}

/// What an engine writes that only knows these records.
fn written_again(records: Vec<GateRecord>) -> Vec<GateRecord> {
    let mut other = roomy(ONE);
    other.feed(Input::Restore(Box::new(RestoredGate { records, ..RestoredGate::default() })));
    other.engine.gate_records()
}

#[test]
fn restarts_before_scan_lose_nothing() {
    let mut world = roomy(ONE);
    let crowd = crowd(&mut world, 5);
    let outer = world.claude();
    let helper = world.spawn(outer, &["nohup", "server"]);
    world.feed(Input::Adopt(helper));
    let orphan = world.spawn(outer, &["node", "server.js"]);
    world.kill(outer);
    world.wait(std::time::Duration::from_secs(60));
    assert!(!world.open(watchdog_api::FindingKind::Orphan).is_empty(), "{orphan:?} is one");
    let known = |records: &[GateRecord]| {
        let mut other = roomy(ONE);
        other.feed(Input::Restore(Box::new(RestoredGate { records: records.to_vec(), ..RestoredGate::default() })));
        (waiting(&other), queue(&other).leases)
    };
    let mut once = written_again(records(&world));
    assert_eq!(known(&once).0, pids(&crowd[1..]));
    for _ in 0..5 {
        let again = written_again(once.clone());
        assert_eq!(again, once);
        once = again;
    }
}

#[test]
fn session_keeps_its_id() {
    let mut world = roomy("");
    let agents = [world.claude(), world.claude(), world.claude()];
    let ids = |world: &World| agents[1..].iter().map(|agent| world.session(*agent).id).collect::<Vec<_>>();
    let before = ids(&world);
    world.kill(agents[0]);
    for _ in 0..3 {
        let records = world.engine.gate_records();
        restart(&mut world, "", records);
        assert_eq!(ids(&world), before);
    }
    let new = world.claude();
    assert_eq!(world.session(new).id, before[1] + 1, "no id of a dead session is given again");
}

#[test]
fn ids_begin_after_those_reserved() {
    let ids = LastIds { session: SessionId(40), finding: FindingId(50), action: ActionId(60) };
    let mut world = roomy("");
    world.feed(Input::Restore(Box::new(RestoredGate { ids, ..RestoredGate::default() })));
    assert_eq!(world.engine.last_ids(), ids);
    let mut reserved = Vec::new();
    for _ in 0..ID_BLOCK {
        let agent = world.claude();
        let last = world.engine.last_ids();
        let new = world.effects.drain(..).filter_map(|effect| match effect {
            Effect::Persist(PersistCommand::Ids(upto)) => Some((last, upto)),
            _ => None,
        });
        reserved.extend(new);
        world.kill(agent);
    }
    assert_eq!(world.engine.last_ids().session, SessionId(40 + ID_BLOCK));
    let (last, upto) = reserved[0];
    assert_eq!(reserved.len(), 1, "{reserved:?}");
    assert!(last.session.0 < 40 + ID_BLOCK, "half of a block is left when the next is reserved");
    assert_eq!(upto, last.plus(ID_BLOCK));
}

#[test]
fn restored_finding_keeps_its_id() {
    let mut world = roomy("");
    let agent = world.claude();
    world.spawn(agent, &["node", "server.js"]);
    world.kill(agent);
    world.wait(std::time::Duration::from_secs(60));
    let before = world.open(watchdog_api::FindingKind::Orphan)[0].clone();
    for _ in 0..2 {
        let records = world.engine.gate_records();
        restart(&mut world, "", records);
        world.wait(std::time::Duration::from_secs(60));
        let again = world.open(watchdog_api::FindingKind::Orphan)[0].clone();
        assert_eq!((again.id, again.opened_at.clone()), (before.id, before.opened_at.clone()));
    }
}

#[test]
fn unobserved_finding_is_closed() {
    let mut world = roomy("");
    let agent = world.claude();
    let helper = world.spawn(agent, &["node", "server.js"]);
    world.kill(agent);
    world.wait(std::time::Duration::from_secs(60));
    let before = world.open(watchdog_api::FindingKind::Orphan)[0].clone();
    world.vanish(helper);
    let records = world.engine.gate_records();
    restart(&mut world, "", records);
    world.wait(std::time::Duration::from_secs(400));
    let closed = world.all(watchdog_api::FindingKind::Orphan);
    assert_eq!((closed[0].id, closed.len()), (before.id, 1));
    assert!(closed[0].closed_because.as_ref().is_some_and(|why| why.contains("restarted")), "{closed:?}");
    let is_closed =
        |record: &GateRecord| matches!(record, GateRecord::FindingClosed(finding) if finding.0 == before.id);
    assert!(self::records(&world).iter().any(is_closed), "a later run does not restore it");
}
