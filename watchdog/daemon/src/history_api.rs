//! Reads the history and post-mortems from the file, on threads of their own. The engine has no part in it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::history_writer::RunContext;
use super::http::{ApiError, ApiResult, json};
use super::journal::Feed;
use super::ndjson_body::NdjsonBody;
use super::read_limit::{CancelFlag, ReadLimiter};
use super::time_arg;
use watchdog_history::{self as history, HistoryReadError, HistoryRecords, ReadStep, RecordFilter, postmortem};
use watchdog_types::Viewer;

/// Size of a page, in bytes, but for its last line.
const PAGE: usize = 16 * 1024;
/// The time for a whole read, however slow its client: it keeps a file open that may have been replaced.
const MAX_READ: Duration = Duration::from_secs(600);
/// When a read that took longer may be repeated.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of lines that are examined for a page; then it is another read's turn.
const LINES: usize = 4_096;

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// Records since this time: a span before now (30s, 5m, 1h30m) or a time of RFC 3339.
    since: Option<String>,
    /// Only records of this session.
    session: Option<u64>,
}

pub(super) async fn history(
    Extension(origin): Extension<Arc<RunContext>>,
    Extension(limiter): Extension<ReadLimiter>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> ApiResult {
    let Query(HistoryQuery { since, session }) = query?;
    let since = since
        .map(|text| time_arg::wall(&text))
        .transpose()
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let selection = RecordFilter { viewer, since, session };
    let first = move |cancelled: CancelFlag| {
        let lines = history::open(&origin.state_dir)?;
        Ok::<_, HistoryReadError>(HistoryReader(HistoryRecords::new(lines, selection)).page(&cancelled))
    };
    let until = Instant::now() + MAX_READ;
    let (page, reader) = limiter.try_acquire(viewer).await?.run(first).await??;
    let (pages, live) = mpsc::channel(1);
    let feed = Feed { backlog: page.into_iter().collect(), live };
    let mut lines = NdjsonBody::stream(feed);
    if let Some(reader) = reader {
        let incomplete = Arc::new(AtomicBool::new(false));
        lines = lines.fail_if(Arc::clone(&incomplete));
        tokio::spawn(serve_rest(reader, limiter, viewer, pages, until, incomplete));
    }
    let body = Body::new(lines);
    Ok(([("content-type", "application/x-ndjson")], body).into_response())
}

/// Reads the rest, and sets the flag if that takes too long.
async fn serve_rest(
    reader: HistoryReader,
    limiter: ReadLimiter,
    viewer: Viewer,
    pages: mpsc::Sender<Bytes>,
    until: Instant,
    incomplete: Arc<AtomicBool>,
) {
    let whole = timeout_at(until, read_pages(reader, limiter, viewer, &pages)).await;
    incomplete.store(!whole.unwrap_or(false), Relaxed);
}

/// Reads page after page as the client takes them, until the end of the file, or the client has disconnected. Between two
/// pages only the open file and some records are held. Returns whether everything was read that the client waits for.
async fn read_pages(
    mut reader: HistoryReader,
    limiter: ReadLimiter,
    viewer: Viewer,
    pages: &mpsc::Sender<Bytes>,
) -> bool {
    loop {
        let Ok(permit) = pages.reserve().await else { return true };
        let read = async { limiter.acquire(viewer).await?.run(move |cancelled| reader.page(&cancelled)).await };
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
            Some(rest) => reader = rest,
            None => return true,
        }
    }
}

struct HistoryReader(HistoryRecords);

impl HistoryReader {
    /// Returns the next lines, if any, and what is left to read.
    fn page(mut self, cancelled: &AtomicBool) -> (Option<Bytes>, Option<Self>) {
        let mut page = Vec::new();
        let mut ended = false;
        for _ in 0..LINES {
            if page.len() >= PAGE || cancelled.load(Relaxed) {
                break;
            }
            let shown = match self.0.step() {
                Ok(ReadStep::Record(shown)) => shown,
                Ok(ReadStep::Continue) => continue,
                Ok(ReadStep::End) => {
                    ended = true;
                    break;
                }
                Err(error) => {
                    tracing::warn!("failed to read the history to its end: {error}");
                    continue;
                }
            };
            if !page.is_empty() {
                page.push(b'\n');
            }
            page.extend_from_slice(shown.as_bytes());
        }
        ((!page.is_empty()).then(|| page.into()), (!ended).then_some(self))
    }
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct PostmortemQuery {
    /// -1 for the last run of the previous boot, -2 for the boot before, 0 for this boot. Default: the most recent run that has ended.
    boot: Option<i64>,
}

pub(super) async fn postmortem(
    Extension(origin): Extension<Arc<RunContext>>,
    Extension(limiter): Extension<ReadLimiter>,
    Extension(viewer): Extension<Viewer>,
    query: Result<Query<PostmortemQuery>, QueryRejection>,
) -> ApiResult {
    let Query(PostmortemQuery { boot }) = query?;
    let (current_run, boot_id) = (Some(origin.run.clone()), origin.boot_id.clone());
    let question = postmortem::PostmortemRequest { viewer, boot, running: current_run, boot_id };
    let reconstruct = move |cancelled: CancelFlag| {
        let open = || Ok(history::open(&origin.state_dir)?.until(Arc::clone(&cancelled)));
        postmortem::reconstruct(open, &question)
    };
    let outcome = timeout(MAX_READ, limiter.try_acquire(viewer).await?.run(reconstruct)).await;
    let outcome = outcome.map_err(|_| ApiError::busy("reading the history took too long: try again", PAUSE))??;
    let outcome = outcome.map_err(|error| match error {
        postmortem::PostmortemError::NoSuchRun(_) => ApiError::new(StatusCode::NOT_FOUND, error.to_string()),
        postmortem::PostmortemError::Read(error) => error.into(),
        postmortem::PostmortemError::Io(_) => ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })?;
    Ok(json(&outcome))
}

impl From<HistoryReadError> for ApiError {
    fn from(error: HistoryReadError) -> Self {
        let missing = matches!(&error, HistoryReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound);
        let status = if missing { StatusCode::NOT_FOUND } else { StatusCode::INTERNAL_SERVER_ERROR };
        Self::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use watchdog_history::Store;

    #[tokio::test]
    async fn slow_client_gets_an_incomplete_stream() {
        const RECORD: &str = r#"{"at":"2026-01-02T00:00:00Z","run":"r","owner_uid":1,"type":"daemon_stopped"}"#;
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(dir.path()).unwrap();
        store.append(&history::codec::encode_json(RECORD).repeat(2_000)).unwrap();
        let read = |limit| {
            let selection = RecordFilter { viewer: Viewer::Root, since: None, session: None };
            let reader = HistoryReader(HistoryRecords::new(history::open(dir.path()).unwrap(), selection));
            let (pages, live) = mpsc::channel(1);
            let incomplete = Arc::new(AtomicBool::new(false));
            let lines = NdjsonBody::stream(Feed { backlog: Default::default(), live }).fail_if(Arc::clone(&incomplete));
            let until = Instant::now() + limit;
            (tokio::spawn(serve_rest(reader, ReadLimiter::new(), Viewer::Root, pages, until, incomplete)), lines)
        };
        // The client reads nothing before the timeout.
        let (served, lines) = read(Duration::from_millis(100));
        served.await.unwrap();
        lines.collect().await.unwrap_err();
        let (_served, lines) = read(MAX_READ);
        let all = lines.collect().await.unwrap().to_bytes();
        assert_eq!(all.iter().filter(|byte| **byte == b'\n').count(), 2_000);
    }
}
