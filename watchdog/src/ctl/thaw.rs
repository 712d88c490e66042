//! `watchdogctl thaw`: lets go of what was frozen or throttled.

use clap::Args;

use super::adopt::{self, Target};
use super::client::Client;
use super::failure::Failure;
use super::output::Output;
use super::receipt;
use crate::api::{Planned, ThawRequest};

pub(super) const HELP: &str = "\
Policy stops or throttles processes where [actions] says so, until their finding closes or somebody lets them go.
`watchdogctl actions` lists what is held.

Examples:
  watchdogctl thaw
  watchdogctl thaw session:3";

/// What to let go.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only these: pids, numbers of sessions, `pid:N` or `session:N`; without any, all that is held
    #[arg(value_name = "SESSION|PID")]
    targets: Vec<Target>,
}

pub(super) async fn run(client: &Client, options: &Options, output: &mut Output<'_>) -> Result<(), Failure> {
    let subjects = adopt::subjects(client, &options.targets).await?;
    let answer = client.post::<Planned>("/v1/thaw", &ThawRequest { subjects }).await?;
    output.show(&answer.text, |_| render(&answer.document))
}

fn render(planned: &Planned) -> String {
    if planned.actions.is_empty() {
        return "nothing is frozen or throttled\n".into();
    }
    planned.actions.iter().map(|action| format!("let go: {}\n", super::show::visible(&receipt::line(action)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ActionKind, ActionState};

    #[test]
    fn what_is_let_go_is_named_and_that_nothing_was_is_said() {
        assert_eq!(render(&Planned::default()), "nothing is frozen or throttled\n");
        let mut held = receipt::tests::receipt();
        (held.action, held.state) = (ActionKind::Freeze, ActionState::Running);
        held.reason = "memory of a.js grows\u{1b}".into();
        insta::assert_snapshot!(render(&Planned { actions: vec![held], ..Planned::default() }), @r"let go: #7 freeze a\u{1b}[2J.js (pid 41241), sh (pid 41240), by uid 1000: memory of a.js grows\u{1b}");
    }
}
