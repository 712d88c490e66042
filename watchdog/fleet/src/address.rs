//! The address and the password of the store.

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use watchdog_types::FleetName;

use crate::store::FleetStoreError;

/// A password. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreSecret(String);

/// How to reach a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// `redis://[USER@]HOST[:PORT][/DATABASE]` or `redis+unix:///PATH`, without a password; `rediss://` with the feature `tls`.
    pub url: String,
    /// From a file or a credential of the service.
    pub secret: Option<StoreSecret>,
    /// Prefix and hash tag of each key. Fleets with different prefixes can share a store.
    pub prefix: FleetName,
    /// A row expires if it is not renewed within this time. Must be the same on all hosts.
    pub ttl: Duration,
}

impl StoreOptions {
    /// The prefix of the documented ACL line.
    pub const PREFIX: &str = "agent-watchdog";

    /// The parsed address, and the address as messages show it.
    pub(crate) fn parse(&self) -> Result<(ConnectionInfo, String), FleetStoreError> {
        let invalid = |error: String| FleetStoreError::Address { error };
        if !cfg!(feature = "tls") && ["rediss:", "valkeys:"].iter().any(|scheme| self.url.starts_with(scheme)) {
            return Err(invalid("this build has no TLS: use a tunnel, or build with the feature tls".into()));
        }
        let info = self.url.as_str().into_connection_info().map_err(|error| invalid(error.to_string()))?;
        let settings = info.redis_settings().clone();
        if settings.password().is_some() {
            return Err(invalid(
                "it contains a password: write the password into a file that only root can read".into(),
            ));
        }
        let scheme = match info.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(invalid("#insecure would accept the certificate of any server".into()));
            }
            ConnectionAddr::TcpTls { .. } => "rediss://",
            ConnectionAddr::Unix(_) => "redis+unix://",
            _ => "redis://",
        };
        let shown = format!("{scheme}{}", info.addr());
        // One command fewer for the ACL.
        let mut settings = settings.set_skip_set_lib_name();
        if let Some(StoreSecret(secret)) = &self.secret {
            settings = settings.set_password(secret);
        }
        Ok((info.set_redis_settings(settings), shown))
    }
}

impl StoreSecret {
    /// The content of a file, without the newline at its end.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim_end_matches(['\n', '\r']).to_owned())
    }
}

impl fmt::Debug for StoreSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreSecret(…)")
    }
}
