//! From TOML to [`Config`], with errors that name file, line, key and what is allowed.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::globs::Globs;
use super::profile::{Patterns, Profile, check_name};
use super::reader::{ConfigError, Reader, Section};
use super::{CloseWatch, Config, Daemon, History, Leaks, Orphans, Sensitivity, Size, Tracking, detect, values};
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
    "max_sessions",
    "max_memory",
    "max_process_memory",
    "max_total_memory",
    "way",
];

/// The hash map of the kernel is laid out for this many at most; Linux has no higher process number than 2^22.
const MAX_PROCESSES: RangeInclusive<u32> = 256..=4_194_304;
const MAX_SESSIONS: RangeInclusive<u32> = 1..=100_000;
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
        actions(&mut reader, root);
        history(&mut reader, root, &mut config.history);
        detect::stale(&mut reader, root, &mut config.stale);
        detect::duplicates(&mut reader, root, &mut config.duplicates);
        detect::fanout(&mut reader, root, &mut config.fanout);
        detect::external(&mut reader, root, &mut config.external);
        reader.table(root, "gate", "[gate]", &[]);
        for profile in profiles_of(&mut reader, root) {
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
        profiles = profiles_of(&mut reader, root);
    }
    reader.finish(Path::new("built_in.toml"), profiles)
}

fn daemon<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, daemon: &mut Daemon) {
    let Some(table) = reader.table(root, "daemon", "[daemon]", &["listen", "journal_events"]) else { return };
    let expected = "an address with its port, as in \"127.0.0.1:9719\" or \"[::1]:9719\", or \"off\"";
    if let Some(listen) = reader.string(table, "listen", expected) {
        match listen.value {
            "off" => daemon.listen = None,
            address => match address.parse() {
                Ok(address) => daemon.listen = Some(address),
                Err(_) => reader.refuse(&listen, format_args!("{address:?} is not {expected}")),
            },
        }
    }
    if let Some(events) = reader.integer(table, "journal_events", JOURNAL_EVENTS) {
        daemon.journal_events = usize::try_from(events).unwrap_or(usize::MAX);
    }
}

fn tracking<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, tracking: &mut Tracking) {
    let keys = &["close_watch", "sample_interval", "max_processes", "built_in_profiles"];
    let Some(table) = reader.table(root, "tracking", "[tracking]", keys) else { return };
    let expected = "\"auto\", \"always\" or \"never\"";
    if let Some(close_watch) = reader.string(table, "close_watch", expected) {
        match close_watch.value {
            "auto" => tracking.close_watch = CloseWatch::Auto,
            "always" => tracking.close_watch = CloseWatch::Always,
            "never" => tracking.close_watch = CloseWatch::Never,
            other => reader.refuse(&close_watch, format_args!("{other:?} is not {expected}")),
        }
    }
    if let Some(interval) = duration(reader, table, "sample_interval", SAMPLE_INTERVAL) {
        tracking.sample_interval = interval;
    }
    if let Some(processes) = reader.integer(table, "max_processes", MAX_PROCESSES) {
        tracking.max_processes = processes;
    }
    if let Some(built_in) = reader.boolean(table, "built_in_profiles") {
        tracking.built_in_profiles = built_in.value;
    }
}

fn orphans<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, orphans: &mut Orphans) {
    let Some(table) = reader.table(root, "orphans", "[orphans]", &["grace", "keep"]) else { return };
    if let Some(grace) = duration(reader, table, "grace", GRACE) {
        orphans.grace = grace;
    }
    let keep = reader.strings(table, "keep");
    match Globs::new(keep.value.clone()) {
        Ok(globs) => orphans.keep = globs,
        Err(error) => reader.refuse(&keep, error),
    }
}

fn leaks<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, leaks: &mut Leaks) {
    let keys = &["sensitivity", "limit", "warn_within", "critical_within", "ignore"];
    let Some(table) = reader.table(root, "leaks", "[leaks]", keys) else { return };
    let expected = "\"low\", \"normal\" or \"high\"";
    if let Some(sensitivity) = reader.string(table, "sensitivity", expected) {
        match sensitivity.value {
            "low" => leaks.sensitivity = Sensitivity::Low,
            "normal" => leaks.sensitivity = Sensitivity::Normal,
            "high" => leaks.sensitivity = Sensitivity::High,
            other => reader.refuse(&sensitivity, format_args!("{other:?} is not {expected}")),
        }
    }
    if let Some(limit) = reader.string(table, "limit", "a size, as in \"4GiB\" or \"25%\"") {
        match limit.value.parse::<Size>() {
            Ok(Size::Bytes(bytes)) if bytes < LEAST_LIMIT => {
                reader.refuse(&limit, format_args!("{:?} is out of range: 64MiB and more is allowed", limit.value));
            }
            Ok(size) => leaks.limit = Some(size),
            Err(error) => reader.refuse(&limit, format_args!("{:?} is {error}", limit.value)),
        }
    }
    if let Some(within) = duration(reader, table, "warn_within", WITHIN) {
        leaks.warn_within = within;
    }
    if let Some(within) = duration(reader, table, "critical_within", WITHIN) {
        leaks.critical_within = within;
    }
    let ignore = reader.strings(table, "ignore");
    match Globs::new(ignore.value.clone()) {
        Ok(globs) => leaks.ignore = globs,
        Err(error) => reader.refuse(&ignore, error),
    }
}

fn actions<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>) {
    let Some(table) = reader.table(root, "actions", "[actions]", &["enforce"]) else { return };
    if let Some(enforce) = reader.boolean(table, "enforce")
        && enforce.value
    {
        reader.refuse(&enforce, "true is not possible yet: acting comes with a later version; only false is allowed");
    }
}

fn history<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>, history: &mut History) {
    let Some(table) = reader.table(root, "history", "[history]", &["retention", "max_size"]) else { return };
    if let Some(retention) = duration(reader, table, "retention", RETENTION) {
        history.retention = retention;
    }
    if let Some(size) = reader.string(table, "max_size", "a size, as in \"256MiB\"") {
        match size.value.parse() {
            Ok(Size::Bytes(bytes)) if HISTORY_SIZE.contains(&bytes) => history.max_size = bytes,
            Ok(_) => reader.refuse(&size, format_args!("{:?} is out of range: 1MiB to 1TiB is allowed", size.value)),
            Err(error) => reader.refuse(&size, format_args!("{:?} is {error}", size.value)),
        }
    }
}

/// A duration from this range.
pub(super) fn duration<'t>(
    reader: &mut Reader<'t>,
    table: Section<'_, 't>,
    key: &str,
    range: RangeInclusive<Duration>,
) -> Option<Duration> {
    let written = reader.string(table, key, "a duration, as in \"30s\"")?;
    match values::duration(written.value) {
        Ok(duration) if range.contains(&duration) => Some(duration),
        Ok(_) => {
            let (from, to) = (values::show_duration(*range.start()), values::show_duration(*range.end()));
            reader.refuse(&written, format_args!("{:?} is out of range: {from} to {to} is allowed", written.value));
            None
        }
        Err(error) => {
            reader.refuse(&written, format_args!("{:?} is {error}", written.value));
            None
        }
    }
}

/// An amount of memory that is more than none.
pub(super) fn size<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>, key: &str) -> Option<Size> {
    let written = reader.string(table, key, "a size, as in \"800MiB\" or \"10%\"")?;
    match written.value.parse() {
        Ok(Size::Bytes(Bytes(0))) => {
            reader.refuse(&written, format_args!("{:?} is nothing: at least 1B is needed", written.value));
            None
        }
        Ok(size) => Some(size),
        Err(error) => {
            reader.refuse(&written, format_args!("{:?} is {error}", written.value));
            None
        }
    }
}

fn profiles_of<'t>(reader: &mut Reader<'t>, root: Section<'_, 't>) -> Vec<Profile> {
    let mut names = BTreeSet::new();
    let mut profiles = Vec::new();
    for table in reader.tables(root, "profile", "[[profile]]", PROFILE_KEYS) {
        let name = name(reader, table, &mut names);
        profiles.extend(profile(reader, table, name));
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

fn profile<'t>(reader: &mut Reader<'t>, table: Section<'_, 't>, name: Option<&str>) -> Option<Profile> {
    let mut ways = Vec::new();
    let own_keys = PATTERN_KEYS.iter().any(|key| table.has(key));
    if own_keys || !table.has("way") {
        ways.push(patterns(reader, table));
    }
    for way in reader.tables(table, "way", "[[profile.way]]", PATTERN_KEYS) {
        ways.push(patterns(reader, way));
    }
    let relaunches = reader.boolean(table, "relaunches").is_some_and(|found| found.value);
    let max_sessions = reader.integer(table, "max_sessions", MAX_SESSIONS);
    let [max_memory, max_process_memory, max_total_memory] =
        ["max_memory", "max_process_memory", "max_total_memory"].map(|key| size(reader, table, key));
    let ways = ways.into_iter().collect::<Option<Vec<_>>>()?;
    let mut profile = Profile::new(name?, ways).ok()?;
    profile.relaunches = relaunches;
    profile.max_sessions = max_sessions;
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
