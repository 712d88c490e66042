//! Trees that were captured from real agents and MCP servers (see `fixtures/agent-trees/README.md`).

use std::path::Path;

use serde::Deserialize;

use crate::config::{Patterns, Profile};
use crate::engine::input::Image;

/// One scenario: the tree before it, and what was left.
#[derive(Deserialize)]
pub(in crate::engine) struct Capture {
    pub(in crate::engine) name: String,
    pub(in crate::engine) procs: Vec<Captured>,
    #[serde(default)]
    pub(in crate::engine) survivors: Vec<Captured>,
    #[serde(default)]
    pub(in crate::engine) left_behind: Vec<Captured>,
}

/// A process as /proc showed it.
#[derive(Clone, Deserialize)]
pub(in crate::engine) struct Captured {
    pub(in crate::engine) pid: u32,
    pub(in crate::engine) ppid: u32,
    #[serde(default)]
    pub(in crate::engine) starttime: u64,
    pub(in crate::engine) comm: String,
    pub(in crate::engine) exe_path: String,
    pub(in crate::engine) argv: Vec<String>,
    #[serde(default)]
    pub(in crate::engine) cmdline_trailing_nuls: u32,
    #[serde(default)]
    pub(in crate::engine) sid: u32,
    pub(in crate::engine) expected_role: String,
}

impl Captured {
    /// What a scan of /proc shows, padding included.
    pub(in crate::engine) fn image(&self) -> Image {
        let padding = std::iter::repeat_n(String::new(), usize::from(self.cmdline_trailing_nuls > 0));
        Image {
            path: self.exe_path.clone(),
            argv: self.argv.iter().cloned().chain(padding).collect(),
            truncated: false,
        }
    }
}

/// All captures, by name.
pub(in crate::engine) fn captures() -> Vec<Capture> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/agent-trees");
    let mut captures = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = std::fs::read_to_string(&path).unwrap();
            captures.extend(text.lines().map(|line| serde_json::from_str::<Capture>(line).unwrap()));
        }
    }
    captures.sort_by(|one, other| one.name.cmp(&other.name));
    captures
}

/// The built-in profiles, and that of the program which stands in for an agent in some captures.
pub(in crate::engine) fn profiles() -> Vec<Profile> {
    let stand_in =
        Patterns { script: vec!["*/fake-agent.mjs".into(), "*/fake-agent.py".into()], ..Patterns::default() };
    let mut profiles = Profile::built_in();
    profiles.push(Profile::new("stand-in", [stand_in]).unwrap());
    profiles
}
