//! Requests to page out idle sessions. The peer credentials of the client decide whose sessions.

use axum::extract::{Extension, Request as HttpRequest, State};
use axum::http::StatusCode;

use super::gate_api::ClientProcess;
use super::http::{ApiError, ApiResult, json, read_json};
use super::request::{EngineClient, EngineRequest};
use watchdog_api::ReclaimRequest;
use watchdog_engine::reclaim::{ReclaimDemand, ReclaimRequestError};
use watchdog_types::{SessionId, Viewer};

pub(super) async fn reclaim(
    State(engine): State<EngineClient>,
    Extension(peer): Extension<ClientProcess>,
    request: HttpRequest,
) -> ApiResult {
    const EXPECTED: &str = r#"{"session":4,"dry_run":true}, or {} for all idle sessions"#;
    let ReclaimRequest { session, dry_run } = read_json(request, EXPECTED).await?;
    let demand = ReclaimDemand { uid: peer.uid, session: session.map(SessionId) };
    let run = engine.ask(|reply| EngineRequest::Reclaim { demand, dry_run, reply }).await?;
    Ok(json(&run?))
}

pub(super) async fn reclaims(State(engine): State<EngineClient>, Extension(viewer): Extension<Viewer>) -> ApiResult {
    Ok(json(&engine.ask(|reply| EngineRequest::Reclaims(viewer, reply)).await?))
}

impl From<ReclaimRequestError> for ApiError {
    fn from(error: ReclaimRequestError) -> Self {
        let status = match error {
            ReclaimRequestError::NoSession(_) => StatusCode::NOT_FOUND,
            ReclaimRequestError::NotYours => StatusCode::FORBIDDEN,
            ReclaimRequestError::Off | ReclaimRequestError::Busy | ReclaimRequestError::SwapFull => {
                StatusCode::CONFLICT
            }
            ReclaimRequestError::Impossible(_) => StatusCode::NOT_IMPLEMENTED,
        };
        Self::new(status, error.to_string())
    }
}
