//! Responses of the script, parsed with limits because the server is not trusted.

use std::str::FromStr;

use redis::Value;

/// The longest text in a response.
const MAX_TEXT: usize = 32 * 1024;

/// The rest of a response.
pub(crate) struct ScriptReply {
    values: std::vec::IntoIter<Value>,
}

/// The missing next part of a response.
pub(crate) type Expected = &'static str;

impl ScriptReply {
    pub(crate) fn new(value: Value) -> Result<Self, Expected> {
        match value {
            Value::Array(values) => Ok(Self { values: values.into_iter() }),
            _ => Err("a list"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.len() == 0
    }

    pub(crate) fn text(&mut self) -> Result<String, Expected> {
        match self.values.next() {
            Some(Value::BulkString(bytes)) if bytes.len() <= MAX_TEXT => {
                String::from_utf8(bytes).map_err(|_| "text in UTF-8")
            }
            Some(Value::SimpleString(text)) if text.len() <= MAX_TEXT => Ok(text),
            _ => Err("text"),
        }
    }

    pub(crate) fn name<T: FromStr>(&mut self) -> Result<T, Expected> {
        self.text()?.parse().map_err(|_| "a name")
    }

    /// A number, as an integer or as text. A number that is too large or negative is clamped.
    pub(crate) fn number(&mut self) -> Result<u64, Expected> {
        match self.values.next() {
            Some(Value::Int(number)) => Ok(u64::try_from(number).unwrap_or(0)),
            Some(Value::BulkString(bytes)) if bytes.len() <= 20 => {
                str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok()).ok_or("a number")
            }
            _ => Err("a number"),
        }
    }

    pub(crate) fn places(&mut self) -> Result<u32, Expected> {
        Ok(u32::try_from(self.number()?).unwrap_or(u32::MAX))
    }
}

/// Cuts and cleans a text of the server for messages.
pub(crate) fn printable(text: &str, letters: usize) -> String {
    text.chars().take(letters).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}
