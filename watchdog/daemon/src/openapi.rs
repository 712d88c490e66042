//! A route with its entry in the OpenAPI document. Tests generate the document from the routes and from the types of
//! `watchdog-api`, and compare it with docs/openapi.json; the daemon serves that file.

use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::routing::{MethodRouter, get, post};

use super::request::EngineClient;

/// docs/openapi.json, as served by `GET /v1/openapi.json`.
pub(super) const DOCUMENT: &str = include_str!("../../../docs/openapi.json");

/// Types that have a schema. Only tests link the crate that derives it.
#[cfg(test)]
pub(super) use schemars::JsonSchema as Documented;
#[cfg(not(test))]
pub(super) trait Documented {}
#[cfg(not(test))]
impl<T> Documented for T {}

#[cfg(test)]
pub(super) type SchemaSource = fn(&mut schemars::SchemaGenerator) -> schemars::Schema;
#[cfg(not(test))]
pub(super) type SchemaSource = fn();

#[cfg(test)]
fn schema_of<T: Documented>() -> SchemaSource {
    schemars::SchemaGenerator::subschema_for::<T>
}
#[cfg(not(test))]
fn schema_of<T: Documented>() -> SchemaSource {
    || {}
}

pub(super) const JSON: &str = "application/json";
pub(super) const NDJSON: &str = "application/x-ndjson";

const INVALID: &str = "A parameter or the body is invalid; `error` names it and what is expected.";
const SLOW_BODY: &str = "The body did not arrive within 10 s.";
const UNAVAILABLE: &str = "The daemon is starting, stopping or overloaded: too many connections are open, or it did not \
    answer within 5 s.";
const BUSY: &str = "The daemon is starting, stopping or overloaded: too many connections are open, it did not answer \
    within 5 s, or too many reads of the history, of post-mortems and of explanations are in progress (2 for each user and \
    4 in all; further ones wait 3 s). With a Retry-After header nothing was done: repeat the request after that many \
    seconds.";

/// A body of a response.
#[cfg_attr(not(test), expect(dead_code, reason = "read by the generator of the document, which is a test"))]
pub(super) struct DocumentedAnswer {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) content_type: &'static str,
    /// Several for one status and content type are alternatives.
    pub(super) schema: SchemaSource,
}

/// An operation of the API: its handler, and what the document says of it.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) handler: MethodRouter<EngineClient>,
    pub(super) operation: RouteOperation,
}

#[cfg_attr(not(test), expect(dead_code, reason = "read by the generator of the document, which is a test"))]
pub(super) struct RouteOperation {
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) description: Option<&'static str>,
    pub(super) query: Option<SchemaSource>,
    pub(super) body: Option<SchemaSource>,
    pub(super) answers: Vec<DocumentedAnswer>,
}

impl Route {
    pub(super) fn get<H, T>(path: &'static str, id: &'static str, handler: H) -> Self
    where
        H: Handler<T, EngineClient>,
        T: 'static,
    {
        Self::new("get", path, id, get(handler)).fails(503, UNAVAILABLE)
    }

    /// A POST whose body is the JSON of a `B`, at most 64 KiB long.
    pub(super) fn post<B: Documented, H, T>(path: &'static str, id: &'static str, handler: H) -> Self
    where
        H: Handler<T, EngineClient>,
        T: 'static,
    {
        let mut route = Self::new("post", path, id, post(handler))
            .fails(503, UNAVAILABLE)
            .fails(400, INVALID)
            .fails(408, SLOW_BODY)
            .fails(413, "The body is longer than 64 KiB.");
        route.operation.body = Some(schema_of::<B>());
        route
    }

    fn new(method: &'static str, path: &'static str, id: &'static str, handler: MethodRouter<EngineClient>) -> Self {
        let operation =
            RouteOperation { id, summary: "", description: None, query: None, body: None, answers: Vec::new() };
        Self { method, path, handler, operation }
    }

    pub(super) fn summary(mut self, summary: &'static str) -> Self {
        self.operation.summary = summary;
        self
    }

    pub(super) fn description(mut self, description: &'static str) -> Self {
        self.operation.description = Some(description);
        self
    }

    /// The members of `Q` are the parameters of the query.
    pub(super) fn query<Q: Documented>(mut self) -> Self {
        self.operation.query = Some(schema_of::<Q>());
        self.fails(400, INVALID)
    }

    pub(super) fn returns<T: Documented>(self, content_type: &'static str, description: &'static str) -> Self {
        self.answer::<T>(200, content_type, description)
    }

    /// A failure with a [`watchdog_api::Problem`] as its body.
    pub(super) fn fails(self, status: u16, description: &'static str) -> Self {
        self.answer::<watchdog_api::Problem>(status, JSON, description)
    }

    /// Reads of files take turns, so that a client may have to wait for another's.
    pub(super) fn takes_turns(self) -> Self {
        self.fails(503, BUSY)
    }

    /// A further body of a status; the last description holds for all of a status.
    pub(super) fn answer<T: Documented>(
        mut self,
        status: u16,
        content_type: &'static str,
        description: &'static str,
    ) -> Self {
        self.operation.answers.push(DocumentedAnswer { status, description, content_type, schema: schema_of::<T>() });
        self
    }

    pub(super) fn body_limit(mut self, bytes: usize, description: &'static str) -> Self {
        self.handler = self.handler.layer(DefaultBodyLimit::max(bytes));
        self.fails(413, description)
    }
}
