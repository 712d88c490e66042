//! The configuration in force: each key with its value, its origin and its meaning.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::block::{PageView, ViewBlock};
use super::table::{ViewCell, ViewColumn, ViewRow, ViewTable};
use super::tone::ViewTone;
use super::words::age;
use crate::context::WebContext;
use crate::request::WebRequest;
use watchdog_api::ConfigInForce;
use watchdog_api::client::ClientError;

/// The shipped file has each key with its default, commented out, below its explanation. A test of the daemon compares them.
const SHIPPED: &str = include_str!("../../../../packaging/config.toml");

/// The table of profiles: its keys are explained in an example, and have no defaults.
const PROFILE: &str = "profile";

/// What the shipped file says about keys.
#[derive(Debug, Default)]
struct ShippedKeys {
    keys: Vec<KnownKey>,
    /// Each with its table. They mention keys without a default, as examples.
    paragraphs: Vec<(String, String)>,
}

#[derive(Debug, PartialEq, Eq)]
struct KnownKey {
    table: String,
    key: String,
    default: String,
    meaning: String,
}

pub(super) fn page(_: &WebRequest, context: &WebContext) -> Result<PageView, ClientError> {
    let config = context.client.get::<ConfigInForce>("/v1/config")?.document;
    let set: Table = toml::from_str(&config.text).unwrap_or_default();
    let from = match &config.file {
        Some(file) => {
            format!("{file}, read {} ago. Keys that it leaves out have their defaults.", age(&config.loaded_at))
        }
        None => "There is no configuration file: every key has its default.".into(),
    };
    let mut blocks = vec![ViewBlock::Text { title: String::new(), lines: vec![from] }];
    blocks.extend(tables(&set).into_iter().map(ViewBlock::Table));
    Ok(PageView { title: "Configuration in force".into(), act: context.guard.may_act(), blocks })
}

fn tables(set: &Table) -> Vec<ViewTable> {
    let mut tables: Vec<ViewTable> = Vec::new();
    let shipped = ShippedKeys::read();
    let known: Vec<&KnownKey> = shipped.keys.iter().filter(|key| key.table != PROFILE).collect();
    let mut rows: BTreeMap<&str, Vec<ViewRow>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for key in &known {
        let value = set.get(&key.table).and_then(Value::as_table).and_then(|table| table.get(&key.key));
        if !order.contains(&key.table.as_str()) {
            order.push(&key.table);
        }
        rows.entry(&key.table).or_default().push(match value {
            Some(value) => row(&key.key, &value.to_string(), true, &key.meaning),
            None => row(&key.key, &key.default, false, &key.meaning),
        });
    }
    // Keys without a default are not among the known ones.
    for (name, table) in set.iter().filter_map(|(name, value)| Some((name, value.as_table()?))) {
        if !order.contains(&name.as_str()) {
            order.push(name);
        }
        let others = table.iter().filter(|(key, _)| !known.iter().any(|one| one.table == *name && one.key == **key));
        let others = others.map(|(key, value)| row(key, &value.to_string(), true, shipped.meaning(name, key)));
        rows.entry(name).or_default().extend(others);
    }
    for name in order {
        let rows = rows.remove(name).unwrap_or_default();
        tables.push(table(format!("[{name}]"), rows));
    }
    let profiles = set.get(PROFILE).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table);
    for profile in profiles {
        let name = profile.get("name").and_then(Value::as_str).unwrap_or_default();
        let rows = profile.iter().map(|(key, value)| row(key, &value.to_string(), true, shipped.meaning(PROFILE, key)));
        tables.push(table(format!("[[profile]] {name}"), rows.collect()));
    }
    tables
}

fn row(key: &str, value: &str, set: bool, meaning: &str) -> ViewRow {
    let origin = if set { ViewCell::new("set").tone(Some(ViewTone::Good)) } else { ViewCell::new("default") };
    let cells = vec![ViewCell::new(key), ViewCell::new(value), origin, ViewCell::new(meaning)];
    ViewRow { key: key.to_owned(), cells }
}

/// Without the meanings if no key has one.
fn table(title: String, mut rows: Vec<ViewRow>) -> ViewTable {
    let mut columns = vec![ViewColumn::text("Key"), ViewColumn::text("Value"), ViewColumn::text("Origin")];
    if rows.iter().any(|row| row.cells.last().is_some_and(|meaning| !meaning.text.is_empty())) {
        columns.push(ViewColumn::text("Meaning").low());
    } else {
        rows.iter_mut().for_each(|row| row.cells.truncate(columns.len()));
    }
    ViewTable { title, columns, rows, empty: "No keys." }
}

impl ShippedKeys {
    fn read() -> Self {
        let (mut shipped, mut table, mut paragraph) = (Self::default(), String::new(), String::new());
        for line in SHIPPED.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                name.clone_into(&mut table);
            } else if let Some(text) = line.strip_prefix("# ") {
                paragraph += if paragraph.is_empty() { "" } else { " " };
                paragraph += text;
            } else if let Some((key, value)) = line.strip_prefix('#').and_then(|line| line.split_once(" = ")) {
                // Keys of one paragraph share its explanation.
                let (default, meaning) = match value.split_once(" # ") {
                    Some((value, own)) if table == PROFILE => (value.trim_end(), own),
                    _ => (value, paragraph.as_str()),
                };
                let (table, key) = (table.clone(), key.to_owned());
                shipped.keys.push(KnownKey { table, key, default: default.to_owned(), meaning: meaning.to_owned() });
            } else if line.starts_with("#[[profile") {
                PROFILE.clone_into(&mut table);
                paragraph.clear();
            } else if line.is_empty() {
                shipped.paragraphs.push((table.clone(), std::mem::take(&mut paragraph)));
            }
        }
        shipped
    }

    /// The explanation of a key; empty if there is none.
    fn meaning(&self, table: &str, key: &str) -> &str {
        let known = self.keys.iter().find(|known| known.table == table && known.key == key);
        let example = format!(" {key} = ");
        let mentions = |(of, text): &&(String, String)| of == table && text.contains(&example);
        let mentioned = || self.paragraphs.iter().find(mentions).map(|(_, text)| text.as_str());
        known.map(|known| known.meaning.as_str()).or_else(mentioned).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_keys_have_a_meaning() {
        let ShippedKeys { keys, .. } = ShippedKeys::read();
        assert!(keys.len() > 40, "{} keys", keys.len());
        for key in keys.iter().filter(|key| key.table != PROFILE) {
            assert!(!key.meaning.is_empty() && !key.table.is_empty(), "{key:?}");
            assert!(toml::from_str::<Table>(&format!("x = {}", key.default)).is_ok(), "{key:?}");
        }
        let grace = keys.iter().find(|key| key.table == "orphans" && key.key == "grace").unwrap();
        assert_eq!(grace.default, "\"30s\"");
    }

    #[test]
    fn set_keys_replace_defaults() {
        let set = "[orphans]\ngrace = \"2s\"\n[gate]\nmax_sessions = 4\n[[profile]]\nname = \"x\"\nexe = [\"*/x\"]\n";
        let tables = tables(&toml::from_str(set).unwrap());
        let cells = |title: &str, key: &str| {
            let table = tables.iter().find(|table| table.title == title).unwrap();
            let row = table.rows.iter().find(|row| row.key == key).unwrap();
            [&row.cells[1].text, &row.cells[2].text].map(Clone::clone)
        };
        assert_eq!(cells("[orphans]", "grace"), ["\"2s\"", "set"]);
        assert_eq!(cells("[orphans]", "keep"), ["[]", "default"]);
        assert_eq!(cells("[gate]", "max_sessions"), ["4", "set"]);
        assert_eq!(cells("[[profile]] x", "exe"), ["[\"*/x\"]", "set"]);
    }

    #[test]
    fn keys_without_default_have_a_meaning() {
        let shipped = ShippedKeys::read();
        for (table, key, meaning) in [
            ("gate", "max_sessions", "Sessions that may run at once"),
            ("gate", "max_sessions_per_user", "Sessions that may run at once"),
            ("gate", "rate", "Launches granted within a time"),
            ("gate", "ungated", "Agents that are started without the gate"),
            ("leaks", "limit", "Memory limit of one process"),
            ("fleet", "store", "Limits that several hosts share"),
            ("fleet", "host", "Name of this host"),
            ("fleet", "max_sessions_per_label", "Maximum number of sessions at once on all hosts"),
            ("actions", "notify", "Program and arguments to run"),
            ("actions", "webhook", "http:// address"),
            (PROFILE, "exe", "path that was executed"),
            (PROFILE, "actions", "take precedence over [actions]"),
            (PROFILE, "first_arg", "only when started with one of these subcommands"),
        ] {
            assert!(shipped.meaning(table, key).starts_with(meaning), "{key}: {:?}", shipped.meaning(table, key));
        }
        assert_eq!(shipped.meaning("gate", "unknown"), "");
    }

    #[test]
    fn column_without_content_is_omitted() {
        let columns = |set: &str| {
            let table = tables(&toml::from_str(set).unwrap()).pop().unwrap();
            assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()), "{table:?}");
            table.columns.len()
        };
        assert_eq!(columns("[[profile]]\nname = \"x\"\n"), 3);
        assert_eq!(columns("[[profile]]\nname = \"x\"\nexe = [\"*/x\"]\n"), 4);
    }
}
