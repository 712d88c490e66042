//! The example configuration says what the program does.

#![expect(clippy::unwrap_used, reason = "clippy exempts test functions, and not what they share")]

use std::path::Path;

use watchdog_config::{Config, EXAMPLE, parse, shown_defaults, uncommented_example};

fn read(text: &str) -> Config {
    parse(Path::new("config.toml"), text).unwrap()
}

#[test]
fn installed_example_changes_nothing() {
    assert_eq!(read(EXAMPLE), Config::default());
}

#[test]
fn shown_defaults_are_defaults() {
    assert!(shown_defaults().contains("\nenforce = false\n"));
    assert_eq!(read(&shown_defaults()), Config::default());
}

#[test]
fn shown_profiles_are_valid() {
    let config = read(&uncommented_example());
    for name in ["my-agent", "my-other-agent"] {
        assert!(config.profiles.iter().any(|profile| profile.name == name), "{name}");
    }
}
