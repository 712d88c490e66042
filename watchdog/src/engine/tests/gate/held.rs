//! What a granted session is held to, and what goes past the gate.

use super::*;
use crate::api::FindingKind;
use crate::engine::act::Authority;
use crate::engine::gate::{Bounds, Confinement};
use crate::engine::id::SessionId;

const BOUNDED: &str = "[[profile]]\nname = \"claude-code\"\nmax_memory = \"2GiB\"\nmax_helpers = 4\nmax_depth = 1\n";

fn confined() -> (World, ProcessId, SessionId) {
    let mut world = roomy(BOUNDED);
    let agent = start(&mut world);
    let session = grants(&world)[0].session;
    let confinement = Confinement { cgroup: Some("/agent".into()), problem: None };
    world.tell(Input::Confined(session, confinement));
    (world, agent, session)
}

/// The process is ended, with whichever power.
fn ends(world: &World, process: ProcessId) -> bool {
    world.effects.iter().any(|effect| matches!(effect, Effect::EndUngated(ended, _) if *ended == process))
}

/// The cgroup is looked into, twice.
fn looks(world: &mut World, session: SessionId, inside: &[ProcessId]) {
    for _ in 0..2 {
        world.effects.clear();
        world.pass(Duration::from_secs(4));
        assert!(world.effects.contains(&Effect::LookIntoCgroup(session, "/agent".into())));
        let pids = inside.iter().map(|process| process.pid).collect();
        world.tell(Input::CgroupMembers(session, pids));
    }
}

#[test]
fn the_bounds_of_its_profile_are_told_to_the_kernel_and_the_client() {
    let (world, agent, _) = confined();
    let bounds =
        Bounds { max_memory: Some(Bytes::from_mib(2 * GIB)), max_helpers: Some(4), max_depth: Some(1), cgroup: true };
    assert!(world.effects.contains(&Effect::Bound(agent, bounds)));
    assert_eq!(grants(&world)[0].limits, bounds);
}

#[test]
fn the_kernel_lets_go_of_a_session_when_its_last_process_is_gone() {
    let (mut world, agent, _) = confined();
    let helper = world.spawn(agent, &["/usr/bin/node", "server.js"]);
    world.kill(agent);
    assert!(!world.effects.contains(&Effect::Unbound(agent)));
    world.kill(helper);
    assert!(world.effects.contains(&Effect::Unbound(agent)));
}

#[test]
fn the_kernel_holds_a_session_while_an_agent_lives_that_began_inside_of_it() {
    let (mut world, agent, _) = confined();
    let inner = world.spawn(agent, &["/usr/bin/codex"]);
    world.kill(agent);
    assert!(!world.effects.contains(&Effect::Unbound(agent)));
    world.kill(inner);
    assert!(world.effects.contains(&Effect::Unbound(agent)));
}

#[test]
fn another_configuration_has_other_bounds_at_once() {
    let (mut world, agent, _) = confined();
    world.effects.clear();
    let config = config::parse(std::path::Path::new("test.toml"), &BOUNDED.replace("= 4", "= 9")).unwrap();
    let (now, mut effects) = (world.now, Vec::new());
    world.engine.reconfigure(now, std::sync::Arc::new(config), &mut effects);
    let bound = |effect: &Effect| matches!(effect, Effect::Bound(root, bounds) if *root == agent && bounds.max_helpers == Some(9));
    assert!(effects.iter().any(bound), "{effects:#?}");
}

#[test]
fn the_agent_behind_a_launcher_is_no_helper_of_it() {
    let mut world = roomy("");
    let asked = launch(&mut world);
    let launcher = ask(&mut world, Launch { image: image("/usr/bin/codex", &["codex"]), ..asked });
    world.exec(launcher, "/usr/bin/node", &["node", "/usr/bin/codex"]);
    let agent = world.fork(launcher);
    world.exec(agent, "/x/codex", &["codex"]);
    let helper = world.fork(agent);
    let raised: Vec<ProcessId> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::RaiseOomScore(process, _) => Some(*process),
            _ => None,
        })
        .collect();
    assert_eq!(raised, [helper]);
}

#[test]
fn an_agent_inside_a_granted_session_came_through_the_gate_too() {
    let mut world = roomy("");
    let outer = start(&mut world);
    let inner = world.spawn(outer, &["/usr/bin/codex"]);
    assert!(world.session(inner).gated);
    let bound =
        |root: ProcessId| world.effects.iter().any(|effect| matches!(effect, Effect::Bound(of, _) if *of == root));
    assert!(bound(outer) && !bound(inner), "what begins inside stays under the bound of what was granted");
    assert!(world.open(FindingKind::Ungated).is_empty());
}

#[test]
fn an_agent_that_was_started_past_the_gate_is_told() {
    let mut world = roomy("");
    let agent = world.claude();
    let findings = world.open(FindingKind::Ungated);
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].pid, findings[0].proposed_action.as_str()), (agent.pid.0, "report"));
    assert!(!world.session(agent).gated);
    world.kill(agent);
    assert!(world.open(FindingKind::Ungated).is_empty());
}

#[test]
fn what_a_person_adopts_is_meant_to_run() {
    let mut world = roomy("");
    let agent = world.claude();
    world.tell(Input::Adopt(agent));
    assert_eq!(world.all(FindingKind::Ungated)[0].closed_because.as_deref(), Some("adopted"));
    world.pass(Duration::from_secs(5));
    assert!(world.open(FindingKind::Ungated).is_empty());
}

#[test]
fn nothing_is_told_where_that_is_allowed() {
    let mut world = roomy(&config_with("ungated = \"allow\""));
    world.claude();
    assert!(world.all(FindingKind::Ungated).is_empty());
}

#[test]
fn what_is_denied_is_ended_once_it_executes_and_never_what_ran_before() {
    let mut world = roomy(&config_with("ungated = \"deny\""));
    let before = world.unseen(SHELL, "/usr/bin/claude");
    let scan = world.scan(false);
    world.tell(scan);
    assert!(!ends(&world, before));
    let agent = world.agent_with("/usr/bin/node", &["node", "/x/node_modules/@openai/codex/bin/codex.js"]);
    assert!(world.effects.contains(&Effect::EndUngated(agent, Authority::Session(USER))));
    let granted = start(&mut world);
    run(&mut world, granted);
    let inner = world.spawn(granted, &["/usr/bin/codex"]);
    assert!(![granted, inner].iter().any(|process| ends(&world, *process)));
}

#[test]
fn a_profile_may_be_exempt() {
    let mut world = roomy("[gate]\nungated = \"deny\"\n[[profile]]\nname = \"codex\"\nungated = \"allow\"\n");
    let agent = world.agent("/usr/bin/codex");
    assert!(!ends(&world, agent));
    assert!(world.all(FindingKind::Ungated).is_empty());
}

#[test]
fn a_process_that_leaves_its_cgroup_is_still_of_the_session_and_told() {
    let (mut world, agent, session) = confined();
    let stays = world.spawn(agent, &["/usr/bin/node", "stays.js"]);
    let leaves = world.spawn(agent, &["/usr/bin/node", "leaves.js"]);
    looks(&mut world, session, &[agent, stays, leaves]);
    assert!(world.open(FindingKind::Ungated).is_empty());

    looks(&mut world, session, &[agent, stays]);
    let findings = world.open(FindingKind::Ungated);
    assert_eq!(findings.iter().map(|finding| finding.pid).collect::<Vec<_>>(), [leaves.pid.0]);
    assert!(
        findings[0].summary.ends_with("left its session's cgroup: the cap of 2.0 GiB no longer applies"),
        "{findings:?}"
    );
    assert_eq!(world.session(agent).processes.len(), 3);

    looks(&mut world, session, &[agent, stays, leaves]);
    assert!(world.open(FindingKind::Ungated).is_empty());
    assert_eq!(world.all(FindingKind::Ungated)[0].closed_because.as_deref(), Some("back in its cgroup"));
}

#[test]
fn a_child_that_is_forked_during_a_look_has_not_left() {
    let (mut world, agent, session) = confined();
    world.pass(Duration::from_secs(4));
    world.spawn(agent, &["/usr/bin/node", "young.js"]);
    world.tell(Input::CgroupMembers(session, vec![agent.pid]));
    world.pass(Duration::from_secs(4));
    world.spawn(agent, &["/usr/bin/node", "younger.js"]);
    world.tell(Input::CgroupMembers(session, vec![agent.pid, Pid(agent.pid.0 + 1)]));
    assert!(world.open(FindingKind::Ungated).is_empty());
}

#[test]
fn helpers_go_before_their_agent_when_memory_runs_out() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\noom_score_adj = 250\n");
    let agent = start(&mut world);
    run(&mut world, agent);
    let helper = world.fork(agent);
    assert_eq!(grants(&world)[0].oom_score_adj, 250);
    assert!(world.effects.contains(&Effect::RaiseOomScore(helper, 450)));
    world.effects.clear();
    world.fork(helper);
    let raised = world.effects.iter().any(|effect| matches!(effect, Effect::RaiseOomScore(..)));
    assert!(!raised, "what is below inherits it");
    let ungated = world.claude();
    world.fork(ungated);
    assert!(!world.effects.iter().any(|effect| matches!(effect, Effect::RaiseOomScore(..))));
}
