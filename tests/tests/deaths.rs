//! Explanations of deaths: cause, sender and memory.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use watchdog_tests::{
    Daemon, MIB, NOBODY, ProcessKey, Stage, TestCgroup, as_user, get, in_guest, limit, poll, seconds,
};

fn helper(script: &str) -> (Stage, Daemon, ProcessKey, ProcessKey) {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent(&format!("spawn helper [ report helper {script} ] hold"));
    let helper = stage.reported("helper");
    daemon.eventually(seconds(2.0), "the helper", |snapshot| snapshot.process(helper).map(drop));
    (stage, daemon, agent, helper)
}

/// The death of a process that the OOM killer took, with what the host shows of it a moment later, where it shows that: who
/// held memory, and which counters of cgroups changed.
fn oom_death(daemon: &Daemon, process: ProcessKey, within: Duration) -> Value {
    let death = daemon.death(process.pid, within);
    let complete = |oom: &Value| oom["holders"][0].is_object() && oom["scope_is"] == "reported";
    let looked_into = || Some(daemon.death(process.pid, within)).filter(|death| complete(&death["oom"]));
    poll(seconds(5.0), looked_into).unwrap_or(death)
}

/// Whether Linux 7 skipped the programs on this exit. Then the death says that nobody observed its status.
fn is_unobserved(daemon: &Daemon, death: &Value) -> bool {
    let unobserved = death["cause"] == "unknown" && daemon.status().tracking.missed_runs > 0;
    if unobserved {
        let summary = death["summary"].as_str().unwrap_or_default();
        assert!(summary.contains("its exit status was not observed"), "{death:#}");
        eprintln!("the kernel skipped the programs on an exit");
    }
    unobserved
}

#[test]
fn strangers_sigterm_names_the_stranger() {
    let (stage, daemon, _, helper) = helper("hold");

    stage.signal(helper, Signal::TERM);

    let death = daemon.death(helper.pid, seconds(5.0));
    if is_unobserved(&daemon, &death) {
        return;
    }
    assert_eq!((&death["cause"], &death["signal"]), (&"killed".into(), &15.into()), "{death:#}");
    let sender = &death["sender"];
    assert_eq!(sender["relation"], "stranger", "{death:#}");
    assert_eq!(sender["pid"], std::process::id(), "{death:#}");
    let comm = std::fs::read_to_string("/proc/self/comm").expect("our name");
    assert_eq!(sender["comm"], comm.trim(), "{death:#}");
    assert_eq!(sender["uid"], rustix::process::getuid().as_raw(), "{death:#}");

    let text = daemon.ctl_text(&["explain", &helper.pid.to_string()]);
    // The name of the program begins with its comm.
    let said = [format!("was killed by SIGTERM from {}", comm.trim()), format!(" (pid {}, uid", std::process::id())];
    assert!(text.code == 0 && said.iter().all(|said| text.stdout.contains(said)), "{text:?}");
    // A second later it is also in the journal.
    daemon.eventually(seconds(5.0), "an event of the death", |_| {
        daemon
            .events()
            .into_iter()
            .find(|event| event.detail.kind() == "death" && event.pid == Some(helper.pid))
            .map(drop)
    });
}

#[test]
fn killer_in_tree_is_named() {
    let (mut stage, daemon) = Daemon::on_stage();
    let (script, reports) = (stage.directory().join("reap.sh"), stage.directory().join("reports"));
    let kill = format!("kill -KILL $(sed -n 's/^victim \\([0-9]*\\) .*/\\1/p' {})\n", reports.display());
    std::fs::write(&script, kill).expect("the script");
    stage.agent(&format!(
        "spawn helper [ report victim hold ] await go program - [ /bin/sh {} ] hold",
        script.display()
    ));
    let victim = stage.reported("victim");
    daemon.eventually(seconds(2.0), "the victim", |snapshot| snapshot.process(victim).map(drop));

    stage.mark("go");

    let death = daemon.death(victim.pid, seconds(5.0));
    assert_eq!((&death["cause"], &death["signal"]), (&"killed".into(), &9.into()), "{death:#}");
    assert_eq!(death["sender"]["relation"], "same_tree", "{death:#}");
    assert_eq!(death["sender"]["name"], "reap.sh", "{death:#}");
    assert_eq!(death["sender"]["session"], death["session"], "{death:#}");
}

#[test]
fn session_explained_by_agents_death() {
    let (stage, daemon, agent, helper) = helper("hold");
    let session = daemon.snapshot().session(agent).expect("the session").id;
    let calm = daemon.ctl_text(&["explain", &format!("session:{session}")]);
    assert!(calm.code == 0 && calm.stdout.contains("is running, age"), "{calm:?}");

    stage.kill(agent);

    let death = daemon.death(agent.pid, seconds(5.0));
    assert_eq!(death["kind"], "agent", "{death:#}");
    let left = daemon.eventually(seconds(3.0), "the orphan is explained", |_| {
        let answer = daemon.ctl(&["explain", &format!("pid:{}", helper.pid)]);
        let explanation = answer.json();
        (explanation["findings"][0]["kind"] == "orphan").then_some(explanation)
    });
    assert!(left["summary"].as_str().expect("text").contains("Open finding (orphan"), "{left:#}");
    let ended = daemon.ctl_text(&["explain", &format!("session:{session}")]);
    let said = format!("from {}", std::fs::read_to_string("/proc/self/comm").expect("our name").trim());
    assert!(ended.code == 0 && ended.stdout.contains(&said) && ended.stdout.contains("SIGKILL"), "{ended:?}");
}

#[test]
fn unknown_and_foreign_death_not_found() {
    let (stage, daemon, _, helper) = helper("hold");
    for unknown in ["pid:4194303", "session:99999", "4194303"] {
        let answer = daemon.ctl_text(&["explain", unknown]);
        assert_eq!(answer.code, 1, "{answer:?}");
        let said = ["no record of", "nothing is known of"].map(|text| answer.stderr.contains(text));
        assert!(said.contains(&true), "{answer:?}");
    }
    stage.kill(helper);
    let _ = daemon.death(helper.pid, seconds(5.0));
    let socket = daemon.socket();
    let seen = as_user(NOBODY, move || get(&socket, &format!("/v1/explain?pid={}", helper.pid))).expect("an answer");
    assert_eq!(seen.status, 404, "{}", seen.body);
}

#[test]
fn cgroup_oom_names_cgroup() {
    let mut stage = Stage::new();
    let Some(cgroup) = TestCgroup::of(&format!("watchdog-{}", stage.agent_name()), 100 * MIB) else {
        assert!(!in_guest(), "a guest has a hierarchy of version 2, which is tested nowhere else");
        return;
    };
    let daemon = Daemon::watching(&stage);
    let agent = stage.agent("report agent await go spawn helper [ report hog await leak leak 40 60 hold ] hold");
    stage.reported("agent");
    cgroup.take(agent);
    stage.mark("go");
    let hog = stage.reported("hog");
    // The daemon reads the cgroup's number of kills together with the limits.
    let session = daemon.eventually(seconds(5.0), "the hog and its limits", |snapshot| {
        snapshot.process(hog)?.oom_score_adj?;
        snapshot.session_with(hog).map(|session| session.id)
    });
    stage.mark("leak");

    let death = oom_death(&daemon, hog, limit(Duration::from_secs(40)));
    if is_unobserved(&daemon, &death) {
        return;
    }
    assert_eq!((&death["cause"], &death["signal"]), (&"oom".into(), &9.into()), "{death:#}");
    assert!(daemon.events().iter().any(|event| event.detail.kind() == "oom" && event.pid == Some(hog.pid)));
    let oom = &death["oom"];
    if !cgroup.is_v2() {
        eprintln!(
            "this machine's memory cgroups are of version 1, which reports no cgroup: only the kill itself is tested"
        );
        assert!(oom["scope"] != "global" || oom["scope_is"] == "inferred", "{death:#}");
        return;
    }
    assert_eq!((&oom["scope"], &oom["scope_is"]), (&"cgroup".into(), &"reported".into()), "{death:#}");
    assert_eq!(oom["cgroup"], cgroup.path(), "{death:#}");
    assert_eq!(oom["cgroup_max_bytes"], 100 * MIB, "{death:#}");
    assert_eq!(oom["holders"][0]["session"], session, "{death:#}");
    let held = oom["holders"][0]["memory_bytes"].as_u64().expect("an amount");
    assert!((70 * MIB..130 * MIB).contains(&held), "{death:#}");
    assert_eq!(oom["largest"][0]["pid"], hog.pid, "{death:#}");
    let text = daemon.ctl_text(&["explain", &hog.pid.to_string()]);
    assert!(text.stdout.contains(&format!("its cgroup {} reached its limit of 100 MiB", cgroup.path())), "{text:?}");
}

/// Only where the machine is the test's own: it takes all of the memory.
#[test]
fn host_oom_names_largest_session() {
    if !in_guest() {
        eprintln!("skipped: this test takes all of a machine's memory, and runs in guests only");
        return;
    }
    let mut stage = Stage::new();
    let config = "[tracking]\nclose_watch = \"always\"\n";
    let daemon = Daemon::configured(&stage, config);
    stage.agent("spawn helper [ report hog await go times 200 [ anon 16 ] hold ] hold");
    let hog = stage.reported("hog");
    let session =
        daemon.eventually(seconds(2.0), "the hog", |snapshot| snapshot.session_with(hog).map(|session| session.id));
    // Whatever else is there, this is the one that is taken. While its memory is on its way back the kernel may choose another:
    // that is one of these, and not the test.
    for _ in 0..4 {
        stage.agent("report decoy hold");
    }
    for (process, score) in
        stage.all_reported("decoy", 4).into_iter().map(|decoy| (decoy, "900")).chain([(hog, "1000")])
    {
        std::fs::write(format!("/proc/{}/oom_score_adj", process.pid), score).expect("our own process");
    }

    stage.mark("go");

    let death = oom_death(&daemon, hog, limit(Duration::from_secs(60)));
    if is_unobserved(&daemon, &death) {
        return;
    }
    assert_eq!(death["cause"], "oom", "{death:#}");
    let oom = &death["oom"];
    // Kernels that preempt programs skip some, and count them. Then the scope is not known.
    let skipped = daemon.status().tracking.missed_runs;
    assert!(
        (&oom["scope"], &oom["scope_is"]) == (&"global".into(), &"reported".into())
            || (skipped > 0 && oom["scope"] == "unknown"),
        "{skipped} skipped; {death:#}"
    );
    assert_eq!(oom["holders"][0]["session"], session, "{death:#}");
    assert!(oom["holders"][0]["memory_bytes"].as_u64().expect("an amount") > 500 * MIB, "{death:#}");
    // On its way there it had to make room itself.
    let waited = daemon
        .events()
        .into_iter()
        .filter(|event| event.detail.kind() == "reclaim" && event.pid == Some(hog.pid))
        .count();
    assert!(waited > 0, "no wait for reclaim was reported\n{}", daemon.log());
}

/// Starts a child from a thread that exits a moment later. The child asked for SIGTERM at that exit.
const STARTS_FROM_THREAD: &str = "
import ctypes, os, signal, subprocess, sys, threading, time
PR_SET_PDEATHSIG = 1
def start():
    prepare = lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    child = subprocess.Popen(['/bin/sleep', '60'], preexec_fn=prepare)
    open(sys.argv[1] + '.new', 'w').write(str(child.pid))
    os.rename(sys.argv[1] + '.new', sys.argv[1])
    while not os.path.exists(sys.argv[2]):
        time.sleep(0.02)
thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(60)
";

#[test]
fn parent_death_signal_names_thread() {
    if in_guest() {
        eprintln!("skipped: the guest has no python3");
        return;
    }
    let (mut stage, daemon) = Daemon::on_stage();
    let path = |name: &str| stage.directory().join(name).display().to_string();
    let (script, pid, go) = (path("thread.py"), path("pid"), path("go-on"));
    std::fs::write(&script, STARTS_FROM_THREAD).expect("the script");
    stage.agent(&format!("program - [ /usr/bin/python3 {script} {pid} {go} ] hold"));
    let child =
        poll(seconds(5.0), || std::fs::read_to_string(&pid).ok()?.parse::<u32>().ok()).expect("the child's pid");
    daemon.eventually(seconds(5.0), "the child", |snapshot| {
        let mut processes = snapshot.tree.sessions.iter().flat_map(|session| &session.processes);
        processes.any(|process| process.pid == child).then_some(())
    });

    std::fs::write(&go, "").expect("the thread's mark");

    let death = daemon.death(child, seconds(5.0));
    let sender = &death["sender"];
    assert_eq!((&sender["relation"], &sender["by_thread_exit"]), (&"parent".into(), &true.into()), "{death:#}");
    let summary = death["summary"].as_str().expect("text");
    assert!(summary.contains("exited (PR_SET_PDEATHSIG); the parent runs on"), "{summary}");
}
