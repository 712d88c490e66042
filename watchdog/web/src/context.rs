//! What the threads share.

use watchdog_api::client::ControlClient;

use crate::access::AccessGuard;
use crate::history_cache::HistoryCache;
use crate::prose::Prose;

#[derive(Debug)]
pub(crate) struct WebContext {
    pub(crate) client: ControlClient,
    pub(crate) prose: Prose,
    pub(crate) guard: AccessGuard,
    pub(crate) history: HistoryCache,
}
