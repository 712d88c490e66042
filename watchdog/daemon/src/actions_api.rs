//! Requests that act on processes. The kernel's credentials of the client decide what it may do.

use std::collections::BTreeSet;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, Request as HttpRequest, State};
use axum::http::StatusCode;
use serde::Deserialize;

use super::gate_api::ClientProcess;
use super::http::{ApiError, ApiResult, json, read_json};
use super::request::{AdoptError, EngineClient, EngineRequest};
use watchdog_api::{AdoptRequest, EndRequest, ReapRequest, Shown, Subject, ThawRequest};
use watchdog_engine::actions::{ActionRequest, ActionRequestError, RequestedAction};
use watchdog_types::{Pid, ProcessId, SessionId, Ticks, Viewer};

/// Maximum size of a request that lists processes, in bytes: about twenty thousand processes.
pub(super) const BODY: usize = 1 << 20;

pub(super) async fn adopt(
    State(engine): State<EngineClient>,
    Extension(viewer): Extension<Viewer>,
    request: HttpRequest,
) -> ApiResult {
    const EXPECTED: &str = r#"{"pid":123} or {"session":4}, and "undo":true to take it back"#;
    let asked: AdoptRequest = read_json(request, EXPECTED).await?;
    let subject = asked.subject().ok_or_else(|| {
        ApiError::new(StatusCode::BAD_REQUEST, format!("expected {EXPECTED}: one process or one session"))
    })?;
    let undo = asked.undo;
    let adopted = engine.ask(|reply| EngineRequest::Adopt { viewer, subject, undo, reply }).await?;
    Ok(json(&adopted?))
}

pub(super) async fn reap(
    State(engine): State<EngineClient>,
    Extension(peer): Extension<ClientProcess>,
    request: HttpRequest,
) -> ApiResult {
    const EXPECTED: &str = r#"{"subjects":[{"pid":123},{"session":4}],"dry_run":true}, or {} for all orphans"#;
    let ReapRequest { subjects, dry_run, expect } = read_json(request, EXPECTED).await?;
    let ask = ActionRequest { uid: peer.uid, what: RequestedAction::Reap(subjects), expect: process_ids(expect) };
    act(&engine, ask, dry_run).await
}

pub(super) async fn end(
    State(engine): State<EngineClient>,
    Extension(peer): Extension<ClientProcess>,
    request: HttpRequest,
) -> ApiResult {
    const EXPECTED: &str = r#"{"session":4,"dry_run":true}, or with "kept":true {"session":4} or {"pid":123}"#;
    let EndRequest { session, pid, kept, dry_run, expect } = read_json(request, EXPECTED).await?;
    let what = match (kept, session, pid) {
        (false, Some(session), None) => RequestedAction::End(SessionId(session)),
        (true, Some(session), None) => RequestedAction::EndKept(Subject::Session(session)),
        (true, None, Some(pid)) => RequestedAction::EndKept(Subject::Pid(pid)),
        _ => return Err(ApiError::new(StatusCode::BAD_REQUEST, format!("expected {EXPECTED}"))),
    };
    let ask = ActionRequest { uid: peer.uid, what, expect: process_ids(expect) };
    act(&engine, ask, dry_run).await
}

pub(super) async fn thaw(
    State(engine): State<EngineClient>,
    Extension(peer): Extension<ClientProcess>,
    request: HttpRequest,
) -> ApiResult {
    const EXPECTED: &str =
        r#"{"subjects":[{"pid":123},{"session":4}]}, or {} for everything that is frozen or throttled"#;
    let ThawRequest { subjects } = read_json(request, EXPECTED).await?;
    act(&engine, ActionRequest { uid: peer.uid, what: RequestedAction::Thaw(subjects), expect: None }, false).await
}

async fn act(engine: &EngineClient, ask: ActionRequest, dry_run: bool) -> ApiResult {
    let planned = engine.ask(|reply| EngineRequest::Act { ask, dry_run, reply }).await?;
    Ok(json(&planned?))
}

fn process_ids(expect: Option<Vec<Shown>>) -> Option<BTreeSet<ProcessId>> {
    let process = |Shown { pid, start_time }| ProcessId { pid: Pid(pid), start_time: Ticks(start_time) };
    Some(expect?.into_iter().map(process).collect())
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ActionsQuery {
    /// Only this action.
    id: Option<u64>,
}

pub(super) async fn actions(
    State(engine): State<EngineClient>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<ActionsQuery>, QueryRejection>,
) -> ApiResult {
    let Query(ActionsQuery { id }) = query?;
    let mut actions = engine.ask(|reply| EngineRequest::Actions(viewer, reply)).await?;
    if let Some(id) = id {
        actions.actions.retain(|action| action.id == id);
        if actions.actions.is_empty() {
            let error = format!(
                "no record of action {id}: it never existed, or its record has expired; \
                 `watchdogctl history` lists older ones"
            );
            return Err(ApiError::new(StatusCode::NOT_FOUND, error));
        }
    }
    Ok(json(&actions))
}

impl From<AdoptError> for ApiError {
    fn from(error: AdoptError) -> Self {
        let status = match error {
            AdoptError::NoProcess(_) | AdoptError::NoSession(_) => StatusCode::NOT_FOUND,
            AdoptError::OtherUser => StatusCode::FORBIDDEN,
        };
        Self::new(status, error.to_string())
    }
}

impl From<ActionRequestError> for ApiError {
    fn from(error: ActionRequestError) -> Self {
        let status = match error {
            ActionRequestError::NoProcess(_)
            | ActionRequestError::NoSession(_)
            | ActionRequestError::ProcessNotSession(..)
            | ActionRequestError::NoOrphans(_)
            | ActionRequestError::NothingHeld => StatusCode::NOT_FOUND,
            ActionRequestError::Spared(..) | ActionRequestError::SparedFromReap(..) => StatusCode::CONFLICT,
            ActionRequestError::NotYours => StatusCode::FORBIDDEN,
            ActionRequestError::NoRights(_) => StatusCode::NOT_IMPLEMENTED,
        };
        Self::new(status, error.to_string())
    }
}
