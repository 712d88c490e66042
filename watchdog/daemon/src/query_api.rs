//! Handlers that answer from the engine's state: status, tree, overview, findings, events and explanations.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;

use super::history_writer::RunContext;
use super::http::{ApiError, ApiResult, json};
use super::journal::Period;
use super::ndjson_body::NdjsonBody;
use super::openapi::{JSON, NDJSON};
use super::read_limit::ExplainLimiter;
use super::request::{EngineClient, EngineRequest, OverviewParts};
use super::time_arg;
use watchdog_engine::exits;
use watchdog_types::{Pid, SessionId, Viewer};

pub(super) async fn status(State(engine): State<EngineClient>, Extension(viewer): Extension<Viewer>) -> ApiResult {
    Ok(json(&engine.ask(|reply| EngineRequest::Status(viewer, reply)).await?))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct TreeQuery {
    /// Only this session.
    session: Option<u64>,
    /// List processes of these sessions only, as in `3,7`; of none if it is empty. All sessions have their sums.
    processes_of: Option<String>,
}

fn session_list(text: &str) -> Result<BTreeSet<SessionId>, ApiError> {
    let ids = text.split(',').filter(|id| !id.is_empty()).map(|id| id.parse().map(SessionId));
    ids.collect::<Result<_, _>>().map_err(|_| {
        ApiError::new(StatusCode::BAD_REQUEST, "processes_of: expected session ids with commas between them: 3,7")
    })
}

pub(super) async fn tree(
    State(engine): State<EngineClient>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<TreeQuery>, QueryRejection>,
) -> ApiResult {
    let Query(query) = query?;
    let processes_of = query.processes_of.as_deref().map(session_list).transpose()?;
    let processes_of = processes_of.or_else(|| query.session.map(|session| BTreeSet::from([SessionId(session)])));
    let mut tree = engine.ask(|reply| EngineRequest::Tree { viewer, processes_of, reply }).await?;
    if let Some(session) = query.session {
        tree.sessions.retain(|one| one.id == session);
        if tree.sessions.is_empty() {
            let error = format!("there is no session {session} (see `watchdogctl tree`)");
            return Err(ApiError::new(StatusCode::NOT_FOUND, error));
        }
    }
    Ok(json(&tree))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct OverviewQuery {
    /// As for `/v1/tree`.
    processes_of: Option<String>,
    /// Include open findings.
    #[serde(default)]
    findings: bool,
    /// Include the state of the gate.
    #[serde(default)]
    queue: bool,
}

pub(super) async fn overview(
    State(engine): State<EngineClient>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<OverviewQuery>, QueryRejection>,
) -> ApiResult {
    let Query(OverviewQuery { processes_of, findings, queue }) = query?;
    let parts = OverviewParts { processes_of: processes_of.as_deref().map(session_list).transpose()?, findings, queue };
    Ok(json(&engine.ask(|reply| EngineRequest::Overview { viewer, parts, reply }).await?))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct FindingsQuery {
    /// Include closed findings that are still recorded.
    #[serde(default)]
    all: bool,
}

pub(super) async fn findings(
    State(engine): State<EngineClient>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<FindingsQuery>, QueryRejection>,
) -> ApiResult {
    let Query(FindingsQuery { all }) = query?;
    Ok(json(&engine.ask(|reply| EngineRequest::Findings { viewer, all, reply }).await?))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Events since this time: a span before now (30s, 5m, 1h30m) or a time of RFC 3339.
    since: Option<String>,
    /// Events with a higher `seq`. It begins again at 1 with each run of the daemon (`started_at` of `/v1/status`).
    after: Option<u64>,
    /// Send further events as they happen.
    #[serde(default)]
    follow: bool,
}

pub(super) async fn events(
    State(engine): State<EngineClient>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> ApiResult {
    let Query(EventsQuery { since, after, follow }) = query?;
    let since = since
        .map(|text| time_arg::parse(&text))
        .transpose()
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let period = Period { since, after };
    let (kind, lines) = if follow {
        let feed = engine.ask(|reply| EngineRequest::Follow(viewer, period, reply)).await?;
        (NDJSON, NdjsonBody::stream(feed))
    } else {
        let events = engine.ask(|reply| EngineRequest::Events(viewer, period, reply)).await?;
        (JSON, NdjsonBody::document(events))
    };
    Ok(([("content-type", kind)], Body::new(lines)).into_response())
}

pub(super) async fn config(
    Extension(run): Extension<Arc<RunContext>>,
    Extension(viewer): Extension<Viewer>,
) -> ApiResult {
    let loaded = run.config.text();
    if loaded.for_everyone || viewer == Viewer::Root {
        return Ok(json(&loaded.in_force));
    }
    let error = "only root may read the configuration, because other users cannot read its file";
    Err(ApiError::new(StatusCode::FORBIDDEN, error))
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainQuery {
    /// The process that has, or had, this pid.
    pid: Option<u32>,
    /// The session. Give either this or `pid`.
    session: Option<u64>,
}

pub(super) async fn explain(
    State(engine): State<EngineClient>,
    Extension(ExplainLimiter(limiter)): Extension<ExplainLimiter>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<ExplainQuery>, QueryRejection>,
) -> ApiResult {
    let (target, unknown) = match query?.0 {
        ExplainQuery { pid: Some(pid), session: None } => {
            let unknown = "it was never tracked, or its record has expired; `watchdogctl tree` lists living processes";
            (exits::ExplainTarget::Pid(Pid(pid)), format!("no record of process {pid}: {unknown}"))
        }
        ExplainQuery { pid: None, session: Some(session) } => {
            let unknown = "it never existed, or its record has expired; `watchdogctl tree` lists sessions";
            (exits::ExplainTarget::Session(SessionId(session)), format!("no record of session {session}: {unknown}"))
        }
        ExplainQuery { .. } => {
            let expected = "name one process or one session: /v1/explain?pid=123 or /v1/explain?session=4";
            return Err(ApiError::new(StatusCode::BAD_REQUEST, expected));
        }
    };
    let _explaining = limiter.try_acquire(viewer).await?;
    match engine.ask(|reply| EngineRequest::Explain(viewer, target, reply)).await? {
        Some(explanation) => Ok(json(&explanation)),
        None => Err(ApiError::new(StatusCode::NOT_FOUND, unknown)),
    }
}
