//! The environment of CMD: what it inherits, what its profile adds, and what `--env` says.
//!
//! The user's own value stands: a profile sets only what is not set. Lists of options grow instead: of the profile's
//! options those are added that are not given already; of an option that may be given several times, each value that is
//! not. `--env` overrules both.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::program::Environment;

/// The environment of CMD.
pub(super) fn merge(
    inherited: Environment,
    profile: &BTreeMap<String, String>,
    own: &[(OsString, OsString)],
) -> Environment {
    let mut merged = inherited;
    for (name, value) in profile.iter().filter(|(name, value)| can_stand(name, value)) {
        match (merged.iter_mut().find(|(known, _)| known == OsStr::new(name)), Options::of(name)) {
            (None, _) => merged.push((name.into(), value.into())),
            // What is no text cannot be read, and stays as it is.
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

/// `execve` cannot pass on anything else.
fn can_stand(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

/// `K=V` of `--env`.
///
/// # Errors
/// When it is not that; in a sentence.
pub(super) fn assignment(text: OsString) -> Result<(OsString, OsString), String> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(end) if end > 0 => {
            Ok((OsStr::from_bytes(&bytes[..end]).to_owned(), OsStr::from_bytes(&bytes[end + 1..]).to_owned()))
        }
        _ => Err("a variable is given as NAME=VALUE".into()),
    }
}

/// Variables that hold a list of options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Options {
    Node,
    Java,
}

impl Options {
    fn of(variable: &str) -> Option<Self> {
        match variable {
            "NODE_OPTIONS" => Some(Self::Node),
            "JAVA_TOOL_OPTIONS" | "JDK_JAVA_OPTIONS" => Some(Self::Java),
            _ => None,
        }
    }

    /// The user's options as they are written, and behind them those of the profile that are not among them.
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

    /// Each option with the value behind it, as it is written: `--require "a b.js"` is one.
    fn split(self, list: &str) -> Vec<&str> {
        let mut options: Vec<&str> = Vec::new();
        let mut start = 0;
        for (from, word) in self.words(list) {
            match options.last_mut() {
                // A value that stands by itself belongs to the option before it.
                Some(last) if !word.starts_with('-') => *last = &list[start..from + word.len()],
                _ => {
                    options.push(word);
                    start = from;
                }
            }
        }
        options
    }

    /// The words with where they begin. Quotes hold spaces: `"` for Node, which knows `\` within them, both kinds for Java.
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

    /// What makes two options the same one: the name; of those that count each time they are given, the value as well.
    fn identity(self, option: &str) -> String {
        let end = option.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(option.len());
        let plain = |text: &str| text.replace(['"', '\''], "");
        let name = plain(&option[..end]);
        let name = match self {
            // Node takes `--max_old_space_size` too.
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
            // The value follows at once: -Xmx512m.
            if let Some(size) = ["-Xmx", "-Xms", "-Xss", "-Xmn"].into_iter().find(|size| name.starts_with(size)) {
                return size.into();
            }
        }
        name
    }

    /// The full name of an option of which each counts: it adds a module, a file or a rule to those before it.
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

/// Each of these counts, by <https://nodejs.org/api/cli.html>.
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
/// Each of these counts, by the manual page of `java`.
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
