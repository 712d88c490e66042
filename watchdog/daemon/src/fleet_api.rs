//! The fleet, and the choice of a host for a launch.

use std::sync::Arc;
use std::sync::mpsc::TrySendError;
use std::time::Duration;

use axum::extract::{Extension, Request as HttpRequest};
use axum::http::StatusCode;
use tokio::sync::oneshot;

use super::gate_api::ClientProcess;
use super::history_writer::RunContext;
use super::http::{ApiError, ApiResult, json, read_json};
use super::workers::fleet::{FleetClient, FleetQuery, PlaceQuery};
use watchdog_api::PlaceRequest;
use watchdog_types::{Bytes, FleetName, Viewer};

/// Suggested time before a retry.
const BUSY_FOR: Duration = Duration::from_secs(1);

pub(super) async fn fleet(
    Extension(run): Extension<Arc<RunContext>>,
    Extension(viewer): Extension<Viewer>,
) -> ApiResult {
    Ok(json(&ask(&run, |reply| FleetQuery::View(viewer, reply)).await?))
}

pub(super) async fn place(
    Extension(run): Extension<Arc<RunContext>>,
    Extension(peer): Extension<ClientProcess>,
    request: HttpRequest,
) -> ApiResult {
    let asked: PlaceRequest = read_json(request, r#"{"memory_bytes":1073741824,"labels":["gpu"]}"#).await?;
    let PlaceRequest { memory_bytes, labels, profile, host } = asked;
    if memory_bytes == Some(0) {
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "memory_bytes: must be greater than 0"));
    }
    let name =
        |name: String| FleetName::new(name).map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, error.to_string()));
    let query = PlaceQuery {
        uid: peer.uid,
        memory: memory_bytes.map(Bytes),
        labels: labels.into_iter().map(name).collect::<Result<_, _>>()?,
        profile: profile.map(name).transpose()?,
        host: host.map(name).transpose()?,
    };
    Ok(json(&ask(&run, |reply| FleetQuery::Place(query, reply)).await?))
}

fn client(run: &RunContext) -> Result<&FleetClient, ApiError> {
    run.fleet.as_ref().ok_or_else(|| {
        let why = "this host belongs to no fleet: [fleet] store is not set; see docs/fleet.md";
        ApiError::new(StatusCode::NOT_FOUND, why)
    })
}

async fn ask<T>(run: &RunContext, query: impl FnOnce(oneshot::Sender<T>) -> FleetQuery) -> Result<T, ApiError> {
    let (reply, answer) = oneshot::channel();
    match client(run)?.queries.offer(query(reply)) {
        Ok(()) => {}
        Err(TrySendError::Full(())) => {
            return Err(ApiError::busy("too many pending requests for the fleet: try again", BUSY_FOR));
        }
        Err(TrySendError::Disconnected(())) => {
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the daemon is starting or stopping"));
        }
    }
    tokio::time::timeout(super::request::TIMEOUT, answer)
        .await
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| ApiError::busy("the fleet's store did not respond in time: try again", BUSY_FOR))
}
