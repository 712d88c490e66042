//! One limit at a time: sessions, rate, depth, profile.

use super::*;

#[test]
fn grant_starts_session_before_answer() {
    let mut world = roomy("");
    let process = start(&mut world);
    let steps: Vec<&str> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Persist(PersistCommand::Gate(_)) => Some("remember"),
            Effect::Bpf(BpfCommand::Track(tracked, _)) if *tracked == process => Some("track"),
            Effect::Bpf(BpfCommand::ApplyLimits(root, _)) if *root == process => Some("bound"),
            Effect::Reply(ClientReply::Granted(_)) => Some("granted"),
            _ => None,
        })
        .collect();
    assert_eq!(steps, ["remember", "track", "remember", "bound", "granted"]);
    let session = world.session(process);
    assert!(session.gated);
    assert_eq!((session.profile.as_str(), session.processes.len()), ("claude-code", 1));

    run(&mut world, process);
    let helper = world.spawn(process, &["/usr/bin/node", "server.js"]);
    assert_eq!(world.session(process).processes.iter().filter(|p| p.pid == helper.pid.0).count(), 1);
    assert_eq!(queue(&world).leases.len(), 1);
}

#[test]
fn quota_bounds_simultaneous_launches() {
    let mut world = roomy(&config_with("max_sessions = 2"));
    let crowd = crowd(&mut world, 9);
    assert_eq!(granted(&world), crowd[..2]);
    assert_eq!(waiting(&world), pids(&crowd[2..]));
    let position = queue_position(&world, crowd[2]).unwrap();
    assert_eq!((position.position, position.blocker.reason), (1, RefusalReason::Quota));
    assert_eq!(position.blocker.detail, "2 of 2 sessions running");
    assert_eq!((position.blocker.bound.as_str(), position.blocker.holders.len()), ("[gate] max_sessions", 2));
}

#[test]
fn exit_grants_next_launch_at_once() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 3);
    world.kill(crowd[0]);
    assert_eq!(granted(&world), crowd[..2]);
    world.end(crowd[1], watchdog_types::ExitStatus::Code(0));
    assert_eq!(granted(&world), crowd);
    assert_eq!(queue(&world).leases.len(), 1);
}

#[test]
fn orphaned_helpers_hold_no_slot() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 2);
    world.spawn(crowd[0], &["/usr/bin/node", "server.js"]);
    world.kill(crowd[0]);
    assert_eq!(granted(&world), crowd);
}

#[test]
fn ungated_agents_count() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let ungated = world.claude();
    let process = start(&mut world);
    assert_eq!(granted(&world), []);
    assert_eq!(queue_position(&world, process).unwrap().blocker.holders.len(), 1);
    world.kill(ungated);
    assert_eq!(granted(&world), [process]);
}

#[test]
fn profile_quota_lets_others_pass() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\nmax_sessions = 1\n");
    let first = start(&mut world);
    let second = start(&mut world);
    let other = launch(&mut world);
    let other = ask(&mut world, Launch { image: image("/usr/bin/codex", &["codex"]), ..other });
    assert_eq!(granted(&world), [first, other]);
    assert_eq!(queue_position(&world, second).unwrap().blocker.detail, "1 of 1 sessions of claude-code running");
}

#[test]
fn user_quota_applies_to_that_user() {
    let mut world = roomy(&config_with("max_sessions_per_user = 1"));
    let mine = crowd(&mut world, 2);
    let theirs = launch(&mut world);
    let theirs = ask(&mut world, Launch { uid: Uid(2_000), ..theirs });
    assert_eq!(granted(&world), [mine[0], theirs]);
}

#[test]
fn rate_blocker_states_retry() {
    let mut world = roomy(&config_with("rate = \"2 per 5m\""));
    let crowd = crowd(&mut world, 3);
    assert_eq!(granted(&world), crowd[..2]);
    let position = queue_position(&world, crowd[2]).unwrap();
    assert_eq!((position.blocker.reason, position.blocker.bound.as_str()), (RefusalReason::Rate, "[gate] rate"));
    assert!(position.blocker.retry_after.unwrap() > Duration::from_secs(290), "{position:?}");
    // That they have ended does not matter.
    world.kill(crowd[0]);
    world.kill(crowd[1]);
    world.rest(Duration::from_secs(280));
    assert_eq!(granted(&world).len(), 2);
    world.rest(Duration::from_secs(25));
    assert_eq!(granted(&world), crowd);
}

#[test]
fn depth_limit_refuses_nesting() {
    let mut world = roomy(&config_with("max_depth = 1"));
    let outer = start(&mut world);
    let shell = world.spawn(outer, &["/bin/sh", "-c", "watchdogctl launch -- claude"]);
    let inner = ask(&mut world, launch_of(shell));
    assert_eq!(granted(&world), [outer, inner]);
    assert_eq!(world.session(inner).parent_session, Some(world.session(outer).id));
    let deeper = world.spawn(inner, &["/bin/sh", "-c", "watchdogctl launch -- claude"]);
    ask(&mut world, launch_of(deeper));
    let refusal = refusals(&world).pop().unwrap();
    assert_eq!((refusal.process, refusal.blocker.reason), (deeper, RefusalReason::Depth));
    assert_eq!(refusal.blocker.detail, "nesting depth would be 2, limit 1");
}

#[test]
fn profile_may_forbid_nesting() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\nmax_depth = 0\n");
    let outer = start(&mut world);
    let shell = world.spawn(outer, &["/bin/sh"]);
    ask(&mut world, launch_of(shell));
    assert_eq!(refused(&world, shell), Some(RefusalReason::Depth));
}

#[test]
fn death_before_exec_ends_lease() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 2);
    world.kill(crowd[0]);
    assert_eq!(granted(&world), crowd);
    // The kernel could no longer mark it, so it is reported.
    let third = start(&mut world);
    world.vanish(crowd[1]);
    world.feed(Input::Inspected(crowd[1], None));
    world.wait(Duration::from_secs(1));
    assert_eq!(granted(&world), [crowd[0], crowd[1], third]);
}

#[test]
fn unmatched_command_uses_other_profile() {
    let mut world = roomy("");
    let asked = launch(&mut world);
    let process = ask(&mut world, Launch { image: image("/usr/bin/make", &["make"]), ..asked });
    assert_eq!(world.session(process).profile, "other");
    world.exec(process, "/usr/bin/make", &["make"]);
    assert_eq!(world.session(process).processes[0].kind, api::ProcessKind::Agent);
    // A wrapper that becomes an agent is one.
    world.exec(process, "/usr/bin/claude", &["claude"]);
    assert_eq!(world.session(process).profile, "claude-code");
}

#[test]
fn requested_profile_stays() {
    let mut world =
        roomy("[[profile]]\nname = \"reviewer\"\nexe = [\"*/reviewer\"]\nenv = { UV_THREADPOOL_SIZE = \"2\" }\n");
    let asked = launch(&mut world);
    let process = ask(&mut world, Launch { profile: Some("reviewer".into()), ..asked });
    run(&mut world, process);
    assert_eq!(world.session(process).profile, "reviewer");
    assert_eq!(grants(&world)[0].environment["UV_THREADPOOL_SIZE"], "2");
}

#[test]
fn agent_does_not_block_itself() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    // ~/bin/claude is a script that becomes `watchdogctl launch -- /opt/claude`.
    let shim = world.agent("/home/u/bin/claude");
    ask(&mut world, launch_of(shim));
    assert_eq!(granted(&world), [shim]);
}

#[test]
fn wrapper_and_agent_count_once() {
    let mut world =
        host(&config_with("max_sessions = 2\nexpected_memory = \"1GiB\"\nreserve = \"1MiB\""), 16 * GIB, 8 * GIB);
    let asked = launch(&mut world);
    let wrapper = ask(&mut world, Launch { image: image("/x/start.sh", &["sh", "/x/start.sh"]), ..asked });
    let agent = world.spawn(wrapper, &["/usr/bin/claude"]);
    assert_eq!(world.session(agent).profile, "claude-code");
    world.memory(agent, Bytes::from_mib(GIB));
    memory(&mut world, 16 * GIB, 7 * GIB);
    assert_eq!(queue(&world).room.promised_bytes, 0, "what the agent holds is what was promised to its wrapper");
    let second = start(&mut world);
    assert_eq!(granted(&world), [wrapper, second]);
    let third = start(&mut world);
    assert_eq!(queue_position(&world, third).unwrap().blocker.detail, "2 of 2 sessions running");
}

#[test]
fn exec_of_agent_applies_limits() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\nmax_helpers = 7\n");
    let asked = launch(&mut world);
    let wrapper = ask(&mut world, Launch { image: image("/x/start.sh", &["sh", "/x/start.sh"]), ..asked });
    run(&mut world, wrapper);
    let held = |effect: &Effect| matches!(effect, Effect::Bpf(BpfCommand::ApplyLimits(root, bounds)) if *root == wrapper && bounds.max_helpers == Some(7));
    assert!(world.effects.iter().any(held));
}
