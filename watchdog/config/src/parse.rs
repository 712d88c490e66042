//! From TOML to [`Config`], with errors that name file, line, key and what is allowed.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::actions;
use super::detect;
use super::diagnostic::{ConfigError, Diagnostic};
use super::fleet;
use super::gate;
use super::profile::Profile;
use super::profile_tables;
use super::reader::{Section, TomlReader, assign, assign_count};
use super::reclaim;
use super::tables::{
    CloseWatch, Config, DaemonConfig, HistoryConfig, LeaksConfig, OrphansConfig, Sensitivity, TrackingConfig,
};
use super::values::{Size, ValueError};
use watchdog_types::Bytes;

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
    "reclaim",
    "actions",
    "history",
    "fleet",
    "profile",
];

/// Entries of the kernel's hash map. Linux has no pid above 2^22.
const MAX_PROCESSES: RangeInclusive<u32> = 256..=4_194_304;
const JOURNAL_EVENTS: RangeInclusive<u32> = 100..=1_000_000;
const SAMPLE_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3_600);
const RETENTION: RangeInclusive<Duration> = Duration::from_secs(3_600)..=Duration::from_secs(3_650 * 86_400);
const HISTORY_SIZE: RangeInclusive<Bytes> = Bytes::from_mib(1)..=Bytes::from_mib(1 << 20);
/// With a lower limit every program would be near it.
const MIN_LIMIT: Bytes = Bytes::from_mib(64);
const WITHIN: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 86_400);
const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(86_400);

/// Reads a configuration from the text of `file`, whose name appears in errors only.
///
/// # Errors
/// When the text is not TOML, has an unknown key, or an invalid value. The error lists all problems.
pub fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
    parse_with_warnings(file, text).map(|(config, _)| config)
}

/// As [`parse`], with a warning for each deprecated key.
///
/// # Errors
/// As [`parse`].
pub fn parse_with_warnings(file: &Path, text: &str) -> Result<(Config, Vec<Diagnostic>), ConfigError> {
    let mut reader = TomlReader::new(file, text);
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
        reclaim::reclaim(&mut reader, root, &mut config.reclaim);
        fleet::fleet(&mut reader, root, &mut config.fleet);
        for profile in profile_tables::profiles(&mut reader, root, &Profile::built_in()) {
            match config.profiles.iter_mut().find(|built_in| built_in.name == profile.name) {
                Some(built_in) => *built_in = profile,
                // Before the built-in ones: the first profile that matches wins.
                None => config.profiles.insert(0, profile),
            }
        }
    }
    reader.finish(config)
}

fn daemon<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, daemon: &mut DaemonConfig) {
    let Some(table) = reader.table(root, "daemon", "[daemon]", &["listen", "journal_events"]) else { return };
    let expected = "an address with its port, as in \"127.0.0.1:9719\" or \"[::1]:9719\", or \"off\"";
    let listen = reader.parsed(table, "listen", expected, |text| match text {
        "off" => Ok(None),
        address => address.parse().map(Some).map_err(|_| format!("not {expected}")),
    });
    assign(&mut daemon.listen, listen);
    assign_count(&mut daemon.journal_events, reader.integer(table, "journal_events", JOURNAL_EVENTS));
}

fn tracking<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, tracking: &mut TrackingConfig) {
    let keys = &["close_watch", "sample_interval", "max_processes", "built_in_profiles"];
    let Some(table) = reader.table(root, "tracking", "[tracking]", keys) else { return };
    let words = &[("auto", CloseWatch::Auto), ("always", CloseWatch::Always), ("never", CloseWatch::Never)];
    assign(&mut tracking.close_watch, reader.choice(table, "close_watch", "\"auto\", \"always\" or \"never\"", words));
    assign(&mut tracking.sample_interval, reader.duration(table, "sample_interval", SAMPLE_INTERVAL));
    assign(&mut tracking.max_processes, reader.integer(table, "max_processes", MAX_PROCESSES));
    assign(&mut tracking.built_in_profiles, reader.boolean(table, "built_in_profiles").map(|found| found.value));
}

fn orphans<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, orphans: &mut OrphansConfig) {
    let keys = &["grace", "keep", "kept_memory_limit", "detached_after", "detached_memory"];
    let Some(table) = reader.table(root, "orphans", "[orphans]", keys) else { return };
    assign(&mut orphans.grace, reader.duration(table, "grace", GRACE));
    assign(&mut orphans.keep, reader.globs(table, "keep"));
    assign(&mut orphans.kept_memory_limit, reader.size_or_zero(table, "kept_memory_limit"));
    assign(&mut orphans.detached_after, reader.duration(table, "detached_after", GRACE));
    assign(&mut orphans.detached_memory, reader.size_or_zero(table, "detached_memory"));
}

fn leaks<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, leaks: &mut LeaksConfig) {
    let keys = &["sensitivity", "limit", "warn_within", "critical_within", "ignore"];
    let Some(table) = reader.table(root, "leaks", "[leaks]", keys) else { return };
    let words = &[("low", Sensitivity::Low), ("normal", Sensitivity::Normal), ("high", Sensitivity::High)];
    assign(&mut leaks.sensitivity, reader.choice(table, "sensitivity", "\"low\", \"normal\" or \"high\"", words));
    let limit = reader.parsed(table, "limit", "a size, as in \"4GiB\" or \"25%\"", |text| match text.parse() {
        Ok(Size::Bytes(bytes)) if bytes < MIN_LIMIT => Err("out of range: 64MiB and more is allowed".to_owned()),
        Ok(size) => Ok(Some(size)),
        Err(error) => Err(ValueError::to_string(&error)),
    });
    assign(&mut leaks.limit, limit);
    assign(&mut leaks.warn_within, reader.duration(table, "warn_within", WITHIN));
    assign(&mut leaks.critical_within, reader.duration(table, "critical_within", WITHIN));
    assign(&mut leaks.ignore, reader.globs(table, "ignore"));
}

fn history<'t>(reader: &mut TomlReader<'t>, root: Section<'_, 't>, history: &mut HistoryConfig) {
    let Some(table) = reader.table(root, "history", "[history]", &["retention", "max_size"]) else { return };
    assign(&mut history.retention, reader.duration(table, "retention", RETENTION));
    let size = reader.parsed(table, "max_size", "a size, as in \"256MiB\"", |text| match text.parse() {
        Ok(Size::Bytes(bytes)) if HISTORY_SIZE.contains(&bytes) => Ok(bytes),
        Ok(_) => Err("out of range: 1MiB to 1TiB is allowed".to_owned()),
        Err(error) => Err(ValueError::to_string(&error)),
    });
    assign(&mut history.max_size, size);
}
