use super::*;
use crate::reclaim::{ReclaimDemand, ReclaimRequestError};
use watchdog_api::{ReclaimRunState, ReclaimTrigger};
use watchdog_types::{SessionId, Viewer};

fn demand(world: &mut World, uid: Uid, session: Option<SessionId>) -> Result<(), ReclaimRequestError> {
    let demand = ReclaimDemand { uid, session };
    let checked = world.engine.check_reclaim(demand);
    world.feed(Input::RequestReclaim(demand));
    checked
}

#[test]
fn active_session_paged_out_on_request() {
    let mut world = host("[reclaim]\nmode = \"off\"\n");
    let [agent, server] = session(&mut world, 400, 100);
    let named = SessionId(world.session(agent).id);
    assert_eq!(demand(&mut world, USER, Some(named)), Ok(()));
    assert_eq!(ordered(&world), [[server, agent]]);
    world.wait(5 * SECOND);
    let (asked_by, run) = world.engine.reclaim_run(1, world.now, &naming()).unwrap();
    assert_eq!((asked_by, run.trigger, run.state), (Some(USER), ReclaimTrigger::Request, ReclaimRunState::Done));
    assert_eq!((run.paged_out_bytes, run.resident_after_bytes, run.processes), (500 << 20, 0, 2));
    assert_eq!(run.note, None);
}

#[test]
fn users_page_out_only_own_sessions() {
    let mut world = host("");
    let [agent, _] = session(&mut world, 400, 100);
    let named = SessionId(world.session(agent).id);
    world.rest(15 * MINUTE);
    assert_eq!(demand(&mut world, Uid(77), Some(named)), Err(ReclaimRequestError::NotYours));
    assert_eq!(demand(&mut world, Uid(77), None), Ok(()));
    world.wait(SECOND);
    assert_eq!(ordered(&world), [[]; 0]);
    assert_eq!(world.engine.reclaims(world.now, Viewer::User(USER), &naming()).runs.len(), 0);
    assert_eq!(demand(&mut world, Uid::ROOT, None), Ok(()));
    assert_eq!(ordered(&world).len(), 1);
}

#[test]
fn impossible_requests_name_the_reason() {
    let mut world = host("[reclaim]\nmode = \"off\"\n");
    session(&mut world, 400, 100);
    assert_eq!(demand(&mut world, USER, None), Err(ReclaimRequestError::Off));
    assert_eq!(demand(&mut world, USER, Some(SessionId(99))), Err(ReclaimRequestError::NoSession(SessionId(99))));
    world.host_is(HostMemory { swap_free: Bytes::from_mib(100), ..world.last_host });
    assert_eq!(demand(&mut world, USER, Some(SessionId(1))), Err(ReclaimRequestError::SwapFull));
    assert_eq!(ordered(&world), [[]; 0]);
}

#[test]
fn second_request_waits_for_first() {
    let mut world = host("");
    session(&mut world, 400, 100);
    world.slow_swap = true;
    assert_eq!(demand(&mut world, USER, Some(SessionId(1))), Ok(()));
    assert_eq!(demand(&mut world, USER, Some(SessionId(1))), Err(ReclaimRequestError::Busy));
    assert_eq!(ordered(&world).len(), 1);
}

#[test]
fn plan_changes_nothing() {
    let mut world = host("");
    let [_, server] = session(&mut world, 400, 100);
    world.feed(Input::Adopt(server));
    let demand = ReclaimDemand { uid: USER, session: Some(SessionId(1)) };
    let plan = world.engine.plan_reclaim(world.now, demand, &naming());
    assert_eq!((plan.state, plan.processes, plan.paged_out_bytes), (ReclaimRunState::Planned, 1, 400 << 20));
    let exempt = plan.exempt.iter().map(|exempt| (exempt.pid, exempt.because.as_str()));
    assert_eq!(exempt.collect::<Vec<_>>(), [(server.pid.0, "kept: adopted")]);
    assert_eq!(ordered(&world), [[]; 0]);
}

#[test]
fn without_swap_only_files_paged_out() {
    let mut world = host("");
    let [agent, _] = session(&mut world, 400, 100);
    world.sample(agent, Memory { anon: Bytes::from_mib(400), file: Bytes::from_mib(60), ..Memory::default() });
    world.host_is(HostMemory { swap_total: Bytes(0), swap_free: Bytes(0), ..world.last_host });
    assert_eq!(demand(&mut world, USER, Some(SessionId(1))), Ok(()));
    assert_eq!(world.page_outs.len(), 1);
    assert_eq!(world.page_outs[0].1.processes[0].budget, Bytes::from_mib(60));
}
