//! `[[profile]]`: from the document to [`Profile`]s.

use std::collections::BTreeSet;

use super::actions;
use super::gate::{self, PROFILE_LIMIT_KEYS};
use super::globs::Globs;
use super::patterns::Patterns;
use super::profile::{Profile, check_name};
use super::reader::{Section, TomlReader, assign};
use super::reclaim::{self, PROFILE_RECLAIM_KEYS};

const PATTERN_KEYS: &[&str] = &["exe", "argv0", "script", "comm", "first_arg", "not_first_arg"];
const PROFILE_KEYS: &[&str] = &[
    "name",
    "exe",
    "argv0",
    "script",
    "comm",
    "first_arg",
    "not_first_arg",
    "relaunches",
    "max_memory",
    "max_process_memory",
    "max_total_memory",
    "actions",
    "match",
];

/// Today's key and the one before it, see [`super::reader`].
const MATCH_TABLES: [(&str, &str); 2] = [("match", "[[profile.match]]"), ("way", "[[profile.way]]")];

/// Every `[[profile]]`. One without patterns and with the name of a known profile changes the limits and actions of that one.
pub(super) fn profiles<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, known: &[Profile]) -> Vec<Profile> {
    let keys: Vec<&str> = PROFILE_KEYS.iter().chain(PROFILE_LIMIT_KEYS).chain(PROFILE_RECLAIM_KEYS).copied().collect();
    let mut names = BTreeSet::new();
    let mut profiles = Vec::new();
    for table in reader.tables(root, "profile", "[[profile]]", &keys) {
        let name = name(reader, table, &mut names);
        let known = known.iter().find(|known| name == Some(known.name.as_str()));
        profiles.extend(profile(reader, table, name, known));
    }
    profiles
}

/// `None` when the name is missing or invalid, which is reported.
fn name<'d, 't>(reader: &mut TomlReader<'t>, table: Section<'d, 't>, names: &mut BTreeSet<&'d str>) -> Option<&'d str> {
    if !table.has("name") {
        reader.report(table.at(), "name: missing in [[profile]]".to_owned());
    }
    let name = reader.string(table, "name", "a string")?;
    if let Err(error) = check_name(name.value) {
        reader.refuse(&name, error);
        return None;
    }
    if !names.insert(name.value) {
        reader.refuse(&name, format_args!("{:?} names a profile above; each name is allowed once", name.value));
        return None;
    }
    Some(name.value)
}

fn profile<'t>(
    reader: &mut TomlReader<'t>,
    table: Section<'_, 't>,
    name: Option<&str>,
    known: Option<&Profile>,
) -> Option<Profile> {
    let mut matches = Vec::new();
    let own_keys = PATTERN_KEYS.iter().any(|key| table.has(key));
    let match_tables = MATCH_TABLES.iter().any(|(key, _)| table.has(key));
    let known = known.filter(|_| !own_keys && !match_tables);
    if known.is_none() && (own_keys || !match_tables) {
        matches.push(patterns(reader, table));
    }
    for (key, name) in MATCH_TABLES {
        for table in reader.tables(table, key, name, PATTERN_KEYS) {
            matches.push(patterns(reader, table));
        }
    }
    let is_launcher = reader.boolean(table, "relaunches").map(|found| found.value);
    let limits = gate::limits(reader, table);
    let actions = actions::of_profile(reader, table);
    let reclaim = reclaim::of_profile(reader, table);
    let [max_memory, max_process_memory, max_total_memory] =
        ["max_memory", "max_process_memory", "max_total_memory"].map(|key| reader.size(table, key));
    let matches = matches.into_iter().collect::<Option<Vec<_>>>()?;
    let mut profile = match known {
        Some(known) => known.clone(),
        None => Profile::new(name?, matches).ok()?,
    };
    assign(&mut profile.is_launcher, is_launcher);
    profile.limits = limits;
    profile.actions = actions;
    profile.reclaim = reclaim;
    profile.max_memory = max_memory;
    profile.max_process_memory = max_process_memory;
    profile.max_total_memory = max_total_memory;
    Some(profile)
}

/// `None` when a pattern is invalid or all are missing, which is reported.
fn patterns<'t>(reader: &mut TomlReader<'t>, table: Section<'_, 't>) -> Option<Patterns> {
    let mut good = true;
    let mut key = |key: &str| {
        let found = reader.strings(table, key);
        if let Err(error) = Globs::new(found.value.clone()) {
            reader.refuse(&found, error);
            good = false;
        }
        found.value
    };
    let patterns = Patterns {
        exe: key("exe"),
        argv0: key("argv0"),
        script: key("script"),
        comm: key("comm"),
        first_arg: key("first_arg"),
        not_first_arg: key("not_first_arg"),
    };
    let Patterns { exe, argv0, script, comm, .. } = &patterns;
    if good && [exe, argv0, script, comm].iter().all(|key| key.is_empty()) {
        let name = table.name();
        reader.report(
            table.at(),
            format!("{name} has no pattern: at least one of exe, argv0, script and comm is required"),
        );
        good = false;
    }
    good.then_some(patterns)
}
