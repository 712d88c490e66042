//! Filters records by time, session and the viewer's permission.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::read::RecordHead;
use watchdog_types::{Uid, Viewer};

/// Fields of a death record about the dead process alone. The others may name processes of other users.
const OWN_DEATH: [&str; 23] = [
    "at",
    "run",
    "owner_uid",
    "type",
    "uid",
    "pid",
    "start_time",
    "session",
    "profile",
    "kind",
    "comm",
    "name",
    "died_at",
    "started_at",
    "age_seconds",
    "exit_code",
    "signal",
    "cause",
    "heap",
    "memory",
    "count",
    "first_at",
    "last_at",
];

#[derive(Clone, Debug)]
pub struct RecordFilter {
    pub viewer: Viewer,
    pub since: Option<Timestamp>,
    /// In any run of the daemon.
    pub session: Option<u64>,
}

impl RecordFilter {
    /// The record's time and JSON, or the part that the viewer may see; `None` when it is filtered out.
    pub(super) fn show<'a>(&self, json: &'a str) -> Option<(Timestamp, Cow<'a, str>)> {
        let head = RecordHead::of(json)?;
        let wanted = self.since.is_none_or(|since| head.at >= since)
            && self.session.is_none_or(|session| head.session == Some(session));
        let shown = if wanted { visible(self.viewer, &head, json)? } else { return None };
        Some((head.at, shown))
    }
}

/// The part of a record that a viewer may see: every user sees the host's memory, and only their own sessions.
pub(super) fn visible<'a>(viewer: Viewer, head: &RecordHead<'_>, json: &'a str) -> Option<Cow<'a, str>> {
    let Viewer::User(_) = viewer else { return Some(json.into()) };
    match head.kind.as_ref() {
        "daemon_started" | "daemon_stopped" => Some(json.into()),
        "host" => edited(json, |record| {
            for list in ["sessions", "processes"] {
                if let Some(Value::Array(members)) = record.get_mut(list) {
                    members.retain(|member| uid_of(member).is_some_and(|uid| viewer.sees(uid)));
                }
            }
        }),
        _ if !head.owner_uid.is_some_and(|uid| viewer.sees(Uid(uid))) => None,
        "death" => edited(json, |record| record.retain(|name, _| OWN_DEATH.contains(&name.as_str()))),
        _ => Some(json.into()),
    }
}

/// Edits the record as plain JSON, so that fields of another version survive.
fn edited(json: &str, edit: impl FnOnce(&mut Map<String, Value>)) -> Option<Cow<'static, str>> {
    let mut record: Map<String, Value> = serde_json::from_str(json).ok()?;
    edit(&mut record);
    serde_json::to_string(&record).ok().map(Cow::Owned)
}

fn uid_of(member: &Value) -> Option<Uid> {
    member.get("uid")?.as_u64().and_then(|uid| u32::try_from(uid).ok()).map(Uid)
}
