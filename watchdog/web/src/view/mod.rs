//! Pages as documents: what a page shows, in the order of reading. The script of the page turns them into elements.
//!
//! Texts are for people, with units. The script escapes what processes chose themselves.

mod block;
mod config;
mod findings;
mod fleet;
mod history;
mod overview;
mod plan;
mod receipts;
mod samples;
mod session;
mod table;
mod tone;
mod words;

use watchdog_api::client::ClientError;

pub(crate) use block::ViewBlock;
pub(crate) use receipts::{planned, receipts};

use self::block::PageView;
use crate::context::WebContext;
use crate::request::WebRequest;

/// A page by its name; `None` if there is no such page.
pub(crate) fn find(name: &str, request: &WebRequest, context: &WebContext) -> Option<Result<PageView, ClientError>> {
    let page = match name {
        "overview" => overview::page,
        "session" => session::page,
        "findings" => findings::page,
        "fleet" => fleet::page,
        "history" => history::page,
        "moment" => history::moment,
        "plan" => plan::page,
        "config" => config::page,
        "actions" => receipts::page,
        _ => return None,
    };
    Some(page(request, context))
}
