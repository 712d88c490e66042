//! Texts that the command line renders too, so that both say the same.

use watchdog_api::client::ControlClient;
use watchdog_api::{ActionTarget, Evidence, Fleet, Process, Receipt, ReclaimRun, Record};

/// Renderings of the command line.
#[derive(Clone, Copy, Debug)]
pub struct Prose {
    /// The command of a process, without arguments that may be prompts or secrets.
    pub command: fn(&Process) -> String,
    /// The facts of a finding, one sentence each.
    pub facts: fn(&Evidence) -> Vec<String>,
    /// An action with its reason or result.
    pub receipt: fn(&Receipt) -> String,
    /// The signals sent to a target.
    pub sent: fn(&ActionTarget) -> String,
    /// What became of a target.
    pub outcome: fn(&Receipt, &ActionTarget) -> String,
    /// What a page-out did or would do, one sentence each.
    pub page_out: fn(&ReclaimRun) -> Vec<String>,
    /// Whether the store of the fleet answers, and what follows.
    pub fleet_store: fn(&Fleet) -> String,
    /// A record of the history: its kind, its session and a sentence.
    pub record: fn(&Record) -> (String, Option<u64>, String),
    /// The JSON document of `plan --json`, or the reason why there is none.
    pub plan: fn(&ControlClient, &PlanQuestion) -> Result<String, String>,
}

/// Options of `plan`, as the user typed them. Empty ones are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanQuestion {
    pub agents: String,
    pub profile: String,
    pub memory: String,
    pub leak: String,
}
