//! The numbers behind an action.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Evidence;
use watchdog_types::{Bytes, Pid};

/// Why an action was taken. In JSON one object holds the members of both parts, in the order of the alphabet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "Map<String, Value>", from = "Map<String, Value>")]
pub struct ActionEvidence {
    pub grounds: ActionGrounds,
    /// Of an emergency.
    pub shortage: Option<MemoryShortage>,
}

/// What the action is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ActionGrounds {
    Session(SessionGrounds),
    Burst(BurstGrounds),
    /// A finding; without evidence also a process that a user names. JSON leaves out the lists of processes, since a
    /// receipt lists its targets.
    Finding(Evidence),
}

/// A session that a user ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionGrounds {
    pub agent_pid: Pid,
    /// All its processes.
    pub count: usize,
    /// Its orphans.
    pub left_behind: usize,
    pub profile: String,
}

/// The newest burst of tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BurstGrounds {
    pub count: usize,
    pub memory_bytes: Bytes,
    pub program: String,
}

/// The host's memory when an emergency began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryShortage {
    pub available_bytes: Bytes,
    /// Share of memory and swap that was available.
    pub left_percent: u64,
    pub swap_free_bytes: Bytes,
}

/// The members of [`MemoryShortage`].
const SHORTAGE: [&str; 3] = ["available_bytes", "left_percent", "swap_free_bytes"];

impl Default for ActionGrounds {
    fn default() -> Self {
        Self::Finding(Evidence::default())
    }
}

impl From<Evidence> for ActionEvidence {
    fn from(evidence: Evidence) -> Self {
        Self { grounds: ActionGrounds::Finding(evidence), shortage: None }
    }
}

impl From<ActionEvidence> for Map<String, Value> {
    fn from(evidence: ActionEvidence) -> Self {
        let ActionEvidence { grounds, shortage } = evidence;
        let mut map = members(&grounds);
        if matches!(grounds, ActionGrounds::Finding(_)) {
            map.remove("processes");
            map.remove("kept");
        }
        if let Some(shortage) = shortage {
            map.extend(members(&shortage));
        }
        map
    }
}

impl From<Map<String, Value>> for ActionEvidence {
    fn from(mut map: Map<String, Value>) -> Self {
        let shortage = SHORTAGE.iter().all(|key| map.contains_key(*key)).then(|| {
            let members = SHORTAGE.iter().filter_map(|key| map.remove_entry(*key)).collect();
            serde_json::from_value(Value::Object(members)).ok()
        });
        let grounds = serde_json::from_value(Value::Object(map)).unwrap_or_default();
        Self { grounds, shortage: shortage.flatten() }
    }
}

fn members(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::process(json!({}))]
    #[case::session(json!({ "agent_pid": 7, "count": 3, "left_behind": 1, "profile": "codex" }))]
    #[case::burst(json!({ "count": 3, "memory_bytes": 4_096, "program": "rustc" }))]
    #[case::emergency(json!({
        "available_bytes": 1, "count": 3, "left_percent": 4, "memory_bytes": 4_096, "program": "rustc", "swap_free_bytes": 0,
    }))]
    #[case::finding(json!({ "name": "node", "policy": "warn", "ppid": 1, "profile": "claude-code" }))]
    #[case::without_processes(json!({ "agent_comm": "claude", "clear": 1, "count": 2 }))]
    fn json_is_kept(#[case] json: Value) {
        let read: ActionEvidence = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), json.to_string());
    }

    #[test]
    fn lists_of_processes_are_left_out() {
        let evidence = json!({ "agent_comm": "claude", "kept": [1], "processes": [2] });
        let evidence: Evidence = serde_json::from_value(evidence).unwrap();
        assert_eq!(serde_json::to_string(&ActionEvidence::from(evidence)).unwrap(), r#"{"agent_comm":"claude"}"#);
    }
}
