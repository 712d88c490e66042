//! packaging/config.toml, which shows every key with its default.

/// The text of the file. Its keys are commented out.
pub const EXAMPLE: &str = include_str!("../../../packaging/config.toml");

/// The example with its keys switched on: a comment that is a key has no space after the `#`.
#[must_use]
pub fn uncommented_example() -> String {
    let lines = EXAMPLE.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => key,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Every key that has a default, with its default, as TOML.
#[must_use]
pub fn shown_defaults() -> String {
    let text = uncommented_example();
    text.split_once("\n[[profile]]").map_or(text.clone(), |(keys, _)| keys.to_owned())
}
