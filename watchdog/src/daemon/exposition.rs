//! `/metrics` and `/healthz` on the listen address: for scrapers, who are not told who they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use super::door::{Door, Sizes};
use super::http::{self, Served};
use super::metrics::{DOOR_METRICS, Metrics};
use super::request::{Asker, Request};
use crate::engine::id::Uid;

/// Connections at most. A host has a scraper or two; the others may be idle.
const CONNECTIONS: Sizes = Sizes::anonymous(64);
/// TCP does not say which user connects: all clients share these connections.
const CLIENTS: Uid = Uid(u32::MAX);
/// How long to leave the listener alone after it failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot serve metrics on {address}: {source}; choose another address with --listen ADDR, or none with --listen off"
)]
pub(super) struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// The listening socket.
#[derive(Debug)]
pub(super) struct Exposition {
    listener: TcpListener,
    /// Where it listens, with the port that the kernel chose if it was to.
    pub(super) address: SocketAddr,
}

impl Exposition {
    /// Binds the address.
    pub(super) async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Serves whoever connects, for ever.
    pub(super) async fn serve(self, asker: Asker, metrics: Arc<Metrics>) {
        let router = router(asker, Arc::clone(&metrics));
        let door = Door::new(CONNECTIONS, CONNECTIONS);
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("cannot accept a connection for metrics: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match door.enter(CLIENTS) {
                Some(place) => {
                    let (router, metrics) = (router.clone(), Arc::clone(&metrics));
                    tokio::spawn(async move {
                        if http::serve(stream, router, place, |_| true).await == Served::Evicted {
                            metrics.evicted(DOOR_METRICS);
                        }
                    });
                }
                None => metrics.refused(DOOR_METRICS),
            }
            // The request of a connection is read before many more are let in, which may take its place while it is idle.
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Clone)]
struct Sources {
    asker: Asker,
    metrics: Arc<Metrics>,
}

fn router(asker: Asker, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz", get(health))
        .fallback(|| async { (StatusCode::NOT_FOUND, "there are /metrics and /healthz\n") })
        .with_state(Sources { asker, metrics })
}

async fn scrape(State(Sources { asker, metrics }): State<Sources>) -> Response {
    let scrape = match asker.ask(Request::Scrape).await {
        Ok(scrape) => scrape,
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    };
    match metrics.render(&scrape) {
        Ok(text) => ([("content-type", prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

async fn health(State(Sources { asker, .. }): State<Sources>) -> Response {
    match asker.ask(Request::Ready).await {
        Ok(true) => "ok\n".into_response(),
        Ok(false) => (StatusCode::SERVICE_UNAVAILABLE, "the process table is still being built\n").into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
#[path = "exposition_tests.rs"]
mod tests;
