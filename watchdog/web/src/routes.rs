//! Which resource answers a request.

use std::net::TcpStream;
use std::time::Instant;

use crate::access::Admission;
use crate::context::WebContext;
use crate::request::{PendingBody, ReadFailure, WebRequest};
use crate::response::WebResponse;
use crate::slots::SlotGuard;
use crate::{act, assets, live, view};

/// The response; `None` if a stream was served, or the client has disconnected.
pub(crate) fn answer(
    stream: &mut TcpStream,
    request: &WebRequest,
    body: PendingBody,
    deadline: Instant,
    slot: &SlotGuard,
    context: &WebContext,
) -> Option<WebResponse> {
    let guard = &context.guard;
    let admission = guard.admit(request);
    if matches!(admission, Ok(Admission::Page(_) | Admission::Change(_))) {
        slot.admit();
    }
    match admission {
        Ok(Admission::Token) => {
            let moved = WebResponse::new(303, "text/plain", "").header("location", guard.base());
            Some(moved.header("set-cookie", &guard.cookie()))
        }
        Ok(Admission::Page("live")) if slot.begin_stream() => {
            live::serve(stream, request, &context.client);
            None
        }
        Ok(Admission::Page("live")) => Some(WebResponse::problem(503, "too many pages are open: close some")),
        Ok(Admission::Page(resource)) => Some(page(resource, request, context)),
        Ok(Admission::Change("act")) => match body.read(stream, deadline) {
            Ok(body) => Some(act::answer(&body, context)),
            Err(ReadFailure::Gone) => None,
            Err(ReadFailure::Refused(status, reason)) => Some(WebResponse::problem(status, reason)),
        },
        Ok(Admission::Change(_)) => Some(not_found()),
        // For people; a script gets a document.
        Err((status, reason)) if request.path == "/" || request.path == guard.base() => {
            Some(assets::denial(status, reason))
        }
        Err((status, reason)) => Some(WebResponse::problem(status, reason)),
    }
}

fn page(resource: &str, request: &WebRequest, context: &WebContext) -> WebResponse {
    if let Some(asset) = assets::find(resource) {
        return asset;
    }
    match resource.strip_prefix("view/").and_then(|name| view::find(name, request, context)) {
        Some(Ok(view)) => WebResponse::json(&view),
        Some(Err(error)) => WebResponse::of(&error),
        None => not_found(),
    }
}

fn not_found() -> WebResponse {
    WebResponse::problem(404, "no such page")
}
