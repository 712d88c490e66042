//! Which receipts are sent, how often, and what happens when a receiver hangs or fails.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use rustix::process::geteuid;
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::command::{self, CommandError, RunAs, run, run_as};
use super::*;
use watchdog_api::{ActionKind, ActionTarget, DecidedBy, FindingKind, ProcessKind};
use watchdog_host::passwd::{self, PASSWD};

/// The time that a busy machine may take for something immediate.
const PATIENCE: Duration = Duration::from_secs(60);

fn receipt(state: ActionState) -> Receipt {
    let target = ActionTarget {
        pid: 4_242,
        start_time: 7,
        parent_pid: None,
        kind: ProcessKind::McpServer,
        name: "secret-server".to_owned(),
        uid: 1000,
        memory_bytes: 1 << 20,
        sent: Vec::new(),
        died_at: None,
    };
    Receipt {
        id: 1,
        action: ActionKind::Terminate,
        state,
        by: DecidedBy::Policy,
        asked_by_uid: None,
        finding: Some(3),
        finding_kind: Some(FindingKind::Orphan),
        session: Some(2),
        reason: "its agent is gone".to_owned(),
        evidence: Map::new(),
        began_at: "2026-01-01T00:00:00Z".to_owned(),
        ended_at: Some("2026-01-01T00:00:10Z".to_owned()),
        memory_bytes: 1 << 20,
        freed_bytes: 1 << 20,
        available_before_bytes: 1 << 30,
        available_after_bytes: Some(1 << 30),
        targets: vec![target],
        spared: Vec::new(),
        result: "1 process ended".to_owned(),
    }
}

/// A directory that every user can write to.
fn open_dir() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    dir
}

/// A command that runs a script of this directory in a shell: a file just written may still be open in a child of another
/// test, and could not be executed then.
fn script(dir: &Path, text: &str) -> Vec<String> {
    let file = dir.join("script");
    fs::write(&file, text).unwrap();
    vec!["/bin/sh".to_owned(), file.display().to_string(), dir.display().to_string()]
}

fn to_command(command: Vec<String>) -> NotifyConfig {
    NotifyConfig { command: Some(command), user: "nobody".to_owned(), webhook: None }
}

fn to_webhook(url: String) -> NotifyConfig {
    NotifyConfig { command: None, user: "nobody".to_owned(), webhook: Some(url) }
}

/// The user of a command that runs as "nobody": only root can change its user.
fn whose() -> u32 {
    match geteuid() {
        uid if uid.is_root() => passwd::account(Path::new(PASSWD), "nobody").unwrap().unwrap().uid.0,
        uid => uid.as_raw(),
    }
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} did not come");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The lines of a file, once it has this many.
fn lines(file: &Path, count: usize) -> Vec<String> {
    until("the file", || {
        let lines: Vec<String> = fs::read_to_string(file).ok()?.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

fn block_on<T>(what: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
}

#[test]
fn command_runs_as_configured_user() {
    let dir = open_dir();
    let text =
        "cat > $1/stdin; { id -u; id -G; pwd; env; cat /proc/self/oom_score_adj; } > $1/who; mv $1/who $1/done\n";
    let notifier = start(to_command(script(dir.path(), text))).unwrap();
    notifier.receipt(&receipt(ActionState::Done));

    let who = until("the command's word", || fs::read_to_string(dir.path().join("done")).ok());
    let stdin = fs::read(dir.path().join("stdin")).unwrap();
    assert_eq!(serde_json::from_slice::<Receipt>(&stdin).unwrap(), receipt(ActionState::Done));
    let who: Vec<&str> = who.lines().collect();
    assert_eq!(who[0], whose().to_string());
    if geteuid().is_root() {
        let nobody = passwd::account(Path::new(PASSWD), "nobody").unwrap().unwrap();
        assert_eq!(who[1], nobody.gid.to_string(), "no group of root's");
    }
    assert_eq!(who[2], "/");
    let environment = &who[3..who.len() - 1];
    // The shell sets these itself.
    let given = environment
        .iter()
        .filter(|variable| !["PWD=", "OLDPWD=", "SHLVL=", "_="].iter().any(|own| variable.starts_with(own)));
    assert!(given.clone().all(|variable| variable.starts_with("PATH=/")) && given.count() == 1, "{environment:?}");
    assert!(!who[who.len() - 1].starts_with('-'), "the OOM killer may choose it");
}

#[test]
fn held_back_policy_is_notified() {
    let dir = open_dir();
    let notifier = start(to_command(script(dir.path(), "cat >> $1/stdin\n"))).unwrap();
    notifier.held_back("2026-01-01T00:00:00Z".to_owned(), "too many");
    assert_eq!(lines(&dir.path().join("stdin"), 1), [r#"{"held_back":"too many"}"#]);
}

#[test]
fn running_actions_are_not_notified() {
    let dir = open_dir();
    let command = script(dir.path(), "cat >> $1/stdin\n");
    let notifier = start(NotifyConfig::default()).unwrap();
    notifier.receipt(&receipt(ActionState::Incomplete));
    notifier.reconfigure(&to_command(command));
    notifier.receipt(&receipt(ActionState::Running));
    notifier.receipt(&receipt(ActionState::Holding));
    let received: Receipt = serde_json::from_str(&lines(&dir.path().join("stdin"), 1)[0]).unwrap();
    assert_eq!(received.state, ActionState::Holding);
}

#[test]
fn command_runs_once_a_second() {
    let dir = open_dir();
    let notifier = start(to_command(script(dir.path(), "date +%s%N >> $1/times\n"))).unwrap();
    (0..5).for_each(|_| notifier.receipt(&receipt(ActionState::Done)));
    let times: Vec<u64> = lines(&dir.path().join("times"), 5).iter().map(|time| time.parse().unwrap()).collect();
    let between = Duration::from_nanos(times[4] - times[0]);
    // The first may write its time a second or more after its start, so that the second seems early.
    assert!(between >= Duration::from_secs(3), "five in {between:?}");
}

#[test]
fn reload_changes_the_command() {
    let dir = open_dir();
    let write = |word: &str| {
        vec!["/bin/sh".to_owned(), "-c".to_owned(), format!("echo {word} >> {}/out", dir.path().display())]
    };
    let notifier = start(to_command(write("old"))).unwrap();
    notifier.receipt(&receipt(ActionState::Done));
    lines(&dir.path().join("out"), 1);
    notifier.reconfigure(&to_command(write("new")));
    notifier.receipt(&receipt(ActionState::Done));
    assert_eq!(lines(&dir.path().join("out"), 2), ["old", "new"]);
}

#[test]
fn hung_command_killed_with_children() {
    let dir = open_dir();
    let command = script(dir.path(), "sleep 1000 &\necho $! > $1/pid\nwait\n");
    let began = Instant::now();
    let result = block_on(run(&command, "nobody", b"{}", Duration::from_secs(5)));
    assert!(matches!(result, Err(CommandError::Hung)), "{result:?}");
    assert!(began.elapsed() < PATIENCE);
    let pid = lines(&dir.path().join("pid"), 1).remove(0);
    until("the end of what it started", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
    assert_eq!(command::TIMEOUT, Duration::from_secs(10));
}

#[test]
fn command_failure_is_reported() {
    let large = vec![b' '; 1 << 20];
    let run = |program: &str| block_on(run(&[program.to_owned()], "nobody", &large, PATIENCE));
    assert!(run("/bin/true").is_ok());
    let failure = run("/bin/false").unwrap_err().to_string();
    assert_eq!(failure, "it failed: exit status: 1");
    let failure = run("/nonexistent/program").unwrap_err().to_string();
    assert!(failure.starts_with("cannot start it: No such file"), "{failure}");
}

#[test]
fn root_must_be_named_explicitly() {
    if !geteuid().is_root() {
        assert_eq!(run_as("nobody").unwrap(), RunAs::Daemon);
        return;
    }
    assert!(matches!(run_as("nobody"), Ok(RunAs::Account(account)) if account.uid.0 != 0));
    assert_eq!(run_as("root").unwrap(), RunAs::Daemon);
    let failure = run_as("no-such-user").unwrap_err().to_string();
    assert_eq!(failure, "there is no user \"no-such-user\" in /etc/passwd");
}

#[test]
fn unprivileged_daemon_runs_nothing() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    if !geteuid().is_root() {
        return;
    }
    let dir = open_dir();
    let command = script(dir.path(), "id -u > $1/ran\n");
    // Capabilities are per thread: only the test's thread drops these.
    let failure = thread::spawn(move || {
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::SETUID | CapabilitySet::SETGID;
        sets.permitted -= CapabilitySet::SETUID | CapabilitySet::SETGID;
        set_capabilities(None, sets).unwrap();
        block_on(run(&command, "nobody", b"{}", PATIENCE)).unwrap_err()
    });
    let failure = failure.join().unwrap();
    assert!(matches!(failure, CommandError::MayNotBecome { .. }), "{failure}");
    assert!(failure.to_string().ends_with("the daemon needs CAP_SETUID and CAP_SETGID"), "{failure}");
    assert!(!dir.path().join("ran").exists());
}

#[test]
fn hung_receiver_delays_no_sender() {
    let notifier = start(to_command(vec!["/bin/sleep".to_owned(), "3".to_owned()])).unwrap();
    let began = Instant::now();
    (0..2 * QUEUE).for_each(|_| notifier.receipt(&receipt(ActionState::Done)));
    // A sender that waited for the receiver would wait five minutes.
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn full_queue_drops_and_counts() {
    let (sender, mut queue) = queue("notify");
    let notifications =
        |detail: usize| Arc::new(Notification::HeldBack { at: String::new(), detail: detail.to_string() });
    (0..QUEUE + 50).for_each(|number| sender.put(&notifications(number)));
    assert_eq!(block_on(queue.next(1)).unwrap()[0].document(), b"{\"held_back\":\"0\"}\n");
    assert_eq!(queue.lost, 50);
    (0..3).for_each(|number| sender.put(&notifications(number)));
    assert_eq!(block_on(queue.next(QUEUE)).unwrap().len(), QUEUE);
    assert_eq!(queue.lost, 52);
    drop(sender);
    assert!(block_on(queue.next(1)).is_none());
}

/// A server that stores its requests, and returns these answers, the last one repeatedly.
fn server(answers: &'static [&'static str]) -> (String, Arc<Mutex<Vec<String>>>) {
    paused_server(answers, Arc::default())
}

/// The same, but it answers only while nobody holds `pause`.
fn paused_server(answers: &'static [&'static str], pause: Arc<Mutex<()>>) -> (String, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let (requests, socket) = (Arc::clone(&seen), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let address = socket.local_addr().unwrap();
    socket.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        block_on(async {
            let socket = TcpListener::from_std(socket).unwrap();
            for number in 0.. {
                let (mut stream, _) = socket.accept().await.unwrap();
                let mut request = Vec::new();
                while !is_whole(&request) {
                    assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "there are more requests");
                }
                requests.lock().unwrap().push(String::from_utf8(request).unwrap());
                drop(pause.lock().unwrap());
                let answer = answers.get(number).or(answers.last()).unwrap();
                stream.write_all(format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
            }
        });
    });
    (format!("http://{address}/api/v2/alerts?x=1"), seen)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    body.len() >= length.parse().unwrap()
}

#[test]
fn webhook_sends_alertmanager_alerts() {
    let (url, seen) = server(&["200 OK"]);
    let notifier = start(to_webhook(url.clone())).unwrap();
    notifier.receipt(&receipt(ActionState::Incomplete));
    let request = until("the post", || seen.lock().unwrap().first().cloned());
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /api/v2/alerts?x=1 HTTP/1.1\r\n"), "{head}");
    let host = url.strip_prefix("http://").unwrap().split_once('/').unwrap().0;
    assert!(head.contains(&format!("host: {host}\r\n")) && head.contains("content-type: application/json"), "{head}");

    let alerts: Vec<Value> = serde_json::from_str(body).unwrap();
    let [alert] = alerts.as_slice() else { panic!("{alerts:?}") };
    let mut labels = alert["labels"].as_object().unwrap().clone();
    labels.sort_keys();
    assert_eq!(
        Value::Object(labels).to_string(),
        r#"{"action":"terminate","alertname":"AgentWatchdogAction","finding":"orphan","outcome":"incomplete","severity":"warning"}"#
    );
    assert_eq!(alert["annotations"]["summary"], "terminate 1 process, decided by policy: incomplete");
    assert_eq!(alert["annotations"]["description"], "its agent is gone; 1 process ended");
    assert_eq!(alert["startsAt"], "2026-01-01T00:00:00Z");
    // Alertmanager drops an alert that has ended when it arrives.
    let ends: jiff::Timestamp = alert["endsAt"].as_str().unwrap().parse().unwrap();
    assert!(ends > jiff::Timestamp::now());
    assert!(!body.contains("4242") && !body.contains("secret-server"), "{body}");
}

#[test]
fn waiting_alerts_are_sent_together() {
    let pause = Arc::<Mutex<()>>::default();
    let paused = pause.lock().unwrap();
    let (url, seen) = paused_server(&["202 Accepted"], Arc::clone(&pause));
    let notifier = start(to_webhook(url)).unwrap();
    let began = Instant::now();
    notifier.held_back("2026-01-01T00:00:00Z".to_owned(), "too many");
    until("the first post", || seen.lock().unwrap().first().cloned());
    (0..3).for_each(|_| notifier.receipt(&receipt(ActionState::Done)));
    drop(paused);
    let second = until("the second post", || seen.lock().unwrap().get(1).cloned());
    assert!(began.elapsed() >= MIN_INTERVAL);
    let alerts: Vec<Value> = serde_json::from_str(second.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(alerts.len(), 3);
    let first: Vec<Value> = serde_json::from_str(seen.lock().unwrap()[0].split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(first[0]["annotations"]["description"], "too many");
}

fn deliver(url: &str) -> Result<(), webhook::WebhookError> {
    let notifications = [Arc::new(Notification::Receipt(Box::new(receipt(ActionState::Done))))];
    block_on(webhook::deliver(url, &notifications, &[Duration::ZERO; 2]))
}

#[test]
fn failed_post_retried_refused_post_not() {
    let (url, seen) = server(&["500 Oops", "503 Later", "200 OK"]);
    deliver(&url).unwrap();
    assert_eq!(seen.lock().unwrap().len(), 3);

    let (url, seen) = server(&["500 Oops"]);
    assert_eq!(deliver(&url).unwrap_err().to_string(), "it answered 500 Internal Server Error");
    assert_eq!(seen.lock().unwrap().len(), 3);

    let (url, seen) = server(&["400 Bad Request"]);
    assert_eq!(deliver(&url).unwrap_err().to_string(), "it answered 400 Bad Request");
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[test]
fn dead_webhook_delays_no_command() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", free.local_addr().unwrap());
    drop(free);
    let failure = deliver(&url).unwrap_err().to_string();
    assert!(failure.starts_with("cannot connect: Connection refused"), "{failure}");

    // Accepts connections, and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = open_dir();
    let notify = NotifyConfig {
        webhook: Some(format!("http://{}/", silent.local_addr().unwrap())),
        ..to_command(script(dir.path(), "cat >> $1/stdin\n"))
    };
    let notifier = start(notify).unwrap();
    let began = Instant::now();
    (0..2).for_each(|_| notifier.receipt(&receipt(ActionState::Done)));
    lines(&dir.path().join("stdin"), 2);
    // The webhook is tried three times, for 10 s each.
    assert!(began.elapsed() < Duration::from_secs(25));
}
