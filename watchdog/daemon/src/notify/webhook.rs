//! `[actions] webhook`: posts alerts to Alertmanager, API version 2.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{MIN_INTERVAL, Notification, NotificationQueue, QUEUE};
use crate::log_throttle::ThrottledWarning;
use watchdog_api::{ActionState, DecidedBy, Receipt, Severity};
use watchdog_config::NotifyConfig;

/// The time for a receiver to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pauses before the second and the third attempt; there is no fourth.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// How long an alert lasts. Alertmanager drops alerts that have ended when they arrive.
const ALERT_DURATION: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, thiserror::Error)]
pub(super) enum WebhookError {
    #[error("not a valid URL")]
    Address,
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Silent,
}

impl WebhookError {
    /// Whether another attempt may succeed: a refused request is refused again.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Address => false,
            Self::Refused(status) => !status.is_client_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Connect(_) | Self::Http(_) | Self::Silent => true,
        }
    }
}

/// Posts all notifications, those that wait together in one request.
pub(super) async fn serve(config: watch::Receiver<NotifyConfig>, mut queue: NotificationQueue) {
    let mut warning = ThrottledWarning::default();
    while let Some(notifications) = queue.next(QUEUE).await {
        let Some(url) = config.borrow().webhook.clone() else { continue };
        let next = Instant::now() + MIN_INTERVAL;
        if let Err(failure) = deliver(&url, &notifications, &PAUSES).await {
            let count = notifications.len();
            warning.warn(format_args!("[actions] webhook: failed to send {count} receipts to {url}: {failure}"));
        }
        sleep_until(next).await;
    }
}

/// Posts alerts, with a limited number of attempts.
pub(super) async fn deliver(
    url: &str,
    notifications: &[Arc<Notification>],
    pauses: &[Duration],
) -> Result<(), WebhookError> {
    let now = Timestamp::now();
    let alerts: Value = notifications.iter().map(|notifications| alert(notifications, now)).collect();
    let body = Bytes::from(alerts.to_string());
    let mut pauses = pauses.iter();
    loop {
        let failure = match timeout(TIMEOUT, post(url, body.clone())).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => WebhookError::Silent,
        };
        match pauses.next() {
            Some(pause) if failure.is_retryable() => sleep(*pause).await,
            _ => return Err(failure),
        }
    }
}

async fn post(url: &str, body: Bytes) -> Result<(), WebhookError> {
    let url: Uri = url.parse().map_err(|_| WebhookError::Address)?;
    let (authority, host) = url.authority().zip(url.host()).ok_or(WebhookError::Address)?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("agent-watchdog/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .map_err(|_| WebhookError::Address)?;
    let stream = connect(host, url.port_u16().unwrap_or(80)).await.map_err(WebhookError::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut answer = pin!(sender.send_request(request));
    // Neither outlives this block: an abandoned connection is closed.
    let answer = tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(WebhookError::Refused(status)),
    }
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let addresses = match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) if host.eq_ignore_ascii_case("localhost") => {
            local.map(|address| SocketAddr::new(address, port)).to_vec()
        }
        // As in `host::users`: to query the name service switch, such a program would load libraries of another glibc.
        Err(_) if cfg!(all(target_env = "gnu", target_feature = "crt-static")) => {
            return Err(io::Error::other(format!("this build cannot resolve host names: use the address of {host:?}")));
        }
        Err(_) => tokio::net::lookup_host((host, port)).await?.collect(),
    };
    TcpStream::connect(addresses.as_slice()).await
}

/// An alert. Its labels have few values: no pid, no program name.
fn alert(notifications: &Notification, now: Timestamp) -> Value {
    let ends_at = now.saturating_add(ALERT_DURATION).unwrap_or(now).to_string();
    match notifications {
        Notification::Receipt(receipt) => json!({
            "labels": {
                "alertname": "AgentWatchdogAction",
                "action": receipt.action.name(),
                "outcome": receipt.state.name(),
                "finding": receipt.finding_kind.map_or("none", |kind| kind.name()),
                "severity": severity(receipt).name(),
            },
            "annotations": { "summary": summary(receipt), "description": description(receipt) },
            "startsAt": receipt.began_at,
            "endsAt": ends_at,
        }),
        Notification::HeldBack { at, detail } => json!({
            "labels": { "alertname": "AgentWatchdogHeldBack", "severity": Severity::Warning.name() },
            "annotations": { "summary": "Actions are held back", "description": detail },
            "startsAt": at,
            "endsAt": ends_at,
        }),
    }
}

/// Running out of memory is critical whatever was done about it; otherwise an incomplete action is a warning.
fn severity(receipt: &Receipt) -> Severity {
    match (receipt.by, receipt.state) {
        (DecidedBy::Emergency, _) => Severity::Critical,
        (DecidedBy::Policy | DecidedBy::Person, ActionState::Incomplete) => Severity::Warning,
        (DecidedBy::Policy | DecidedBy::Person, _) => Severity::Info,
    }
}

fn summary(receipt: &Receipt) -> String {
    let (action, outcome) = (receipt.action.name(), receipt.state.name().replace('_', " "));
    let processes = match receipt.targets.len() {
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    };
    format!("{action} {processes}, decided by {}: {outcome}", receipt.by.name())
}

fn description(receipt: &Receipt) -> String {
    let sentences = [receipt.reason.as_str(), receipt.result.as_str()];
    sentences.into_iter().filter(|sentence| !sentence.is_empty()).collect::<Vec<_>>().join("; ")
}
