//! Compiled lists of globs.

use std::fmt;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// A list of globs of which any one may match.
///
/// `*` and `?` also match `/`. `[a-z]` and `{a,b}` work as in a shell. A pattern that begins with `*/` also matches the bare
/// name, since a program found through PATH may have only that in argv\[0\].
#[derive(Clone, Default)]
pub struct Globs {
    patterns: Vec<String>,
    set: GlobSet,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern:?} is not a glob: {reason}")]
pub struct GlobError {
    pub pattern: String,
    pub reason: String,
}

impl Globs {
    /// # Errors
    /// When one of them is empty or not a glob.
    pub fn new(patterns: Vec<String>) -> Result<Self, GlobError> {
        let refuse = |pattern: &str, reason: String| GlobError { pattern: pattern.to_owned(), reason };
        let mut set = GlobSetBuilder::new();
        for pattern in &patterns {
            if pattern.is_empty() {
                return Err(refuse(pattern, "empty".to_owned()));
            }
            let bare = pattern.strip_prefix("*/").filter(|rest| !rest.is_empty());
            for form in std::iter::once(pattern.as_str()).chain(bare) {
                let glob = GlobBuilder::new(form).literal_separator(false).build();
                set.add(glob.map_err(|error| refuse(pattern, error.kind().to_string()))?);
            }
        }
        let set = set.build().map_err(|error| refuse(&patterns.join(", "), error.kind().to_string()))?;
        Ok(Self { patterns, set })
    }

    /// Whether any pattern matches; `false` without patterns.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        self.set.is_match(text)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }
}

impl PartialEq for Globs {
    fn eq(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }
}

impl fmt::Debug for Globs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.patterns.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("*/claude", "/usr/bin/claude", true)]
    #[case("*/claude", "claude", true)]
    #[case("*/claude", "./claude", true)]
    #[case("*/claude", "/usr/bin/myclaude", false)]
    #[case("*/claude", "/home/claude/run", false)]
    #[case("*/a/*/c.js", "/x/a/b/d/c.js", true)]
    #[case("/usr/bin/x", "/usr/bin/x", true)]
    #[case("/usr/bin/x", "x", false)]
    #[case("*/v{1,2}[0-9]", "/y/v27", true)]
    #[case("-m aider", "-m aider", true)]
    fn match_as_documented(#[case] pattern: &str, #[case] text: &str, #[case] matches: bool) {
        assert_eq!(Globs::new(vec![pattern.into()]).unwrap().matches(text), matches);
    }

    #[test]
    fn no_pattern_matches_nothing() {
        assert!(!Globs::default().matches(""));
    }

    #[rstest]
    #[case("[a")]
    #[case("{a")]
    #[case("")]
    fn invalid_globs_rejected(#[case] pattern: &str) {
        assert_eq!(Globs::new(vec![pattern.into()]).unwrap_err().pattern, pattern);
    }
}
