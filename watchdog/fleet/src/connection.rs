//! One connection to the server, opened when it is needed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{ConnectionInfo, ConnectionLike, ErrorKind, RedisError, Script, ServerErrorKind, Value, cmd};

use crate::reply::{Expected, ScriptReply, printable};
use crate::store::FleetStoreError;
use crate::store_connection::StoreConnection;

/// One script, split into files.
const SCRIPT: &str = concat!(
    include_str!("script/begin.lua"),
    include_str!("script/rows.lua"),
    include_str!("script/losses.lua"),
    include_str!("script/order.lua"),
    include_str!("script/shares.lua"),
    include_str!("script/restate.lua"),
    include_str!("script/grants.lua"),
    include_str!("script/run.lua"),
);
/// Characters of an error.
const MAX_ERROR: usize = 300;
/// Increase this when older scripts would misread the store's data.
const LAYOUT: u64 = 1;
/// A million grants per second for a century. A higher one would stop the fence of each store that this host states it to.
const MAX_FENCE: u64 = 1 << 52;
const KEYS: [&str; 11] =
    ["meta", "state", "totals", "expiry", "rows", "seen", "waiting", "called", "limits", "machines", "missing"];

/// Shared by all connections of a daemon.
#[derive(Debug)]
pub(crate) struct StoreAccess {
    info: ConnectionInfo,
    /// Without a password.
    pub(crate) shown: String,
    /// The prefix of all keys and the channel.
    base: String,
    script: Script,
    ttl: Duration,
    timeout: Duration,
    /// The highest fence in any response: a store with a lower one was restored from older data.
    fence: AtomicU64,
}

impl StoreAccess {
    pub(crate) fn new(info: ConnectionInfo, shown: String, prefix: &str, ttl: Duration, timeout: Duration) -> Self {
        let base = format!("{{{prefix}}}:");
        Self { info, shown, base, script: Script::new(SCRIPT), ttl, timeout, fence: AtomicU64::new(0) }
    }

    pub(crate) fn channel(&self) -> String {
        format!("{}calls", self.base)
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.base)
    }

    pub(crate) fn connect(&self) -> Result<StoreConnection, FleetStoreError> {
        StoreConnection::open(&self.info, self.timeout).map_err(|error| self.error(&error))
    }

    pub(crate) fn error(&self, error: &RedisError) -> FleetStoreError {
        let store = self.shown.clone();
        let text = match error.kind() {
            ErrorKind::AuthenticationFailed | ErrorKind::Parse => error.detail().map(ToOwned::to_owned),
            _ => None,
        };
        let text = printable(&text.unwrap_or_else(|| error.to_string()), MAX_ERROR);
        match error.kind() {
            ErrorKind::Io if error.is_timeout() => {
                FleetStoreError::Unreachable { store, error: format!("no response within {:?}", self.timeout) }
            }
            ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
                FleetStoreError::Denied { store, error: text }
            }
            ErrorKind::Server(ServerErrorKind::ReadOnly) => FleetStoreError::NotWritable { store, error: text },
            // Depending on the server's version, an error inside a script has the code, or only its text.
            _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => FleetStoreError::Denied { store, error: text },
            _ if matches!(error.code(), Some("OOM" | "MISCONF" | "NOREPLICAS"))
                || ["OOM command", "-MISCONF", "-READONLY"].iter().any(|sign| text.contains(sign)) =>
            {
                FleetStoreError::NotWritable { store, error: text }
            }
            _ if text.contains("NOPERM") || text.contains("ACL failure") => {
                FleetStoreError::Denied { store, error: text }
            }
            ErrorKind::Io | ErrorKind::Server(ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown) => {
                FleetStoreError::Unreachable { store, error: text }
            }
            _ => FleetStoreError::Nonsense { store, error: text },
        }
    }

    pub(crate) fn nonsense(&self, expected: Expected) -> FleetStoreError {
        FleetStoreError::Nonsense { store: self.shown.clone(), error: format!("expected {expected}") }
    }
}

/// A connection, and the run id of its server.
pub(crate) struct StoreLink {
    access: Arc<StoreAccess>,
    open: Option<(StoreConnection, String)>,
}

impl StoreLink {
    pub(crate) fn new(access: Arc<StoreAccess>) -> Self {
        Self { access, open: None }
    }

    pub(crate) fn access(&self) -> &Arc<StoreAccess> {
        &self.access
    }

    /// Calls the script. All operations are idempotent, so the call is repeated once if the server has closed the connection.
    pub(crate) fn call(
        &mut self,
        operation: &str,
        arguments: &[String],
    ) -> Result<(String, ScriptReply), FleetStoreError> {
        let was_open = self.open.is_some();
        let reply = match self.query(|access, connection, run| {
            let mut invocation = access.script.prepare_invoke();
            for name in KEYS {
                invocation.key(access.key(name));
            }
            let fence = access.fence.load(Ordering::Relaxed);
            let ttl = u64::try_from(access.ttl.as_millis()).unwrap_or(u64::MAX);
            invocation.arg(operation).arg(LAYOUT).arg(run).arg(fence).arg(ttl).arg(arguments);
            invocation.invoke::<Value>(connection)
        }) {
            Err((_, true)) if was_open => return self.call(operation, arguments),
            reply => reply.map_err(|(error, _)| error)?,
        };
        let access = &self.access;
        let nonsense = |expected| access.nonsense(expected);
        let mut reply = ScriptReply::new(reply).map_err(nonsense)?;
        let status = reply.text().map_err(nonsense)?;
        let fence = reply.number().ok().filter(|fence| *fence <= MAX_FENCE);
        access.fence.fetch_max(fence.ok_or_else(|| nonsense("a fence"))?, Ordering::Relaxed);
        match status.as_str() {
            "newer" => Err(FleetStoreError::NewerLayout { store: access.shown.clone() }),
            _ => Ok((status, reply)),
        }
    }

    pub(crate) fn command(&mut self, command: &redis::Cmd) -> Result<Value, FleetStoreError> {
        self.query(|_, connection, _| command.query(connection)).map_err(|(error, _)| error)
    }

    /// On an error, also returns whether the server had closed the connection.
    fn query(
        &mut self,
        work: impl FnOnce(&StoreAccess, &mut StoreConnection, &str) -> Result<Value, RedisError>,
    ) -> Result<Value, (FleetStoreError, bool)> {
        let (connection, run) = match &mut self.open {
            Some(open) => open,
            closed => closed.insert(open(&self.access).map_err(|error| (error, false))?),
        };
        connection.begin();
        let result = work(&self.access, connection, run);
        if !connection.is_open() || matches!(&result, Err(error) if error.is_unrecoverable_error()) {
            self.open = None;
        }
        result.map_err(|error| (self.access.error(&error), error.is_connection_dropped()))
    }
}

fn open(access: &StoreAccess) -> Result<(StoreConnection, String), FleetStoreError> {
    let mut connection = access.connect()?;
    let info: String = cmd("INFO").arg("server").query(&mut connection).map_err(|error| access.error(&error))?;
    let run = info_field(&info, "run_id").ok_or_else(|| access.nonsense("a run_id"))?;
    Ok((connection, run.to_owned()))
}

/// A line of INFO.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim())
}
