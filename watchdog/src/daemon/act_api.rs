//! The part of the control API that does something to processes. Whether it may be done is decided by who the kernel says asks.

use std::collections::BTreeSet;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, Request as HttpRequest, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::gate_api::Peer;
use super::http::{Refusal, json, read_json};
use super::request::{AdoptError, Asker, Request};
use crate::api::{AdoptRequest, EndRequest, ReapRequest, Shown, Subject, ThawRequest};
use crate::engine::act::{Ask, AskError, What};
use crate::engine::id::{Pid, ProcessId, SessionId, Ticks};
use crate::engine::view::Viewer;

/// Most bytes of a request that names the processes that somebody was shown: about twenty thousand.
pub(super) const BODY: usize = 1 << 20;

type Answer = Result<Response, Refusal>;

/// `POST /v1/adopt`
pub(super) async fn adopt(
    State(asker): State<Asker>,
    Extension(viewer): Extension<Viewer>,
    request: HttpRequest,
) -> Answer {
    const EXPECTED: &str = r#"{"pid":123} or {"session":4}, and "undo":true to take it back"#;
    let asked: AdoptRequest = read_json(request, EXPECTED).await?;
    let subject = asked.subject().ok_or_else(|| {
        Refusal::new(StatusCode::BAD_REQUEST, format!("expected {EXPECTED}: one process or one session"))
    })?;
    let undo = asked.undo;
    let adopted = asker.ask(|reply| Request::Adopt { viewer, subject, undo, reply }).await?;
    Ok(json(&adopted?))
}

/// `POST /v1/reap`
pub(super) async fn reap(State(asker): State<Asker>, Extension(peer): Extension<Peer>, request: HttpRequest) -> Answer {
    const EXPECTED: &str = r#"{"subjects":[{"pid":123},{"session":4}],"dry_run":true}, or {} for all orphans"#;
    let ReapRequest { subjects, dry_run, expect } = read_json(request, EXPECTED).await?;
    let ask = Ask { uid: peer.uid, what: What::Reap(subjects), expect: shown(expect) };
    act(&asker, ask, dry_run).await
}

/// `POST /v1/end`
pub(super) async fn end(State(asker): State<Asker>, Extension(peer): Extension<Peer>, request: HttpRequest) -> Answer {
    const EXPECTED: &str = r#"{"session":4,"dry_run":true}, or with "kept":true {"session":4} or {"pid":123}"#;
    let EndRequest { session, pid, kept, dry_run, expect } = read_json(request, EXPECTED).await?;
    let what = match (kept, session, pid) {
        (false, Some(session), None) => What::End(SessionId(session)),
        (true, Some(session), None) => What::EndKept(Subject::Session(session)),
        (true, None, Some(pid)) => What::EndKept(Subject::Pid(pid)),
        _ => return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("expected {EXPECTED}"))),
    };
    let ask = Ask { uid: peer.uid, what, expect: shown(expect) };
    act(&asker, ask, dry_run).await
}

/// `POST /v1/thaw`
pub(super) async fn thaw(State(asker): State<Asker>, Extension(peer): Extension<Peer>, request: HttpRequest) -> Answer {
    const EXPECTED: &str = r#"{"subjects":[{"pid":123},{"session":4}]}, or {} for all that is held"#;
    let ThawRequest { subjects } = read_json(request, EXPECTED).await?;
    act(&asker, Ask { uid: peer.uid, what: What::Thaw(subjects), expect: None }, false).await
}

async fn act(asker: &Asker, ask: Ask, dry_run: bool) -> Answer {
    let planned = asker.ask(|reply| Request::Act { ask, dry_run, reply }).await?;
    Ok(json(&planned?))
}

fn shown(expect: Option<Vec<Shown>>) -> Option<BTreeSet<ProcessId>> {
    let process = |Shown { pid, start_time }| ProcessId { pid: Pid(pid), start_time: Ticks(start_time) };
    Some(expect?.into_iter().map(process).collect())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionsQuery {
    id: Option<u64>,
}

/// `GET /v1/actions`: those under way and the last of those that are over, or one of them.
pub(super) async fn actions(
    State(asker): State<Asker>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<ActionsQuery>, QueryRejection>,
) -> Answer {
    let Query(ActionsQuery { id }) = query?;
    let mut actions = asker.ask(|reply| Request::Actions(viewer, reply)).await?;
    if let Some(id) = id {
        actions.actions.retain(|action| action.id == id);
        if actions.actions.is_empty() {
            let error = format!(
                "nothing is known of an action {id}: there was none, or it was too long ago; \
                 `watchdogctl history` tells of those"
            );
            return Err(Refusal::new(StatusCode::NOT_FOUND, error));
        }
    }
    Ok(json(&actions))
}

impl From<AdoptError> for Refusal {
    fn from(error: AdoptError) -> Self {
        let status = match error {
            AdoptError::NoProcess(_) | AdoptError::NoSession(_) => StatusCode::NOT_FOUND,
            AdoptError::NotYours => StatusCode::FORBIDDEN,
        };
        Self::new(status, error.to_string())
    }
}

impl From<AskError> for Refusal {
    fn from(error: AskError) -> Self {
        let status = match error {
            AskError::NoProcess(_) | AskError::NoSession(_) | AskError::NoOrphans(_) | AskError::NothingHeld => {
                StatusCode::NOT_FOUND
            }
            AskError::Spared(..) => StatusCode::CONFLICT,
            AskError::NotYours => StatusCode::FORBIDDEN,
            AskError::NoRights(_) => StatusCode::NOT_IMPLEMENTED,
        };
        Self::new(status, error.to_string())
    }
}
