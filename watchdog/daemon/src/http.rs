//! Serves one HTTP connection at a bounded cost of memory and time, whatever the client does.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::FromRequest;
use axum::extract::rejection::{BytesRejection, QueryRejection};
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

use super::connection_io::{RequestBody, ResponseBody, WatchedStream};
use super::connection_limit::ConnectionPermit;
use super::request::EngineTimeout;
use watchdog_api::Problem;

/// The time for a request's head, from the start of the connection or the previous answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for a request's body, from its head.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that reads nothing for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The refusal of a request beyond the limit, and when to retry.
const TOO_MANY: &str = "too many requests are in progress: close some connections, and try again";
const BUSY_FOR: Duration = Duration::from_secs(1);
/// Maximum size of a request's head, and of an answer that the client has not read yet, in bytes.
const BUFFER: usize = 16 * 1024;

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// By the client or by the daemon.
    Closed,
    /// Its permit was given to another connection.
    Evicted,
}

/// Serves a connection until it is closed or loses its permit. `mark` adds what is known of the client to each request, and
/// returns whether the request counts against the limit of requests in progress.
pub(super) async fn serve<I, M>(io: I, router: Router, permit: ConnectionPermit, mark: M) -> Served
where
    I: AsyncRead + AsyncWrite + Send + 'static,
    M: Fn(&mut Request<Body>) -> bool,
{
    let mut io = TimeoutStream::new(io);
    io.set_write_timeout(Some(WRITE_TIMEOUT));
    let permit = Arc::new(permit);
    let service = service_fn(|request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        let admitted = permit.begin(mark(&mut request));
        let request = request.map(|body| Body::new(RequestBody::new(body, Arc::clone(&permit))));
        let (mut router, permit) = (router.clone(), Arc::clone(&permit));
        async move {
            let response = match admitted {
                true => Service::call(&mut router, request).await as Result<Response, Infallible>,
                false => Ok(ApiError::busy(TOO_MANY, BUSY_FOR).into_response()),
            };
            response.map(|response| response.map(|body| Body::new(ResponseBody::new(body, permit))))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(WatchedStream::new(io, Arc::clone(&permit))), service);
    tokio::select! {
        ended = connection => {
            if let Err(error) = ended {
                // Clients may disconnect at any time.
                tracing::debug!("a connection ended early: {error}");
            }
            Served::Closed
        }
        () = permit.evicted() => Served::Evicted,
    }
}

pub(super) type ApiResult = Result<Response, ApiError>;

/// A response that is not a success.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    error: String,
    starting: bool,
    /// When the request may be repeated.
    retry_after: Option<Duration>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), starting: false, retry_after: None }
    }

    /// Marks an error as temporary: the daemon is starting.
    pub(super) fn starting(self) -> Self {
        Self { starting: true, ..self }
    }

    /// Refuses a request for now: nothing was done, and it may succeed after this time.
    pub(super) fn busy(error: impl Into<String>, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, error) }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json(&Problem { error: self.error, starting: self.starting });
        *response.status_mut() = self.status;
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, after.as_secs().max(1).into());
        }
        response
    }
}

impl From<EngineTimeout> for ApiError {
    fn from(error: EngineTimeout) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
        if error == EngineTimeout::Starting { refusal.starting() } else { refusal }
    }
}

impl From<QueryRejection> for ApiError {
    fn from(error: QueryRejection) -> Self {
        Self::new(error.status(), error.body_text())
    }
}

impl From<BytesRejection> for ApiError {
    fn from(error: BytesRejection) -> Self {
        Self::new(error.status(), error.body_text())
    }
}

/// Reads the JSON body of a request.
///
/// # Errors
///
/// When it does not arrive in time, or is not like `expected`.
pub(super) async fn read_json<T: DeserializeOwned>(request: Request<Body>, expected: &str) -> Result<T, ApiError> {
    let body = tokio::time::timeout(BODY_TIMEOUT, Bytes::from_request(request, &()))
        .await
        .map_err(|_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))??;
    // serde would accept a list, its items as the members in their order: `[]` as a request without members.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(ApiError::new(StatusCode::BAD_REQUEST, format!("expected {expected}: not a JSON object")));
    }
    serde_json::from_slice(&body)
        .map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, format!("expected {expected}: {error}")))
}

pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([("content-type", "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
