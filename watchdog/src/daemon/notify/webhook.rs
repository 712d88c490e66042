//! `[actions] webhook`: alerts as Alertmanager takes them, version 2 of its API.

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

use super::{Inbox, News, PACE, QUEUE};
use crate::api::{ActionState, DecidedBy, Receipt, Severity};
use crate::config::Notify;
use crate::daemon::grumble::Grumble;

/// How long a receiver may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is waited before the second try and before the third; there is no fourth.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// How long an alert stands. What has ended before it arrives is told to nobody by an Alertmanager.
const STANDS: SignedDuration = SignedDuration::from_mins(5);

/// Why a post did not come through.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("not an address to post to")]
    Address,
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("it did not answer within {} s", PATIENCE.as_secs())]
    Silent,
}

impl Failure {
    /// Whether it could come through the next time: what was understood and refused is so again.
    fn may_pass(&self) -> bool {
        match self {
            Self::Address => false,
            Self::Refused(status) => !status.is_client_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Connect(_) | Self::Http(_) | Self::Silent => true,
        }
    }
}

/// Posts all that comes in: what waits goes together.
pub(super) async fn serve(wishes: watch::Receiver<Notify>, mut inbox: Inbox) {
    let mut failed = Grumble::default();
    while let Some(news) = inbox.next(QUEUE).await {
        let Some(url) = wishes.borrow().webhook.clone() else { continue };
        let next = Instant::now() + PACE;
        if let Err(failure) = tell(&url, &news, &PAUSES).await {
            let count = news.len();
            failed.say(format_args!("[actions] webhook: {url} was not told of {count} receipts: {failure}"));
        }
        sleep_until(next).await;
    }
}

/// Posts alerts, again if need be, but not for ever.
pub(super) async fn tell(url: &str, news: &[Arc<News>], pauses: &[Duration]) -> Result<(), Failure> {
    let now = Timestamp::now();
    let alerts: Value = news.iter().map(|news| alert(news, now)).collect();
    let body = Bytes::from(alerts.to_string());
    let mut pauses = pauses.iter();
    loop {
        let failure = match timeout(PATIENCE, post(url, body.clone())).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Silent,
        };
        match pauses.next() {
            Some(pause) if failure.may_pass() => sleep(*pause).await,
            _ => return Err(failure),
        }
    }
}

async fn post(url: &str, body: Bytes) -> Result<(), Failure> {
    let url: Uri = url.parse().map_err(|_| Failure::Address)?;
    let (authority, host) = url.authority().zip(url.host()).ok_or(Failure::Address)?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("agent-watchdog/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .map_err(|_| Failure::Address)?;
    let stream = connect(host, url.port_u16().unwrap_or(80)).await.map_err(Failure::Connect)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut answer = pin!(sender.send_request(request));
    // Neither outlives this: a connection that is given up is closed.
    let answer = tokio::select! {
        answer = &mut answer => answer,
        _ = connection => answer.await,
    }?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(Failure::Refused(status)),
    }
}

async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let addresses = match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) if host.eq_ignore_ascii_case("localhost") => {
            local.map(|address| SocketAddr::new(address, port)).to_vec()
        }
        // As in `host::users`: to ask the name service switch, such a program would load libraries of another glibc.
        Err(_) if cfg!(all(target_env = "gnu", target_feature = "crt-static")) => {
            return Err(io::Error::other(format!("this build looks up no names: write the address of {host:?}")));
        }
        Err(_) => tokio::net::lookup_host((host, port)).await?.collect(),
    };
    TcpStream::connect(addresses.as_slice()).await
}

/// One alert. Its labels say what kind of thing it is, so that they stay few: no pid, no name of a program.
fn alert(news: &News, now: Timestamp) -> Value {
    let ends_at = now.saturating_add(STANDS).unwrap_or(now).to_string();
    match news {
        News::Receipt(receipt) => json!({
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
        News::HeldBack { at, detail } => json!({
            "labels": { "alertname": "AgentWatchdogHeldBack", "severity": Severity::Warning.name() },
            "annotations": { "summary": "Actions are held back", "description": detail },
            "startsAt": at,
            "endsAt": ends_at,
        }),
    }
}

/// Memory that runs out is critical whatever was done about it; otherwise what did not come out as it should is worth a look.
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
