use super::*;
use crate::actions::Permissions;

fn short_after_rest(world: &mut World) {
    world.rest(15 * MINUTE);
    available(world, SHORT);
    world.wait(10 * SECOND);
}

#[test]
fn kept_processes_stay_resident() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    world.feed(Input::Adopt(server));
    short_after_rest(&mut world);
    assert_eq!(ordered(&world), [[agent]]);
}

#[test]
fn busy_kept_process_delays_no_session() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    world.feed(Input::Adopt(server));
    world.does(server, 20 * SECOND, 9_000, 9_000_000);
    short_after_rest(&mut world);
    assert_eq!(ordered(&world), [[agent]]);
}

#[test]
fn included_kept_processes_are_paged_out() {
    let mut world = host("[reclaim]\ninclude = [\"*/mcp-server-memory\"]\n");
    let [agent, server] = session(&mut world, 400, 100);
    world.feed(Input::Adopt(server));
    short_after_rest(&mut world);
    assert_eq!(ordered(&world), [[server, agent]]);
}

#[test]
fn process_of_other_user_stays_resident() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    let foreign = world.fork(server);
    world.belongs_to(foreign, Uid(77));
    world.exec(foreign, "/usr/bin/node", &["/usr/bin/node", "/x/sudo.js"]);
    world.memory(foreign, Bytes::from_mib(300));
    short_after_rest(&mut world);
    assert_eq!(ordered(&world), [[server, agent]]);
}

#[test]
fn daemon_and_key_holders_stay_resident() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    let keys = world.spawn(agent, &["/usr/bin/gpg-agent", "--daemon"]);
    world.memory(keys, Bytes::from_mib(50));
    world.feed(Input::Permissions(Permissions { missing: None, protected: [server].into() }));
    short_after_rest(&mut world);
    assert_eq!(ordered(&world), [[agent]]);
}

#[test]
fn worker_exclusion_lasts_until_exec() {
    let mut world = host("[reclaim]\nidle = \"1m\"\n");
    let [agent, server] = session(&mut world, 400, 100);
    world.page_out_outcomes.insert(server, PageOutOutcome::Excluded(PageOutExclusion::RealTime));
    short_after_rest(&mut world);
    assert_eq!(ordered(&world), [[server, agent]]);
    touched(&mut world, agent);
    short_after_rest(&mut world);
    assert_eq!(ordered(&world)[1..], [[agent]]);
    world.page_out_outcomes.clear();
    world.exec(server, SERVER[0], &SERVER);
    world.memory(server, Bytes::from_mib(100));
    short_after_rest(&mut world);
    assert_eq!(ordered(&world).last(), Some(&vec![server]));
}

#[test]
fn missing_right_ends_all_attempts() {
    let mut world = host("");
    let [agent, server] = session(&mut world, 400, 100);
    world.page_out_outcomes.insert(agent, PageOutOutcome::NotPermitted);
    world.page_out_outcomes.insert(server, PageOutOutcome::NotPermitted);
    session(&mut world, 200, 50);
    short_after_rest(&mut world);
    assert_eq!(ordered(&world).len(), 1);
    let note = world.engine.reclaims(world.now, watchdog_types::Viewer::Root, &naming()).runs[0].note.clone();
    assert!(note.as_deref().is_some_and(|note| note.contains("CAP_SYS_NICE")), "{note:?}");
}
