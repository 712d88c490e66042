//! Serving one HTTP connection so that whatever the client does costs a bounded amount of memory and time.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::FromRequest;
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

use crate::api::Problem;

/// A request's head must be complete this long after the connection opened, or after the answer before it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A body must be complete this long after its head.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes nothing for this long is gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of a request's head, and of an answer that waits for the client to take it.
const BUFFER: usize = 16 * 1024;

/// Serves a connection until either side ends it. `mark` puts what is known of the client into each request, or refuses it.
pub(super) async fn serve<I, M>(io: I, router: Router, mark: M)
where
    I: AsyncRead + AsyncWrite + Send + 'static,
    M: Fn(&mut Request<Body>) -> Result<(), Refusal>,
{
    let mut io = TimeoutStream::new(io);
    io.set_write_timeout(Some(WRITE_TIMEOUT));
    let service = service_fn(|request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        let marked = mark(&mut request);
        let mut router = router.clone();
        async move {
            match marked {
                Ok(()) => Service::call(&mut router, request).await as Result<Response, Infallible>,
                Err(refusal) => Ok(refusal.into_response()),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(Box::pin(io)), service)
        .await;
    if let Err(error) = connection {
        // Clients leave as they like; it is only of interest to somebody who looks for it.
        tracing::debug!("a connection ended early: {error}");
    }
}

/// An answer that is not a success.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    error: String,
    starting: bool,
}

impl Refusal {
    /// A refusal with its reason and the next step.
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), starting: false }
    }

    /// The same; a client may wait, since the daemon is only starting.
    pub(super) fn starting(self) -> Self {
        Self { starting: true, ..self }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = json(&Problem { error: self.error, starting: self.starting });
        *response.status_mut() = self.status;
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
