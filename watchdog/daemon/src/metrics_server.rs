//! `/metrics` and `/healthz` on the listen address, for scrapers, whose user is not known.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::Mutex;

use super::connection_limit::{ConnectionLimiter, ConnectionLimits};
use super::http::{self, Served};
use super::metrics::{LISTENER_METRICS, Metrics};
use super::request::{EngineClient, EngineRequest};
use watchdog_types::Uid;

/// Maximum number of connections. A host has a scraper or two; the others may be idle.
const CONNECTIONS: ConnectionLimits = ConnectionLimits::anonymous(64);
/// TCP reports no user, so all clients share these connections.
const CLIENTS: Uid = Uid(u32::MAX);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time between two attempts to bind an address that is in use.
const BIND_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics on {address}: {source}; choose another address with --listen ADDR, or none with --listen off"
)]
pub(super) struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

#[derive(Debug)]
pub(super) struct MetricsServer {
    listener: TcpListener,
    /// The bound address, with the port that the kernel chose for port 0.
    pub(super) address: SocketAddr,
}

impl MetricsServer {
    pub(super) async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Binds the address once it is free, and serves.
    pub(super) async fn serve_when_free(address: SocketAddr, engine: EngineClient, metrics: Arc<Metrics>) {
        let bound = loop {
            tokio::time::sleep(BIND_INTERVAL).await;
            if let Ok(bound) = Self::bind(address).await {
                break bound;
            }
        };
        tracing::info!("metrics on http://{}/metrics", bound.address);
        bound.serve(engine, metrics).await;
    }

    pub(super) async fn serve(self, engine: EngineClient, metrics: Arc<Metrics>) {
        let router = router(engine, Arc::clone(&metrics));
        let limiter = ConnectionLimiter::new(CONNECTIONS, CONNECTIONS);
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("cannot accept a connection for metrics: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match limiter.try_acquire(CLIENTS) {
                Some(permit) => {
                    let (router, metrics) = (router.clone(), Arc::clone(&metrics));
                    tokio::spawn(async move {
                        if http::serve(stream, router, permit, |_| true).await == Served::Evicted {
                            metrics.evicted(LISTENER_METRICS);
                        }
                    });
                }
                None => metrics.refused(LISTENER_METRICS),
            }
            // Give each new connection time to send its request: while idle it is the first to be closed.
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Clone)]
struct ScrapeSources {
    engine: EngineClient,
    metrics: Arc<Metrics>,
    last: Arc<Mutex<Option<Scraped>>>,
}

/// A response that all requests share which came before it was begun, so that many clients cost as much as one.
struct Scraped {
    begun: Instant,
    text: Bytes,
}

fn router(engine: EngineClient, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz", get(health))
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found; available: /metrics, /healthz\n") })
        .with_state(ScrapeSources { engine, metrics, last: Arc::default() })
}

async fn scrape(State(ScrapeSources { engine, metrics, last }): State<ScrapeSources>) -> Response {
    let respond = |text: &Bytes| ([("content-type", prometheus::TEXT_FORMAT)], text.clone()).into_response();
    let asked = Instant::now();
    let mut last = last.lock().await;
    if let Some(scraped) = last.as_ref().filter(|scraped| scraped.begun >= asked) {
        return respond(&scraped.text);
    }
    let begun = Instant::now();
    let scrape = match engine.ask(EngineRequest::Scrape).await {
        Ok(scrape) => scrape,
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    };
    match metrics.render(&scrape) {
        Ok(text) => respond(&last.insert(Scraped { begun, text: text.into() }).text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn health(State(ScrapeSources { engine, .. }): State<ScrapeSources>) -> Response {
    match engine.ask(EngineRequest::Ready).await {
        Ok(true) => "ok\n".into_response(),
        Ok(false) => (StatusCode::SERVICE_UNAVAILABLE, "the process table is still being built\n").into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
#[path = "metrics_server_tests.rs"]
mod tests;
