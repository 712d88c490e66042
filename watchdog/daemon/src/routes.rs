//! The routes of the control API, each with its entry in the OpenAPI document.

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Extension};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::history_writer::RunContext;
use super::http::ApiError;
use super::openapi::{DOCUMENT, JSON, NDJSON, Route};
use super::read_limit::{ExplainLimiter, ReadLimiter};
use super::request::EngineClient;
use super::{actions_api, fleet_api, gate_api, history_api, query_api, reclaim_api};
use watchdog_api as api;

/// Maximum size of a request's body, in bytes. Requests that list processes have a limit of their own.
pub(super) const BODY: usize = 64 * 1024;

const OTHER_USER: &str = "It belongs to another user.";
const UNREADABLE_PROCESS: &str = "A file of the process could not be read.";
const CANNOT_SIGNAL: &str = "The daemon may not signal processes on this host; `watchdogctl doctor` says why.";
const NO_FLEET: &str = "This host belongs to no fleet.";
const LONG_LIST: &str = "The body is longer than 1 MiB.";

/// Every operation; the OpenAPI document is generated from this list.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/status", "status", query_api::status)
            .summary("Report the state of the daemon and of its host.")
            .returns::<api::Status>(JSON, "The state at this moment."),
        Route::get("/v1/tree", "tree", query_api::tree)
            .summary("List sessions with their processes and memory.")
            .query::<query_api::TreeQuery>()
            .returns::<api::Tree>(JSON, "The sessions that the user may see.")
            .fails(404, "There is no such session."),
        Route::get("/v1/overview", "overview", query_api::overview)
            .summary("Report the status, the sessions, and on request the findings and the gate, for live displays.")
            .query::<query_api::OverviewQuery>()
            .returns::<api::Overview>(JSON, "The state at this moment."),
        Route::get("/v1/findings", "findings", query_api::findings)
            .summary("List the conclusions of the detectors.")
            .query::<query_api::FindingsQuery>()
            .returns::<api::Findings>(JSON, "The findings that the user may see."),
        Route::get("/v1/events", "events", query_api::events)
            .summary("List or follow events.")
            .query::<query_api::EventsQuery>()
            .returns::<api::Events>(JSON, "")
            .returns::<api::Event>(
                NDJSON,
                "One document; with `follow` one event a line, until the client or the daemon closes the connection.",
            ),
        Route::get("/v1/config", "config", query_api::config)
            .summary("Return the configuration in force.")
            .description("Root may read it, and every other user if they may read its file.")
            .returns::<api::ConfigInForce>(JSON, "The configuration, as it was read.")
            .fails(403, "This user may not read the file."),
        Route::get("/v1/explain", "explain", query_api::explain)
            .summary("Explain why a process or a session died, or why there is a finding about it.")
            .query::<query_api::ExplainQuery>()
            .returns::<api::Explanation>(JSON, "All that is recorded about it.")
            .fails(404, "There is no record of it.")
            .takes_turns(),
        Route::get("/v1/history", "history", history_api::history)
            .summary("Read the history, which outlives the daemon and the host.")
            .query::<history_api::HistoryQuery>()
            .returns::<api::Record>(
                NDJSON,
                "One record a line, oldest first. A read that takes longer than ten minutes is cut: the body ends \
                 without its last chunk.",
            )
            .fails(404, "There is no history.")
            .fails(500, "The history cannot be read.")
            .takes_turns(),
        Route::get("/v1/postmortem", "postmortem", history_api::postmortem)
            .summary("Report the last minutes of a daemon run that has ended.")
            .query::<history_api::PostmortemQuery>()
            .returns::<api::Postmortem>(JSON, "The last minutes of that run.")
            .fails(404, "There is no such run, or no history.")
            .fails(500, "The history cannot be read.")
            .takes_turns(),
        Route::post::<api::AdoptRequest, _, _>("/v1/adopt", "adopt", actions_api::adopt)
            .summary("Mark processes as intended, so that they are never orphans; or remove that mark.")
            .returns::<api::Adopted>(JSON, "The processes whose mark changed.")
            .fails(403, OTHER_USER)
            .fails(404, "There is no such process or session."),
        Route::post::<api::ReapRequest, _, _>("/v1/reap", "reap", actions_api::reap)
            .summary("Terminate orphans: all open ones, or those named.")
            .description("The actions continue after the response: `GET /v1/actions` reports their outcome.")
            .body_limit(actions_api::BODY, LONG_LIST)
            .returns::<api::Planned>(JSON, "The actions that were started, or would be.")
            .fails(403, OTHER_USER)
            .fails(404, "There is no such process or session, or it left no orphans.")
            .fails(409, "The named process is exempt; `error` says why.")
            .fails(501, CANNOT_SIGNAL),
        Route::post::<api::EndRequest, _, _>("/v1/end", "end", actions_api::end)
            .summary("Terminate a session with its agent, or a kept process.")
            .description("The actions continue after the response: `GET /v1/actions` reports their outcome.")
            .body_limit(actions_api::BODY, LONG_LIST)
            .returns::<api::Planned>(JSON, "The actions that were started, or would be.")
            .fails(403, OTHER_USER)
            .fails(404, "There is no such process or session.")
            .fails(409, "The named process is exempt; `error` says why.")
            .fails(501, CANNOT_SIGNAL),
        Route::post::<api::ThawRequest, _, _>("/v1/thaw", "thaw", actions_api::thaw)
            .summary("Resume frozen or throttled processes.")
            .returns::<api::Planned>(JSON, "The processes that are resumed.")
            .fails(403, OTHER_USER)
            .fails(404, "Nothing of it is frozen or throttled.")
            .fails(501, CANNOT_SIGNAL),
        Route::get("/v1/reclaim", "reclaims", reclaim_api::reclaims)
            .summary("List current and recent page-outs of sessions.")
            .returns::<api::Reclaims>(JSON, "Those that the daemon started are listed for root only."),
        Route::post::<api::ReclaimRequest, _, _>("/v1/reclaim", "reclaim", reclaim_api::reclaim)
            .summary("Page out a session, or all idle sessions of the user.")
            .description("It continues after the response: `GET /v1/reclaim` reports its outcome.")
            .returns::<api::ReclaimRun>(JSON, "The page-out that was started, or would be.")
            .fails(403, OTHER_USER)
            .fails(404, "There is no such session.")
            .fails(409, "Nothing can be paged out now; `error` says why.")
            .fails(501, "The daemon cannot page out processes on this host; `watchdogctl doctor` says why."),
        Route::get("/v1/actions", "actions", actions_api::actions)
            .summary("List actions and their outcome.")
            .query::<actions_api::ActionsQuery>()
            .returns::<api::Actions>(JSON, "Running actions and the most recent completed ones.")
            .fails(404, "There is no record of such an action."),
        Route::post::<api::LaunchRequest, _, _>(gate_api::LAUNCH, "launch", gate_api::launch)
            .summary("Request a launch, and wait for the decision.")
            .description(
                "The process that becomes the agent is the one that opened the connection, as the kernel reports it, or \
                 one that it forked (`pid` and `start_time`). While the launch waits, closing the connection (or its \
                 sending half) cancels it, and so does the exit of the process. A process that asks again keeps its \
                 position. A grant belongs to the process and ends when it exits; the connection no longer matters. \
                 After a grant, merge `environment` into the environment, raise /proc/self/oom_score_adj to \
                 `oom_score_adj` unless it is higher, and execute the command.",
            )
            .returns::<api::LaunchUpdate>(
                NDJSON,
                "One line for each change of the position or the reason; the last is a grant or a refusal. Then the \
                 connection is closed.",
            )
            .fails(403, "The process is neither the client nor its child, or the client cannot be identified.")
            .fails(404, "There is no such profile; `error` lists the profiles.")
            .fails(500, UNREADABLE_PROCESS)
            .answer::<api::ConnectionRefused>(
                503,
                JSON,
                "The daemon is starting, stopping or overloaded. With too many open connections the body is also a \
                 refusal.",
            ),
        Route::get("/v1/queue", "queue", gate_api::queue)
            .summary("Report the state of the gate: waiting launches, leases, limits and headroom.")
            .returns::<api::Queue>(JSON, "The state at this moment."),
        Route::post::<api::Cancel, _, _>("/v1/queue/cancel", "cancel", gate_api::cancel)
            .summary("Remove a waiting launch from the queue.")
            .returns::<api::Cancelled>(JSON, "The launch that was cancelled.")
            .fails(403, OTHER_USER)
            .fails(404, "This process waits for no launch."),
        Route::get("/v1/fleet", "fleet", fleet_api::fleet)
            .summary("List the hosts that share limits with this one, and what they hold.")
            .returns::<api::Fleet>(JSON, "The fleet now, or as it was last seen while the store is lost.")
            .fails(404, NO_FLEET),
        Route::post::<api::PlaceRequest, _, _>("/v1/fleet/place", "place", fleet_api::place)
            .summary("Choose a host of the fleet for a launch, and reserve a slot on it for some seconds.")
            .description("Without `host`, the better of two hosts that are chosen at random.")
            .returns::<api::HostChoice>(JSON, "The host, or why there is none.")
            .fails(404, NO_FLEET),
        Route::post::<api::SubagentCall, _, _>("/v1/subagent", "subagent", gate_api::subagent)
            .summary("Report a subagent that runs inside its agent's process, and ask whether it may start.")
            .description("The session is that of the process that opened the connection.")
            .returns::<api::SubagentAnswer>(JSON, "The decision.")
            .fails(403, "The client cannot be identified.")
            .fails(500, UNREADABLE_PROCESS),
        Route::get("/v1/openapi.json", "openapi", openapi)
            .summary("Return this document.")
            .returns::<serde_json::Map<String, serde_json::Value>>(JSON, "This document."),
    ]
}

pub(super) fn router(engine: EngineClient, run: Arc<RunContext>) -> Router {
    let routes = routes();
    let names: Vec<String> =
        routes.iter().map(|route| format!("{} {}", route.method.to_uppercase(), route.path)).collect();
    let paths: Arc<str> = names.join(", ").into();
    let known = Arc::clone(&paths);
    let router = routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler));
    router
        .method_not_allowed_fallback(move || async move {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, format!("method not allowed; available: {known}"))
        })
        .fallback(
            move || async move { ApiError::new(StatusCode::NOT_FOUND, format!("no such path; available: {paths}")) },
        )
        .layer(DefaultBodyLimit::max(BODY))
        .layer(Extension(run))
        .layer(Extension(ReadLimiter::new()))
        .layer(Extension(ExplainLimiter(ReadLimiter::new())))
        .with_state(engine)
}

async fn openapi() -> Response {
    ([("content-type", JSON)], DOCUMENT).into_response()
}

#[cfg(test)]
#[path = "schema_check.rs"]
mod schema_check;

#[cfg(test)]
#[path = "openapi_document.rs"]
mod openapi_document;

#[cfg(test)]
#[path = "openapi_tests.rs"]
pub(super) mod openapi_tests;

#[cfg(test)]
#[path = "actions_api_tests.rs"]
mod actions_api_tests;
