//! Evidence of findings as sentences; JSON without a known type as names and values, with the unit that the name ends with.

use serde_json::{Map, Value};

use super::escape::escape;
use super::terminal::{Style, Terminal};
use watchdog_api::Evidence;
use watchdog_types::units;

/// One sentence for each fact. Evidence of a daemon with other members is listed by their names.
#[must_use]
pub fn facts(evidence: &Evidence, indent: usize, terminal: &Terminal) -> String {
    if let Evidence::Raw(members) = evidence {
        return lines(members, indent, terminal);
    }
    evidence.facts().iter().map(|fact| terminal.wrap(&escape(fact), indent)).collect()
}

/// One line for each name, names in one column, indented.
#[must_use]
pub fn lines(evidence: &Map<String, Value>, indent: usize, terminal: &Terminal) -> String {
    let named = named(evidence);
    let width = named.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (name, key, value) in named {
        let label = terminal.paint(Style::Faint, format!("{name:width$}"));
        match value {
            Value::Array(items) if items.iter().any(Value::is_object) => {
                out.push_str(&format!("{:indent$}{}\n", "", label.trim_end()));
                for item in items {
                    out.push_str(&format!("{:indent$}  - {}\n", "", read(key, item, terminal)));
                }
            }
            _ => out.push_str(&format!("{:indent$}{label}  {}\n", "", read(key, value, terminal))),
        }
    }
    out
}

/// All of it in one line: `comm node, peak 80 MiB`.
#[must_use]
pub fn pairs(evidence: &Map<String, Value>, terminal: &Terminal) -> String {
    // What does not apply is not worth a reader's time in a list.
    let worth_it = named(evidence).into_iter().filter(|(.., value)| **value != Value::Bool(false));
    let pairs = worth_it.map(|(name, key, value)| match value {
        Value::Bool(_) => name,
        _ => format!("{name} {}", read(key, value, terminal)),
    });
    pairs.collect::<Vec<_>>().join(", ")
}

/// The shown entries, each with the words of its key: with the word of the unit only where two would read alike.
fn named(evidence: &Map<String, Value>) -> Vec<(String, &String, &Value)> {
    let entries: Vec<_> = shown_entries(evidence).collect();
    let words = |key: &str| {
        let short = stem(key);
        let is_plain = entries.iter().filter(|(other, _)| stem(other) == short).count() == 1;
        escape(&if is_plain { short } else { key }.replace('_', " ")).into_owned()
    };
    entries.iter().map(|&(key, value)| (words(key), key, value)).collect()
}

/// The shown entries, those that name a process first. A start time is a process's identity only to programs.
fn shown_entries(evidence: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    const NAMES: [&str; 2] = ["pid", "comm"];
    let first = NAMES.iter().filter_map(|name| evidence.get_key_value(*name));
    let others = evidence.iter().filter(|(key, _)| !NAMES.contains(&key.as_str()) && !key.ends_with("start_time"));
    first.chain(others).filter(|(_, value)| !is_nothing(value))
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The name without the unit that its value is shown with.
fn stem(key: &str) -> &str {
    let stem = ["_bytes_per_second", "_bytes", "_seconds", "_at", "_us"].iter().find_map(|unit| key.strip_suffix(unit));
    stem.unwrap_or(key)
}

fn read(key: &str, value: &Value, terminal: &Terminal) -> String {
    match value {
        Value::Null => "none".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Number(number) => read_number(key, number),
        Value::String(text) => match units::age(text, terminal.now).filter(|_| key.ends_with("_at")) {
            Some(age) => format!("{} ago", units::span(age)),
            None => escape(text).into_owned(),
        },
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| read(key, item, terminal)).collect();
            items.join(", ")
        }
        Value::Object(object) => pairs(object, terminal),
    }
}

fn read_number(key: &str, number: &serde_json::Number) -> String {
    if key.ends_with("_bytes_per_second") {
        let rate = number.as_f64().unwrap_or(0.0);
        let sign = if rate < 0.0 { "-" } else { "" };
        // A float becomes the nearest integer that there is: no rate is beyond u64.
        return format!("{sign}{}/s", units::size(rate.abs().round() as u64));
    }
    match (number.as_u64(), number.as_f64()) {
        (Some(bytes), _) if key.ends_with("_bytes") => units::size(bytes),
        (_, Some(seconds)) if key.ends_with("_seconds") => units::seconds(seconds),
        (_, Some(micros)) if key.ends_with("_us") => units::seconds(micros / 1e6),
        (_, Some(float)) if number.is_f64() => {
            let digits = format!("{float:.2}");
            digits.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::plain;
    use super::*;
    use serde_json::json;

    fn example() -> Map<String, Value> {
        let value = json!({
            "agent_died_at": "2026-01-02T11:57:00Z",
            "adopted": false,
            "confidence": 0.875,
            "growth_bytes_per_second": 1_572_864.4,
            "idle_seconds": 7_500,
            "listens": ["tcp 127.0.0.1:3000", "unix /run/\u{1b}[2Jx.sock"],
            "memory_bytes": 851_443_712_u64,
            "members": [{"pid": 12, "start_time": 7, "comm": "node\n", "memory_bytes": 4096}, {"pid": 13, "comm": "sh"}],
            "nothing": null,
            "pids": [12, 13],
            "stalled_us": 1_500,
            "survives_\u{1b}[2J": "its agent",
        });
        value.as_object().unwrap().clone()
    }

    #[test]
    fn evidence_has_words_and_units() {
        insta::assert_snapshot!(lines(&example(), 4, &plain()), @r"
        adopted             no
        agent died          3m ago
        confidence          0.88
        growth              1.5 MiB/s
        idle                2h 5m
        listens             tcp 127.0.0.1:3000, unix /run/\u{1b}[2Jx.sock
        members
          - pid 12, comm node\n, memory 4.0 KiB
          - pid 13, comm sh
        memory              812 MiB
        pids                12, 13
        stalled             0.002s
        survives \u{1b}[2J  its agent
        ");
    }

    #[test]
    fn ambiguous_names_keep_units() {
        let alike =
            json!({"limit": "configured", "limit_bytes": 209_715_200, "memory_bytes": 4096, "memory_seconds": 2});
        let alike = alike.as_object().unwrap();
        insta::assert_snapshot!(lines(alike, 0, &plain()), @r"
        limit           configured
        limit bytes     200 MiB
        memory bytes    4.0 KiB
        memory seconds  2s
        ");
        assert!(pairs(alike, &plain()).starts_with("limit configured, limit bytes 200 MiB, "));
    }

    #[test]
    fn detail_fits_in_one_line() {
        let detail = json!({"code": 0, "peak_bytes": 83_886_080, "delivered": true, "reason": ""});
        assert_eq!(pairs(detail.as_object().unwrap(), &plain()), "code 0, delivered, peak 80 MiB");
    }
}
