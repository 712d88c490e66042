//! `watchdogctl end`: ends a whole session, its agent too.

use std::process::ExitCode;

use clap::Args;

use super::act::{self, How, Order};
use super::adopt::{self, Target};
use super::client::Client;
use super::failure::Failure;
use super::output::Output;

pub(super) const HELP: &str = "\
The agent and everything that it started get SIGTERM, children before their parents, and SIGKILL if they are there after
[actions] kill_after. What is meant to stay is left alone, unless --kept is given: then it ends too. Each user may do
this to their own processes, root to all. With --kept, a pid ends that process and what it started. A process that the
user may not signal by the rule of kill(2) is spared; the exit code is 77 when nothing else could be done. `reap` ends
only what dead agents left behind.

Examples:
  watchdogctl end 3 --dry-run
  watchdogctl end 3
  watchdogctl end --kept pid:41231
  watchdogctl end 3 --yes --no-wait";

/// What to end, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The session, by its number; with --kept also the pid of a process, as in `adopt`
    #[arg(value_name = "SESSION")]
    target: Target,
    /// Ends what is meant to stay too
    #[arg(long)]
    kept: bool,
    #[command(flatten)]
    how: How,
}

pub(super) async fn run(client: &Client, options: &Options, output: &mut Output<'_>) -> Result<ExitCode, Failure> {
    let order = match options.target {
        Target::Session(id) if !options.kept => Order::End(id),
        Target::Number(id) if !options.kept => Order::End(u64::from(id)),
        Target::Pid(_) if !options.kept => {
            return Err(Failure::Usage("a session is given by its number, such as 3 or session:3".into()));
        }
        target => {
            act::may_begin(options.how, output)?;
            let subjects = adopt::subjects(client, &[target]).await?;
            let subject = subjects.first().copied();
            Order::EndKept(subject.ok_or_else(|| Failure::Usage("a session or a process is missing".into()))?)
        }
    };
    act::run(client, &order, options.how, output).await
}
