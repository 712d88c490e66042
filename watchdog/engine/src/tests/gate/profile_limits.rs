//! A profile that is named at the launch beside the one that recognises the command.

use super::*;

const TWO: &str = "[gate]\nmax_depth = 8\n\
[[profile]]\nname = \"claude-code\"\nmax_sessions = 1\nmax_helpers = 7\nmax_memory = \"8GiB\"\nmax_depth = 5\n\
oom_score_adj = 500\nexpected_memory = \"3GiB\"\nenv = { A = \"strict\", B = \"strict\" }\n\
[[profile]]\nname = \"lax\"\nexe = [\"*/lax\"]\nmax_helpers = 90\nmax_memory = \"4GiB\"\nmax_depth = 6\n\
oom_score_adj = 100\nexpected_memory = \"1GiB\"\nmax_subagents = 2\nenv = { A = \"lax\" }\n";

fn named(world: &mut World, profile: &str) -> ProcessId {
    let asked = launch(world);
    ask(world, Launch { profile: Some(profile.into()), ..asked })
}

#[test]
fn named_profile_only_tightens_limits() {
    let mut world = roomy(TWO);
    let process = named(&mut world, "lax");
    let grant = grants(&world).pop().unwrap();
    assert_eq!(grant.lease.profile, "lax");
    let limits = grant.limits;
    assert_eq!((limits.max_helpers, limits.max_depth), (Some(7), Some(5)));
    assert_eq!(limits.max_memory, Some(Bytes::from_mib(4 * GIB)));
    assert_eq!((grant.oom_score_adj, grant.lease.expected), (500, Bytes::from_mib(3 * GIB)));
    assert_eq!((grant.environment["A"].as_str(), grant.environment["B"].as_str()), ("lax", "strict"));
    let held = |effect: &Effect| matches!(effect, Effect::Bpf(BpfCommand::ApplyLimits(root, bounds)) if *root == process && *bounds == limits);
    assert!(world.effects.iter().any(held));
}

#[test]
fn named_launch_counts_in_both_quotas() {
    let mut world = roomy(TWO);
    let first = named(&mut world, "lax");
    run(&mut world, first);
    let second = named(&mut world, "lax");
    let blocker = queue_position(&world, second).unwrap().blocker;
    assert_eq!(blocker.bound, "[[profile]] claude-code max_sessions");
    let third = start(&mut world);
    assert_eq!(queue_position(&world, third).unwrap().blocker.bound, "[[profile]] claude-code max_sessions");
    let running = |name: &str| queue(&world).profiles.into_iter().find(|profile| profile.name == name).unwrap().running;
    assert_eq!((running("lax"), running("claude-code")), (1, 1));
}

#[test]
fn named_launch_counts_in_both_rates() {
    let mut world = roomy(
        "[[profile]]\nname = \"claude-code\"\nrate = \"1 per 5m\"\n[[profile]]\nname = \"lax\"\nexe = [\"*/lax\"]\n",
    );
    named(&mut world, "lax");
    let second = named(&mut world, "lax");
    assert_eq!(queue_position(&world, second).unwrap().blocker.bound, "[[profile]] claude-code rate");
}

#[test]
fn exec_of_another_agent_tightens() {
    let mut world = roomy(TWO);
    let asked = launch(&mut world);
    let wrapper = image("/bin/sh", &["sh", "-c", "exec claude"]);
    let process = ask(&mut world, Launch { profile: Some("lax".into()), image: wrapper, ..asked });
    assert_eq!(grants(&world)[0].limits.max_helpers, Some(90));
    run(&mut world, process);
    assert_eq!(world.session(process).profile, "lax");
    let held = |effect: &Effect| matches!(effect, Effect::Bpf(BpfCommand::ApplyLimits(root, bounds)) if *root == process && bounds.max_helpers == Some(7));
    assert!(world.effects.iter().any(held));
    let next = start(&mut world);
    assert_eq!(queue_position(&world, next).unwrap().blocker.bound, "[[profile]] claude-code max_sessions");
}

#[test]
fn third_profile_keeps_the_second() {
    let third = format!("{TWO}[[profile]]\nname = \"codex\"\nmax_helpers = 80\nmax_sessions = 1\n");
    let mut world = roomy(&third);
    let process = named(&mut world, "lax");
    run(&mut world, process);
    world.exec(process, "/usr/bin/codex", &["codex"]);
    world.exec(process, "/usr/bin/claude", &["claude"]);
    let bound = |effect: &Effect| match effect {
        Effect::Bpf(BpfCommand::ApplyLimits(root, bounds)) if *root == process => bounds.max_helpers,
        _ => None,
    };
    for _ in 0..2 {
        assert_eq!(world.effects.iter().rev().find_map(bound), Some(7));
        let next = start(&mut world);
        assert_eq!(queue_position(&world, next).unwrap().blocker.bound, "[[profile]] claude-code max_sessions");
        world.kill(next);
        let asked = launch(&mut world);
        let next = ask(&mut world, Launch { image: image("/usr/bin/codex", &["codex"]), ..asked });
        assert_eq!(queue_position(&world, next).unwrap().blocker.bound, "[[profile]] codex max_sessions");
        world.kill(next);
        let records = world.engine.gate_records();
        gate_restart::restart(&mut world, &third, records);
    }
}

#[test]
fn second_profile_survives_restart() {
    let mut world = roomy(TWO);
    let first = named(&mut world, "lax");
    run(&mut world, first);
    for _ in 0..2 {
        let records = world.engine.gate_records();
        gate_restart::restart(&mut world, TWO, records);
    }
    let next = start(&mut world);
    assert_eq!(queue_position(&world, next).unwrap().blocker.bound, "[[profile]] claude-code max_sessions");
    let held = |effect: &Effect| matches!(effect, Effect::Bpf(BpfCommand::ApplyLimits(root, bounds)) if *root == first && bounds.max_helpers == Some(7));
    assert!(world.effects.iter().any(held));
}
