//! Sets and removes one key in the text of a configuration. Pure: text in, text out.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use toml_edit::{Array, DocumentMut, InlineTable, Item, Key, Table, TableLike, Value};

/// The array of tables whose elements are addressed by name.
const PROFILES: &str = "profile";

/// `orphans.grace`, or `profile.NAME.max_memory` for a key of the `[[profile]]` with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPath {
    /// At least two; of a profile at least three.
    keys: Vec<Key>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EditProblem {
    #[error("{0}")]
    Toml(String),
    #[error("{0} is a table; name one of its keys")]
    IsTable(KeyPath),
    #[error("{key} cannot be set: {above} is not a table")]
    NoTable { key: KeyPath, above: String },
    #[error("profile is not written as [[profile]] tables; edit the file itself")]
    InlineProfiles,
}

impl FromStr for KeyPath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected TABLE.KEY, as in orphans.grace, or profile.NAME.KEY";
        let keys = Key::parse(text).map_err(|_| EXPECTED.to_owned())?;
        let least = if keys.first().is_some_and(|key| key == PROFILES) { 3 } else { 2 };
        if keys.len() < least { Err(EXPECTED.to_owned()) } else { Ok(Self { keys }) }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(|key| key.display_repr()).collect();
        f.write_str(&keys.join("."))
    }
}

impl KeyPath {
    /// The name of the profile, and the keys below its table; or no name, and all keys.
    fn parts(&self) -> (Option<&Key>, &[Key]) {
        match self.keys.as_slice() {
            [table, name, below @ ..] if table == PROFILES => (Some(name), below),
            keys => (None, keys),
        }
    }
}

/// The value that a command line gives: TOML, or else a string.
fn value_of(text: &str) -> Value {
    let mut value: Value = text.trim().parse().unwrap_or_else(|_| text.into());
    value.decor_mut().clear();
    value
}

/// The text with this key set to this value, and the value before.
pub(super) fn set(text: &str, path: &KeyPath, value: &str) -> Result<(String, Option<String>), EditProblem> {
    let mut document = parse(text)?;
    let (profile, keys) = path.parts();
    let table = match profile {
        None => document.as_table_mut(),
        Some(name) => profile_table(&mut document, name)?,
    };
    let before = assign(table, path, keys, value_of(value))?;
    let edited = document.to_string();
    let placed = match (keys, profile, &before) {
        ([table, key], None, None) => below_example(text, table, key, &value_of(value), &edited),
        _ => None,
    };
    Ok((placed.unwrap_or(edited), before))
}

/// The text without this key, and its value; `None` if it is not set.
pub(super) fn unset(text: &str, path: &KeyPath) -> Result<Option<(String, String)>, EditProblem> {
    let mut document = parse(text)?;
    let Some(before) = find(&document, path) else { return Ok(None) };
    let Some(value) = before.as_value().map(shown) else { return Err(EditProblem::IsTable(path.clone())) };
    let lines = lines_of(text, path);
    let (profile, keys) = path.parts();
    let mut table: &mut dyn TableLike = match profile {
        None => document.as_table_mut(),
        Some(name) => profile_table(&mut document, name)?,
    };
    let Some((last, above)) = keys.split_last() else { return Ok(None) };
    for key in above {
        let Some(below) = table.get_mut(key).and_then(Item::as_table_like_mut) else { return Ok(None) };
        table = below;
    }
    table.remove(last);
    let edited = document.to_string();
    // toml_edit removes the comments above the key as well.
    let without = lines.map(|lines| [&text[..lines.start], &text[lines.end..]].concat());
    Ok(Some((without.filter(|without| is_same(without, &edited)).unwrap_or(edited), value)))
}

/// The value of a key, as TOML.
pub(super) fn get(text: &str, path: &KeyPath) -> Result<Option<String>, EditProblem> {
    let document = parse(text)?;
    let Some(item) = find(&document, path) else { return Ok(None) };
    item.as_value().map(|value| Some(shown(value))).ok_or_else(|| EditProblem::IsTable(path.clone()))
}

/// Every key that has a value, in the order of the text, with its value.
pub(super) fn entries(text: &str) -> Result<Vec<(String, String)>, EditProblem> {
    let document = parse(text)?;
    let mut entries = Vec::new();
    for (table, item) in document.iter() {
        match item {
            Item::ArrayOfTables(profiles) => {
                for profile in profiles {
                    let name = Key::new(profile.get("name").and_then(Item::as_str).unwrap_or("?"));
                    flatten(&format!("{table}.{}", name.display_repr()), profile, &mut entries);
                }
            }
            Item::Table(values) => flatten(table, values, &mut entries),
            Item::Value(value) => entries.push((table.to_owned(), shown(value))),
            Item::None => {}
        }
    }
    Ok(entries)
}

fn flatten(prefix: &str, table: &Table, entries: &mut Vec<(String, String)>) {
    for (key, item) in table {
        let name = format!("{prefix}.{}", Key::new(key).display_repr());
        match item {
            Item::Table(below) => flatten(&name, below, entries),
            Item::ArrayOfTables(tables) => {
                let values: Array = tables.iter().map(|table| table.clone().into_inline_table()).collect();
                entries.push((name, shown(&values.into())));
            }
            Item::Value(value) => entries.push((name, shown(value))),
            Item::None => {}
        }
    }
}

fn parse(text: &str) -> Result<DocumentMut, EditProblem> {
    text.parse().map_err(|error: toml_edit::TomlError| EditProblem::Toml(error.to_string()))
}

fn shown(value: &Value) -> String {
    value.clone().decorated("", "").to_string()
}

fn find<'a>(document: &'a DocumentMut, path: &KeyPath) -> Option<&'a Item> {
    let (table, last) = table_of(document.as_table(), path)?;
    table.get(last)
}

/// The table that holds a key, and the key's last part.
fn table_of<'a, 'p>(root: &'a Table, path: &'p KeyPath) -> Option<(&'a dyn TableLike, &'p Key)> {
    let (profile, keys) = path.parts();
    let mut table: &dyn TableLike = match profile {
        None => root,
        Some(name) => root.get(PROFILES)?.as_array_of_tables()?.iter().find(|profile| is_named(profile, name))?,
    };
    let (last, above) = keys.split_last()?;
    for key in above {
        table = table.get(key)?.as_table_like()?;
    }
    Some((table, last))
}

fn is_named(profile: &Table, name: &Key) -> bool {
    profile.get("name").and_then(Item::as_str) == Some(name.get())
}

/// The `[[profile]]` with this name, which is added if there is none.
fn profile_table<'a>(document: &'a mut DocumentMut, name: &Key) -> Result<&'a mut Table, EditProblem> {
    let profiles = document.entry(PROFILES).or_insert_with(|| Item::ArrayOfTables(Default::default()));
    let profiles = profiles.as_array_of_tables_mut().ok_or(EditProblem::InlineProfiles)?;
    let known = profiles.iter().position(|profile| is_named(profile, name));
    let at = match known {
        Some(at) => at,
        None => {
            profiles.push(Table::from_iter([("name", name.get())]));
            profiles.len() - 1
        }
    };
    profiles.get_mut(at).ok_or(EditProblem::InlineProfiles)
}

fn assign(table: &mut Table, path: &KeyPath, keys: &[Key], value: Value) -> Result<Option<String>, EditProblem> {
    let is_profile = path.parts().0.is_some();
    let mut table: &mut dyn TableLike = table;
    let Some((last, above)) = keys.split_last() else { return Err(EditProblem::IsTable(path.clone())) };
    for key in above {
        if !table.contains_key(key) {
            let new = if is_profile { Item::Value(InlineTable::new().into()) } else { Item::Table(Table::new()) };
            table.insert(key, new);
        }
        let missing = || EditProblem::NoTable { key: path.clone(), above: key.get().to_owned() };
        table = table.get_mut(key).and_then(Item::as_table_like_mut).ok_or_else(missing)?;
    }
    match table.get_mut(last) {
        Some(Item::Value(before)) => {
            let decor = before.decor().clone();
            let was = shown(before);
            *before = value;
            *before.decor_mut() = decor;
            Ok(Some(was))
        }
        Some(Item::Table(_) | Item::ArrayOfTables(_)) => Err(EditProblem::IsTable(path.clone())),
        Some(Item::None) | None => {
            table.insert(last, Item::Value(value));
            Ok(None)
        }
    }
}

/// The text with the key below the comment that shows its default, if that means the same as `edited`.
fn below_example(text: &str, table: &Key, key: &Key, value: &Value, edited: &str) -> Option<String> {
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let header = format!("[{}]", table.get());
    let shows = |line: &str| line.strip_prefix('#')?.strip_prefix(key.get())?.trim_start().strip_prefix('=').map(drop);
    let mut lines = text.split_inclusive('\n').scan(0, |at, line| {
        *at += line.len();
        Some((*at, line))
    });
    lines.find(|(_, line)| line.split('#').next().is_some_and(|line| line.trim() == header))?;
    let (at, line) = lines.take_while(|(_, line)| !is_header(line)).filter(|(_, line)| shows(line).is_some()).last()?;
    let end = if line.ends_with("\r\n") { "\r\n" } else { "\n" };
    let separator = if line.ends_with('\n') { "" } else { end };
    let placed = format!("{}{separator}{} = {}{end}{}", &text[..at], key.display_repr(), shown(value), &text[at..]);
    is_same(&placed, edited).then_some(placed)
}

/// The whole lines of a key and its value, if nothing else stands there.
fn lines_of(text: &str, path: &KeyPath) -> Option<Range<usize>> {
    let document = toml_edit::Document::parse(text).ok()?;
    let (table, last) = table_of(document.as_table(), path)?;
    let (key, item) = table.get_key_value(last)?;
    let (key, value) = (key.span()?, item.span()?);
    let start = text[..key.start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[value.end..].find('\n').map_or(text.len(), |at| value.end + at + 1);
    let after = text[value.end..end].trim();
    let alone = text[start..key.start].trim().is_empty() && (after.is_empty() || after.starts_with('#'));
    alone.then_some(start..end)
}

fn is_same(one: &str, other: &str) -> bool {
    let read = |text: &str| text.parse::<toml::Table>().ok();
    read(one).is_some_and(|one| Some(one) == read(other))
}

#[cfg(test)]
#[path = "config_edit_tests.rs"]
mod tests;
