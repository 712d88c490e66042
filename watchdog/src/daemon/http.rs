//! Serving one HTTP connection so that whatever the client does costs a bounded amount of memory and time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::FromRequest;
use axum::http::header::RETRY_AFTER;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;
use tower::Service;

use super::door::Place;
use super::visit::{Arriving, Leaving, WatchedStream};
use crate::api::Problem;

/// A request's head must be complete this long after the connection opened, or after the answer before it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A body must be complete this long after its head.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes nothing for this long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// What a request is refused with for which there is no place at the desk, and when to try again.
const TOO_MANY: &str = "too many requests are being answered: close some connections, and try again";
const BUSY_FOR: Duration = Duration::from_secs(1);
/// Most bytes of a request's head, and of an answer that waits for the client to take it.
const BUFFER: usize = 16 * 1024;

/// How the serving of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Either side ended it.
    Closed,
    /// Its place was given to another connection.
    Evicted,
}

/// Serves a connection until either side ends it or it loses its place. `mark` puts what is known of the client into each
/// request, and says whether the request needs a place at the desk.
pub(super) async fn serve<I, M>(io: I, router: Router, place: Place, mark: M) -> Served
where
    I: AsyncRead + AsyncWrite + Send + 'static,
    M: Fn(&mut Request<Body>) -> bool,
{
    let mut io = TimeoutStream::new(io);
    io.set_write_timeout(Some(WRITE_TIMEOUT));
    let place = Arc::new(place);
    let service = service_fn(|request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        let admitted = place.begin(mark(&mut request));
        let request = request.map(|body| Body::new(Arriving::new(body, Arc::clone(&place))));
        let (mut router, place) = (router.clone(), Arc::clone(&place));
        async move {
            let response = match admitted {
                true => Service::call(&mut router, request).await as Result<Response, Infallible>,
                false => Ok(Refusal::busy(TOO_MANY, BUSY_FOR).into_response()),
            };
            response.map(|response| response.map(|body| Body::new(Leaving::new(body, place))))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(WatchedStream::new(io, Arc::clone(&place))), service);
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                // Clients leave as they like; it is only of interest to somebody who looks for it.
                tracing::debug!("a connection ended early: {error}");
            }
            Served::Closed
        }
        () = place.evicted() => Served::Evicted,
    }
}

/// An answer that is not a success.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error: String,
    starting: bool,
    /// When the same request may be sent again.
    retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal with its reason and the next step.
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), starting: false, retry_after: None }
    }

    /// The same; a client may wait, since the daemon is only starting.
    pub(super) fn starting(self) -> Self {
        Self { starting: true, ..self }
    }

    /// A refusal for now: nothing was done, and the same request may succeed after this time.
    pub(super) fn busy(error: impl Into<String>, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, error) }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(&Problem { error: self.error, starting: self.starting });
        *response.status_mut() = self.status;
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, after.as_secs().max(1).into());
        }
        response
    }
}

/// The body of a request, which is JSON such as `expected`.
///
/// # Errors
/// When it does not come in time, or is something else.
pub(super) async fn read_json<T: DeserializeOwned>(request: Request<Body>, expected: &str) -> Result<T, Refusal> {
    let body = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &()))
        .await
        .map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))??;
    // A list would be taken as well, its items as the members in their order: `[]` as a request with everything left out.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Refusal::new(StatusCode::BAD_REQUEST, format!("expected {expected}: it is no JSON object")));
    }
    serde_json::from_slice(&body)
        .map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("expected {expected}: {error}")))
}

/// A value as the JSON body of an answer.
pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([("content-type", "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
