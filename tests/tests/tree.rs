//! Processes started in every possible way: the tree agrees with /proc, with the parents that forked them.

#![expect(clippy::expect_used, reason = "a test reports by a panic")]

use std::collections::BTreeSet;

use watchdog_api::{FindingKind, ProcessKind, ProcessState, Session, SessionState};
use watchdog_tests::{Daemon, ProcessKey, Stage, in_guest, seconds};

fn members(session: &Session) -> BTreeSet<ProcessKey> {
    let living = session.processes.iter().filter(|process| process.state != ProcessState::Zombie);
    living.map(|process| ProcessKey { pid: process.pid, start_time: process.start_time }).collect()
}

/// Waits until the session of `agent` consists of exactly these processes.
fn exactly(daemon: &Daemon, agent: ProcessKey, expected: &[ProcessKey]) -> Session {
    let expected: BTreeSet<_> = expected.iter().copied().collect();
    daemon.eventually(seconds(1.0), &format!("a session of exactly {expected:?}"), |snapshot| {
        snapshot.session(agent).filter(|session| members(session) == expected).cloned()
    })
}

/// Waits until the daemon shows that the process executed the helper: an exec is an event of its own, after the fork.
fn executed_helper(daemon: &Daemon, process: ProcessKey) {
    daemon.eventually(seconds(1.0), &format!("the helper executed by {process}"), |snapshot| {
        snapshot.process(process)?.argv[0].ends_with("/helper").then_some(())
    });
}

/// `(parent_pid, depth)` as the daemon shows it.
fn place(session: &Session, process: ProcessKey) -> (u32, u32) {
    let shown = session.processes.iter().find(|p| p.pid == process.pid).expect("a member");
    (shown.parent_pid, shown.depth)
}

#[test]
fn tree_follows_forks() {
    let (mut stage, daemon) = Daemon::on_stage();

    let agent = stage.agent(
        "spawn helper [ report a spawn helper [ report aa fork [ report aaa hold ] hold ] fork [ report ab hold ] hold ]
         spawn helper [ report b hold ] hold",
    );
    let [a, aa, aaa, ab, b] = ["a", "aa", "aaa", "ab", "b"].map(|name| stage.reported(name));

    let session = exactly(&daemon, agent, &[agent, a, aa, aaa, ab, b]);
    assert_eq!((session.profile.as_str(), session.state), ("test", SessionState::Running));
    assert_eq!(session.uid, 0);
    assert_eq!(place(&session, agent).1, 0);
    assert_eq!(place(&session, a), (agent.pid, 1));
    assert_eq!(place(&session, b), (agent.pid, 1));
    assert_eq!(place(&session, aa), (a.pid, 2));
    assert_eq!(place(&session, ab), (a.pid, 2));
    assert_eq!(place(&session, aaa), (aa.pid, 3));
    assert_eq!(session.processes[0].kind, ProcessKind::Agent);
    let order: Vec<_> = session.processes.iter().map(|process| process.pid).collect();
    let before = |x: ProcessKey, y: ProcessKey| {
        order.iter().position(|pid| *pid == x.pid) < order.iter().position(|pid| *pid == y.pid)
    };
    assert!(before(agent, a) && before(a, aa) && before(aa, aaa) && before(a, ab), "parents come first: {order:?}");
}

#[test]
fn running_agent_is_found() {
    let mut stage = Stage::new();
    let agent = stage.agent("spawn helper [ report a fork [ report b hold ] hold ] hold");
    let [a, b] = ["a", "b"].map(|name| stage.reported(name));

    let daemon = Daemon::watching(&stage);

    let session = exactly(&daemon, agent, &[agent, a, b]);
    assert_eq!(place(&session, b).1, 2);
}

#[test]
fn double_fork_stays_in_session() {
    let (mut stage, daemon) = Daemon::on_stage();

    let agent = stage.agent("fork [ setsid fork [ exec helper [ report daemon hold ] ] ] wait hold");
    let double_forked = stage.reported("daemon");

    let session = exactly(&daemon, agent, &[agent, double_forked]);
    let shown = session.processes.iter().find(|process| process.pid == double_forked.pid).expect("a member");
    assert_eq!(shown.depth, 2);
    daemon.eventually(seconds(5.0), "its new parent", |snapshot| {
        snapshot.process(double_forked).filter(|process| process.ppid == stage.pid()).map(drop)
    });
}

#[test]
fn exited_parent_does_not_hide_child() {
    let (mut stage, daemon) = Daemon::on_stage();

    let agent = stage.agent("fork [ fork [ await-new-parent exec helper [ report late hold ] ] ] hold");
    let late = stage.reported("late");

    // The one in between is a zombie of the agent: counted, and no member.
    let session = exactly(&daemon, agent, &[agent, late]);
    assert_eq!(place(&session, late).1, 2);
}

#[test]
fn thread_exec_keeps_identity() {
    let (mut stage, daemon) = Daemon::on_stage();

    let agent = stage.agent("fork [ report before threads 3 exec-from-thread helper [ report after hold ] ] hold");
    let after = stage.reported("after");
    assert_eq!(after, stage.reported("before"));

    exactly(&daemon, agent, &[agent, after]);
    executed_helper(&daemon, after);
}

#[test]
fn ten_thousand_threads_are_no_processes() {
    let (mut stage, daemon) = Daemon::on_stage();
    let threads = if in_guest() { 500 } else { 10_000 };

    let agent = stage.agent(&format!("spawn helper [ threads {threads} report ready hold ] hold"));
    let helper = stage.reported("ready");

    exactly(&daemon, agent, &[agent, helper]);
    let task = std::fs::read_dir(format!("/proc/{}/task", helper.pid)).expect("the helper's threads").count();
    assert_eq!(task, threads + 1);
    assert_eq!(daemon.status().counts.processes, 2);
}

#[test]
fn renamed_process_keeps_executable() {
    let (mut stage, daemon) = Daemon::on_stage();

    let agent = stage.agent("rename claude spawn helper [ rename something~else report renamed hold ] hold");
    let renamed = stage.reported("renamed");

    exactly(&daemon, agent, &[agent, renamed]);
    let cmdline = std::fs::read_to_string(format!("/proc/{}/cmdline", renamed.pid)).expect("a cmdline");
    assert!(cmdline.starts_with("something else\0"), "{cmdline:?}");
    daemon.eventually(seconds(2.0), "the executed arguments and the new name", |snapshot| {
        let process = snapshot.process(renamed)?;
        (process.argv[0].ends_with("/helper") && process.argv[1] == "rename").then_some(())
    });
}

#[test]
fn vfork_and_posix_spawn_are_forks() {
    let (mut stage, daemon) = Daemon::on_stage();

    let agent = stage.agent("vfork helper [ report v hold ] posix-spawn helper [ report p hold ] hold");
    let [v, p] = ["v", "p"].map(|name| stage.reported(name));

    let session = exactly(&daemon, agent, &[agent, v, p]);
    assert_eq!((place(&session, v), place(&session, p)), ((agent.pid, 1), (agent.pid, 1)));
    executed_helper(&daemon, v);
    executed_helper(&daemon, p);
}

#[test]
fn nested_agent_has_own_session() {
    let mut stage = Stage::new();
    let other = format!("other-{}", stage.agent_name());
    stage.install(&other);
    let profile = format!("[[profile]]\nname = \"other\"\nexe = [\"*/{other}\"]\n");
    let daemon = Daemon::configured(&stage, &profile);

    let outer = stage
        .agent(&format!("spawn helper [ spawn {other} [ report inner fork [ report leaf hold ] hold ] hold ] hold"));
    let [inner, leaf] = ["inner", "leaf"].map(|name| stage.reported(name));

    let session = exactly(&daemon, inner, &[inner, leaf]);
    let outer = daemon.snapshot().session(outer).cloned().expect("the outer session");
    assert_eq!(session.profile, "other");
    assert_eq!(session.parent_session, Some(outer.id));
    assert_eq!(outer.parent_session, None);
    assert!(!members(&outer).contains(&inner) && !members(&outer).contains(&leaf));
}

#[test]
fn zombie_counted_without_memory() {
    let (mut stage, daemon) = Daemon::on_stage();

    let agent = stage.agent("times 3 [ fork [ report zombie anon 20 exit ] ] report agent hold");
    stage.all_reported("zombie", 3);

    let session = daemon.eventually(seconds(5.0), "three zombies", |snapshot| {
        snapshot.session(agent).filter(|session| session.zombies == 3).cloned()
    });
    assert_eq!(members(&session), [agent].into());
    for zombie in session.processes.iter().filter(|process| process.state == ProcessState::Zombie) {
        assert_eq!((zombie.rss_bytes, zombie.anon_bytes, zombie.shmem_bytes, zombie.swap_bytes), (0, 0, 0, 0));
    }
    assert_eq!(daemon.snapshot().findings_of(FindingKind::Orphan).len(), 0);
}

#[test]
fn session_ends_with_last_process() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ report helper await go ] await go");
    let helper = stage.reported("helper");
    exactly(&daemon, agent, &[agent, helper]);

    stage.mark("go");

    daemon.eventually(seconds(2.0), "the end of the session", |_| {
        let ended = daemon.events().into_iter().filter(|event| event.detail.kind() == "session_ended").count();
        assert!(ended <= 1, "{ended}");
        (ended == 1).then_some(())
    });
    let snapshot = daemon.snapshot();
    assert!(snapshot.session(agent).is_none_or(|session| members(session).is_empty()), "{}", daemon.describe(None));
}

#[test]
fn helper_events_are_in_order() {
    let (mut stage, daemon) = Daemon::on_stage();

    stage.agent("spawn helper [ report helper ] wait report done hold");
    let helper = stage.reported("helper");
    stage.reported("done");

    daemon.eventually(seconds(1.0), "fork, exec and exit of the helper", |_| {
        let events = daemon.events();
        let own: Vec<_> = events.iter().filter(|event| event.pid == Some(helper.pid)).collect();
        let kinds: Vec<_> = own.iter().map(|event| event.detail.kind()).collect();
        let in_order = events.windows(2).all(|pair| pair[0].seq < pair[1].seq);
        (kinds == ["fork", "exec", "exit"] && in_order).then_some(())
    });
}

#[test]
fn reparenting_keeps_fork_tree() {
    let (mut stage, daemon) = Daemon::on_stage();

    // A subreaper inside the tree takes the orphan that is not its child.
    let agent = stage.agent("subreaper fork [ report middle fork [ report leaf hold ] await go ] hold");
    let [middle, leaf] = ["middle", "leaf"].map(|name| stage.reported(name));
    let session = exactly(&daemon, agent, &[agent, middle, leaf]);
    assert_eq!(place(&session, leaf), (middle.pid, 2));

    stage.mark("go");

    let session = exactly(&daemon, agent, &[agent, leaf]);
    assert_eq!(place(&session, leaf), (middle.pid, 2), "the parent that forked it is a fact that stays");
    daemon.eventually(seconds(5.0), "today's parent is the subreaper", |snapshot| {
        snapshot.process(leaf).filter(|process| process.ppid == agent.pid).map(drop)
    });
}
