//! `[actions]`: what policy does about findings, and when memory runs out.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use hyper::Uri;

use super::reader::{Reader, Section, set};
use crate::api::FindingKind;

const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);
const KILL_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
const SETTLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
const KILLS: RangeInclusive<u32> = 1..=100_000;
const SHARE: RangeInclusive<u8> = 1..=100;

/// `[actions]`
#[derive(Clone, Debug, PartialEq)]
pub struct Actions {
    /// `enforce`: policy acts. Otherwise it proposes, and only people act.
    pub enforce: bool,
    /// What is done about findings of each kind: `orphan = "terminate"` and so on. A kind that is not in here is reported.
    pub about: Reactions,
    /// `grace`: how long a finding has been open before policy acts on it, orphans aside: those have `[orphans] grace`.
    pub grace: Duration,
    /// `kill_after`: how long a process has to end after SIGTERM before it gets SIGKILL.
    pub kill_after: Duration,
    /// `max_kills_per_minute`: how many processes policy ends in a minute at most.
    pub max_kills_per_minute: u32,
    /// `emergency`: with `enforce`, policy also acts when memory runs out, in its own order.
    pub emergency: bool,
    /// `emergency_term`: below this share of memory and swap that is available, in per cent, it ends helpers,
    pub emergency_term: u8,
    /// `emergency_kill`: and below this share it sends SIGKILL at once.
    pub emergency_kill: u8,
    /// `settle`: how long an emergency waits for the memory of what it ended before it looks for more.
    pub settle: Duration,
    /// `notify`, `notify_user`, `webhook`: who is told of receipts.
    pub notify: Notify,
}

/// What is done about findings of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reactions(pub BTreeMap<FindingKind, Reaction>);

/// What is done about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// People are told, and nothing else.
    Report,
    /// Its processes are ended.
    Terminate,
    /// The session's memory.high is lowered to what it holds.
    Throttle,
    /// Its processes are stopped.
    Freeze,
}

/// Who is told of receipts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notify {
    /// `notify`: a program with its arguments; the receipt is on its stdin as JSON.
    pub command: Option<Vec<String>>,
    /// `notify_user`: as whom it runs.
    pub user: String,
    /// `webhook`: an address that takes alerts as Alertmanager does.
    pub webhook: Option<String>,
}

impl Reactions {
    /// What is done about findings of this kind, where it is said.
    #[must_use]
    pub fn about(&self, kind: FindingKind) -> Option<Reaction> {
        self.0.get(&kind).copied()
    }
}

impl Default for Actions {
    fn default() -> Self {
        Self {
            enforce: false,
            about: Reactions(BTreeMap::from([(FindingKind::Orphan, Reaction::Terminate)])),
            grace: Duration::from_secs(30),
            kill_after: Duration::from_secs(10),
            max_kills_per_minute: 100,
            emergency: true,
            emergency_term: 10,
            emergency_kill: 5,
            settle: Duration::from_secs(15),
            notify: Notify { user: "nobody".to_owned(), ..Notify::default() },
        }
    }
}

impl Reaction {
    /// The word for it in the configuration.
    const fn word(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Terminate => "terminate",
            Self::Throttle => "throttle",
            Self::Freeze => "freeze",
        }
    }

    /// What may be done about findings of a kind. A burst harms by its number, so that its processes are as good as any:
    /// it is slowed down at most. What a living agent may have let go of on purpose, what is no process's fault, or only worth knowing, is reported.
    const fn allowed(kind: FindingKind) -> &'static [Self] {
        match kind {
            FindingKind::Orphan | FindingKind::Stale => &[Self::Report, Self::Terminate, Self::Freeze],
            FindingKind::Leak | FindingKind::Overlimit => {
                &[Self::Report, Self::Terminate, Self::Throttle, Self::Freeze]
            }
            FindingKind::Fanout => &[Self::Report, Self::Throttle],
            FindingKind::Detached
            | FindingKind::Abandoned
            | FindingKind::Duplicate
            | FindingKind::External
            | FindingKind::Ungated => &[Self::Report],
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

pub(super) fn actions<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, actions: &mut Actions) {
    let kinds = FindingKind::ALL.map(FindingKind::name);
    let keys: Vec<&str> = KEYS.iter().copied().chain(kinds).collect();
    let Some(table) = reader.table(root, "actions", "[actions]", &keys) else { return };
    set(&mut actions.enforce, reader.boolean(table, "enforce").map(|found| found.value));
    for (kind, reaction) in reactions(reader, table).0 {
        match reaction {
            Reaction::Report => drop(actions.about.0.remove(&kind)),
            _ => drop(actions.about.0.insert(kind, reaction)),
        }
    }
    set(&mut actions.grace, reader.duration(table, "grace", GRACE));
    set(&mut actions.kill_after, reader.duration(table, "kill_after", KILL_AFTER));
    set(&mut actions.max_kills_per_minute, reader.integer(table, "max_kills_per_minute", KILLS));
    set(&mut actions.emergency, reader.boolean(table, "emergency").map(|found| found.value));
    set(&mut actions.emergency_term, reader.percent(table, "emergency_term", SHARE));
    set(&mut actions.emergency_kill, reader.percent(table, "emergency_kill", SHARE));
    if actions.emergency_kill >= actions.emergency_term {
        let (term, kill) = (actions.emergency_term, actions.emergency_kill);
        reader.report(table.at(), format!("emergency_kill: {kill}% is not below emergency_term, which is {term}%"));
    }
    set(&mut actions.settle, reader.duration(table, "settle", SETTLE));
    notify(reader, table, &mut actions.notify);
}

/// `[[profile]] actions`: what is said there, "report" too, goes before `[actions]`.
pub(super) fn of_profile<'t>(reader: &mut Reader<'t>, profile: Section<'_, 't>) -> Reactions {
    let kinds = FindingKind::ALL.map(FindingKind::name);
    let table = reader.table(profile, "actions", "[profile.actions]", &kinds);
    table.map(|table| reactions(reader, table)).unwrap_or_default()
}

fn reactions<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>) -> Reactions {
    let read = |kind: FindingKind| Some((kind, reaction(reader, table, kind)?));
    Reactions(FindingKind::ALL.into_iter().filter_map(read).collect())
}

fn reaction<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>, kind: FindingKind) -> Option<Reaction> {
    let allowed = Reaction::allowed(kind);
    let words: Vec<(&str, Reaction)> = allowed.iter().map(|reaction| (reaction.word(), *reaction)).collect();
    let expected = match allowed {
        [Reaction::Report] => format!("\"report\": nothing else is ever done about {} findings", kind.name()),
        _ => one_of(allowed),
    };
    reader.word(table, kind.name(), &expected, &words)
}

/// As in `"report", "terminate" or "freeze"`.
fn one_of(reactions: &[Reaction]) -> String {
    let quoted: Vec<String> = reactions.iter().map(|reaction| format!("{:?}", reaction.word())).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

fn notify<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>, notify: &mut Notify) {
    if let Some(command) = reader.command(table, "notify") {
        let allowed = "a program, by its absolute path, and its arguments are allowed, as in \
                       [\"/usr/local/bin/tell-me\", \"--mail\"]";
        match command.value.first() {
            _ if command.value.iter().any(|word| word.contains('\0')) => {
                reader.refuse(&command, "no argument can hold a zero byte");
            }
            Some(program) if program.starts_with('/') => notify.command = Some(command.value),
            Some(program) => {
                reader.refuse(
                    &command,
                    format_args!("{program:?} is no absolute path: {allowed}; no shell looks at them"),
                );
            }
            None => reader.refuse(&command, format_args!("is empty: {allowed}; leave the key out to run nothing")),
        }
    }
    let user = reader.meaning(table, "notify_user", "the name of a user", |name| {
        let fit = |c: char| c.is_ascii_graphic() && !matches!(c, ':' | '/' | ',');
        let fits = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(fit);
        if fits { Ok(name.to_owned()) } else { Err("not the name of a user, as in \"nobody\"".to_owned()) }
    });
    set(&mut notify.user, user);
    let webhook =
        reader.meaning(table, "webhook", "an address, as in \"http://127.0.0.1:9093/api/v2/alerts\"", webhook);
    if webhook.is_some() {
        notify.webhook = webhook;
    }
}

/// An address that receipts can be posted to.
fn webhook(text: &str) -> Result<String, String> {
    let example = "http://127.0.0.1:9093/api/v2/alerts";
    let uri: Uri = text.parse().map_err(|error| format!("not an address, as in {example:?}: {error}"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err(format!(
                "not possible: there is no TLS here. http:// is allowed, as in {example:?}: post to an Alertmanager or a \
                 proxy on this host, which speaks https to others"
            ));
        }
        _ => return Err(format!("not an address that begins with http://, as in {example:?}")),
    }
    let authority = uri.authority().map(hyper::http::uri::Authority::as_str).unwrap_or_default();
    if authority.contains('@') {
        return Err(format!(
            "not possible: no user and password can be sent; without them it is allowed, as in {example:?}"
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
