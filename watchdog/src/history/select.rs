//! Which records somebody wants and may see.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::read::Head;
use crate::engine::id::Uid;
use crate::engine::view::Viewer;

/// What a record of a death tells of the dead process alone. The rest may name processes of other users.
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

/// What to choose by.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Who looks.
    pub viewer: Viewer,
    /// Nothing before this moment.
    pub since: Option<Timestamp>,
    /// Nothing but what concerns a session of this number, in whichever run.
    pub session: Option<u64>,
}

impl Selection {
    /// What of a record's JSON is to be shown; `None` for nothing.
    #[must_use]
    pub fn show<'a>(&self, json: &'a str) -> Option<Cow<'a, str>> {
        let head = Head::of(json)?;
        let wanted = self.since.is_none_or(|since| head.at >= since)
            && self.session.is_none_or(|session| head.session == Some(session));
        if wanted { visible(self.viewer, &head, json) } else { None }
    }
}

/// What of a record a viewer may see: the host's memory is everybody's business, and what the users' sessions do is theirs.
pub(super) fn visible<'a>(viewer: Viewer, head: &Head<'_>, json: &'a str) -> Option<Cow<'a, str>> {
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

/// The record with something left out. It is taken for no type: what only another version knows stays in it.
fn edited(json: &str, edit: impl FnOnce(&mut Map<String, Value>)) -> Option<Cow<'static, str>> {
    let mut record: Map<String, Value> = serde_json::from_str(json).ok()?;
    edit(&mut record);
    serde_json::to_string(&record).ok().map(Cow::Owned)
}

fn uid_of(member: &Value) -> Option<Uid> {
    member.get("uid")?.as_u64().and_then(|uid| u32::try_from(uid).ok()).map(Uid)
}
