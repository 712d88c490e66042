//! `[actions]`: policy on findings and memory emergencies.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::Uri;

use super::reader::{Section, TomlReader, assign};
use watchdog_api::FindingKind;

const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);
const KILL_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
const SETTLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
const KILLS: RangeInclusive<u32> = 1..=100_000;
const SHARE: RangeInclusive<u8> = 1..=100;

#[derive(Clone, Debug, PartialEq)]
pub struct ActionsConfig {
    /// Whether policy acts. Otherwise it only proposes.
    pub enforce: bool,
    /// `orphan = "terminate"` and so on. Kinds that are not listed are reported.
    pub responses: Responses,
    /// Time between a finding and the action; orphans have `[orphans] grace` instead.
    pub grace: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub kill_after: Duration,
    /// Processes that policy may terminate per minute.
    pub max_kills_per_minute: u32,
    /// Whether policy, with `enforce`, also acts when the host runs out of memory.
    pub emergency: bool,
    /// Per cent of memory and swap; with less available, helpers are terminated.
    pub emergency_term: u8,
    /// The same, for SIGKILL without SIGTERM.
    pub emergency_kill: u8,
    /// Time for the memory of terminated processes to be freed before more are selected.
    pub settle: Duration,
    pub notify: NotifyConfig,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Responses(pub BTreeMap<FindingKind, Response>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    Report,
    Terminate,
    /// Lower the session's memory.high to what it uses now.
    Throttle,
    Freeze,
}

/// Where receipts are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyConfig {
    /// `notify`: a program and its arguments. It reads the receipt from stdin as JSON.
    pub command: Option<Vec<String>>,
    /// `notify_user`: the user that runs it.
    pub user: String,
    /// `webhook`: a URL that accepts alerts in the format of Alertmanager.
    pub webhook: Option<String>,
}

impl Responses {
    /// `None` where this kind is not listed.
    #[must_use]
    pub fn to(&self, kind: FindingKind) -> Option<Response> {
        self.0.get(&kind).copied()
    }
}

impl Default for ActionsConfig {
    fn default() -> Self {
        Self {
            enforce: false,
            responses: Responses(BTreeMap::from([(FindingKind::Orphan, Response::Terminate)])),
            grace: Duration::from_secs(30),
            kill_after: Duration::from_secs(10),
            max_kills_per_minute: 100,
            emergency: true,
            emergency_term: 10,
            emergency_kill: 5,
            settle: Duration::from_secs(15),
            notify: NotifyConfig { user: "nobody".to_owned(), ..NotifyConfig::default() },
        }
    }
}

impl Response {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Terminate => "terminate",
            Self::Throttle => "throttle",
            Self::Freeze => "freeze",
        }
    }

    /// The responses that a kind of finding may have. A burst harms by its number, not by any one process, so it is only
    /// throttled. A living agent may have detached or duplicated a process on purpose, so that is only reported.
    const fn allowed(kind: FindingKind) -> &'static [Self] {
        match kind {
            FindingKind::Orphan | FindingKind::Stale => &[Self::Report, Self::Terminate, Self::Freeze],
            FindingKind::Leak | FindingKind::Overlimit => {
                &[Self::Report, Self::Terminate, Self::Throttle, Self::Freeze]
            }
            FindingKind::Fanout => &[Self::Report, Self::Throttle],
            _ => &[Self::Report],
        }
    }
}

const KEYS: &[&str] = &[
    "enforce",
    "grace",
    "kill_after",
    "max_kills_per_minute",
    "emergency",
    "emergency_term",
    "emergency_kill",
    "settle",
    "notify",
    "notify_user",
    "webhook",
];

pub(super) fn actions<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, actions: &mut ActionsConfig) {
    let kinds = FindingKind::ALL.map(FindingKind::name);
    let keys: Vec<&str> = KEYS.iter().copied().chain(kinds).collect();
    let Some(table) = reader.table(root, "actions", "[actions]", &keys) else { return };
    assign(&mut actions.enforce, reader.boolean(table, "enforce").map(|found| found.value));
    for (kind, response) in responses(reader, table).0 {
        match response {
            Response::Report => drop(actions.responses.0.remove(&kind)),
            _ => drop(actions.responses.0.insert(kind, response)),
        }
    }
    assign(&mut actions.grace, reader.duration(table, "grace", GRACE));
    assign(&mut actions.kill_after, reader.duration(table, "kill_after", KILL_AFTER));
    assign(&mut actions.max_kills_per_minute, reader.integer(table, "max_kills_per_minute", KILLS));
    assign(&mut actions.emergency, reader.boolean(table, "emergency").map(|found| found.value));
    assign(&mut actions.emergency_term, reader.percent(table, "emergency_term", SHARE));
    assign(&mut actions.emergency_kill, reader.percent(table, "emergency_kill", SHARE));
    if actions.emergency_kill >= actions.emergency_term {
        let (term, kill) = (actions.emergency_term, actions.emergency_kill);
        reader.report(table.at(), format!("emergency_kill: {kill}% is not below emergency_term, which is {term}%"));
    }
    assign(&mut actions.settle, reader.duration(table, "settle", SETTLE));
    notify(reader, table, &mut actions.notify);
}

/// `[[profile]] actions`, which overrides `[actions]`, with "report" too.
pub(super) fn of_profile<'t>(reader: &mut TomlReader<'t>, profile: Section<'_, 't>) -> Responses {
    let kinds = FindingKind::ALL.map(FindingKind::name);
    let table = reader.table(profile, "actions", "[profile.actions]", &kinds);
    table.map(|table| responses(reader, table)).unwrap_or_default()
}

fn responses<'t>(reader: &mut TomlReader<'t>, table: Section<'_, 't>) -> Responses {
    let read = |kind: FindingKind| Some((kind, response(reader, table, kind)?));
    Responses(FindingKind::ALL.into_iter().filter_map(read).collect())
}

fn response<'t>(reader: &mut TomlReader<'t>, table: Section<'_, 't>, kind: FindingKind) -> Option<Response> {
    let allowed = Response::allowed(kind);
    let words: Vec<(&str, Response)> = allowed.iter().map(|response| (response.as_str(), *response)).collect();
    let expected = match allowed {
        [Response::Report] => format!("\"report\", the only response to {} findings", kind.name()),
        _ => one_of(allowed),
    };
    reader.choice(table, kind.name(), &expected, &words)
}

/// As in `"report", "terminate" or "freeze"`.
fn one_of(responses: &[Response]) -> String {
    let quoted: Vec<String> = responses.iter().map(|response| format!("{:?}", response.as_str())).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

fn notify<'t>(reader: &mut TomlReader<'t>, table: Section<'_, 't>, notify: &mut NotifyConfig) {
    if let Some(command) = reader.command(table, "notify") {
        let allowed = "a program, by its absolute path, and its arguments are allowed, as in \
                       [\"/usr/local/bin/tell-me\", \"--mail\"]";
        match command.value.first() {
            _ if command.value.iter().any(|word| word.contains('\0')) => {
                reader.refuse(&command, "an argument cannot contain a NUL byte");
            }
            Some(program) if program.starts_with('/') => notify.command = Some(command.value),
            Some(program) => {
                reader.refuse(
                    &command,
                    format_args!("{program:?} is not an absolute path: {allowed}; no shell expands them"),
                );
            }
            None => reader.refuse(&command, format_args!("is empty: {allowed}; omit the key to run nothing")),
        }
    }
    let user = reader.parsed(table, "notify_user", "a user name", |name| {
        let fit = |c: char| c.is_ascii_graphic() && !matches!(c, ':' | '/' | ',');
        let fits = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(fit);
        if fits { Ok(name.to_owned()) } else { Err("not a user name, as in \"nobody\"".to_owned()) }
    });
    assign(&mut notify.user, user);
    let webhook = reader.parsed(table, "webhook", "an address, as in \"http://127.0.0.1:9093/api/v2/alerts\"", webhook);
    if webhook.is_some() {
        notify.webhook = webhook;
    }
}

fn webhook(text: &str) -> Result<String, String> {
    let example = "http://127.0.0.1:9093/api/v2/alerts";
    let uri: Uri = text.parse().map_err(|error| format!("not an address, as in {example:?}: {error}"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(format!(
                "not supported: there is no TLS client. Use http://, as in {example:?}, to an Alertmanager or a proxy on this \
                 host that forwards over https"
            ));
        }
        _ => return Err(format!("not an address that begins with http://, as in {example:?}")),
    }
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    if authority.contains('@') {
        return Err(format!(
            "not supported: credentials cannot be sent. Use an address without them, as in {example:?}"
        ));
    }
    match uri.host() {
        Some(host) if !host.is_empty() => Ok(text.to_owned()),
        _ => Err(format!("not an address with a host, as in {example:?}")),
    }
}

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;
