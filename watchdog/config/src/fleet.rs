//! `[fleet]`: limits that several hosts share through one store.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::gate::SESSIONS;
use super::reader::{Section, TomlReader, assign};

/// Below 3 s a busy host would miss renewals; above 10 min a dead host keeps its leases too long.
const TTL: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(600);
/// Bytes.
const MAX_NAME_LEN: usize = 64;
const MAX_LABELS: usize = 8;
/// Bytes. A host publishes its labels with its state, in 1 KiB.
const MAX_LABEL_LEN: usize = 40;
const STORE_EXAMPLE: &str = "\"redis://10.0.0.5:6379\" or \"redis+unix:///run/redis/redis.sock\"";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetConfig {
    /// URL of the store, without a password. `None`: this host belongs to no fleet.
    pub store: Option<String>,
    /// Name of this host. `None`: host name and machine id.
    pub host: Option<String>,
    /// A file whose first line is the password of the store.
    pub password_file: Option<PathBuf>,
    /// Prefix of all keys in the store: fleets with different prefixes share nothing.
    pub prefix: String,
    /// Limit on the sessions of all hosts together.
    pub max_sessions: Option<u32>,
    pub max_sessions_per_user: Option<u32>,
    pub labels: Vec<String>,
    /// Limit on the sessions of all hosts with a label together.
    pub max_sessions_per_label: BTreeMap<String, u32>,
    pub when_lost: WhenLost,
    /// How long the row of an unreachable host counts.
    pub ttl: Duration,
}

/// What the gate does with launches while the store is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenLost {
    /// Grant up to this host's share of each limit.
    Share,
    Deny,
    /// Local limits only.
    Allow,
}

impl WhenLost {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Deny => "deny",
            Self::Allow => "allow",
        }
    }
}

impl Default for FleetConfig {
    fn default() -> Self {
        Self {
            store: None,
            host: None,
            password_file: None,
            prefix: "agent-watchdog".to_owned(),
            max_sessions: None,
            max_sessions_per_user: None,
            labels: Vec::new(),
            max_sessions_per_label: BTreeMap::new(),
            when_lost: WhenLost::Share,
            ttl: Duration::from_secs(15),
        }
    }
}

const KEYS: &[&str] = &[
    "store",
    "host",
    "password_file",
    "prefix",
    "max_sessions",
    "max_sessions_per_user",
    "labels",
    "max_sessions_per_label",
    "when_lost",
    "ttl",
];

pub(super) fn fleet<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, fleet: &mut FleetConfig) {
    let Some(table) = reader.table(root, "fleet", "[fleet]", KEYS) else { return };
    fleet.store = reader.parsed(table, "store", &format!("an address, as in {STORE_EXAMPLE}"), store);
    fleet.host = reader.parsed(table, "host", "a name, as in \"build-1\"", name);
    fleet.password_file = reader.parsed(table, "password_file", "a path", |path| match path.starts_with('/') {
        true => Ok(PathBuf::from(path)),
        false => Err("not an absolute path, as in \"/etc/agent-watchdog/fleet-password\"".to_owned()),
    });
    assign(&mut fleet.prefix, reader.parsed(table, "prefix", "a name, as in \"agent-watchdog\"", name));
    fleet.max_sessions = reader.integer(table, "max_sessions", SESSIONS);
    fleet.max_sessions_per_user = reader.integer(table, "max_sessions_per_user", SESSIONS);
    let labels = reader.strings(table, "labels");
    let mut known: Vec<String> = labels.value.iter().filter(|label| is_label(label)).cloned().collect();
    known.sort_unstable();
    known.dedup();
    if known.len() < labels.value.len() {
        reader.refuse(
            &labels,
            format_args!("each label must be 1 to {MAX_LABEL_LEN} of {LETTERS}, and stand there once"),
        );
    } else if known.len() > MAX_LABELS {
        reader.refuse(&labels, format_args!("{} labels, at most {MAX_LABELS} are allowed", known.len()));
    }
    fleet.labels = known;
    fleet.max_sessions_per_label = reader.counts(table, "max_sessions_per_label", SESSIONS, "{ gpu = 8 }");
    if let Some(label) = fleet.max_sessions_per_label.keys().find(|label| !is_label(label)) {
        let allowed = format!("1 to {MAX_LABEL_LEN} of {LETTERS} are allowed");
        reader.report(table.at(), format!("max_sessions_per_label: {label:?} is not a label: {allowed}"));
    }
    let words = [WhenLost::Share, WhenLost::Deny, WhenLost::Allow].map(|policy| (policy.name(), policy));
    assign(&mut fleet.when_lost, reader.choice(table, "when_lost", "\"share\", \"deny\" or \"allow\"", &words));
    assign(&mut fleet.ttl, reader.duration(table, "ttl", TTL));
    if fleet.store.is_none() && !table.has("store") {
        let useless = ["max_sessions", "max_sessions_per_user", "max_sessions_per_label"];
        if let Some(key) = useless.into_iter().find(|key| table.has(key)) {
            reader.report(table.at(), format!("{key}: without `store`, as in {STORE_EXAMPLE}, it has no effect"));
        }
    }
}

const LETTERS: &str = "a-z, A-Z, 0-9, '-', '_' and '.'";

fn is_label(text: &str) -> bool {
    text.len() <= MAX_LABEL_LEN && is_name(text)
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=MAX_NAME_LEN).contains(&text.len()) && text.bytes().all(allowed)
}

fn name(text: &str) -> Result<String, String> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("not a name: 1 to {MAX_NAME_LEN} of {LETTERS} are allowed"))
    }
}

fn store(text: &str) -> Result<String, String> {
    if let Some(path) = text.strip_prefix("redis+unix://") {
        let socket = path.split('?').next().unwrap_or_default();
        return match socket.starts_with('/') && !path.contains("pass=") {
            true => Ok(text.to_owned()),
            false => {
                Err(format!("not the path of a socket, as in {STORE_EXAMPLE}; a password belongs in password_file"))
            }
        };
    }
    let uri: Uri = text.parse().map_err(|error| format!("not an address, as in {STORE_EXAMPLE}: {error}"))?;
    match uri.scheme_str() {
        Some("redis") => {}
        Some("rediss" | "valkeys") => {
            return Err(format!(
                "not supported: there is no TLS client. Use a tunnel to the store (stunnel, WireGuard or ssh), as in \
                 {STORE_EXAMPLE}"
            ));
        }
        _ => return Err(format!("not an address, as in {STORE_EXAMPLE}")),
    }
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        // The text of the configuration is shown to clients.
        return Err(
            "not allowed with a password: write the password into a file, and name it in password_file".to_owned()
        );
    }
    match uri.host() {
        Some(host) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("not an address with a host, as in {STORE_EXAMPLE}")),
    }
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
