//! The example configuration says what the program does.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::path::Path;

use watchdog::config::{Config, parse};

const EXAMPLE: &str = include_str!("../../packaging/config.toml");

/// The text with its commented keys switched on: those have no space after the `#`.
fn switched_on(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn read(text: &str) -> Config {
    parse(Path::new("config.toml"), text).unwrap()
}

#[test]
fn the_example_as_it_is_installed_changes_nothing() {
    assert_eq!(read(EXAMPLE), Config::default());
}

#[test]
fn the_defaults_that_the_example_shows_are_the_defaults() {
    let (keys, _profiles) = EXAMPLE.split_once("#[[profile]]").unwrap();
    assert_ne!(switched_on(keys), keys);
    assert_eq!(read(&switched_on(keys)), Config::default());
}

#[test]
fn the_profiles_that_the_example_shows_are_valid() {
    let config = read(&switched_on(EXAMPLE));
    for name in ["my-agent", "my-other-agent"] {
        assert!(config.profiles.iter().any(|profile| profile.name == name), "{name}");
    }
}
