//! The listener, and a thread for each connection.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;
use watchdog_api::client::ControlClient;

use crate::access::AccessGuard;
use crate::context::WebContext;
use crate::history_cache::HistoryCache;
use crate::prose::Prose;
use crate::request::{READ_TIMEOUT, ReadFailure, WebRequest};
use crate::response::WebResponse;
use crate::routes;
use crate::slots::{ConnectionSlots, SlotGuard};

/// Only touched pages count.
const STACK: usize = 512 << 10;
/// Pause after a failed accept: descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A page reads from the daemon for at most this long, so that it can say that the daemon is down.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the page cannot be served.
#[derive(Debug, Error)]
pub enum WebError {
    /// The port is in use, or not permitted.
    #[error("cannot listen on 127.0.0.1:{port}: {source}\nName another port with --port, or leave it out.")]
    Listen {
        /// The port; 0 for a free one.
        port: u16,
        /// The cause.
        source: io::Error,
    },
    /// The kernel gives no random bytes.
    #[error("cannot make a token: {0}")]
    Token(#[source] io::Error),
}

/// What the user chose.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebOptions {
    /// 0 for a free port.
    pub port: u16,
    /// Allow actions.
    pub act: bool,
}

/// A server that listens on loopback.
#[derive(Debug)]
pub struct WebServer {
    listener: TcpListener,
    context: Arc<WebContext>,
}

impl WebServer {
    /// Listens on 127.0.0.1 with a new token.
    ///
    /// # Errors
    /// The port cannot be used, or there are no random bytes.
    pub fn bind(client: &ControlClient, prose: Prose, options: WebOptions) -> Result<Self, WebError> {
        let failed = |source| WebError::Listen { port: options.port, source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let guard = AccessGuard::new(port, options.act).map_err(WebError::Token)?;
        let client = client.limited_to(DAEMON_TIMEOUT).keeping_alive();
        Ok(Self { listener, context: Arc::new(WebContext { client, prose, guard, history: HistoryCache::default() }) })
    }

    /// The address with its token.
    #[must_use]
    pub fn url(&self) -> String {
        self.context.guard.url()
    }

    /// Serves until the process ends.
    pub fn serve(&self) -> ! {
        let slots = ConnectionSlots::default();
        loop {
            let Ok((stream, _)) = self.listener.accept() else {
                thread::sleep(ACCEPT_PAUSE);
                continue;
            };
            let Some(slot) = slots.take(&stream) else { continue };
            let context = Arc::clone(&self.context);
            // Without a thread the connection is closed.
            let _ = thread::Builder::new().stack_size(STACK).spawn(move || answer(stream, &slot, &context));
        }
    }
}

fn answer(mut stream: TcpStream, slot: &SlotGuard, context: &WebContext) {
    let deadline = Instant::now() + READ_TIMEOUT;
    let _ = stream.set_nodelay(true);
    let response = match WebRequest::read_head(&mut stream, deadline) {
        Ok((request, body)) => routes::answer(&mut stream, &request, body, deadline, slot, context),
        Err(ReadFailure::Gone) => None,
        Err(ReadFailure::Refused(status, reason)) => Some(WebResponse::problem(status, reason)),
    };
    if let Some(response) = response {
        response.send(&mut stream);
    }
}
