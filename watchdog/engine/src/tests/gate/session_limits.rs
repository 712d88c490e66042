//! What a granted session is held to, and what goes past the gate.

use rstest::rstest;

use super::*;
use crate::actions::Authority;
use crate::tests::shown_world::listed;
use watchdog_api::FindingKind;
use watchdog_types::{Bounds, Confinement, SessionId};

const BOUNDED: &str = "[[profile]]\nname = \"claude-code\"\nmax_memory = \"2GiB\"\nmax_helpers = 4\nmax_depth = 1\n";

fn confined() -> (World, ProcessId, SessionId) {
    let mut world = roomy(BOUNDED);
    let agent = start(&mut world);
    let session = grants(&world)[0].session;
    let confinement = Confinement { cgroup: Some("/agent".into()), problem: None };
    world.feed(Input::Confined(session, confinement));
    (world, agent, session)
}

/// The process is ended, with whichever power.
fn ends(world: &World, process: ProcessId) -> bool {
    world
        .effects
        .iter()
        .any(|effect| matches!(effect, Effect::Confine(ConfineCommand::KillUngated(ended, _)) if *ended == process))
}

/// The cgroup is looked into, twice.
fn looks(world: &mut World, session: SessionId, inside: &[ProcessId]) {
    for _ in 0..2 {
        world.effects.clear();
        world.pass(Duration::from_secs(4));
        assert!(world.effects.contains(&Effect::Scan(ScanRequest::CgroupMembers(session, "/agent".into()))));
        let pids = inside.iter().map(|process| process.pid).collect();
        world.feed(Input::CgroupMembers(session, pids));
    }
}

#[test]
fn profile_limits_reach_kernel_and_client() {
    let (world, agent, _) = confined();
    let bounds =
        Bounds { max_memory: Some(Bytes::from_mib(2 * GIB)), max_helpers: Some(4), max_depth: Some(1), cgroup: true };
    assert!(world.effects.contains(&Effect::Bpf(BpfCommand::ApplyLimits(agent, bounds))));
    assert_eq!(grants(&world)[0].limits, bounds);
}

#[test]
fn last_exit_clears_kernel_limits() {
    let (mut world, agent, _) = confined();
    let helper = world.spawn(agent, &["/usr/bin/node", "server.js"]);
    world.kill(agent);
    assert!(!world.effects.contains(&Effect::Bpf(BpfCommand::ClearLimits(agent))));
    world.kill(helper);
    assert!(world.effects.contains(&Effect::Bpf(BpfCommand::ClearLimits(agent))));
}

#[test]
fn nested_session_keeps_kernel_limits() {
    let (mut world, agent, _) = confined();
    let inner = world.spawn(agent, &["/usr/bin/codex"]);
    world.kill(agent);
    assert!(!world.effects.contains(&Effect::Bpf(BpfCommand::ClearLimits(agent))));
    world.kill(inner);
    assert!(world.effects.contains(&Effect::Bpf(BpfCommand::ClearLimits(agent))));
}

#[test]
fn reload_applies_new_limits() {
    let (mut world, agent, _) = confined();
    world.effects.clear();
    let config = config::parse(std::path::Path::new("test.toml"), &BOUNDED.replace("= 4", "= 9")).unwrap();
    let (now, mut effects) = (world.now, Vec::new());
    world.engine.reconfigure(now, std::sync::Arc::new(config), &mut effects);
    let bound = |effect: &Effect| matches!(effect, Effect::Bpf(BpfCommand::ApplyLimits(root, bounds)) if *root == agent && bounds.max_helpers == Some(9));
    assert!(effects.iter().any(bound), "{effects:#?}");
}

#[test]
fn agent_behind_launcher_is_no_helper() {
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
            Effect::Confine(ConfineCommand::RaiseOomScore(process, _)) => Some(*process),
            _ => None,
        })
        .collect();
    assert_eq!(raised, [helper]);
}

#[test]
fn nested_agent_counts_as_gated() {
    let mut world = roomy("");
    let outer = start(&mut world);
    let inner = world.spawn(outer, &["/usr/bin/codex"]);
    assert!(world.session(inner).gated);
    let bound = |root: ProcessId| {
        world.effects.iter().any(|effect| matches!(effect, Effect::Bpf(BpfCommand::ApplyLimits(of, _)) if *of == root))
    };
    assert!(bound(outer) && !bound(inner), "what begins inside stays under the limits of what was granted");
    assert!(world.open(FindingKind::Ungated).is_empty());
}

/// The gate is in use, or not.
#[rstest]
#[case::no_gate("", 0)]
#[case::depth_default("[gate]\nexpected_memory = \"1GiB\"\n", 0)]
#[case::limit("[gate]\nmax_sessions = 10\n", 1)]
#[case::rate("[gate]\nrate = \"2 per 5m\"\n", 1)]
#[case::limit_of_profile("[[profile]]\nname = \"codex\"\nmax_helpers = 30\n", 1)]
#[case::explicit("[gate]\nungated = \"warn\"\n", 1)]
#[case::explicit_of_profile("[[profile]]\nname = \"claude-code\"\nungated = \"warn\"\n", 1)]
fn ungated_agent_is_found_under_limits(#[case] config: &str, #[case] expected: usize) {
    let mut world = roomy(config);
    let agent = world.claude();
    let findings = world.open(FindingKind::Ungated);
    assert_eq!(findings.len(), expected, "{findings:#?}");
    assert!(findings.iter().all(|finding| finding.pid == agent.pid.0 && finding.proposed_action == "report"));
    assert!(!world.session(agent).gated);
    world.kill(agent);
    assert!(world.open(FindingKind::Ungated).is_empty());
}

#[test]
fn first_grant_reports_ungated_agents() {
    let mut world = roomy("");
    let agent = world.claude();
    let launched = start(&mut world);
    assert_eq!(granted(&world), [launched]);
    let findings = world.open(FindingKind::Ungated);
    assert_eq!(findings.iter().map(|finding| finding.pid).collect::<Vec<_>>(), [agent.pid.0]);
}

#[test]
fn adoption_closes_ungated_finding() {
    let mut world = roomy(&config_with("ungated = \"warn\""));
    let agent = world.claude();
    world.feed(Input::Adopt(agent));
    assert_eq!(world.all(FindingKind::Ungated)[0].closed_because.as_deref(), Some("adopted"));
    world.pass(Duration::from_secs(5));
    assert!(world.open(FindingKind::Ungated).is_empty());
}

#[test]
fn allowed_ungated_agent_is_ignored() {
    let mut world = roomy(&config_with("ungated = \"allow\""));
    world.claude();
    assert!(world.all(FindingKind::Ungated).is_empty());
}

#[test]
fn denied_exec_is_killed_once() {
    let mut world = roomy(&config_with("ungated = \"deny\""));
    let before = world.unseen(SHELL, "/usr/bin/claude");
    let scan = world.scan(false);
    world.feed(scan);
    assert!(!ends(&world, before));
    let agent = world.agent_with("/usr/bin/node", &["node", "/x/node_modules/@openai/codex/bin/codex.js"]);
    assert!(world.effects.contains(&Effect::Confine(ConfineCommand::KillUngated(agent, Authority::Session(USER)))));
    let granted = start(&mut world);
    run(&mut world, granted);
    let inner = world.spawn(granted, &["/usr/bin/codex"]);
    assert!(![granted, inner].iter().any(|process| ends(&world, *process)));
}

#[test]
fn profile_may_allow_ungated() {
    let mut world = roomy("[gate]\nungated = \"deny\"\n[[profile]]\nname = \"codex\"\nungated = \"allow\"\n");
    let agent = world.agent("/usr/bin/codex");
    assert!(!ends(&world, agent));
    assert!(world.all(FindingKind::Ungated).is_empty());
}

#[test]
fn cgroup_escape_is_found() {
    let (mut world, agent, session) = confined();
    let stays = world.spawn(agent, &["/usr/bin/node", "stays.js"]);
    let leaves = world.spawn(agent, &["/usr/bin/node", "leaves.js"]);
    looks(&mut world, session, &[agent, stays, leaves]);
    assert!(world.open(FindingKind::Ungated).is_empty());

    looks(&mut world, session, &[agent, stays]);
    let findings = world.open(FindingKind::Ungated);
    assert_eq!(findings.iter().map(|finding| finding.pid).collect::<Vec<_>>(), [leaves.pid.0]);
    assert!(findings[0].summary.ends_with(": its memory limit of 2.0 GiB no longer applies"), "{findings:?}");
    assert_eq!(world.session(agent).processes.len(), 3);

    looks(&mut world, session, &[agent, stays, leaves]);
    assert!(world.open(FindingKind::Ungated).is_empty());
    assert_eq!(world.all(FindingKind::Ungated)[0].closed_because.as_deref(), Some("back in its cgroup"));
}

#[test]
fn escapes_share_finding_per_session() {
    let (mut world, agent, session) = confined();
    let leaves = [1, 2, 3].map(|number| {
        let helper = world.spawn(agent, &["/usr/bin/node", &format!("leaves{number}.js")]);
        world.memory(helper, Bytes::from_mib(100));
        helper
    });
    looks(&mut world, session, &[agent]);
    let findings = world.open(FindingKind::Ungated);
    assert_eq!((findings.len(), findings[0].pid), (1, leaves[0].pid.0));
    assert_eq!((&findings[0].evidence["count"], &findings[0].evidence["name"]), (&3.into(), &"leaves1.js".into()));
    assert_eq!(findings[0].evidence["memory_bytes"], 300_u64 << 20);
    assert_eq!(listed(&findings[0]), leaves.map(|process| process.pid.0));

    world.kill(leaves[0]);
    looks(&mut world, session, &[agent, leaves[1]]);
    let left = world.open(FindingKind::Ungated);
    assert_eq!((left.len(), left[0].id, left[0].pid), (1, findings[0].id, leaves[2].pid.0));
    assert_eq!(left[0].evidence["count"], 1);

    world.kill(leaves[2]);
    world.pass(Duration::from_secs(4));
    assert_eq!(world.all(FindingKind::Ungated)[0].closed_because.as_deref(), Some("gone"));
}

#[test]
fn fork_during_check_is_no_escape() {
    let (mut world, agent, session) = confined();
    world.pass(Duration::from_secs(4));
    world.spawn(agent, &["/usr/bin/node", "young.js"]);
    world.feed(Input::CgroupMembers(session, vec![agent.pid]));
    world.pass(Duration::from_secs(4));
    world.spawn(agent, &["/usr/bin/node", "younger.js"]);
    world.feed(Input::CgroupMembers(session, vec![agent.pid, Pid(agent.pid.0 + 1)]));
    assert!(world.open(FindingKind::Ungated).is_empty());
}

#[test]
fn helpers_get_higher_oom_score() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\noom_score_adj = 250\n");
    let agent = start(&mut world);
    run(&mut world, agent);
    let helper = world.fork(agent);
    assert_eq!(grants(&world)[0].oom_score_adj, 250);
    assert!(world.effects.contains(&Effect::Confine(ConfineCommand::RaiseOomScore(helper, 450))));
    world.effects.clear();
    world.fork(helper);
    let raised =
        world.effects.iter().any(|effect| matches!(effect, Effect::Confine(ConfineCommand::RaiseOomScore(..))));
    assert!(!raised, "what is below inherits it");
    let ungated = world.claude();
    world.fork(ungated);
    assert!(!world.effects.iter().any(|effect| matches!(effect, Effect::Confine(ConfineCommand::RaiseOomScore(..)))));
}
