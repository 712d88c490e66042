//! The shipped rules and board with Debian's Prometheus and Alertmanager. Skipped without these programs, except in CI.
#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;
use watchdog_api::FindingKind;
use watchdog_tests::{Daemon, RedisServer, Stage, limit, poll, raw_tcp, seconds};

const PROMETHEUS: &str = "prometheus";
const PROMTOOL: &str = "promtool";
const ALERTMANAGER: &str = "prometheus-alertmanager";

/// Sessions in the gate, so that each panel has something to show. The address of a store follows.
const CONFIG: &str = "[gate]\nmax_sessions = 20\nmax_sessions_per_user = 10\nexpected_memory = \"8MiB\"\n\
                      reserve = \"64MiB\"\n[[profile]]\nname = \"gated\"\nexe = [\"*/no-such-agent\"]\nmax_sessions = 5\n\
                      [fleet]\nttl = \"3s\"\nmax_sessions = 10\n";

/// Whether the programs are installed; without them a test is skipped aloud.
///
/// # Panics
/// In CI, which installs them.
fn installed() -> bool {
    let found = |program: &&str| {
        let directories = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&directories).any(|directory| directory.join(program).is_file())
    };
    let missing: Vec<_> = [PROMETHEUS, PROMTOOL, ALERTMANAGER].into_iter().filter(|program| !found(program)).collect();
    if missing.is_empty() {
        return true;
    }
    watchdog_tests::skip_without(&format!("{missing:?}"), "prometheus prometheus-alertmanager");
    false
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name)
}

fn assert_silent_success(output: &Output) {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success() && said.iter().all(String::is_empty), "{said:?}");
}

/// A server on a free port of the loopback, killed when dropped.
struct ServerProcess {
    process: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl ServerProcess {
    fn start(directory: &Path, program: &str, arguments: &[String]) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let log = directory.join(format!("{program}.log"));
        let file = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).arg(format!("--web.listen-address={address}")).current_dir(directory);
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let server = Self { process: command.spawn().unwrap(), address, log };
        let ready = || raw_tcp(address, "/-/ready").ok().filter(|answer| answer.status == 200);
        assert!(poll(seconds(20.0), ready).is_some(), "{program} is not ready: {}", server.said());
        server
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The data of an answer of Prometheus.
    fn get(&self, path: &str) -> Value {
        let answer = raw_tcp(self.address, path).unwrap();
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()["data"].clone()
    }

    fn query(&self, query: &str) -> Value {
        self.get(&format!("/api/v1/query?query={}", percent_encoded(query)))["result"].clone()
    }

    /// Whether the query gave a number in the last minute.
    fn has_data(&self, query: &str) -> bool {
        let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let range = format!("start={}&end={now}&step=1", now - 60);
        let data = self.get(&format!("/api/v1/query_range?query={}&{range}", percent_encoded(query)));
        let series = data["result"].as_array().unwrap().iter();
        series.flat_map(|series| series["values"].as_array().unwrap()).any(|sample| sample[1] != "NaN")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        let _ = if byte.is_ascii_alphanumeric() {
            write!(encoded, "{}", char::from(byte))
        } else {
            write!(encoded, "%{byte:02X}")
        };
        encoded
    })
}

/// Receives the notifications of Alertmanager.
struct WebhookReceiver {
    address: SocketAddr,
    alerts: Receiver<Value>,
}

impl WebhookReceiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, alerts) = channel();
        std::thread::spawn(move || listener.incoming().for_each(|stream| receive(stream.unwrap(), &sender)));
        Self { address, alerts }
    }

    /// Waits for an alert with this name and status.
    fn await_alert(&self, name: &str, status: &str, within: Duration) -> Result<Value, Vec<Value>> {
        let (end, mut others) = (Instant::now() + within, Vec::new());
        while let Ok(alert) = self.alerts.recv_timeout(end.saturating_duration_since(Instant::now())) {
            if alert["labels"]["alertname"] == name && alert["status"] == status {
                return Ok(alert);
            }
            others.push(alert);
        }
        Err(others)
    }
}

fn receive(stream: TcpStream, alerts: &Sender<Value>) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    let notification: Value = serde_json::from_slice(&body).unwrap();
    // The test may have ended.
    notification["alerts"].as_array().unwrap().iter().for_each(|alert| drop(alerts.send(alert.clone())));
}

/// Alertmanager that notifies `webhook`, and Prometheus that scrapes the daemon every second with the shipped rules. Alerts
/// fire after a second in place of minutes.
fn servers(directory: &Path, daemon: &Daemon, webhook: SocketAddr) -> (ServerProcess, ServerProcess) {
    let manager = format!(
        "route: {{receiver: hook, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}\n\
         receivers: [{{name: hook, webhook_configs: [{{url: 'http://{webhook}/', send_resolved: true}}]}}]\n"
    );
    std::fs::write(directory.join("alertmanager.yaml"), manager).unwrap();
    let arguments = ["--config.file=alertmanager.yaml", "--storage.path=alertmanager", "--cluster.listen-address="];
    let manager = ServerProcess::start(directory, ALERTMANAGER, &arguments.map(str::to_owned));
    let alerts = std::fs::read_to_string(packaging("prometheus/alerts.yaml")).unwrap();
    let shortened: String =
        alerts
            .lines()
            .map(|line| {
                if line.trim_start().starts_with("for: ") {
                    "        for: 1s\n".to_owned()
                } else {
                    format!("{line}\n")
                }
            })
            .collect();
    std::fs::write(directory.join("alerts.yaml"), shortened).unwrap();
    std::fs::copy(packaging("prometheus/rules.yaml"), directory.join("rules.yaml")).unwrap();
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [alerts.yaml, rules.yaml]\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{}']}}]}}]}}\n\
         scrape_configs: [{{job_name: agent-watchdog, static_configs: [{{targets: ['{}']}}]}}]\n",
        manager.address,
        daemon.metrics_address()
    );
    std::fs::write(directory.join("prometheus.yaml"), config).unwrap();
    let arguments = ["--config.file=prometheus.yaml", "--storage.tsdb.path=prometheus"];
    let prometheus = ServerProcess::start(directory, PROMETHEUS, &arguments.map(str::to_owned));
    (manager, prometheus)
}

#[test]
fn rules_pass_promtool() {
    if !installed() {
        return;
    }
    for arguments in [
        &["check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml", "rules.yaml"][..],
        &["test", "rules", "tests.yaml"],
    ] {
        let output = Command::new(PROMTOOL).args(arguments).current_dir(packaging("prometheus")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn metrics_pass_promtool() {
    if !installed() {
        return;
    }
    let (mut stage, daemon) = Daemon::on_stage();
    let agent = stage.agent("spawn helper [ hold ] hold");
    daemon.eventually(seconds(3.0), "the session", |snapshot| snapshot.session(agent).map(drop));
    let mut promtool = Command::new(PROMTOOL);
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().unwrap();
    promtool.stdin.take().unwrap().write_all(daemon.metrics().as_bytes()).unwrap();
    assert_silent_success(&promtool.wait_with_output().unwrap());
}

#[test]
fn alert_reaches_webhook_and_panels_answer() {
    if !installed() {
        return;
    }
    let mut stage = Stage::new();
    let Some(store) = RedisServer::start(&[]) else { return };
    let daemon = Daemon::configured(&stage, &format!("{CONFIG}store = \"{}\"\n", store.url()));
    let webhook = WebhookReceiver::start();
    let (_manager, prometheus) = servers(stage.directory(), &daemon, webhook.address);
    let scraped = || (prometheus.query("agent_watchdog_degraded")[0].is_object()).then_some(());
    assert!(poll(seconds(10.0), scraped).is_some(), "{}", prometheus.said());

    for _ in 0..2 {
        stage.execute(daemon.launch(&stage, &["--profile", "gated"], "report gated anon 8 hold"));
    }
    stage.all_reported("gated", 2);
    let agent = stage.agent("spawn helper [ report helper anon 16 hold ] hold");
    let helper = stage.reported("helper");
    daemon.eventually(seconds(3.0), "the helper", |snapshot| snapshot.process(helper).map(drop));
    stage.kill(agent);
    daemon.eventually(seconds(5.0), "an orphan", |snapshot| snapshot.open(FindingKind::Orphan).first().map(drop));

    let name = "AgentWatchdogOrphansLeftBehind";
    let alert = webhook.await_alert(name, "firing", limit(Duration::from_secs(30)));
    let alert = alert.unwrap_or_else(|others| panic!("{others:#?}\n{}", prometheus.said()));
    let instance = daemon.metrics_address().to_string();
    assert_eq!(
        (&alert["labels"]["severity"], &alert["labels"]["instance"]),
        (&"warning".into(), &instance.clone().into())
    );
    assert_eq!(alert["annotations"]["description"], format!("{instance} has orphans of 1 dead agents."));

    panels_answer(&prometheus);
    rules_are_healthy(&prometheus);

    stage.kill(helper);
    let resolved = webhook.await_alert(name, "resolved", limit(Duration::from_secs(20)));
    assert!(resolved.is_ok(), "{resolved:#?}\n{}", prometheus.said());
}

fn panels_answer(prometheus: &ServerProcess) {
    let text = std::fs::read_to_string(packaging("grafana/agent-watchdog.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let has_pressure = Path::new("/proc/pressure/memory").exists();
    let panels = board["panels"].as_array().unwrap().iter();
    let queries: Vec<String> = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten()
        .map(|target| target["expr"].as_str().unwrap())
        .filter(|query| has_pressure || !query.contains("_pressure_"))
        .map(|query| query.replace("$job", ".+").replace("$instance", ".+").replace("$__rate_interval", "5s"))
        .collect();
    assert!(queries.len() > 40, "{}", queries.len());
    let mut empty = Vec::new();
    poll(seconds(15.0), || {
        empty = queries.iter().filter(|query| !prometheus.has_data(query)).collect();
        empty.is_empty().then_some(())
    });
    assert!(empty.is_empty(), "without data: {empty:#?}");
}

fn rules_are_healthy(prometheus: &ServerProcess) {
    let groups = prometheus.get("/api/v1/rules");
    let rules: Vec<&Value> =
        groups["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() > 25, "{rules:#?}");
    assert!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:#?}");
}
