//! `/v1/history` and `/v1/postmortem`: the history, read from its file for whoever asks. The task that owns the engine has no
//! part in it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

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
use super::readers::{CancelFlag, Readers};
use super::since;
use crate::engine::view::Viewer;
use crate::history::{self, Found, ReadError, Selection, postmortem};

/// A page holds this much or one line more.
const PAGE: usize = 16 * 1024;
/// Lines that are looked at for a page at most: then it is another read's turn.
const LINES: usize = 4_096;

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
    Extension(readers): Extension<Readers>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Answer {
    let Query(HistoryQuery { since, session }) = query?;
    let since = since
        .map(|text| since::wall(&text))
        .transpose()
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let selection = Selection { viewer, since, session };
    let first = move |cancelled: CancelFlag| {
        let lines = history::open(&origin.state_dir)?;
        Ok::<_, ReadError>(Book { lines, selection }.page(&cancelled))
    };
    let (page, book) = readers.enter(viewer).await?.run(first).await??;
    let (pages, live) = mpsc::channel(1);
    let feed = Feed { backlog: page.into_iter().collect(), live };
    if let Some(book) = book {
        tokio::spawn(read_on(book, readers, viewer, pages));
    }
    Ok(([("content-type", "application/x-ndjson")], Body::new(Lines::stream(feed))).into_response())
}

/// Reads page after page as the client takes them, until the end of the file, or the client has left. Between two pages
/// nothing is held but the open file.
async fn read_on(mut book: Book, readers: Readers, viewer: Viewer, pages: mpsc::Sender<Bytes>) {
    loop {
        let Ok(permit) = pages.reserve().await else { return };
        let read = async { readers.turn(viewer).await?.run(move |cancelled| book.page(&cancelled)).await };
        let (page, rest) = tokio::select! {
            read = read => match read {
                Ok(read) => read,
                Err(_) => return,
            },
            () = pages.closed() => return,
        };
        if let Some(page) = page {
            permit.send(page);
        }
        match rest {
            Some(rest) => book = rest,
            None => return,
        }
    }
}

/// A history that is being read.
struct Book {
    lines: history::Lines<std::fs::File>,
    selection: Selection,
}

impl Book {
    /// Several lines that are to be shown, if there are any, and what is left to be read.
    fn page(mut self, cancelled: &AtomicBool) -> (Option<Bytes>, Option<Self>) {
        let mut page = Vec::new();
        let mut ended = false;
        for _ in 0..LINES {
            if page.len() >= PAGE || cancelled.load(Relaxed) {
                break;
            }
            let found = match self.lines.next() {
                Ok(Some(found)) => found,
                Ok(None) => {
                    ended = true;
                    break;
                }
                Err(error) => {
                    tracing::warn!("reading the history ended early: {error}");
                    ended = true;
                    break;
                }
            };
            let Found::Record(json) = found else { continue };
            let Some(shown) = self.selection.show(json) else { continue };
            if !page.is_empty() {
                page.push(b'\n');
            }
            page.extend_from_slice(shown.as_bytes());
        }
        ((!page.is_empty()).then(|| page.into()), (!ended).then_some(self))
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
    Extension(readers): Extension<Readers>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<PostmortemQuery>, QueryRejection>,
) -> Answer {
    let Query(PostmortemQuery { boot }) = query?;
    let (going_on, boot_id) = (Some(origin.run.clone()), origin.boot_id.clone());
    let question = postmortem::Question { viewer, boot, going_on, boot_id };
    let tell = move |cancelled: CancelFlag| {
        let open = || Ok(history::open(&origin.state_dir)?.until(Arc::clone(&cancelled)));
        postmortem::tell(open, &question)
    };
    let told = readers.enter(viewer).await?.run(tell).await?;
    let told = told.map_err(|error| match error {
        postmortem::NoAnswer::None(_) => Refusal::new(StatusCode::NOT_FOUND, error.to_string()),
        postmortem::NoAnswer::Read(error) => error.into(),
        postmortem::NoAnswer::Io(_) => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })?;
    Ok(json(&told))
}

impl From<ReadError> for Refusal {
    fn from(error: ReadError) -> Self {
        let missing = matches!(&error, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
        let status = if missing { StatusCode::NOT_FOUND } else { StatusCode::INTERNAL_SERVER_ERROR };
        Self::new(status, error.to_string())
    }
}
