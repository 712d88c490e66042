//! The history of a killed daemon, read with and without the next daemon.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test reports by a panic")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;
use watchdog_tests::{CtlOutput, Daemon, HttpResponse, NOBODY, ProcessKey, Stage, as_user, get, poll, seconds};

/// How often the daemon is killed, unless `WATCHDOG_KILLS` says otherwise.
const KILLS: u64 = 10;

/// Kills the daemon, and waits for its exit.
fn kill(daemon: &mut Daemon) {
    daemon.send(Signal::KILL);
    daemon.wait(seconds(5.0)).expect("nothing survives that");
}

/// Runs `watchdogctl` on the daemon, or on what it has left.
fn ask(daemon: &Daemon, arguments: &[&str]) -> CtlOutput {
    let state = daemon.state_dir().display().to_string();
    daemon.ctl(&[arguments, &["--state-dir", &state]].concat())
}

fn records(daemon: &Daemon) -> Vec<Value> {
    lines(&get(&daemon.socket(), "/v1/history").expect("an answer"))
}

fn lines(history: &HttpResponse) -> Vec<Value> {
    assert_eq!(history.status, 200, "{}", history.body);
    history.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_type<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["type"] == kind).collect()
}

/// The agents that a record of this type names.
fn agents(records: &[Value], kind: &str) -> BTreeSet<ProcessKey> {
    let named = |record: &Value| {
        let number = |name: &str| record[name].as_u64().unwrap();
        ProcessKey { pid: u32::try_from(number("pid")).unwrap(), start_time: number("start_time") }
    };
    of_type(records, kind).into_iter().map(named).collect()
}

fn a_number_below(most: u64) -> u64 {
    u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos()) % most
}

#[test]
fn killed_daemon_loses_at_most_second() {
    let kills = std::env::var("WATCHDOG_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(KILLS);
    let (mut stage, mut daemon) = Daemon::on_stage();
    let mut expected = BTreeSet::new();
    for round in 1..=kills {
        let at_most = seconds(1.0);
        let end = Instant::now() + at_most + Duration::from_millis(50 + a_number_below(500));
        let (mut started, mut stall) = (Vec::new(), Duration::ZERO);
        while Instant::now() < end {
            let agent = stage.agent("anon 1 sleep 0.1");
            let began = Instant::now();
            started.push((began, agent));
            std::thread::sleep(Duration::from_millis(5));
            stall = stall.max(began.elapsed());
        }
        kill(&mut daemon);
        let killed = Instant::now();
        // What stalls this thread stalls the daemon.
        let old = |began: &Instant| killed.duration_since(*began) > at_most + stall;
        expected.extend(started.iter().filter(|(began, _)| old(began)).map(|(_, agent)| *agent));

        daemon.restart();

        let there = agents(&records(&daemon), "session_started");
        let lost: Vec<_> = expected.difference(&there).collect();
        assert!(lost.is_empty(), "after kill {round}: {lost:?} of {} are lost", expected.len());
    }
    let records = records(&daemon);
    assert!(!expected.is_empty());
    assert_eq!(of_type(&records, "daemon_started").len() as u64, kills + 1);
    assert!(of_type(&records, "daemon_stopped").is_empty());
    assert_eq!(daemon.status().history.unwrap().problem, None);
}

#[test]
fn ended_session_is_summarised() {
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ anon 32 report helper hold ] spawn helper [ report other hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(4.0), "the helper's memory", |snapshot| {
        (snapshot.process(helper)?.anon_bytes >= 32 << 20).then_some(())
    });
    // The sum is taken about once a second.
    std::thread::sleep(seconds(3.0));
    for process in [helper, stage.reported("other"), agent] {
        stage.kill(process);
    }

    let summary = poll(seconds(5.0), || of_type(&records(&daemon), "session_ended").first().copied().cloned());

    let summary = summary.expect("a summary");
    assert_eq!(summary["pid"], agent.pid);
    assert_eq!(
        (&summary["profile"], &summary["user"], &summary["helpers"]),
        (&"test".into(), &"root".into(), &2.into())
    );
    assert!(summary["peak_memory_bytes"].as_u64().unwrap() >= 32 << 20, "{summary}");
    assert!(summary["largest_process_peak_bytes"].as_u64().unwrap() >= 32 << 20, "{summary}");
    assert!(summary["started_at"].as_str() < summary["ended_at"].as_str(), "{summary}");
    let of_session = ask(&daemon, &["history", "--session", "1"]).json();
    let kinds: Vec<_> = of_session["records"].as_array().unwrap().iter().map(|record| &record["type"]).collect();
    assert!(kinds.contains(&&"session_started".into()) && !kinds.contains(&&"host".into()), "{kinds:?}");
}

#[test]
fn user_reads_own_history() {
    let (mut stage, daemon) = Daemon::on_stage();
    stage.agent("report root hold");
    stage.start("helper", "uid 65534 exec AGENT [ report nobody hold ]");
    let nobodys = stage.reported("nobody");
    let both = poll(seconds(5.0), || (agents(&records(&daemon), "session_started").len() == 2).then_some(()));
    both.expect("both are recorded");

    let socket = daemon.socket();
    let seen = as_user(NOBODY, move || get(&socket, "/v1/history")).expect("an answer");

    let seen = lines(&seen);
    assert_eq!(agents(&seen, "session_started"), BTreeSet::from([nobodys]));
    assert!(!of_type(&seen, "host").is_empty(), "every user may see the host's memory");
    let file: PathBuf = daemon.state_dir().join("history.log");
    assert!(as_user(NOBODY, move || std::fs::read(file)).is_err(), "the file itself is root's");
}

#[test]
fn postmortem_after_kill() {
    let (mut stage, mut daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ report helper anon 8 await grow anon 96 hold ] hold");
    let helper = stage.reported("helper");
    let looks = |daemon: &Daemon| {
        let records = records(daemon);
        let of_helper = |record: &&Value| record["processes"].to_string().contains(&format!("\"pid\":{},", helper.pid));
        of_type(&records, "host").into_iter().filter(of_helper).count()
    };
    poll(seconds(30.0), || (looks(&daemon) >= 1).then_some(())).expect("a look at the host");
    stage.mark("grow");
    let looked = looks(&daemon);
    poll(seconds(30.0), || (looks(&daemon) > looked).then_some(())).expect("one more, ten seconds later");
    stage.kill(agent);
    let orphaned = || {
        let records = records(&daemon);
        of_type(&records, "finding").iter().any(|finding| finding["kind"] == "orphan").then_some(())
    };
    poll(seconds(5.0), orphaned).expect("an orphan");
    kill(&mut daemon);

    let without = ask(&daemon, &["postmortem"]);
    let text = ask(&daemon, &["postmortem", "--boot", "0"]);
    daemon.restart();
    let with = ask(&daemon, &["postmortem"]);

    assert_eq!((without.code, with.code, text.code), (0, 0, 0), "{without:?} {with:?} {text:?}");
    let postmortem = without.json();
    assert_eq!(postmortem, with.json(), "both have the same content");
    assert_eq!(postmortem["end"], "daemon_died");
    let grown = &postmortem["processes"][0];
    assert_eq!(grown["pid"], helper.pid);
    assert!(grown["growth_bytes"].as_u64().unwrap() >= 80 << 20, "{postmortem:#}");
    let findings = postmortem["findings"].as_array().expect("findings");
    assert!(findings.iter().any(|found| found["kind"] == "orphan" && found["pid"] == helper.pid), "{postmortem:#}");
    assert!(postmortem["host"]["last"]["memory_available_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn records_follow_order_of_events() {
    let mut stage = Stage::new();
    let mut daemon = Daemon::watching(&stage);
    let agent = stage.agent("spawn helper [ report helper hold ] hold");
    let helper = stage.reported("helper");
    stage.kill(agent);
    let death_of = |records: &[Value], process: ProcessKey| {
        records.iter().position(|record| record["type"] == "death" && record["pid"] == process.pid)
    };
    let finding_of =
        |records: &[Value]| records.iter().position(|record| record["type"] == "finding" && record["kind"] == "orphan");
    let both = || {
        let records = records(&daemon);
        death_of(&records, agent).zip(finding_of(&records))
    };
    let (death, finding) = poll(seconds(10.0), both).expect("the death and the finding");
    assert!(death < finding, "the death caused the finding");
    // The next daemon learns of this exit from the kernel, after it has written its own start.
    kill(&mut daemon);
    stage.kill(helper);
    daemon.restart();

    let found = poll(seconds(10.0), || death_of(&records(&daemon), helper)).expect("the helper's death");

    let records = records(&daemon);
    let restart = records.iter().rposition(|record| record["type"] == "daemon_started").expect("the second start");
    assert!(found < restart, "{records:#?}");
    assert_in_order(&records);
    kill(&mut daemon);
    let of_file = ask(&daemon, &["history", "--host"]).json();
    assert_in_order(of_file["records"].as_array().expect("records"));
}

fn assert_in_order(records: &[Value]) {
    let times: Vec<&str> = records.iter().filter_map(|record| record["at"].as_str()).collect();
    let moments: Vec<jiff::Timestamp> = times.iter().map(|at| at.parse().expect("a time")).collect();
    assert!(moments.len() > 4 && moments.is_sorted(), "{times:?}");
}
