//! One bound at a time.

use super::*;
use crate::engine::input::CgroupLimit;

#[test]
fn a_launch_with_room_is_granted_at_once_and_is_the_root_of_a_session_before_the_answer() {
    let mut world = roomy("");
    let process = start(&mut world);
    let steps: Vec<&str> = world
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Remember(_) => Some("remember"),
            Effect::Track(tracked, _) if *tracked == process => Some("track"),
            Effect::Bound(root, _) if *root == process => Some("bound"),
            Effect::Granted(_) => Some("granted"),
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
fn of_many_that_ask_at_once_exactly_the_quota_passes() {
    let mut world = roomy(&config_with("max_sessions = 2"));
    let crowd = crowd(&mut world, 9);
    assert_eq!(granted(&world), crowd[..2]);
    assert_eq!(waiting(&world), pids(&crowd[2..]));
    let told = told(&world, crowd[2]).unwrap();
    assert_eq!((told.position, told.obstacle.reason), (1, RefusalReason::Quota));
    assert_eq!(told.obstacle.detail, "2 of 2 sessions run");
    assert_eq!((told.obstacle.bound.as_str(), told.obstacle.holders.len()), ("[gate] max_sessions", 2));
}

#[test]
fn an_exit_gives_the_place_to_the_next_in_the_same_step() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 3);
    world.kill(crowd[0]);
    assert_eq!(granted(&world), crowd[..2]);
    world.end(crowd[1], crate::engine::input::ExitStatus::Code(0));
    assert_eq!(granted(&world), crowd);
    assert_eq!(queue(&world).leases.len(), 1);
}

#[test]
fn helpers_that_outlive_their_agent_hold_no_place() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 2);
    world.spawn(crowd[0], &["/usr/bin/node", "server.js"]);
    world.kill(crowd[0]);
    assert_eq!(granted(&world), crowd);
}

#[test]
fn agents_that_were_started_past_the_gate_count_too() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let ungated = world.claude();
    let process = start(&mut world);
    assert_eq!(granted(&world), []);
    assert_eq!(told(&world, process).unwrap().obstacle.holders.len(), 1);
    world.kill(ungated);
    assert_eq!(granted(&world), [process]);
}

#[test]
fn a_quota_of_a_profile_lets_others_pass() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\nmax_sessions = 1\n");
    let first = start(&mut world);
    let second = start(&mut world);
    let other = launch(&mut world);
    let other = ask(&mut world, Launch { image: image("/usr/bin/codex", &["codex"]), ..other });
    assert_eq!(granted(&world), [first, other]);
    assert_eq!(told(&world, second).unwrap().obstacle.detail, "1 of 1 sessions of claude-code run");
}

#[test]
fn a_quota_of_a_user_is_nobody_elses() {
    let mut world = roomy(&config_with("max_sessions_per_user = 1"));
    let mine = crowd(&mut world, 2);
    let theirs = launch(&mut world);
    let theirs = ask(&mut world, Launch { uid: Uid(2_000), ..theirs });
    assert_eq!(granted(&world), [mine[0], theirs]);
}

#[test]
fn a_rate_says_when_the_next_may_go() {
    let mut world = roomy(&config_with("rate = \"2 per 5m\""));
    let crowd = crowd(&mut world, 3);
    assert_eq!(granted(&world), crowd[..2]);
    let told = told(&world, crowd[2]).unwrap();
    assert_eq!((told.obstacle.reason, told.obstacle.bound.as_str()), (RefusalReason::Rate, "[gate] rate"));
    assert!(told.obstacle.retry_after.unwrap() > Duration::from_secs(290), "{told:?}");
    // That they have ended does not matter.
    world.kill(crowd[0]);
    world.kill(crowd[1]);
    world.rest(Duration::from_secs(280));
    assert_eq!(granted(&world).len(), 2);
    world.rest(Duration::from_secs(25));
    assert_eq!(granted(&world), crowd);
}

#[test]
fn ten_that_ask_at_once_do_not_all_pass_on_the_same_gigabyte() {
    // 4 GiB free above the reserve of 1.6.
    let mut world = host(&config_with("expected_memory = \"1GiB\"\nswap_share = \"0%\""), 16 * GIB, 4 * GIB + 1_639);
    let crowd = crowd(&mut world, 10);
    assert_eq!(granted(&world), crowd[..4]);
    let told = told(&world, crowd[4]).unwrap();
    assert_eq!(told.obstacle.reason, RefusalReason::Memory);
    assert!(told.obstacle.detail.starts_with("1.0 GiB needed, 614 KiB free:"), "{}", told.obstacle.detail);
    assert_eq!(queue(&world).room.promised_bytes, Bytes::from_mib(4 * GIB).0);
}

#[test]
fn what_was_promised_is_held_until_it_shows() {
    let mut world = host(&config_with("expected_memory = \"1GiB\"\nreserve = \"1MiB\""), 16 * GIB, 6 * GIB);
    let crowd = crowd(&mut world, 7);
    assert_eq!(granted(&world).len(), 5);
    // It has shown in the session, and in what the host has left.
    for process in &crowd[..5] {
        world.memory(*process, Bytes::from_mib(GIB));
    }
    memory(&mut world, 16 * GIB, 5 * GIB + 512);
    assert_eq!(granted(&world), crowd);
    assert_eq!(queue(&world).room.promised_bytes, Bytes::from_mib(2 * GIB).0, "what the first five took has shown");
}

#[test]
fn what_has_not_shown_after_a_long_time_is_not_held_any_more() {
    let mut world =
        host(&config_with("expected_memory = \"4GiB\"\nreserve = \"1MiB\"\nhold = \"1m\""), 16 * GIB, 6 * GIB);
    let crowd = crowd(&mut world, 2);
    assert_eq!(granted(&world).len(), 1);
    world.pass(Duration::from_secs(61));
    assert_eq!(granted(&world), crowd);
}

#[test]
fn a_share_of_free_swap_counts_and_full_swap_alone_refuses_nothing() {
    let config =
        config_with("expected_memory = \"1GiB\"\nreserve = \"1MiB\"\nswap_share = \"50%\"\nbreaker_open = \"100%\"");
    let mut world = host(&config, 16 * GIB, 512);
    let process = start(&mut world);
    assert_eq!(granted(&world), []);
    let swap = |free: u64| HostMemory {
        total: Bytes::from_mib(16 * GIB),
        available: Bytes::from_mib(512),
        swap_total: Bytes::from_mib(4 * GIB),
        swap_free: Bytes::from_mib(free),
        ..HostMemory::default()
    };
    world.tell(Input::Host(swap(2 * GIB)));
    assert_eq!(granted(&world), [process]);
    world.kill(process);
    world.tell(Input::Host(HostMemory { available: Bytes::from_mib(8 * GIB), ..swap(0) }));
    let second = start(&mut world);
    assert_eq!(granted(&world), [process, second]);
}

#[test]
fn a_launch_that_can_never_fit_is_refused_at_once() {
    let mut world = host(&config_with("reserve = \"2GiB\""), 16 * GIB, 15 * GIB);
    let large = launch(&mut world);
    let large = ask(&mut world, Launch { memory: Some(Bytes::from_mib(15 * GIB)), ..large });
    let refusal = refusals(&world).pop().unwrap();
    assert_eq!((refusal.process, refusal.obstacle.reason), (large, RefusalReason::Memory));
    assert_eq!(refusal.obstacle.retry_after, None);
    assert_eq!(refusal.obstacle.detail, "15 GiB needed, and there are never more than 14 GiB for launches here");
}

#[test]
fn the_room_of_the_launchers_own_cgroup_is_its_own_affair() {
    let mut world = roomy(&config_with("expected_memory = \"1GiB\""));
    let limit = |held: u64| CgroupLimit {
        path: "/box".into(),
        max: Bytes::from_mib(4 * GIB),
        current: Bytes::from_mib(held + GIB),
        cache: Bytes::from_mib(GIB),
    };
    let boxed: Vec<ProcessId> = (0..4)
        .map(|_| {
            let asked = launch(&mut world);
            ask(&mut world, Launch { cgroups: vec![limit(GIB + 512)], ..asked })
        })
        .collect();
    // Page cache is no obstacle: 2.5 GiB are free, and what the first two are promised is not free any more.
    assert_eq!(granted(&world), boxed[..2]);
    let outside = start(&mut world);
    assert_eq!(granted(&world), [boxed[0], boxed[1], outside]);
    assert_eq!(told(&world, boxed[2]).unwrap().obstacle.bound, "memory.max");
    world.kill(boxed[0]);
    assert_eq!(granted(&world), [boxed[0], boxed[1], outside, boxed[2]]);
    world.pass(Duration::from_secs(1));
    assert!(world.effects.iter().any(|effect| *effect == Effect::FindRoom(boxed[3])), "its cgroup is looked at again");
    world.tell(Input::Room(boxed[3], vec![limit(0)]));
    assert_eq!(granted(&world).last(), Some(&boxed[3]));
}

#[test]
fn the_breaker_opens_above_its_share_and_closes_well_below() {
    let mut world = host("", 100 * GIB, 30 * GIB);
    memory(&mut world, 100 * GIB, 19 * GIB);
    let process = start(&mut world);
    let told = told(&world, process).unwrap();
    assert_eq!(told.obstacle.reason, RefusalReason::Breaker);
    assert!(told.obstacle.detail.ends_with("81% of the memory is in use, more than 80%"), "{told:?}");
    assert!(queue(&world).breaker.open && world.engine.breaker_open());
    // In between nothing changes, and neither does a moment below.
    for available in [25, 31, 25, 31] {
        memory(&mut world, 100 * GIB, available * GIB);
        world.pass(Duration::from_secs(1));
        assert!(world.engine.breaker_open(), "{available}");
    }
    for _ in 0..4 {
        memory(&mut world, 100 * GIB, 31 * GIB);
        world.pass(Duration::from_secs(1));
    }
    assert!(!world.engine.breaker_open());
    assert_eq!(granted(&world), [process]);
}

/// The host as it is one second after the other: whether the breaker is open at the end.
fn pressed(world: &mut World, seconds: u64, available: u64, pressure: f64) -> bool {
    for _ in 0..seconds {
        world.pass(Duration::from_secs(1));
        let host = HostMemory {
            total: Bytes::from_mib(100 * GIB),
            available: Bytes::from_mib(available * GIB),
            pressure_some_avg10: Some(pressure),
            ..HostMemory::default()
        };
        world.tell(Input::Host(host));
    }
    world.engine.breaker_open()
}

#[test]
fn pressure_opens_the_breaker_only_while_memory_is_low_and_not_by_its_first_word() {
    let mut world = host("", 100 * GIB, 90 * GIB);
    // A thrashing cgroup: nine tenths of the host's memory are free.
    assert!(!pressed(&mut world, 10, 90, 95.0));
    assert!(!pressed(&mut world, 1, 25, 0.0));
    assert!(!pressed(&mut world, 3, 25, 50.0), "a first word, which the kernel repeats for two seconds, is nothing");
    assert!(!pressed(&mut world, 1, 25, 0.0));
    assert!(pressed(&mut world, 5, 25, 50.0));
}

#[test]
fn what_pressure_opened_closes_when_there_is_none_though_memory_stays_as_it_is() {
    let mut world = host("", 100 * GIB, 25 * GIB);
    assert!(pressed(&mut world, 6, 25, 50.0));
    assert!(pressed(&mut world, 20, 25, 0.0));
    assert!(pressed(&mut world, 1, 25, 50.0));
    assert!(pressed(&mut world, 29, 25, 0.0));
    assert!(!pressed(&mut world, 3, 25, 0.0));
    // What memory opened does not.
    assert!(pressed(&mut world, 1, 15, 0.0));
    assert!(pressed(&mut world, 60, 25, 0.0));
}

#[test]
fn agents_of_agents_end_somewhere() {
    let mut world = roomy(&config_with("max_depth = 1"));
    let outer = start(&mut world);
    let shell = world.spawn(outer, &["/bin/sh", "-c", "watchdogctl launch -- claude"]);
    let inner = ask(&mut world, launch_of(shell));
    assert_eq!(granted(&world), [outer, inner]);
    assert_eq!(world.session(inner).parent_session, Some(world.session(outer).id));
    let deeper = world.spawn(inner, &["/bin/sh", "-c", "watchdogctl launch -- claude"]);
    ask(&mut world, launch_of(deeper));
    let refusal = refusals(&world).pop().unwrap();
    assert_eq!((refusal.process, refusal.obstacle.reason), (deeper, RefusalReason::Depth));
    assert_eq!(refusal.obstacle.detail, "this agent would be 2 deep below another, and 1 is allowed");
}

#[test]
fn a_profile_may_forbid_agents_below_it() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\nmax_depth = 0\n");
    let outer = start(&mut world);
    let shell = world.spawn(outer, &["/bin/sh"]);
    ask(&mut world, launch_of(shell));
    assert_eq!(refused(&world, shell), Some(RefusalReason::Depth));
}

#[test]
fn who_will_not_wait_is_told_what_is_in_the_way() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let first = start(&mut world);
    let asked = launch(&mut world);
    let second = ask(&mut world, Launch { waits: false, ..asked });
    assert_eq!(granted(&world), [first]);
    assert_eq!(refused(&world, second), Some(RefusalReason::Quota));
    assert_eq!(waiting(&world), Vec::<u32>::new());
    assert_eq!(queue(&world).refused[0].pid, second.pid.0);
}

#[test]
fn who_will_not_wait_does_not_pass_those_who_do() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 2);
    world.kill(crowd[0]);
    let asked = launch(&mut world);
    let impatient = ask(&mut world, Launch { waits: false, ..asked });
    assert_eq!(granted(&world), crowd);
    assert_eq!(refused(&world, impatient), Some(RefusalReason::Quota));
}

#[test]
fn patience_ends_when_it_was_said_to() {
    let mut world = roomy(&config_with("max_sessions = 1\ntimeout = \"1m\""));
    let first = start(&mut world);
    let asked = launch(&mut world);
    let brief = ask(&mut world, Launch { timeout: Some(Duration::from_secs(2)), ..asked });
    let usual = start(&mut world);
    assert!(world.engine.next_tick(world.now) <= Duration::from_secs(2));
    world.pass(Duration::from_secs(3));
    assert_eq!(refused(&world, brief), Some(RefusalReason::Timeout));
    assert_eq!(waiting(&world), pids(&[usual]));
    world.pass(Duration::from_secs(60));
    assert_eq!(refused(&world, usual), Some(RefusalReason::Timeout));
    assert_eq!(granted(&world), [first]);
}

#[test]
fn the_queue_has_an_end() {
    let mut world = roomy(&config_with("max_sessions = 1\nmax_queue = 3"));
    let crowd = crowd(&mut world, 6);
    assert_eq!(waiting(&world), pids(&crowd[1..4]));
    assert!(crowd[4..].iter().all(|process| refused(&world, *process) == Some(RefusalReason::QueueFull)));
}

#[test]
fn without_a_queue_a_place_that_is_free_again_is_granted() {
    let mut world = roomy(&config_with("max_sessions = 1\nmax_queue = 0"));
    let crowd = crowd(&mut world, 2);
    assert_eq!(refused(&world, crowd[1]), Some(RefusalReason::QueueFull));
    world.kill(crowd[0]);
    let next = start(&mut world);
    assert_eq!(granted(&world), [crowd[0], next]);
}

#[test]
fn a_full_queue_keeps_out_nobody_who_need_not_wait() {
    let mut world = roomy("[gate]\nmax_queue = 1\n[[profile]]\nname = \"claude-code\"\nmax_sessions = 1\n");
    let crowd = crowd(&mut world, 3);
    assert_eq!(refused(&world, crowd[2]), Some(RefusalReason::QueueFull));
    let asked = launch(&mut world);
    let other = ask(&mut world, Launch { image: image("/usr/bin/codex", &["codex"]), ..asked });
    assert_eq!(granted(&world), [crowd[0], other]);
}

#[test]
fn a_client_that_dies_in_the_queue_frees_its_place() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 3);
    world.tell(Input::Withdraw(crowd[1], Withdrawal::Gone));
    assert_eq!(waiting(&world), pids(&crowd[2..]));
    world.kill(crowd[0]);
    assert_eq!(granted(&world), [crowd[0], crowd[2]]);
    assert_eq!(refusals(&world), []);
}

#[test]
fn a_client_that_dies_between_the_grant_and_its_exec_frees_its_place() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 2);
    world.kill(crowd[0]);
    assert_eq!(granted(&world), crowd);
    // The kernel could not mark it any more: so it is told.
    let third = start(&mut world);
    world.vanish(crowd[1]);
    world.tell(Input::Inspected(crowd[1], None));
    world.wait(Duration::from_secs(1));
    assert_eq!(granted(&world), [crowd[0], crowd[1], third]);
}

#[test]
fn a_place_that_is_taken_back_is_told_so() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    let crowd = crowd(&mut world, 2);
    assert_eq!(world.engine.waiting(Pid(crowd[1].pid.0)), Some((crowd[1], USER)));
    world.tell(Input::Withdraw(crowd[1], Withdrawal::Cancelled));
    assert_eq!(refused(&world, crowd[1]), Some(RefusalReason::Cancelled));
    assert_eq!(waiting(&world), Vec::<u32>::new());
}

#[test]
fn nothing_is_granted_before_the_hosts_memory_is_known() {
    let mut world = World::with(default_config());
    let process = start(&mut world);
    assert_eq!(granted(&world), []);
    memory(&mut world, 16 * GIB, 8 * GIB);
    assert_eq!(granted(&world), [process]);
}

#[test]
fn what_past_sessions_took_is_expected_of_the_next() {
    let mut world = host(&config_with("expected_memory = \"8GiB\"\nreserve = \"1MiB\""), 16 * GIB, 9 * GIB);
    for peak in [50, 100, 150, 200, 250, 300, 350, 400, 450, 500] {
        let process = start(&mut world);
        run(&mut world, process);
        world.memory(process, Bytes::from_mib(peak));
        world.pass(Duration::from_secs(61));
        world.kill(process);
        world.pass(Duration::from_secs(1));
    }
    let profile = queue(&world).profiles.into_iter().find(|profile| profile.name == "claude-code").unwrap();
    assert_eq!((profile.expected_bytes, profile.learned_from), (Bytes::from_mib(500).0, 10));
    let crowd = crowd(&mut world, 3);
    assert_eq!(granted(&world)[10..], crowd);
}

#[test]
fn a_command_that_no_profile_knows_is_granted_as_another() {
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
fn a_profile_that_was_asked_for_stays() {
    let mut world =
        roomy("[[profile]]\nname = \"reviewer\"\nexe = [\"*/reviewer\"]\nenv = { UV_THREADPOOL_SIZE = \"2\" }\n");
    let asked = launch(&mut world);
    let process = ask(&mut world, Launch { profile: Some("reviewer".into()), ..asked });
    run(&mut world, process);
    assert_eq!(world.session(process).profile, "reviewer");
    assert_eq!(grants(&world)[0].environment["UV_THREADPOOL_SIZE"], "2");
}

#[test]
fn a_user_sees_own_launches_only_and_where_they_stand() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    start(&mut world);
    let theirs = start(&mut world);
    let asked = launch(&mut world);
    let mine = ask(&mut world, Launch { uid: Uid(2_000), ..asked });
    let seen = world.engine.queue(world.now, Viewer::User(Uid(2_000)), &naming());
    assert_eq!(seen.waiting.iter().map(|waiter| waiter.pid).collect::<Vec<_>>(), [mine.pid.0]);
    assert_eq!(seen.leases, []);
    assert_eq!(told(&world, theirs).unwrap().obstacle.holders.len(), 1);
    let holders = told(&world, mine).unwrap().obstacle.holders;
    assert_eq!(world.engine.occupants(&holders, Viewer::User(Uid(2_000)), &naming()), []);
    assert_eq!(world.engine.occupants(&holders, Viewer::Root, &naming()).len(), 1);
}

#[test]
fn a_small_launch_does_not_pass_a_large_one_in_the_same_cgroup_for_ever() {
    let mut world = roomy("");
    let limit = |held: u64| CgroupLimit {
        path: "/box".into(),
        max: Bytes::from_mib(4 * GIB),
        current: Bytes::from_mib(held),
        cache: Bytes(0),
    };
    let mut boxed = |memory: u64| {
        let asked = launch(&mut world);
        let asked = Launch { memory: Some(Bytes::from_mib(memory)), cgroups: vec![limit(2 * GIB)], ..asked };
        ask(&mut world, asked)
    };
    let (large, small) = (boxed(3 * GIB), boxed(512));
    assert_eq!(granted(&world), []);
    assert!(!told(&world, small).unwrap().obstacle.detail.contains("3.0 GiB"), "what another needs is its own affair");
    world.tell(Input::Room(small, vec![limit(0)]));
    assert_eq!(granted(&world), [large, small], "one look is for all in the cgroup");
}

#[test]
fn every_limit_above_is_asked_and_not_the_tightest_alone() {
    let mut world = roomy("[gate]\nexpected_memory = \"3GiB\"\n");
    let limit = |path: &str, max: u64| CgroupLimit {
        path: path.into(),
        max: Bytes::from_mib(max * GIB),
        current: Bytes(0),
        cache: Bytes(0),
    };
    let scopes: Vec<ProcessId> = ["/slice/a", "/slice/b", "/slice/c"]
        .into_iter()
        .map(|scope| {
            let asked = launch(&mut world);
            ask(&mut world, Launch { cgroups: vec![limit(scope, 3), limit("/slice", 8)], ..asked })
        })
        .collect();
    assert_eq!(granted(&world), scopes[..2]);
    assert!(told(&world, scopes[2]).unwrap().obstacle.detail.contains("memory.max of /slice: 8.0 GiB"));
}

#[test]
fn one_that_asks_in_an_agents_name_does_not_wait_for_itself() {
    let mut world = roomy(&config_with("max_sessions = 1"));
    // ~/bin/claude is a script that becomes `watchdogctl launch -- /opt/claude`.
    let shim = world.agent("/home/u/bin/claude");
    ask(&mut world, launch_of(shim));
    assert_eq!(granted(&world), [shim]);
}

#[test]
fn a_wrapper_and_the_agent_that_it_starts_are_one() {
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
    assert_eq!(told(&world, third).unwrap().obstacle.detail, "2 of 2 sessions run");
}

#[test]
fn a_wrapper_that_becomes_an_agent_is_held_as_one() {
    let mut world = roomy("[[profile]]\nname = \"claude-code\"\nmax_helpers = 7\n");
    let asked = launch(&mut world);
    let wrapper = ask(&mut world, Launch { image: image("/x/start.sh", &["sh", "/x/start.sh"]), ..asked });
    run(&mut world, wrapper);
    let held = |effect: &Effect| matches!(effect, Effect::Bound(root, bounds) if *root == wrapper && bounds.max_helpers == Some(7));
    assert!(world.effects.iter().any(held));
}

#[test]
fn a_launch_that_has_become_impossible_is_refused_and_holds_up_nobody() {
    let mut world = World::with(default_config());
    let asked = launch(&mut world);
    let large = ask(&mut world, Launch { memory: Some(Bytes::from_mib(20 * GIB)), ..asked });
    let small = start(&mut world);
    memory(&mut world, 16 * GIB, 12 * GIB);
    world.pass(Duration::from_secs(1));
    assert_eq!(refused(&world, large), Some(RefusalReason::Memory));
    assert_eq!(granted(&world), [small]);
}

#[test]
fn a_share_of_the_host_is_expected_once_the_host_is_known() {
    let config = config::parse(std::path::Path::new("test.toml"), "[gate]\nexpected_memory = \"50%\"\n").unwrap();
    let mut world = World::with(config);
    let crowd = crowd(&mut world, 2);
    memory(&mut world, 16 * GIB, 12 * GIB);
    assert_eq!(granted(&world), crowd[..1]);
    assert_eq!(queue(&world).waiting[0].memory_bytes, Bytes::from_mib(8 * GIB).0);
}
