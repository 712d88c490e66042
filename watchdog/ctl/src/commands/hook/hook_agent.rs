//! The agents that have hooks, and where their settings are.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::Value;

use super::hook_event::HookEvent;
use super::settings_edit::SettingsFormat;
use super::{claude_code, codex, gemini_cli};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HookAgent {
    ClaudeCode,
    Codex,
    GeminiCli,
}

impl HookAgent {
    pub(crate) const ALL: [Self; 3] = [Self::ClaudeCode, Self::Codex, Self::GeminiCli];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini-cli",
        }
    }

    /// The name of its built-in profile.
    pub(super) const fn profile(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::GeminiCli => "gemini",
        }
    }

    /// Its directory in a project or in the home directory, and its settings in there.
    const fn files(self) -> (&'static str, &'static str) {
        match self {
            Self::ClaudeCode => (".claude", "settings.json"),
            Self::Codex => (".codex", "hooks.json"),
            Self::GeminiCli => (".gemini", "settings.json"),
        }
    }

    pub(super) fn in_project(self, project: &Path) -> PathBuf {
        let (directory, file) = self.files();
        project.join(directory).join(file)
    }

    /// `None` if the home directory is unknown. The agents' own variables take precedence.
    pub(crate) fn in_home(self, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        let (directory, file) = self.files();
        let moved = match self {
            Self::ClaudeCode => variable("CLAUDE_CONFIG_DIR"),
            Self::Codex => variable("CODEX_HOME"),
            Self::GeminiCli => variable("GEMINI_CLI_HOME").map(|home| home.join(directory)),
        };
        Some(moved.or_else(|| Some(variable("HOME")?.join(directory)))?.join(file))
    }

    pub(super) const fn format(self) -> SettingsFormat {
        // Gemini CLI strips comments. Claude Code 2.1.197 ignores settings with comments.
        SettingsFormat { comments: matches!(self, Self::GeminiCli), agent: self.name() }
    }

    pub(super) fn settings(self, program: &str) -> Value {
        let command = format!("{program} hook {}", self.name());
        match self {
            Self::ClaudeCode => claude_code::settings(&command),
            Self::Codex => codex::settings(&command),
            Self::GeminiCli => gemini_cli::settings(&command),
        }
    }

    pub(super) fn interpret(self, event: &Value) -> HookEvent {
        match self {
            Self::ClaudeCode => claude_code::interpret(event),
            Self::Codex => codex::interpret(event),
            Self::GeminiCli => gemini_cli::interpret(event),
        }
    }

    /// The output that stops the agent from starting a subagent.
    pub(super) fn denial(self, reason: &str) -> Value {
        match self {
            Self::ClaudeCode => claude_code::denial(reason),
            Self::Codex => codex::denial(reason),
            Self::GeminiCli => gemini_cli::denial(reason),
        }
    }

    /// Advice for the user after the installation.
    pub(super) const fn next_step(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Sessions of Claude Code that run now load it when they are restarted.",
            Self::Codex => {
                "Codex asks you to review a new hook before it runs it: start codex, and open /hooks. Sessions that run \
                 now load it when they are restarted."
            }
            Self::GeminiCli => {
                "Sessions of Gemini CLI that run now load it when they are restarted. Versions without the tool \
                 invoke_agent need the names of your own subagents in the two matchers."
            }
        }
    }
}

/// A variable that is set and not empty.
pub(crate) fn environment(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
