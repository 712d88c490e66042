//! The profiles that are part of the program.

use std::path::Path;
use std::sync::LazyLock;

use super::profile::Profile;
use super::profile_tables::profiles;
use super::reader::TomlReader;

impl Profile {
    /// The profiles of built_in.toml.
    #[must_use]
    pub fn built_in() -> Vec<Self> {
        static BUILT_IN: LazyLock<Vec<Profile>> = LazyLock::new(|| {
            let mut reader = TomlReader::new(Path::new("built_in.toml"), include_str!("built_in.toml"));
            let mut found = Vec::new();
            if let Some(document) = reader.document() {
                let root = reader.section("", 0, document.get_ref(), &["profile"]);
                found = profiles(&mut reader, root, &[]);
            }
            #[expect(clippy::expect_used, reason = "the text is part of the program, and a test reads it")]
            reader.finish(found).expect("the built-in profiles are well-formed").0
        });
        BUILT_IN.clone()
    }
}
