//! The environment of CMD: inherited, extended by the profile, overridden by `--env`.
//!
//! A profile sets only variables that are not set. In variables that hold options, it adds those options that are not
//! given; for repeatable options, those values that are not given.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::program::Environment;

pub(super) fn merge(
    inherited: Environment,
    profile: &BTreeMap<String, String>,
    own: &[(OsString, OsString)],
) -> Environment {
    let mut merged = inherited;
    for (name, value) in profile.iter().filter(|(name, value)| is_valid(name, value)) {
        match (merged.iter_mut().find(|(known, _)| known == OsStr::new(name)), RuntimeOptions::of(name)) {
            (None, _) => merged.push((name.into(), value.into())),
            // A value that is not UTF-8 stays unchanged.
            (Some((_, known)), Some(options)) => {
                if let Some(text) = known.to_str() {
                    *known = options.join(text, value).into();
                }
            }
            (Some(_), None) => {}
        }
    }
    for (name, value) in own {
        merged.retain(|(known, _)| known != name);
        merged.push((name.clone(), value.clone()));
    }
    merged
}

/// What execve(2) can represent.
fn is_valid(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// Parses `K=V` of `--env`.
pub(super) fn parse_assignment(text: OsString) -> Result<(OsString, OsString), String> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(end) if end > 0 => {
            Ok((OsStr::from_bytes(&bytes[..end]).to_owned(), OsStr::from_bytes(&bytes[end + 1..]).to_owned()))
        }
        _ => Err("expected NAME=VALUE".into()),
    }
}

/// Variables that hold a list of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuntimeOptions {
    Node,
    Java,
}

impl RuntimeOptions {
    fn of(variable: &str) -> Option<Self> {
        match variable {
            "NODE_OPTIONS" => Some(Self::Node),
            "JAVA_TOOL_OPTIONS" | "JDK_JAVA_OPTIONS" => Some(Self::Java),
            _ => None,
        }
    }

    /// The user's options, followed by those of the profile that are not among them.
    fn join(self, user: &str, profile: &str) -> String {
        let given: Vec<String> = self.split(user).iter().map(|option| self.identity(option)).collect();
        let mut joined = user.trim_end().to_owned();
        for option in self.split(profile) {
            if !given.contains(&self.identity(option)) {
                if !joined.is_empty() {
                    joined.push(' ');
                }
                joined.push_str(option);
            }
        }
        joined
    }

    /// Splits a list into options with their values: `--require "a b.js"` is one.
    fn split(self, list: &str) -> Vec<&str> {
        let mut options: Vec<&str> = Vec::new();
        let mut start = 0;
        for (from, word) in self.words(list) {
            match options.last_mut() {
                // A separate value belongs to the option before it.
                Some(last) if !word.starts_with('-') => *last = &list[start..from + word.len()],
                _ => {
                    options.push(word);
                    start = from;
                }
            }
        }
        options
    }

    /// Words with their offsets. Quotes: `"` for Node, with `\` as escape; `"` and `'` for Java.
    fn words(self, list: &str) -> Vec<(usize, &str)> {
        let mut words = Vec::new();
        let mut start = None;
        let mut quote = None;
        let mut escaped = false;
        for (i, c) in list.char_indices() {
            let is_quote = c == '"' || (c == '\'' && self == Self::Java);
            if escaped {
                escaped = false;
            } else if let Some(open) = quote {
                match c {
                    '\\' if self == Self::Node => escaped = true,
                    c if c == open => quote = None,
                    _ => {}
                }
            } else if c.is_ascii_whitespace() {
                if let Some(start) = start.take() {
                    words.push((start, &list[start..i]));
                }
                continue;
            } else if is_quote {
                quote = Some(c);
            }
            start.get_or_insert(i);
        }
        words.extend(start.map(|start| (start, &list[start..])));
        words
    }

    /// Two options with the same identity replace each other: the name, and for repeatable options the value too.
    fn identity(self, option: &str) -> String {
        let end = option.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(option.len());
        let plain = |text: &str| text.replace(['"', '\''], "");
        let name = plain(&option[..end]);
        let name = match self {
            // Node accepts `--max_old_space_size` too.
            Self::Node => name.replace('_', "-"),
            Self::Java => name,
        };
        if let Some(name) = self.repeatable(&name) {
            let value = option[end..].trim_start_matches(|c: char| c == '=' || c.is_ascii_whitespace());
            return format!("{name} {}", plain(value).trim_end());
        }
        if self == Self::Java {
            if let Some(switched) = name.strip_prefix("-XX:") {
                return format!("-XX:{}", switched.trim_start_matches(['+', '-']));
            }
            // The value follows directly: -Xmx512m.
            if let Some(size) = ["-Xmx", "-Xms", "-Xss", "-Xmn"].into_iter().find(|size| name.starts_with(size)) {
                return size.into();
            }
        }
        name
    }

    /// The full name of a repeatable option, which adds a module, a file or a rule.
    fn repeatable(self, name: &str) -> Option<&str> {
        let full = match (self, name) {
            (Self::Node, "-r") => "--require",
            (Self::Node, "-C") => "--conditions",
            (Self::Node, "--loader") => "--experimental-loader",
            _ => name,
        };
        let known: &[&str] = match self {
            Self::Node => &NODE_REPEATABLE,
            Self::Java => &JAVA_REPEATABLE,
        };
        known.contains(&full).then_some(full)
    }
}

/// See <https://nodejs.org/api/cli.html>.
const NODE_REPEATABLE: [&str; 10] = [
    "--require",
    "--import",
    "--experimental-loader",
    "--conditions",
    "--disable-warning",
    "--env-file",
    "--env-file-if-exists",
    "--allow-fs-read",
    "--allow-fs-write",
    "--watch-path",
];
/// See java(1).
const JAVA_REPEATABLE: [&str; 7] = [
    "--add-exports",
    "--add-modules",
    "--add-opens",
    "--add-reads",
    "--enable-native-access",
    "--patch-module",
    "-XX:CompileCommand",
];

#[cfg(test)]
#[path = "env_tests.rs"]
mod tests;
