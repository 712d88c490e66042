//! `/v1/history` and `/v1/postmortem`: the history, read from its file for whoever asks. The task that owns the engine has no
//! part in it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

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
/// A read may take this long in all, however slowly its client takes it: it keeps a file open that may have been replaced.
const LONGEST_READ: Duration = Duration::from_secs(600);
/// A read that took longer may be tried again after this time.
const PAUSE: Duration = Duration::from_secs(10);
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
    let until = Instant::now() + LONGEST_READ;
    let (page, book) = readers.enter(viewer).await?.run(first).await??;
    let (pages, live) = mpsc::channel(1);
    let feed = Feed { backlog: page.into_iter().collect(), live };
    let mut lines = Lines::stream(feed);
    if let Some(book) = book {
        let incomplete = Arc::new(AtomicBool::new(false));
        lines = lines.fail_if(Arc::clone(&incomplete));
        tokio::spawn(serve(book, readers, viewer, pages, until, incomplete));
    }
    let body = Body::new(lines);
    Ok(([("content-type", "application/x-ndjson")], body).into_response())
}

/// Reads the rest until a moment, and sets the flag if that is not enough.
async fn serve(
    book: Book,
    readers: Readers,
    viewer: Viewer,
    pages: mpsc::Sender<Bytes>,
    until: Instant,
    incomplete: Arc<AtomicBool>,
) {
    let whole = timeout_at(until, read_on(book, readers, viewer, &pages)).await;
    incomplete.store(!whole.unwrap_or(false), Relaxed);
}

/// Reads page after page as the client takes them, until the end of the file, or the client has left. Between two pages
/// nothing is held but the open file. Whether all was read that the client waits for.
async fn read_on(mut book: Book, readers: Readers, viewer: Viewer, pages: &mpsc::Sender<Bytes>) -> bool {
    loop {
        let Ok(permit) = pages.reserve().await else { return true };
        let read = async { readers.turn(viewer).await?.run(move |cancelled| book.page(&cancelled)).await };
        let (page, rest) = tokio::select! {
            read = read => match read {
                Ok(read) => read,
                Err(_) => return false,
            },
            () = pages.closed() => return true,
        };
        if let Some(page) = page {
            permit.send(page);
        }
        match rest {
            Some(rest) => book = rest,
            None => return true,
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
    let told = timeout(LONGEST_READ, readers.enter(viewer).await?.run(tell)).await;
    let told = told.map_err(|_| Refusal::busy("reading the history took too long: try again", PAUSE))??;
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::history::Store;

    #[tokio::test]
    async fn slow_client_gets_an_incomplete_stream() {
        const RECORD: &str = r#"{"at":"2026-01-02T00:00:00Z","run":"r","owner_uid":1,"type":"daemon_stopped"}"#;
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(dir.path()).unwrap();
        store.append(&history::line::of_json(RECORD).repeat(2_000)).unwrap();
        let read = |limit| {
            let selection = Selection { viewer: Viewer::Root, since: None, session: None };
            let book = Book { lines: history::open(dir.path()).unwrap(), selection };
            let (pages, live) = mpsc::channel(1);
            let incomplete = Arc::new(AtomicBool::new(false));
            let lines = Lines::stream(Feed { backlog: Default::default(), live }).fail_if(Arc::clone(&incomplete));
            let until = Instant::now() + limit;
            (tokio::spawn(serve(book, Readers::new(), Viewer::Root, pages, until, incomplete)), lines)
        };
        // It takes nothing before the time is over.
        let (served, lines) = read(Duration::from_millis(100));
        served.await.unwrap();
        lines.collect().await.unwrap_err();
        let (_served, lines) = read(LONGEST_READ);
        let all = lines.collect().await.unwrap().to_bytes();
        assert_eq!(all.iter().filter(|byte| **byte == b'\n').count(), 2_000);
    }
}
