//! Reads an event from standard input and keeps only the members that hooks use.
//!
//! The answer of a subagent can be of any size, and its end must be reported even so.

use std::fmt;
use std::io::{BufReader, Read};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Members that hooks use, at any level.
const USED_MEMBERS: [&str; 8] =
    ["hook_event_name", "tool_name", "tool_use_id", "tool_response", "agent_id", "agentId", "status", "reason"];

/// The event without other members. Values that are no text become null.
pub(super) fn read(from: impl Read) -> Result<Value, String> {
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(from));
    let event = UsedMembers.deserialize(&mut json).and_then(|event| json.end().map(|()| event));
    event.map_err(|error| match error.is_io() {
        true => format!("cannot read the event: {error}"),
        false => format!("the event is not JSON: {error}"),
    })
}

struct UsedMembers;

impl<'de> DeserializeSeed<'de> for UsedMembers {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UsedMembers {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            if USED_MEMBERS.contains(&name.as_str()) {
                kept.insert(name, from.next_value_seed(Self)?);
            } else {
                from.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(kept))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        while from.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn used_members_are_kept() {
        let event = json!({
            "hook_event_name": "PostToolUse", "tool_use_id": 7, "reason": [1, {"reason": "x"}], "agent_id": null,
            "tool_input": {"reason": "of the tool"}, "status": true, "tool_name": -0.5,
            "tool_response": {"content": [{"text": "x"}], "status": "completed", "agentId": "a7"},
        });
        let kept = json!({
            "hook_event_name": "PostToolUse", "tool_use_id": null, "reason": null, "agent_id": null,
            "status": null, "tool_name": null, "tool_response": {"status": "completed", "agentId": "a7"},
        });
        assert_eq!(read(event.to_string().as_bytes()), Ok(kept));
        assert_eq!(read(&b"[1]"[..]), Ok(Value::Null));
    }

    #[test]
    fn invalid_json_is_an_error() {
        for odd in ["", "{", "{} {}", "\u{1b}[2J", r#"{"tool_input":"#] {
            assert!(read(odd.as_bytes()).unwrap_err().contains("not JSON"), "{odd}");
        }
    }

    #[test]
    fn large_event_is_read() {
        let answer = "x".repeat(3 << 20);
        let event = format!(r#"{{"tool_response":{{"content":"{answer}"}},"prompt":"{answer}","tool_use_id":"t"}}"#);
        assert_eq!(read(event.as_bytes()), Ok(json!({"tool_response": {}, "tool_use_id": "t"})));
    }
}
