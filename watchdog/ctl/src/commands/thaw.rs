use clap::Args;
use clap_complete::ArgValueCandidates;

use crate::completion;
use crate::error::CtlError;
use crate::output::CommandOutput;
use crate::render::{escape, receipt};
use crate::target::{TargetArg, resolve_all};
use watchdog_api::client::ControlClient;
use watchdog_api::{Planned, ThawRequest};

pub(crate) const HELP: &str = "\
A policy under [actions] can freeze or throttle processes. They stay frozen or throttled until their
finding closes or `thaw` resumes them. `watchdogctl actions` lists them.

Examples:
  watchdogctl thaw
  watchdogctl thaw session:3";

#[derive(Debug, Args)]
pub(crate) struct ThawOptions {
    /// Pids, sessions, pid:N or session:N; default: all frozen and throttled processes
    #[arg(value_name = "SESSION|PID", add = ArgValueCandidates::new(completion::targets))]
    targets: Vec<TargetArg>,
}

pub(crate) fn run(
    client: &ControlClient,
    options: &ThawOptions,
    output: &mut CommandOutput<'_>,
) -> Result<(), CtlError> {
    let subjects = resolve_all(client, &options.targets)?;
    let reply = client.post::<Planned>("/v1/thaw", &ThawRequest { subjects })?;
    output.show(&reply.text, |_| render(&reply.document))
}

fn render(planned: &Planned) -> String {
    if planned.actions.is_empty() {
        return "no process is frozen or throttled\n".into();
    }
    planned.actions.iter().map(|action| format!("resumed {}\n", escape(&receipt::line(action)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use watchdog_api::{ActionKind, ActionState};

    #[test]
    fn resumed_processes_are_listed() {
        assert_eq!(render(&Planned::default()), "no process is frozen or throttled\n");
        let mut held = crate::render::testing::receipt();
        (held.action, held.state) = (ActionKind::Freeze, ActionState::Running);
        held.reason = "memory of a.js grows\u{1b}".into();
        insta::assert_snapshot!(render(&Planned { actions: vec![held], ..Planned::default() }), @r"resumed #7 freeze a\u{1b}[2J.js (pid 41241), sh (pid 41240), by uid 1000: memory of a.js grows\u{1b}");
    }
}
