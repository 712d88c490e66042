//! `/v1/history` and `/v1/postmortem`: the history, read from its file for whoever asks. The task that owns the engine has no
//! part in it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::historian::Origin;
use super::http::{Refusal, json};
use super::journal::Feed;
use super::lines::Lines;
use super::since;
use crate::engine::view::Viewer;
use crate::history::{self, Found, ReadError, Selection, postmortem};

/// Frames that wait for the client at most.
const WAITING: usize = 2;
/// A frame holds this much or one line more.
const FRAME: usize = 8 * 1024;

type Answer = Result<Response, Refusal>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    since: Option<String>,
    session: Option<u64>,
}

/// `GET /v1/history`: one record a line, the oldest first.
pub(super) async fn history(
    Extension(origin): Extension<Arc<Origin>>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Answer {
    let Query(HistoryQuery { since, session }) = query?;
    let since = since
        .map(|text| since::wall(&text))
        .transpose()
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let selection = Selection { viewer, since, session };
    let lines = blocking(move || history::open(&origin.state_dir)).await??;
    let (frames, live) = mpsc::channel(WAITING);
    // It ends with the file, or when the client has gone.
    tokio::task::spawn_blocking(move || send(lines, &selection, &frames));
    let body = Body::new(Lines::stream(Feed { backlog: VecDeque::new(), live }));
    Ok(([("content-type", "application/x-ndjson")], body).into_response())
}

/// Reads, and sends what is to be shown, several lines at once.
fn send(mut lines: history::Lines<std::fs::File>, selection: &Selection, frames: &mpsc::Sender<Bytes>) {
    let mut frame = Vec::new();
    loop {
        // Where nothing is to be shown, nothing is sent that would tell of it.
        if frames.is_closed() {
            return;
        }
        let found = match lines.next() {
            Ok(Some(found)) => found,
            Ok(None) => break,
            Err(error) => {
                tracing::warn!("reading the history ended early: {error}");
                break;
            }
        };
        let Found::Record(json) = found else { continue };
        let Some(shown) = selection.show(json) else { continue };
        if !frame.is_empty() {
            frame.push(b'\n');
        }
        frame.extend_from_slice(shown.as_bytes());
        if frame.len() >= FRAME && frames.blocking_send(std::mem::take(&mut frame).into()).is_err() {
            return;
        }
    }
    if !frame.is_empty() {
        // The client may have left.
        let _ = frames.blocking_send(frame.into());
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PostmortemQuery {
    boot: Option<i64>,
}

/// `GET /v1/postmortem`: the last minutes of a run of the daemon that has ended.
pub(super) async fn postmortem(
    Extension(origin): Extension<Arc<Origin>>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<PostmortemQuery>, QueryRejection>,
) -> Answer {
    let Query(PostmortemQuery { boot }) = query?;
    let (going_on, boot_id) = (Some(origin.run.clone()), origin.boot_id.clone());
    let question = postmortem::Question { viewer, boot, going_on, boot_id };
    let told = blocking(move || postmortem::tell(|| history::open(&origin.state_dir), &question)).await?;
    let told = told.map_err(|error| match error {
        postmortem::NoAnswer::None(_) => Refusal::new(StatusCode::NOT_FOUND, error.to_string()),
        postmortem::NoAnswer::Read(error) => error.into(),
        postmortem::NoAnswer::Io(_) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })?;
    Ok(json(&told))
}

/// Does what waits for the disk where nobody waits for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, format!("reading the history: {error}")))
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        let missing = matches!(&error, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
        let status = if missing { StatusCode::NOT_FOUND } else { StatusCode::INTERNAL_SERVER_ERROR };
        Self::new(status, error.to_string())
    }
}
