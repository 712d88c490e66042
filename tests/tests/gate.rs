//! Given bounds, when agents are launched through the gate, then it holds whatever dies in between.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use watchdog::api::{Event, FindingKind, RefusalReason};
use watchdog_tests::{Answer, Daemon, NOBODY, ProcessId, Stage, get, in_guest, is_alive, limit, poll, post, seconds};

/// Starts agents through the gate: their processes.
fn launch(stage: &mut Stage, daemon: &Daemon, count: usize, options: &[&str], script: &str) -> Vec<ProcessId> {
    (0..count).map(|_| stage.execute(daemon.launch(stage, options, script))).collect()
}

/// Waits until so many wait in the queue.
fn queued(daemon: &Daemon, count: usize) {
    let waiting = poll(limit(Duration::from_secs(20)), || (daemon.queue().waiting.len() == count).then_some(()));
    assert!(waiting.is_some(), "{:#?}\n{}", daemon.queue(), daemon.log());
}

/// What a process executes now.
fn executes(process: ProcessId) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/{}/exe", process.pid)).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

#[test]
fn a_launch_becomes_its_command_in_a_session_of_its_own_and_the_lease_ends_with_it() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let launcher = launch(&mut stage, &daemon, 1, &[], "report agent spawn helper [ report helper hold ] hold")[0];
    let (agent, helper) = (stage.reported("agent"), stage.reported("helper"));

    assert_eq!(agent, launcher, "the launcher is the command: no process of ours stays behind");
    let session = daemon.eventually(seconds(2.0), "the session", |look| {
        look.session(agent).filter(|session| session.processes.len() == 2).cloned()
    });
    assert!(session.gated && session.processes.iter().any(|process| process.pid == helper.pid));
    let lease = &daemon.queue().leases[0];
    assert_eq!((lease.pid, lease.start_time, lease.session), (agent.pid, agent.start_time, Some(session.id)));
    let open = daemon.look().open(FindingKind::Ungated).len();
    assert_eq!(open, 0);

    stage.kill(agent);
    let over = poll(seconds(1.0), || daemon.queue().leases.is_empty().then_some(()));
    assert!(over.is_some(), "{:?}", daemon.queue());
    let metrics = daemon.metrics();
    assert!(metrics.contains("agent_watchdog_launches_total{outcome=\"granted\",profile=\"test\"} 1"), "{metrics}");
}

/// The most agents that ran at once, by the daemon's own events: from the grant to the exit.
fn most_at_once(events: &[Event]) -> (usize, usize) {
    let (mut running, mut most, mut grants) = (BTreeSet::new(), 0, 0);
    for event in events {
        match event.kind.as_str() {
            "launch_granted" => {
                running.insert(event.pid);
                grants += 1;
                most = most.max(running.len());
            }
            "exit" => {
                running.remove(&event.pid);
            }
            _ => {}
        }
    }
    (most, grants)
}

#[test]
fn of_a_hundred_agents_through_a_quota_of_ten_never_eleven_run() {
    if in_guest() {
        eprintln!("skipped: on emulated processors so many clients take longer to start than a fixture may live");
        return;
    }
    let mut stage = Stage::new();
    let daemon = Daemon::configured(
        &stage,
        "[daemon]\njournal_events = 100000\n[gate]\nmax_sessions = 10\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n",
    );
    let script = "spawn helper [ anon 20 hold ] spawn helper [ anon 40 hold ] spawn helper [ anon 60 hold ] await go \
                  sleep 0.4 report ended exit";
    let launched = launch(&mut stage, &daemon, 100, &[], script);
    queued(&daemon, 90);
    let promised: Vec<u32> = daemon.queue().waiting.iter().map(|waiter| waiter.pid).collect();
    stage.mark("go");

    let ended =
        poll(limit(Duration::from_secs(60)), || stage.reports().remove("ended").filter(|ended| ended.len() == 100));
    let ended = ended.unwrap_or_else(|| panic!("{:#?}\n{}", daemon.queue(), stage.log()));
    assert_eq!(ended.iter().collect::<BTreeSet<_>>(), launched.iter().collect::<BTreeSet<_>>());
    poll(seconds(2.0), || daemon.queue().leases.is_empty().then_some(())).expect("every lease ends");
    let events = daemon.events();
    assert_eq!(most_at_once(&events), (10, 100));
    let granted: Vec<u32> =
        events.iter().filter(|event| event.kind == "launch_granted").filter_map(|e| e.pid).collect();
    assert_eq!(granted[10..], promised);
}

/// Tells a thread that it is over, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Processes that run the stage's agent program, as /proc has them.
fn agents(stage: &Stage) -> usize {
    let name = stage.agent_name();
    let below = watchdog_tests::descendants(stage.pid());
    below.iter().filter(|process| executes(**process).as_deref() == Some(name)).count()
}

#[test]
fn clients_and_daemons_that_die_at_any_instant_lose_no_place_and_pass_no_bound() {
    if in_guest() {
        eprintln!("skipped: on emulated processors so many clients take longer to start than a fixture may live");
        return;
    }
    let mut stage = Stage::new();
    let mut daemon =
        Daemon::configured(&stage, "[gate]\nmax_sessions = 5\nexpected_memory = \"8MiB\"\nreserve = \"64MiB\"\n");
    let script = "sleep 0.5 report ended exit";
    let launched = launch(&mut stage, &daemon, 60, &[], script);
    let (most, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut killed = BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(agents(&stage), Ordering::Relaxed);
            }
        });
        let _over = Over(&over);
        for round in 0..3 {
            for nth in 0..5 {
                // Whoever it is: it waits, has just been granted, or runs.
                let victim = launched[(round * 5 + nth) * 4 + round];
                if stage.signal_if_there(victim, Signal::KILL) {
                    killed.insert(victim);
                }
                std::thread::sleep(limit(Duration::from_millis(60)));
            }
            daemon.send(Signal::KILL);
            daemon.wait(limit(Duration::from_secs(5)));
            std::thread::sleep(limit(Duration::from_millis(100)));
            daemon.restart();
        }
        let all =
            poll(limit(Duration::from_secs(60)), || launched.iter().all(|process| !is_alive(*process)).then_some(()));
        assert!(all.is_some(), "{:#?}\n{}\n{}", daemon.queue(), daemon.log(), stage.log());
    });
    let ended: BTreeSet<ProcessId> = stage.reports().remove("ended").expect("some end").into_iter().collect();
    let lost: Vec<&ProcessId> =
        launched.iter().filter(|process| !ended.contains(process) && !killed.contains(process)).collect();
    assert!(lost.is_empty(), "neither ended nor killed: {lost:?}\n{}", stage.log());
    assert!(killed.len() >= 5, "{killed:?}");
    let most = most.load(Ordering::Relaxed);
    assert!((1..=5).contains(&most), "{most} at once");
    poll(seconds(3.0), || (daemon.queue().leases.is_empty() && daemon.queue().waiting.is_empty()).then_some(()))
        .unwrap_or_else(|| panic!("places are held by nobody: {:#?}", daemon.queue()));
}

#[test]
fn those_who_wait_keep_their_order_over_a_restart() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::configured(&stage, "[gate]\nmax_sessions = 1\n");
    let first = launch(&mut stage, &daemon, 1, &[], "report first hold")[0];
    stage.reported("first");
    let mut waiting = Vec::new();
    for number in 1..=5 {
        waiting.extend(launch(&mut stage, &daemon, 1, &[], "report served exit"));
        queued(&daemon, number);
    }
    daemon.send(Signal::KILL);
    daemon.wait(limit(Duration::from_secs(5)));
    daemon.restart();

    let back = poll(limit(Duration::from_secs(10)), || {
        let queue = daemon.queue();
        (queue.waiting.len() == 5 && queue.waiting.iter().all(|waiter| !waiter.away)).then_some(queue)
    });
    let queue = back.unwrap_or_else(|| panic!("{:#?}", daemon.queue()));
    let order: Vec<u32> = queue.waiting.iter().map(|waiter| waiter.pid).collect();
    assert_eq!(order, waiting.iter().map(|process| process.pid).collect::<Vec<_>>());
    assert_eq!(queue.leases[0].pid, first.pid, "the daemon knows its leases");
    assert_eq!(queue.waiting[0].detail, "1 of 1 sessions run", "{queue:#?}");
    stage.kill(first);
    assert_eq!(stage.all_reported("served", 5), waiting);
}

#[test]
fn a_freed_place_is_given_on_at_once() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[gate]\nmax_sessions = 1\n");
    let first = launch(&mut stage, &daemon, 1, &[], "report first hold")[0];
    stage.reported("first");
    launch(&mut stage, &daemon, 1, &[], "report second hold");
    queued(&daemon, 1);
    let freed = Instant::now();
    stage.kill(first);
    stage.reported("second");
    assert!(freed.elapsed() < limit(Duration::from_millis(500)), "{:?}", freed.elapsed());
}

#[test]
fn a_refusal_names_the_bound_its_value_and_its_holders() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[gate]\nmax_sessions = 1\n");
    let first = launch(&mut stage, &daemon, 1, &[], "report first hold")[0];
    stage.reported("first");

    let agent = stage.directory().join(stage.agent_name()).display().to_string();
    let refused: Answer = daemon.ctl(&["launch", "--no-wait", "--", &agent, "exit"]);
    assert_eq!(refused.code, 75, "{refused:?}");
    let told: serde_json::Value = serde_json::from_str(refused.stderr.trim()).expect("one JSON object");
    assert_eq!((&told["granted"], &told["reason"]), (&false.into(), &"quota".into()));
    assert_eq!(told["bound"], "[gate] max_sessions");
    assert_eq!(told["holders"][0]["pid"], first.pid);
    assert!(told["retry_after_seconds"].is_number(), "{told}");

    let timed_out = daemon.ctl(&["launch", "--timeout", "1s", "--", &agent, "exit"]);
    assert_eq!(timed_out.code, 75, "{timed_out:?}");
    assert!(timed_out.stderr.contains("\"reason\":\"timeout\""), "{timed_out:?}");
    let remembered: Vec<RefusalReason> = daemon.queue().refused.iter().map(|refused| refused.reason).collect();
    assert!(remembered.contains(&RefusalReason::Quota), "{remembered:?}");
}

#[test]
fn another_user_can_use_take_back_and_mark_nothing_that_is_not_its_own() {
    let mut stage = Stage::new();
    let daemon = Daemon::configured(&stage, "[gate]\nmax_sessions_per_user = 1\n");
    let roots = launch(&mut stage, &daemon, 1, &[], "report root hold")[0];
    stage.reported("root");
    let waits = launch(&mut stage, &daemon, 1, &[], "hold")[0];
    queued(&daemon, 1);

    // A quota of their own.
    let agent = stage.directory().join(stage.agent_name()).display().to_string();
    let theirs = daemon.ctl_as(NOBODY, &["launch", "--no-wait", "--", &agent, "exit"]);
    assert_eq!(theirs.code, 0, "{theirs:?}");
    // Not somebody else's place,
    let cancelled = daemon.ctl_as(NOBODY, &["queue", "--cancel", &waits.pid.to_string()]);
    assert_eq!(cancelled.code, 77, "{cancelled:?}");
    // nor a process that is not theirs,
    let socket = daemon.socket();
    let body = serde_json::json!({ "path": "/bin/true", "pid": roots.pid, "start_time": roots.start_time });
    let foreign = watchdog_tests::as_user(NOBODY, move || post(&socket, "/v1/launch", &body));
    assert_eq!(foreign.expect("an answer").status, 403);
    // nor a look at it.
    let socket = daemon.socket();
    let seen = watchdog_tests::as_user(NOBODY, move || get(&socket, "/v1/queue")).expect("an answer").json();
    assert_eq!((seen["waiting"].as_array().map(Vec::len), seen["leases"].as_array().map(Vec::len)), (Some(0), Some(0)));
    assert!(is_alive(waits) && daemon.queue().waiting.len() == 1);

    let own = daemon.ctl(&["queue", "--cancel", &waits.pid.to_string()]);
    assert_eq!(own.code, 0, "{own:?}");
    let gone = poll(seconds(2.0), || (!is_alive(waits)).then_some(()));
    assert!(gone.is_some(), "a launch that was taken back ends");
}

#[test]
fn an_agent_past_the_gate_is_told_and_where_that_is_denied_does_not_run() {
    let mut stage = Stage::new();
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent("report warned hold");
    daemon.eventually(seconds(2.0), "a finding", |look| {
        look.open(FindingKind::Ungated).into_iter().find(|finding| finding.pid == agent.pid).map(drop)
    });
    drop(daemon);

    let daemon = Daemon::configured(&stage, "[gate]\nungated = \"deny\"\n");
    assert!(is_alive(agent), "what ran before goes on");
    let denied = stage.execute(vec![
        "/bin/sh".to_owned(),
        "-c".to_owned(),
        format!("{} report ran hold; echo $? > {}", path_of_agent(&stage), stage.directory().join("status").display()),
    ]);
    let status = poll(limit(Duration::from_secs(5)), || {
        std::fs::read_to_string(stage.directory().join("status")).ok().filter(|text| !text.is_empty())
    });
    let status = status.unwrap_or_else(|| panic!("{denied} still runs\n{}\n{}", daemon.log(), stage.log()));
    // 126: the exec was refused with EPERM; 137: it was killed before its first instruction.
    let expected = if lsm(&daemon) { "126" } else { "137" };
    assert_eq!(status.trim(), expected, "{}\n{}", daemon.log(), stage.log());
    assert!(!stage.reports().contains_key("ran"));
    // Through the gate it runs.
    launch(&mut stage, &daemon, 1, &[], "report gated hold");
    stage.reported("gated");
}

/// What a shell command in the stage's directory ends with.
fn shell(stage: &mut Stage, command: &str) -> String {
    let (directory, status) = (stage.directory().to_owned(), stage.directory().join("status"));
    drop(std::fs::remove_file(&status));
    let script = format!("cd {} && ( {command} ); echo $? > status", directory.display());
    stage.execute(vec!["/bin/sh".to_owned(), "-c".to_owned(), script]);
    let read = || std::fs::read_to_string(&status).ok().filter(|text| text.ends_with('\n'));
    let ended = poll(limit(Duration::from_secs(5)), read);
    ended.unwrap_or_else(|| panic!("{command} still runs\n{}", stage.log())).trim().to_owned()
}

/// Makes an installed program a file of its own: the fixture is linked, and other tests execute it.
fn make_own(stage: &mut Stage, name: &str) {
    assert_eq!(shell(stage, &format!("cp {name} own && mv -f own {name}")), "0");
}

/// Ways to execute the file with this name, beside its path.
fn disguises(name: &str) -> [(&'static str, String); 5] {
    [
        ("a relative path", format!("./{name} exit")),
        ("a symbolic link", format!("ln -s {name} link && ./link exit")),
        ("a link to a link", "ln -s link further && ./further exit".to_owned()),
        ("a descriptor", format!("exec 3< {name} && /proc/self/fd/3 exit")),
        ("a hard link", format!("ln {name} hard && ./hard exit")),
    ]
}

#[test]
fn denied_file_is_denied_however_executed() {
    let mut stage = Stage::new();
    // Many programs are called so: the file is denied, and the name is not.
    stage.install("run");
    make_own(&mut stage, "run");
    let path = stage.directory().join("run");
    let profile = format!("[[profile]]\nname = \"denied\"\nexe = [\"{}\"]\nungated = \"deny\"\n", path.display());
    let daemon = Daemon::configured(&stage, &profile);
    let expected = if lsm(&daemon) { "126" } else { "137" };
    let denied = poll(seconds(10.0), || (shell(&mut stage, "./run exit") == expected).then_some(()));
    assert!(denied.is_some(), "{}", daemon.log());
    for (how, command) in disguises("run") {
        assert_eq!(shell(&mut stage, &command), expected, "through {how}\n{}", daemon.log());
    }
    // What only has the same content, or the same name, is another file.
    assert_eq!(shell(&mut stage, "cp run copy && ./copy exit"), "0");
    assert_eq!(shell(&mut stage, "mkdir other && cp run other/run && ./other/run exit"), "0");
    if !in_guest() {
        // The file systems of a guest do not tell the generation of an inode.
        assert_eq!(shell(&mut stage, "mv run moved && ./moved exit"), expected);
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(shell(&mut stage, "./moved exit"), expected, "{}", daemon.log());
    }
}

#[test]
fn denied_name_is_that_of_the_file() {
    let mut stage = Stage::new();
    let name = stage.agent_name().to_owned();
    make_own(&mut stage, &name);
    let daemon = Daemon::configured(&stage, "[gate]\nungated = \"deny\"\n");
    let expected = if lsm(&daemon) { "126" } else { "137" };
    for (how, command) in disguises(&name).into_iter().take(4) {
        assert_eq!(shell(&mut stage, &command), expected, "through {how}\n{}", daemon.log());
    }
    if !in_guest() {
        let (how, command) = &disguises(&name)[4];
        assert_eq!(shell(&mut stage, command), expected, "through {how}\n{}", daemon.log());
        assert_eq!(shell(&mut stage, &format!("mv {name} moved && ./moved exit")), expected, "{}", daemon.log());
    }
}

fn path_of_agent(stage: &Stage) -> String {
    stage.directory().join(stage.agent_name()).display().to_string()
}

/// Whether the daemon has BPF LSM.
fn lsm(daemon: &Daemon) -> bool {
    daemon.status().capabilities.iter().any(|capability| capability.name == "lsm" && capability.on)
}

/// A configuration whose agent profile, the stage's own, is held to these bounds.
fn bounded(stage: &Stage, bounds: &str) -> String {
    format!("[[profile]]\nname = \"bounded\"\nexe = [\"*/{}\"]\n{bounds}\n", stage.agent_name())
}

#[test]
fn a_fork_beyond_the_sessions_bound_fails_in_the_kernel() {
    let mut stage = Stage::new();
    let config = bounded(&stage, "max_helpers = 5");
    let daemon = Daemon::configured(&stage, &config);
    let held = lsm(&daemon);
    if !held && !cgroup_v2() {
        eprintln!("skipped: neither BPF LSM nor cgroup v2 with its controllers is here");
        return;
    }
    launch(&mut stage, &daemon, 1, &["--profile", "bounded"], "fork-until-refused refused [ hold ] report full hold");
    let agent = stage.reported("full");
    let refused = std::fs::read_to_string(stage.directory().join("refused")).expect("what was refused");
    let (children, error) = refused.trim().split_once(' ').expect("two numbers");
    assert_eq!(error, libc::EAGAIN.to_string());
    // Without BPF LSM, pids.max counts threads, of which it allows 32 for each process.
    let expected = if held { 5 } else { 32 * 6 - 1 };
    assert_eq!(children, expected.to_string());
    // The neighbour is not held.
    let other = stage.agent("times 10 [ fork [ report other hold ] ] hold");
    stage.all_reported("other", 10);
    assert!(is_alive(agent) && is_alive(other));
}

fn cgroup_v2() -> bool {
    let given = std::fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control").unwrap_or_default();
    let there = given.contains("memory") && given.contains("pids");
    assert!(there || !in_guest(), "a guest has the hierarchy with its controllers: {given:?}");
    there
}

#[test]
fn a_session_over_its_cap_goes_as_a_whole_and_its_neighbour_lives() {
    if !cgroup_v2() {
        eprintln!("skipped: no cgroup v2 with its controllers here");
        return;
    }
    let mut stage = Stage::new();
    let config = bounded(&stage, "max_memory = \"128MiB\"");
    let daemon = Daemon::configured(&stage, &config);
    let options = ["--profile", "bounded"];
    let neighbour = launch(&mut stage, &daemon, 1, &options, "anon 60 report neighbour hold")[0];
    let script =
        "spawn helper [ report small hold ] spawn helper [ report large await go anon 200 hold ] report agent hold";
    let agent = launch(&mut stage, &daemon, 1, &options, script)[0];
    let members = [stage.reported("agent"), stage.reported("small"), stage.reported("large")];
    stage.reported("neighbour");
    let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", agent.pid)).expect("a cgroup");
    let directory = Path::new("/sys/fs/cgroup").join(cgroup.trim().trim_start_matches("0::/"));
    let limit_of = |file: &str| std::fs::read_to_string(directory.join(file)).expect("a limit").trim().to_owned();
    assert_eq!(limit_of("memory.max"), (128u64 << 20).to_string());
    assert_eq!(limit_of("memory.oom.group"), "1");

    stage.mark("go");
    let gone = poll(seconds(20.0), || members.iter().all(|member| !is_alive(*member)).then_some(()));
    assert!(gone.is_some(), "{members:?}\n{}", daemon.log());
    assert!(is_alive(neighbour));
    let removed = poll(seconds(5.0), || (!directory.exists()).then_some(()));
    assert!(removed.is_some(), "{} is left behind", directory.display());
}

#[test]
fn a_process_that_leaves_its_sessions_cgroup_is_told() {
    if !cgroup_v2() {
        eprintln!("skipped: no cgroup v2 with its controllers here");
        return;
    }
    let mut stage = Stage::new();
    let config = bounded(&stage, "max_memory = \"128MiB\"");
    let daemon = Daemon::configured(&stage, &config);
    launch(&mut stage, &daemon, 1, &["--profile", "bounded"], "spawn helper [ report leaves hold ] report agent hold");
    let leaves = stage.reported("leaves");
    std::fs::write("/sys/fs/cgroup/cgroup.procs", leaves.pid.to_string()).expect("root may move it");
    let finding = daemon.eventually(seconds(15.0), "a finding", |look| {
        look.open(FindingKind::Ungated).into_iter().find(|finding| finding.pid == leaves.pid).cloned()
    });
    assert!(finding.summary.ends_with("the cap of 128 MiB no longer applies"), "{finding:?}");
    assert_eq!(daemon.look().session_with(leaves).map(|session| session.gated), Some(true));
}
