//! From TOML to [`Config`], with errors that name file, line, key and what is allowed.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::actions;
use super::gate::{self, BOUNDS_KEYS};
use super::globs::Globs;
use super::profile::{Patterns, Profile, check_name};
use super::reader::{ConfigError, Reader, Section, set, set_count};
use super::values::{Size, ValueError};
use super::{CloseWatch, Config, Daemon, History, Leaks, Orphans, Sensitivity, Tracking, detect};
use crate::engine::id::Bytes;

const TABLES: &[&str] = &[
    "daemon",
    "tracking",
    "orphans",
    "leaks",
    "stale",
    "duplicates",
    "fanout",
    "external",
    "gate",
    "actions",
    "history",
    "profile",
];
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
    "way",
];

/// The hash map of the kernel is laid out for this many at most; Linux has no higher process number than 2^22.
const MAX_PROCESSES: RangeInclusive<u32> = 256..=4_194_304;
const JOURNAL_EVENTS: RangeInclusive<u32> = 100..=1_000_000;
const SAMPLE_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);
const RETENTION: RangeInclusive<Duration> = Duration::from_secs(3_600)..=Duration::from_secs(3_650 * 86_400);
const HISTORY_SIZE: RangeInclusive<Bytes> = Bytes::from_mib(1)..=Bytes::from_mib(1 << 20);
/// Below it every program would be near its limit.
const LEAST_LIMIT: Bytes = Bytes::from_mib(64);
const WITHIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 86_400);
const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);

/// Reads a configuration from the text of `file`.
///
/// # Errors
/// When the text is not TOML, has an unknown key, or an impossible value; all that is wrong is told at once.
pub fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
    let mut reader = Reader::new(text);
    let mut config = Config::default();
    if let Some(document) = reader.document() {
        let root = reader.section("", 0, document.get_ref(), TABLES);
        daemon(&mut reader, root, &mut config.daemon);
        tracking(&mut reader, root, &mut config.tracking);
        if !config.tracking.built_in_profiles {
            config.profiles.clear();
        }
        orphans(&mut reader, root, &mut config.orphans);
        leaks(&mut reader, root, &mut config.leaks);
        actions::actions(&mut reader, root, &mut config.actions);
        history(&mut reader, root, &mut config.history);
        detect::stale(&mut reader, root, &mut config.stale);
        detect::duplicates(&mut reader, root, &mut config.duplicates);
        detect::fanout(&mut reader, root, &mut config.fanout);
        detect::external(&mut reader, root, &mut config.external);
        gate::gate(&mut reader, root, &mut config.gate);
        for profile in profiles_of(&mut reader, root, &Profile::built_in()) {
            match config.profiles.iter_mut().find(|built_in| built_in.name == profile.name) {
                Some(built_in) => *built_in = profile,
                // A user's own profile knows more about the host than a built-in one does.
                None => config.profiles.insert(0, profile),
            }
        }
    }
    reader.finish(file, config)
}

/// Reads profiles only: the built-in ones.
pub(super) fn profiles(text: &str) -> Result<Vec<Profile>, ConfigError> {
    let mut reader = Reader::new(text);
    let mut profiles = Vec::new();
    if let Some(document) = reader.document() {
        let root = reader.section("", 0, document.get_ref(), &["profile"]);
        profiles = profiles_of(&mut reader, root, &[]);
    }
    reader.finish(Path::new("built_in.toml"), profiles)
}

fn daemon<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, daemon: &mut Daemon) {
    let Some(table) = reader.table(root, "daemon", "[daemon]", &["listen", "journal_events"]) else { return };
    let expected = "an address with its port, as in \"127.0.0.1:9719\" or \"[::1]:9719\", or \"off\"";
    let listen = reader.meaning(table, "listen", expected, |text| match text {
        "off" => Ok(None),
        address => address.parse().map(Some).map_err(|_| format!("not {expected}")),
    });
    set(&mut daemon.listen, listen);
    set_count(&mut daemon.journal_events, reader.integer(table, "journal_events", JOURNAL_EVENTS));
}

fn tracking<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, tracking: &mut Tracking) {
    let keys = &["close_watch", "sample_interval", "max_processes", "built_in_profiles"];
    let Some(table) = reader.table(root, "tracking", "[tracking]", keys) else { return };
    let words = &[("auto", CloseWatch::Auto), ("always", CloseWatch::Always), ("never", CloseWatch::Never)];
    set(&mut tracking.close_watch, reader.word(table, "close_watch", "\"auto\", \"always\" or \"never\"", words));
    set(&mut tracking.sample_interval, reader.duration(table, "sample_interval", SAMPLE_INTERVAL));
    set(&mut tracking.max_processes, reader.integer(table, "max_processes", MAX_PROCESSES));
    set(&mut tracking.built_in_profiles, reader.boolean(table, "built_in_profiles").map(|found| found.value));
}

fn orphans<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, orphans: &mut Orphans) {
    let Some(table) = reader.table(root, "orphans", "[orphans]", &["grace", "keep", "kept_memory_limit"]) else {
        return;
    };
    set(&mut orphans.grace, reader.duration(table, "grace", GRACE));
    set(&mut orphans.keep, reader.globs(table, "keep"));
    set(&mut orphans.kept_memory_limit, reader.size(table, "kept_memory_limit"));
}

fn leaks<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, leaks: &mut Leaks) {
    let keys = &["sensitivity", "limit", "warn_within", "critical_within", "ignore"];
    let Some(table) = reader.table(root, "leaks", "[leaks]", keys) else { return };
    let words = &[("low", Sensitivity::Low), ("normal", Sensitivity::Normal), ("high", Sensitivity::High)];
    set(&mut leaks.sensitivity, reader.word(table, "sensitivity", "\"low\", \"normal\" or \"high\"", words));
    let limit = reader.meaning(table, "limit", "a size, as in \"4GiB\" or \"25%\"", |text| match text.parse() {
        Ok(Size::Bytes(bytes)) if bytes < LEAST_LIMIT => Err("out of range: 64MiB and more is allowed".to_owned()),
        Ok(size) => Ok(Some(size)),
        Err(error) => Err(ValueError::to_string(&error)),
    });
    set(&mut leaks.limit, limit);
    set(&mut leaks.warn_within, reader.duration(table, "warn_within", WITHIN));
    set(&mut leaks.critical_within, reader.duration(table, "critical_within", WITHIN));
    set(&mut leaks.ignore, reader.globs(table, "ignore"));
}

fn history<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, history: &mut History) {
    let Some(table) = reader.table(root, "history", "[history]", &["retention", "max_size"]) else { return };
    set(&mut history.retention, reader.duration(table, "retention", RETENTION));
    let size = reader.meaning(table, "max_size", "a size, as in \"256MiB\"", |text| match text.parse() {
        Ok(Size::Bytes(bytes)) if HISTORY_SIZE.contains(&bytes) => Ok(bytes),
        Ok(_) => Err("out of range: 1MiB to 1TiB is allowed".to_owned()),
        Err(error) => Err(ValueError::to_string(&error)),
    });
    set(&mut history.max_size, size);
}

/// All `[[profile]]`s. One without patterns that bears the name of a known one is that one with other bounds and actions.
fn profiles_of<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, known: &[Profile]) -> Vec<Profile> {
    let keys: Vec<&str> = PROFILE_KEYS.iter().chain(BOUNDS_KEYS).copied().collect();
    let mut names = BTreeSet::new();
    let mut profiles = Vec::new();
    for table in reader.tables(root, "profile", "[[profile]]", &keys) {
        let name = name(reader, table, &mut names);
        let known = known.iter().find(|known| name == Some(known.name.as_str()));
        profiles.extend(profile(reader, table, name, known));
    }
    profiles
}

/// The profile's name, unless something is wrong with it.
fn name<'d, 't>(reader: &mut Reader<'t>, table: Section<'d, 't>, names: &mut BTreeSet<&'d str>) -> Option<&'d str> {
    if !table.has("name") {
        reader.report(table.at(), "name: missing in [[profile]]; every profile needs one".to_owned());
    }
    let name = reader.string(table, "name", "a string")?;
    if let Err(error) = check_name(name.value) {
        reader.refuse(&name, error);
        return None;
    }
    if !names.insert(name.value) {
        reader
            .refuse(&name, format_args!("{:?} is the name of a profile above; each name is allowed once", name.value));
        return None;
    }
    Some(name.value)
}

fn profile<'t>(
    reader: &mut Reader<'t>,
    table: Section<'_, 't>,
    name: Option<&str>,
    known: Option<&Profile>,
) -> Option<Profile> {
    let mut ways = Vec::new();
    let own_keys = PATTERN_KEYS.iter().any(|key| table.has(key));
    let known = known.filter(|_| !own_keys && !table.has("way"));
    if known.is_none() && (own_keys || !table.has("way")) {
        ways.push(patterns(reader, table));
    }
    for way in reader.tables(table, "way", "[[profile.way]]", PATTERN_KEYS) {
        ways.push(patterns(reader, way));
    }
    let relaunches = reader.boolean(table, "relaunches").map(|found| found.value);
    let bounds = gate::bounds(reader, table);
    let actions = actions::of_profile(reader, table);
    let [max_memory, max_process_memory, max_total_memory] =
        ["max_memory", "max_process_memory", "max_total_memory"].map(|key| reader.size(table, key));
    let ways = ways.into_iter().collect::<Option<Vec<_>>>()?;
    let mut profile = match known {
        Some(known) => known.clone(),
        None => Profile::new(name?, ways).ok()?,
    };
    set(&mut profile.relaunches, relaunches);
    profile.bounds = bounds;
    profile.actions = actions;
    profile.max_memory = max_memory;
    profile.max_process_memory = max_process_memory;
    profile.max_total_memory = max_total_memory;
    Some(profile)
}

/// The patterns of one way; `None` when something is wrong with them, which is reported where it stands.
fn patterns<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>) -> Option<Patterns> {
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
            format!("{name} has no pattern: at least one of exe, argv0, script and comm is needed"),
        );
        good = false;
    }
    good.then_some(patterns)
}
